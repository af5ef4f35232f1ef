"""The collector `mmpmon`: a row for each mounted file system of Storage Scale, and one for its waiters."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Reading
from laggard_agent.collectors.mmpmon.report import KEYS, MmpmonReport, parse_report
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.report_file import ReportFile
from laggard_agent.collectors.rows import ColumnTable, OnceLogged, OwnRow, gauges, raise_first
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Field, FieldKind

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
class Mmpmon:
    """Reads the report when it is another one."""

    name = "mmpmon"
    settings = MmpmonSettings
    sources: ClassVar = {"gpfs_fs": FIELDS, "mmpmon": NODE_FIELDS}

    def __init__(self, settings: MmpmonSettings, context: Context) -> None:
        self._report: ReportFile[MmpmonReport] = ReportFile(settings.report, parse_report)
        self._path = settings.report
        self._now = context.now
        self._rows = ColumnTable("gpfs_fs", FIELDS)
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing, self._odd = OnceLogged(self.name), OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """File systems, then the node's own row. Raises CollectError after both."""
        at = self._now()
        failures: list[CollectError] = []
        report, age = self._report.read(at, failures)
        chosen = list(report.file_systems.values())[:MOST_FILE_SYSTEMS]
        if chosen:
            yield self._rows.table(at, ((component, row, False) for component, row in chosen))
        told = report.waiters
        waiters = (
            (None,) * 6
            if told is None
            else (told.number, told.io, told.long, told.long_io, told.longest_ms, told.longest_io_ms)
        )
        file_systems = len(report.file_systems)
        yield self._own.of(at, file_systems, *waiters, age, len(failures), report.odd)
        self._nothing.update(age is None and not failures, f"no report {self._path}")
        self._odd.update(bool(report.odd), f"{report.odd} lines not understood")
        raise_first(failures)
