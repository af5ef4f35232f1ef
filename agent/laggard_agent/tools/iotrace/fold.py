"""Folds adjacent records of one operation, descriptor and size over contiguous bytes into one (Beacon, 3.2).

Beacon compares each record with its predecessor in the log. Processes of a node interleave their records, so
here the predecessor is the previous record *of the same descriptor*: each descriptor has at most one open
run. A run ends when its descriptor does anything else, or when the table of open runs is full and the run is
the least recently extended. A record costs one look-up, so the fold is linear in time; at most
`max_open_runs` runs are held, so it is constant in memory. With `max_open_runs=1` it equals Beacon's.

Only the times between a run's first and last record are lost, and, with more than one open run, the order of
records of *different* descriptors beyond those times.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from laggard_common.wire.trace_records import Folded, TraceRecord

MAX_OPEN_RUNS = 1024


class Folder:
    """Folds records one by one. The results of `add` and `flush`, unfolded, are the records."""

    def __init__(self, max_open_runs: int = MAX_OPEN_RUNS) -> None:
        self._max_open_runs = max_open_runs
        self._runs: OrderedDict[tuple[str, str], _OpenRun] = OrderedDict()  # least recently extended first

    def add(self, record: TraceRecord) -> Folded | None:
        """Adds a record; returns the run that it ended, if any."""
        key = (record.node, record.descriptor)
        run = self._runs.get(key)
        if run is None:
            ended = self._runs.popitem(last=False)[1] if len(self._runs) >= self._max_open_runs else None
            self._runs[key] = _OpenRun(record)
        elif run.grow(record):
            ended = None
            self._runs.move_to_end(key)
        else:
            ended = run
            self._runs[key] = _OpenRun(record)
            self._runs.move_to_end(key)
        return None if ended is None else ended.folded()

    def flush(self) -> Iterator[Folded]:
        """Ends all open runs, least recently extended first."""
        while self._runs:
            yield self._runs.popitem(last=False)[1].folded()


def fold(records: Iterable[TraceRecord], max_open_runs: int = MAX_OPEN_RUNS) -> Iterator[Folded]:
    """Yields all runs of `records` in the order in which they ended."""
    folder = Folder(max_open_runs)
    for record in records:
        if (ended := folder.add(record)) is not None:
            yield ended
    yield from folder.flush()


class _OpenRun:
    """An open run. `_next`: required start of the next record; None without an offset."""

    __slots__ = ("_count", "_first", "_last_ns", "_next")

    def __init__(self, record: TraceRecord) -> None:
        self._first = record
        self._next = None if record.offset is None else record.offset + record.size
        self._count = 1
        self._last_ns = record.time_ns

    def grow(self, record: TraceRecord) -> bool:
        """Adds the record if it continues this run; True if so."""
        first = self._first
        if (
            record.offset != self._next
            or record.size != first.size
            or record.operation != first.operation
            or record.path != first.path
        ):
            return False
        if self._next is not None:
            self._next += record.size
        self._count += 1
        self._last_ns = record.time_ns
        return True

    def folded(self) -> Folded:
        r = self._first
        return Folded(
            node=r.node,
            operation=r.operation,
            descriptor=r.descriptor,
            offset=r.offset,
            size=r.size,
            count=self._count,
            first_ns=r.time_ns,
            last_ns=self._last_ns,
            path=r.path,
        )
