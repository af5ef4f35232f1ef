"""The rows of one job as numpy columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan.intervals import CriticalPath, Times, critical_path
from laggard_aggregator.jobs.darshan.peers import MIN_WORK

UNKNOWN = -1
"""A count that a record does not have."""
ALL_RANKS = -1


def integers(table: pa.Table, name: str, missing: int = UNKNOWN) -> NDArray[np.int64]:
    """A column, with `missing` for nulls."""
    column: NDArray[np.int64] = pc.fill_null(table[name], missing).to_numpy()
    return column


def texts(table: pa.Table, name: str) -> list[str]:
    """A column of texts."""
    return [text or "" for text in table[name].to_pylist()]


@dataclass(frozen=True)
class JobTables:
    """The rows of one job, of one or more logs; `dxt` may be large and mapped from a file."""

    logs: pa.Table
    files: pa.Table
    osts: pa.Table
    dxt: pa.Table

    @cached_property
    def job_id(self) -> int:
        """Number of the job."""
        return int(self.logs["job_id"][0].as_py())

    @cached_property
    def start_us(self) -> int:
        """Start of its first log."""
        return int(pc.min(self.logs["start_us"]).as_py())

    @cached_property
    def end_us(self) -> int:
        """End of its last log."""
        return int(pc.max(self.logs["end_us"]).as_py())

    @cached_property
    def processes(self) -> int:
        """Processes of all logs."""
        return int(pc.sum(self.logs["processes"]).as_py())

    @cached_property
    def paths(self) -> list[str]:
        """The logs, in order of time."""
        return texts(self.logs.sort_by([("start_us", "ascending"), ("path", "ascending")]), "path")

    @cached_property
    def modules(self) -> set[str]:
        """Modules of any of the logs."""
        return {name for names in texts(self.logs, "modules") for name in names.split(",") if name}

    @cached_property
    def partial(self) -> set[str]:
        """Modules that ran out of memory in any of the logs."""
        return {name for names in texts(self.logs, "partial") for name in names.split(",") if name}

    def is_whole(self, trace: str, module: str) -> bool:
        """True when every log with `module` has the module `trace`, and none of them in part."""
        if trace in self.partial:
            return False
        return all(
            trace in names for listed in texts(self.logs, "modules") if module in (names := listed.split(","))
        )

    def of_module(self, module: str) -> pa.Table:
        """Rows of the file table."""
        return self.files.filter(pc.equal(self.files["module"], module))


class Accesses:
    """The records of one module that read, or wrote, as columns; and their critical path.

    All records of the module are rows (R,); those with an interval of time are `timed`. Counts that a module
    does not have are UNKNOWN.
    """

    def __init__(self, tables: JobTables, module: str, direction: str) -> None:
        self.module, self.direction = module, direction
        self.rows = tables.of_module(module)
        self.start = self._of("{}_start_us", 0)
        self.end = self._of("{}_end_us", 0)
        self.bytes = np.maximum(self._of("bytes_{}"), 0)
        self.requests = np.maximum(self._of("{}s"), 0)
        self.consecutive = self._of("consecutive_{}s")
        self.small = self._of("small_{}s")
        self.collective = self._of("collective_{}s", 0)
        self.time_us = np.maximum(self._of("{}_time_us", 0), 0)
        self.meta_us = np.maximum(integers(self.rows, "meta_time_us", 0), 0)
        self.file_id = integers(self.rows, "file_id")
        self.rank = integers(self.rows, "rank")
        self.stripes = integers(self.rows, "stripe_count")
        self.logs = integers(self.rows, "log")
        self.processes = self._processes()

    def _of(self, name: str, missing: int = UNKNOWN) -> NDArray[np.int64]:
        word = "written" if name == "bytes_{}" and self.direction == "write" else self.direction
        return integers(self.rows, name.format(word), missing)

    def _processes(self) -> NDArray[np.int64]:
        """Processes that use each record's file: all ranks', where a shared record stands for them."""
        own = integers(self.rows, "processes", 1)
        if not own.size:
            return own
        _, inverse = np.unique(self.file_id, return_inverse=True)
        return np.bincount(inverse, weights=own * (self.requests > 0)).astype(np.int64)[inverse]

    @cached_property
    def timed(self) -> NDArray[np.int64]:
        """Records with an interval."""
        return np.flatnonzero((self.end > self.start) & (self.requests > 0))

    @cached_property
    def without_times(self) -> int:
        """Records with requests that have no times, or times outside of the run."""
        return int(((self.requests > 0) & (self._of("{}_start_us", 0) == 0)).sum())

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path; `place` counts in the records of the module."""
        keys = [column[self.timed] for column in (self.file_id, self.rank, self.logs)]  # as in the engines
        path = critical_path(self.start[self.timed], self.end[self.timed], keys=keys)
        return CriticalPath(self.timed[path.place], path.start, path.end, path.group)

    @cached_property
    def busy_us(self) -> int:
        """Time with activity, by the first and last request of each record."""
        return int(self.path.exclusive.sum())

    @cached_property
    def span_us(self) -> int:
        """Last end less first start."""
        return int(self.end[self.timed].max() - self.start[self.timed].min()) if self.timed.size else 0

    def sole_us(self, chosen: NDArray[np.bool_]) -> int:
        """Time in which records `chosen` (R,) are active and no other; `dormant` others do not count."""
        every = self.timed[chosen[self.timed] | ~self.dormant[self.timed]]
        rest = every[~chosen[every]]
        both = (critical_path(self.start[rows], self.end[rows]) for rows in (every, rest))
        with_them, without = (int(path.exclusive.sum()) for path in both)
        return with_them - without

    @cached_property
    def dormant(self) -> NDArray[np.bool_]:
        """Records (R,) of little work that are open for long: a log file, by its first and last line.

        They have less than MIN_WORK of the median bytes, and calls in less than that part of their interval.
        """
        amounts = self.bytes[self.timed]
        median = float(np.median(amounts)) if amounts.size else 0.0
        is_dormant: NDArray[np.bool_] = (self.bytes < MIN_WORK * median) & (self.active < MIN_WORK)
        return is_dormant

    @cached_property
    def active(self) -> NDArray[np.float64]:
        """Largest part of each record's interval (R,) in which its calls can have been active.

        A record knows its first start and last end. Where all its calls took a tenth of that together, at
        most a tenth of it was I/O.
        """
        shares: NDArray[np.float64] = np.minimum(self.time_us / np.maximum(self.end - self.start, 1), 1.0)
        return shares

    @cached_property
    def _process(self) -> NDArray[np.int64]:
        """Number of the process of each record (R,): rank and log; logs of one job may all have rank 0."""
        if not self.rank.size:
            return self.rank
        _, log = np.unique(self.logs, return_inverse=True)
        _, rank = np.unique(self.rank, return_inverse=True)  # may be any number in a hostile log
        _, number = np.unique(log * (int(rank.max()) + 1) + rank, return_inverse=True)
        numbers: NDArray[np.int64] = number
        return numbers

    def busiest_us(self, times: NDArray[np.int64], chosen: NDArray[np.bool_]) -> int:
        """The largest sum of `times` (R,) that one process has in its own records among `chosen` (R,)."""
        own = chosen & (self.rank > ALL_RANKS)
        return int(np.bincount(self._process[own], weights=times[own]).max()) if own.any() else 0

    def waited_us(self, chosen: NDArray[np.bool_]) -> int:
        """The longest that the job can have waited for the records `chosen` (R,) alone.

        No more than the time in which no other record is active, and no more than their calls took: those of
        the busiest process, or of all along the critical path of `chosen`.
        """
        sole = self.sole_us(chosen)
        if not sole:
            return 0
        timed = self.timed[chosen[self.timed]]
        path = critical_path(self.start[timed], self.end[timed])
        along = float((path.exclusive * self.active[timed[path.place]]).sum())
        shared = int(self.time_us[chosen & (self.rank == ALL_RANKS)].sum())
        return int(min(sole, max(along, self.busiest_us(self.time_us, chosen) + shared)))

    @cached_property
    def weight_us(self) -> NDArray[np.float64]:
        """Exclusive time of each record (R,), less the part in which its calls cannot have been active."""
        weight = np.zeros(self.bytes.size)
        np.add.at(weight, self.path.place, self.path.exclusive)
        active_us: NDArray[np.float64] = weight * self.active
        return active_us

    def share(self, chosen: NDArray[np.bool_]) -> float:
        """Share of the critical path that the records `chosen` (R,) explain."""
        return float(self.weight_us[chosen].sum()) / self.busy_us if self.busy_us else 0.0

    def text(self, place: int, name: str) -> str:
        """A text of a record."""
        text: Any = self.rows[name][int(place)].as_py()
        return text or ""


def dxt_intervals(tables: JobTables, module: str, direction: str) -> tuple[Times, Times] | None:
    """Starts and ends of the traced requests; None without a trace."""
    starts: list[Times] = []
    ends: list[Times] = []
    rows = tables.dxt.select(["module", "operation", "start_us", "end_us"])
    for batch in rows.to_batches():  # a portion at a time: there may be millions
        kept = pc.and_(pc.equal(batch["module"], module), pc.equal(batch["operation"], direction))
        kept = pc.and_(kept, pc.is_valid(batch["start_us"]))
        starts.append(batch["start_us"].filter(kept).to_numpy())
        ends.append(batch["end_us"].filter(kept).to_numpy())
    if not any(part.size for part in starts):
        return None
    return np.concatenate(starts), np.concatenate(ends)
