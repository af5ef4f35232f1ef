"""The collector `smart`: a row for each disk of a report of smartctl."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.diskstats.identities import Identities
from laggard_agent.collectors.diskstats.sysfs_device import Facts
from laggard_agent.collectors.interface import Context
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.report_file import ReportCollector, ReportFile
from laggard_agent.collectors.rows import Counters, gauges
from laggard_agent.collectors.smart.report import COUNTERS, STATES, SmartReport, parse_report
from laggard_common.config import between, checked
from laggard_common.wire.schema import Component, Field, FieldKind

FIELDS = (*map(Field, COUNTERS), *gauges(*STATES))
NODE_FIELDS = (
    *gauges("disks", "left_out"),
    Field("report_age", FieldKind.GAUGE, "s"),
    *gauges("files_failed", "values_not_understood"),
)
MOST_REPORT_SECONDS = 2 * 3600


@dataclass(frozen=True, slots=True)
class SmartSettings:
    """`[smart]`. `report`: a file with smartctl's documents. `max_disks`: with a row."""

    report: Path = Path("/run/smart-report.json")
    max_disks: int = field(default=512, metadata=checked(between(0, 4096)))


@register
class Smart(ReportCollector[SmartReport]):
    """Reads the report when it was replaced.

    The id of a disk is its serial number: another one may have its name after a boot, and its own counts.
    """

    name = "smart"
    settings = SmartSettings
    sources: ClassVar = {"disk_health": FIELDS, "smart": NODE_FIELDS}

    def __init__(self, settings: SmartSettings, context: Context) -> None:
        report = ReportFile(settings.report, parse_report, MOST_REPORT_SECONDS)
        super().__init__(settings.report, report, context)
        self._most = settings.max_disks
        self._identities = Identities()

    def _told(self, report: SmartReport) -> tuple[Sequence[tuple[Component, Counters]], Sequence[int | None]]:
        chosen = dict(list(report.disks.items())[: self._most])
        facts = {
            name: Facts((serial,) if serial else (), kind=("", model, serial))
            for name, (model, serial) in report.serials.items()
        }
        ids = self._identities.assign({name: facts[name] for name in chosen})
        rows = [(Component(ids[name], name), row) for name, row in chosen.items()]
        return rows, (len(rows), len(report.disks) - len(rows))
