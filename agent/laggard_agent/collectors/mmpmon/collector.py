"""The collector `mmpmon`: a row for each mounted file system of Storage Scale, and one for its waiters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.interface import Context
from laggard_agent.collectors.mmpmon.report import KEYS, MmpmonReport, parse_report
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.report_file import ReportCollector, ReportFile
from laggard_agent.collectors.rows import Counters, gauges
from laggard_common.wire.schema import Component, Field, FieldKind

FIELDS = tuple(Field(name, unit="bytes" if name.endswith("_bytes") else "1") for name in KEYS.values())
NODE_FIELDS = (
    *gauges("file_systems", "waiters", "io_waiters", "long_waiters", "long_io_waiters"),
    *(Field(name, FieldKind.GAUGE, "ms") for name in ("longest_ms", "longest_io_ms")),
    Field("report_age", FieldKind.GAUGE, "s"),
    *gauges("files_failed", "values_not_understood"),
)
MOST_FILE_SYSTEMS = 256


@dataclass(frozen=True, slots=True)
class MmpmonSettings:
    """`[mmpmon]`. `report`: a file with the output of mmpmon and mmdiag."""

    report: Path = Path("/run/gpfs-report.txt")


@register
class Mmpmon(ReportCollector[MmpmonReport]):
    """Reads the report when it was replaced."""

    name = "mmpmon"
    settings = MmpmonSettings
    sources: ClassVar = {"gpfs_fs": FIELDS, "mmpmon": NODE_FIELDS}

    def __init__(self, settings: MmpmonSettings, context: Context) -> None:
        super().__init__(settings.report, ReportFile(settings.report, parse_report), context)

    def _told(
        self, report: MmpmonReport
    ) -> tuple[Sequence[tuple[Component, Counters]], Sequence[int | None]]:
        held = report.waiters
        waiters = (
            (None,) * 6
            if held is None
            else (held.number, held.io, held.long, held.long_io, held.longest_ms, held.longest_io_ms)
        )
        chosen = list(report.file_systems.values())[:MOST_FILE_SYSTEMS]
        return chosen, (len(report.file_systems), *waiters)
