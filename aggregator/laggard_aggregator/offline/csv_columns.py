"""The columns of a CSV file that a run reads."""

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from laggard_aggregator.detect.settings import LOADS


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Which columns to read.

    `group_by`: a column's name, `file` for one group a file, None for one group. `zone`: of times that name
    none; None for UTC where a format's times are in UTC, and for no zone elsewhere.
    """

    time: str = "ts"
    component: str = "disk_id"
    metrics: tuple[str, ...] = ("latency",)
    load: str | None = None
    group_by: str | None = None
    zone: ZoneInfo | None = None

    @property
    def load_name(self) -> str | None:
        """Name of the load for the detectors: throughput, unless its column is named as another load."""
        return self.load if self.load is None or self.load in LOADS else "throughput"

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [*self.metrics, *([self.load] if self.load else [])]

    @property
    def wanted(self) -> list[str]:
        """All columns, each once."""
        by = [self.group_by] if self.group_by not in (None, "file") else []
        return list(dict.fromkeys([self.time, self.component, *self.numbers, *by]))
