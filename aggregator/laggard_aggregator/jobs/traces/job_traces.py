"""Traces of a job from the archive: its folded records, and its I/O modes by them.

Agents send the records of followed logs in documents, each for a range of bytes of a log. After a crash an
agent sends some bytes again, cut otherwise; of each byte the last session counts.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Among, Table, day_of, integers
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.traces.io_modes import MODES, ModeShares, folded_accesses, io_modes
from laggard_aggregator.jobs.traces.merged_block import COLUMNS, records_of, restored
from laggard_common.errors import ArchiveError, WireError
from laggard_common.wire.trace_document import TRACES
from laggard_common.wire.trace_records import Folded

LATE_DAYS: Final = 7
"""Days after a job's end in which its records may arrive."""
MARGIN_SECONDS: Final = 60.0
"""By which a record may be before a job's start or after its end, for clocks that differ."""
_NEVER: Final = np.int64(2**63 - 1)
_WHO: Final = ("host", "operation", "descriptor", "path")
_LOG: Final = ("node", "log", "log_session")


class JobTraces:
    """Traces of the jobs of the archive in `directory`, whose index `queries` asks."""

    def __init__(self, directory: Path, queries: JobQueries) -> None:
        self._directory = directory
        self._queries = queries
        self._results = JobResults(directory)

    def records(self, job: VisibleJob) -> list[Folded]:
        """The folded records of a job.

        They have its number, a node of it as sender and host, and a time within it. Raises ArchiveError.
        """
        return [record for table in self.tables(job) for record in records_of(table)]

    def modes(self, job: VisibleJob) -> dict[str, ModeShares]:
        """I/O modes of a job by direction, none without a trace. Raises ArchiveError."""
        return io_modes(folded_accesses(_sums(self.tables(job))))

    def tables(self, job: VisibleJob) -> Iterator[pa.Table]:
        """Yields the same as tables with COLUMNS, of a block or a row group of the archive each.

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
        number = str(job["raw_id"])
        days = day_of(job["start"]), day_of(job["end"] + LATE_DAYS * 86_400.0)
        ends = self._ends(number, *days)
        names = [str(each["name"]) for each in self._queries.nodes(job)]
        nodes = {short_name(each) for each in names}
        span = self._span_ns(job)
        for table in self._documents(number, (*COLUMNS.names, *_LOG, "log_start"), *days):
            own = _own(_distinct(table, ends), nodes, span)
            if own.num_rows:
                yield own.select(COLUMNS.names).cast(COLUMNS)

    def _documents(
        self, number: str, columns: Collection[str], first_day: str, last_day: str
    ) -> Iterator[pa.Table]:
        """Yields the rows of the documents with a job's number."""
        documents, own = Table(self._directory, "events", TRACES), Among("job", [number])
        names = list(dict.fromkeys(columns))
        yield from documents.scan(names, own, first_day=first_day, last_day=last_day)

    def _ends(self, number: str, first_day: str, last_day: str) -> dict[str, int]:
        """Of each session after which its agent sent a log again: where that began."""
        firsts: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for table in self._documents(number, (*_LOG, "log_start"), first_day, last_day):
            plain = table.cast(pa.schema([(each.name, _plain(each.type)) for each in table.schema]))
            for row in plain.group_by(list(_LOG)).aggregate([("log_start", "min")]).to_pylist():
                sessions, session = firsts[row["node"], row["log"]], row["log_session"]
                sessions[session] = min(row["log_start_min"], sessions.get(session, _NEVER))
        ends: dict[str, int] = {}
        for (node, log), sessions in firsts.items():
            end = int(_NEVER)
            for session in sorted(sessions, reverse=True):
                if end < _NEVER:
                    ends[_session(node, log, session)] = end
                end = min(end, sessions[session])
        return ends

    def _span_ns(self, job: VisibleJob) -> tuple[int, int]:
        """From when until before when records are the job's.

        Between two runs with one number (a requeue) that is the middle, so that no record is of both.
        """
        start, end = job["start"] - MARGIN_SECONDS, job["end"] + MARGIN_SECONDS
        for other in self._queries.runs_of_number(job):
            if other["start"] is None:
                continue
            if other["end"] is not None and other["end"] <= job["start"]:
                start = max(start, (other["end"] + job["start"]) / 2)
            elif other["start"] >= job["end"]:
                end = min(end, (job["end"] + other["start"]) / 2)
        return round(start * 1e9), round(end * 1e9)


def _session(node: str, log: str, session: int) -> str:
    return f"{node}\n{log}\n{session}"


def _distinct(table: pa.Table, ends: Mapping[str, int]) -> pa.Table:
    """The rows without those that a later session of their node sent again; `ends` of `_ends`."""
    if not ends:
        return table
    columns = [table[each].cast(pa.string()) for each in _LOG]
    place = pc.index_in(pc.binary_join_element_wise(*columns, "\n"), pa.array(list(ends), pa.string()))
    limits = np.array([*ends.values(), _NEVER], dtype=np.int64)
    return table.filter(pa.array(integers(table, "log_start") < limits[place.fill_null(-1).to_numpy()]))


def _own(table: pa.Table, nodes: Collection[str], span_ns: tuple[int, int]) -> pa.Table:
    """The rows from and about `nodes`, by short name, that begin within `span_ns`."""
    for column in ("node", "host"):
        own = [each for each in table[column].unique().to_pylist() if short_name(each) in nodes]
        table = table.filter(pc.is_in(table[column].cast(pa.string()), pa.array(own, pa.string())))
    first_ns = integers(table, "first_ns")
    return table.filter(pa.array((first_ns >= span_ns[0]) & (first_ns < span_ns[1])))


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


def _sums(tables: Iterator[pa.Table]) -> list[Folded]:
    """A record with the whole volume of each process, operation and file."""
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for table in tables:
        sizes = table["size"].cast(pa.float64())  # sums of hostile records have no bound
        moved = table.append_column("moved", pc.multiply(sizes, table["count"].cast(pa.float64())))
        for row in moved.group_by(list(_WHO)).aggregate([("moved", "sum")]).to_pylist():
            sums[tuple(row[each] for each in _WHO)] += row["moved_sum"]
    return [
        Folded(host, operation, descriptor, None, int(moved), 1, 0, 0, path)
        for (host, operation, descriptor, path), moved in sums.items()
    ]


def shares(modes: Mapping[str, ModeShares]) -> dict[str, float]:
    """Shares of the volume of both directions by mode, all of MODES."""
    total = sum(each.size for each in modes.values())
    return {name: sum(m.size * m.shares[name] for m in modes.values()) / total for name in MODES}
