"""The collector `smart`: a row for each disk of a report of smartctl."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Reading
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.report_file import ReportFile
from laggard_agent.collectors.rows import ColumnTable, OnceLogged, OwnRow, gauges, named, raise_first
from laggard_agent.collectors.smart.report import COUNTERS, STATES, SmartReport, parse_report
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Field, FieldKind

FIELDS = (*map(Field, COUNTERS), *gauges(*STATES))
NODE_FIELDS = (
    *gauges("disks"),
    Field("report_age", FieldKind.GAUGE, "s"),
    *gauges("left_out", "files_failed", "values_not_understood"),
)
MOST_REPORT_SECONDS = 2 * 3600


@dataclass(frozen=True, slots=True)
class SmartSettings:
    """`[smart]`. `report`: a file with smartctl's documents. `max_disks`: with a row."""

    report: Path = Path("/run/smart-report.json")
    max_disks: int = field(default=512, metadata=checked(between(0, 4096)))


@register
class Smart:
    """Reads the report when it is another one."""

    name = "smart"
    settings = SmartSettings
    sources: ClassVar = {"disk_health": FIELDS, "smart": NODE_FIELDS}

    def __init__(self, settings: SmartSettings, context: Context) -> None:
        self._settings = settings
        self._report: ReportFile[SmartReport] = ReportFile(settings.report, parse_report, MOST_REPORT_SECONDS)
        self._now = context.now
        self._rows = ColumnTable("disk_health", FIELDS)
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing, self._odd = OnceLogged(self.name), OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """Disks, then the node's own row. Raises CollectError after both."""
        at = self._now()
        failures: list[CollectError] = []
        report, age = self._report.read(at, failures)
        most = self._settings.max_disks
        chosen = list(report.disks.items())[:most]
        if chosen:
            yield self._rows.table(at, ((named(name), row, False) for name, row in chosen))
        left_out = len(report.disks) - len(chosen)
        yield self._own.of(at, len(chosen), age, left_out, len(failures), report.odd)
        self._nothing.update(age is None and not failures, f"no report {self._settings.report}")
        self._odd.update(bool(report.odd), f"{report.odd} lines not understood")
        raise_first(failures)
