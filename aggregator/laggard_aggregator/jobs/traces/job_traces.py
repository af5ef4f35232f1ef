"""Traces of a job from the archive: its folded records, and its I/O modes by them."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import day_of
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.join.trace_documents import (
    RECORD_COLUMNS,
    own_records,
    span_of_records,
    trace_tables,
)
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.traces.io_modes import MODES, ModeShares, folded_accesses, io_modes
from laggard_aggregator.jobs.traces.merged_block import records_of, restored
from laggard_common.errors import ArchiveError, WireError
from laggard_common.wire.trace_records import Folded

LATE_DAYS: Final = 7
"""Days after a job's end in which its records may arrive."""
KEPT_SECONDS: Final = 60.0
"""How long traces that were read are kept; records that come meanwhile are missing from a job's modes."""
_MOST_KEPT: Final = 4096
_WHO: Final = ("host", "operation", "descriptor", "path")


@dataclass(frozen=True, slots=True)
class _KeptModes:
    """Modes that were read at a time of the monotonic clock."""

    read_at: float
    modes: dict[str, ModeShares]


class JobTraces:
    """Traces of the jobs of the archive in `directory`, whose index `queries` asks. For any thread."""

    def __init__(self, directory: Path, queries: JobQueries) -> None:
        self._directory = directory
        self._queries = queries
        self._results = JobResults(directory)
        self._modes: dict[tuple[str, int], _KeptModes] = {}
        self._lock = Lock()

    def records(self, job: VisibleJob) -> list[Folded]:
        """The folded records of a job.

        They have its number, a node of it as sender and host, and a time within it. Raises ArchiveError.
        """
        return [record for table in self.tables(job) for record in records_of(table)]

    def modes(self, job: VisibleJob) -> dict[str, ModeShares]:
        """I/O modes of a job by direction, by its traces, else by its Darshan logs. Raises ArchiveError.

        They are kept for a minute: the verdicts on jobs beside each other ask for the same runs.
        """
        key, now = (job.key, job["revision_at"]), time.monotonic()
        with self._lock:
            known = self._modes.get(key)
        if known is not None and now - known.read_at < KEPT_SECONDS:
            return known.modes
        modes = io_modes(folded_accesses(_sums(self.tables(job)))) or _of_logs(self._results.logs(job))
        with self._lock:
            if len(self._modes) >= _MOST_KEPT:
                self._modes.clear()
            self._modes[key] = _KeptModes(now, modes)
        return modes

    def tables(self, job: VisibleJob) -> Iterator[pa.Table]:
        """Yields the same as tables with RECORD_COLUMNS, of a block or a row group of the archive each.

        Raises ArchiveError.
        """
        merged = False
        for block in self._results.trace_blocks(job):
            merged = True
            try:
                yield restored(block)
            except WireError as exc:
                raise ArchiveError(str(self._directory), f"{job['job_key']}: {exc}") from exc
        if merged or job["start"] is None or job["end"] is None:
            return
        nodes = {short_name(str(node["name"])) for node in self._queries.nodes(job)}
        runs = self._queries.runs_of_number(job)
        others = [(run["start"], run["end"]) for run in runs if run["start"] is not None]
        span = span_of_records(job["start"], job["end"], others)
        days = day_of(job["start"]), day_of(job["end"] + LATE_DAYS * 86_400.0)
        for table in trace_tables(self._directory, [str(job["raw_id"])], *days):
            own = own_records(table, nodes, span)
            if own.num_rows:
                yield own.select(RECORD_COLUMNS.names).cast(RECORD_COLUMNS)


def _of_logs(rows: Iterable[Mapping[str, Any]]) -> dict[str, ModeShares]:
    """Modes by direction by rows of `job_logs`."""
    sizes: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(MODES, 0))
    for row in rows:
        if row["record"] == "mode" and row["kind"] in MODES:
            sizes[row["direction"]][row["kind"]] += row["bytes"]
    totals = {direction: sum(amounts.values()) for direction, amounts in sizes.items()}
    return {
        direction: ModeShares(
            totals[direction], {name: size / totals[direction] for name, size in amounts.items()}, 0
        )
        for direction, amounts in sizes.items()
        if totals[direction]
    }


def _sums(tables: Iterator[pa.Table]) -> list[Folded]:
    """A record with the whole volume of each process, operation and file."""
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for table in tables:
        sizes = table["size"].cast(pa.float64())  # sums of hostile records have no bound
        moved = table.append_column("moved", pc.multiply(sizes, table["count"].cast(pa.float64())))
        for row in moved.group_by(list(_WHO)).aggregate([("moved", "sum")]).to_pylist():
            sums[tuple(row[column] for column in _WHO)] += row["moved_sum"]
    return [
        Folded(host, operation, descriptor, None, int(moved), 1, 0, 0, path)
        for (host, operation, descriptor, path), moved in sums.items()
    ]


def shares(modes: Mapping[str, ModeShares]) -> dict[str, float]:
    """Shares of the volume of both directions by mode, all of MODES."""
    total = sum(direction.size for direction in modes.values())
    return {name: sum(m.size * m.shares[name] for m in modes.values()) / total for name in MODES}
