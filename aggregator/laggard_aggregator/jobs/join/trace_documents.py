"""Folded trace records of jobs in the archive's documents.

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

from laggard_aggregator.archive.table import Among, Table, integers
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_common.wire.trace_document import TRACES

RECORD_COLUMNS: Final = pa.schema(
    [
        *(
            pa.field(name, pa.string(), nullable=False)
            for name in ("host", "operation", "descriptor", "path")
        ),
        pa.field("offset", pa.int64()),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("size", "count", "first_ns", "last_ns")),
    ]
)
"""Columns of a table of folded records."""
MARGIN_SECONDS: Final = 60.0
"""How far a record may lie outside its job's time, as clocks differ."""
_NEVER: Final = np.int64(2**63 - 1)
_LOG: Final = ("job", "node", "log", "log_session")


def trace_tables(
    directory: Path, numbers: Collection[str], first_day: str, last_day: str
) -> Iterator[pa.Table]:
    """Yields the records of documents with some jobs' numbers, each byte of a log once.

    Columns are those of RECORD_COLUMNS, and `job` and `node`, which sent them. Raises ArchiveError.
    """
    ends = _ends(directory, numbers, first_day, last_day)
    names = (*RECORD_COLUMNS.names, *_LOG, "log_start")
    for table in _documents(directory, numbers, names, first_day, last_day):
        yield _distinct(table, ends)


def own_records(table: pa.Table, nodes: Collection[str], span_ns: tuple[int, int]) -> pa.Table:
    """The rows from and about `nodes`, by short name, that begin within `span_ns`."""
    for column in ("node", "host"):
        own = [host for host in table[column].unique().to_pylist() if short_name(host) in nodes]
        table = table.filter(pc.is_in(table[column].cast(pa.string()), pa.array(own, pa.string())))
    first_ns = integers(table, "first_ns")
    return table.filter(pa.array((first_ns >= span_ns[0]) & (first_ns < span_ns[1])))


def span_of_records(
    start: float, end: float, others: Collection[tuple[float, float | None]]
) -> tuple[int, int]:
    """From when until before when records are a job's, in ns; `others`: start and end of its number's runs.

    Between two runs with one number (a requeue) that is the middle, so that no record is of both.
    """
    first, past = start - MARGIN_SECONDS, end + MARGIN_SECONDS
    for other_start, other_end in others:
        if other_end is not None and other_end <= start:
            first = max(first, (other_end + start) / 2)
        elif other_start >= end:
            past = min(past, (end + other_start) / 2)
    return round(first * 1e9), round(past * 1e9)


def _documents(
    directory: Path, numbers: Collection[str], columns: Collection[str], first_day: str, last_day: str
) -> Iterator[pa.Table]:
    """Yields the rows of the documents with some jobs' numbers."""
    own = Among("job", list(numbers))
    names = list(dict.fromkeys(columns))
    yield from Table(directory, "events", TRACES).scan(names, own, first_day=first_day, last_day=last_day)


def _ends(directory: Path, numbers: Collection[str], first_day: str, last_day: str) -> dict[str, int]:
    """Of each session after which its agent sent a log again: where that began."""
    firsts: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
    for table in _documents(directory, numbers, (*_LOG, "log_start"), first_day, last_day):
        plain = table.cast(pa.schema([(field.name, _plain(field.type)) for field in table.schema]))
        for row in plain.group_by(list(_LOG)).aggregate([("log_start", "min")]).to_pylist():
            sessions, session = firsts[row["job"], row["node"], row["log"]], row["log_session"]
            sessions[session] = min(row["log_start_min"], sessions.get(session, _NEVER))
    ends: dict[str, int] = {}
    for (job, node, log), sessions in firsts.items():
        end = int(_NEVER)
        for session in sorted(sessions, reverse=True):
            if end < _NEVER:
                ends["\n".join((job, node, log, str(session)))] = end
            end = min(end, sessions[session])
    return ends


def _distinct(table: pa.Table, ends: Mapping[str, int]) -> pa.Table:
    """The rows without those that a later session of their node sent again; `ends` of `_ends`."""
    if not ends:
        return table
    columns = [table[name].cast(pa.string()) for name in _LOG]
    place = pc.index_in(pc.binary_join_element_wise(*columns, "\n"), pa.array(list(ends), pa.string()))
    limits = np.array([*ends.values(), _NEVER], dtype=np.int64)
    return table.filter(pa.array(integers(table, "log_start") < limits[place.fill_null(-1).to_numpy()]))


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind
