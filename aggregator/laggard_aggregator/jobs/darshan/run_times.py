"""Times of a log within its run: those outside of it are unknown, and a run without an end has one derived.

Darshan's times count from the start of the job. A clock that was set, or a damaged record, gives times before
the start or after the end (darshan-hpc/darshan#75, #208, #229). A log of a job that was killed has no end:
its records are whole, and the last of their times is the least that the job lasted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan import tables
from laggard_aggregator.jobs.darshan.darshan_log import LogHead, ModuleRecords
from laggard_common.errors import InputError

MAX_SECONDS: Final = 1e8
"""Limit of times within a run, three years: those of a damaged log must not overflow."""
_FIRST_NS: Final = 631_152_000 * 10**9
_LAST_NS: Final = 7_258_118_400 * 10**9
"""Begin and end of the years in which logs are believed to have been written, 1990 to 2199."""
_TOLERANCE_SECONDS: Final = 2.0
"""Older logs have whole seconds of start and end; clocks of nodes drift."""
_MOST_THREADS: Final = 1024
"""Threads of a process, whose calls count together."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The run of a log: its start, microseconds since the epoch, and its length in seconds.

    `has_end`: the log has one; else `seconds` is the last time of its records.
    """

    start_us: int
    seconds: float
    has_end: bool

    @classmethod
    def of(cls, path: str, head: LogHead, modules: Iterable[ModuleRecords]) -> "RunTimes":
        """The run of a log. Raises InputError for times that cannot be right."""
        if head.end_ns > 0:
            if not _FIRST_NS <= head.start_ns <= head.end_ns + 10**9 <= _LAST_NS:
                raise InputError(path, "damaged: its times of start and end cannot be right")
            return cls(head.start_ns // 1000, max(head.end_ns - head.start_ns, 0) / 1e9, True)
        if not _FIRST_NS <= head.start_ns <= _LAST_NS:
            raise InputError(path, "damaged: its time of start cannot be right")
        ends = [
            values for own in modules for name, values in own.times.items() if name.endswith("_TIMESTAMP")
        ]
        last = max((float(bounded(times).max()) for times in ends if times.size), default=0.0)
        return cls(head.start_ns // 1000, max(last, 0.0), False)

    @property
    def end_us(self) -> int:
        """End, microseconds since the epoch."""
        return self.start_us + round(self.seconds * 1e6)

    def is_within(self, seconds: Seconds) -> NDArray[np.bool_]:
        """Times that lie in the run."""
        inside: NDArray[np.bool_] = (seconds >= 0) & (seconds <= self.seconds + _TOLERANCE_SECONDS)
        return inside

    def interval(self, begin: Seconds, end: Seconds) -> tuple[pa.Array, pa.Array]:
        """Start and end of records (R,), microseconds since the epoch.

        Null where there was no such operation, and where one of both is outside of the run.
        """
        is_unknown = ((begin <= 0) & (end <= 0)) | ~(self.is_within(begin) & self.is_within(end))
        return self._times(begin, is_unknown), self._times(end, is_unknown)

    def requests(self, begin: Seconds, end: Seconds) -> tuple[pa.Array, pa.Array]:
        """The same of traced requests, which always have times."""
        is_unknown = ~(self.is_within(begin) & self.is_within(end))
        return self._times(begin, is_unknown), self._times(end, is_unknown)

    def lengths(self, seconds: Seconds, processes: NDArray[np.int64] | int) -> pa.Array:
        """Sums (R,) of the calls of `processes`, microseconds; null below 0 and beyond all threads."""
        most = (self.seconds + _TOLERANCE_SECONDS) * np.maximum(processes, 1) * _MOST_THREADS
        return pa.array(micros(seconds), mask=(seconds < 0) | (seconds > most))

    def _times(self, seconds: Seconds, is_unknown: NDArray[np.bool_]) -> pa.Array:
        return pa.array(self.start_us + micros(seconds), mask=is_unknown)


def record_times(run: RunTimes, records: ModuleRecords, processes: NDArray[np.int64]) -> dict[str, Any]:
    """The columns of times of one module. `processes` (R,): those that a record stands for."""
    times = {name: bounded(values) for name, values in records.times.items()}
    columns: dict[str, Any] = {}
    for kind in tables.DIRECTIONS:
        upper = kind.upper()
        columns[f"{kind}_start_us"], columns[f"{kind}_end_us"] = run.interval(
            times[f"F_{upper}_START_TIMESTAMP"], times[f"F_{upper}_END_TIMESTAMP"]
        )
        columns[f"{kind}_time_us"] = run.lengths(times[f"F_{upper}_TIME"], processes)
    columns["meta_time_us"] = run.lengths(times["F_META_TIME"], processes)
    for column, name in (
        ("slowest_time_us", "F_SLOWEST_RANK_TIME"),
        ("fastest_time_us", "F_FASTEST_RANK_TIME"),
    ):
        if name in times:
            columns[column] = run.lengths(times[name], 1)
    for column, name in (
        ("time_variance", "F_VARIANCE_RANK_TIME"),
        ("bytes_variance", "F_VARIANCE_RANK_BYTES"),
    ):
        if name in records.times:
            columns[column] = records.times[name]
    return columns


def micros(seconds: Seconds) -> NDArray[np.int64]:
    """Microseconds."""
    return np.rint(seconds * 1e6).astype(np.int64)


def bounded(seconds: Any) -> Any:
    """Times within limits that a damaged log may exceed; what is no number is before the run."""
    return np.clip(np.nan_to_num(seconds, nan=-MAX_SECONDS), -MAX_SECONDS, MAX_SECONDS)
