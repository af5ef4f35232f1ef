"""Folds adjacent records of one operation, descriptor and size over contiguous bytes into one (Beacon, 3.2).

Beacon compares each record with its predecessor in the log. Processes of a node interleave their records, so
here the predecessor is the previous record *of the same descriptor*: each descriptor has at most one open
run. A run ends when its descriptor does anything else, when its bytes would pass MAX_POSITION, or when the
table of open runs is full and the run is the least recently extended. A record costs one look-up, so the fold
is linear in time; at most `max_open_runs` runs are held, so it is constant in memory. With `max_open_runs=1`
it equals Beacon's.

Only the times between a run's first and last record are lost, and, with more than one open run, the order of
records of *different* descriptors beyond those times.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from laggard_common.wire.trace_records import MAX_POSITION, Folded, TraceRecord

MAX_OPEN_RUNS = 1024


def fold(records: Iterable[TraceRecord], max_open_runs: int = MAX_OPEN_RUNS) -> Iterator[Folded]:
    """Yields all runs of `records` in the order in which they ended; unfolded, they are the records."""
    runs: OrderedDict[tuple[str, str], _OpenRun] = OrderedDict()  # least recently extended first
    for record in records:
        key = (record.node, record.descriptor)
        run = runs.get(key)
        if run is not None and run.is_continued_by(record):
            run.count += 1
            run.last_ns = record.time_ns
            runs.move_to_end(key)
            continue
        if run is not None:
            yield runs.pop(key).folded()
        elif len(runs) >= max_open_runs:
            yield runs.popitem(last=False)[1].folded()
        runs[key] = _OpenRun(record, record.time_ns)
    for run in runs.values():
        yield run.folded()


@dataclass(slots=True)
class _OpenRun:
    first: TraceRecord
    last_ns: int
    count: int = 1

    def is_continued_by(self, record: TraceRecord) -> bool:
        first = self.first
        return (
            record.size == first.size
            and record.operation == first.operation
            and record.offset == (None if first.offset is None else first.offset + self.count * first.size)
            and record.path == first.path
            and (first.offset or 0) + (self.count + 1) * first.size <= MAX_POSITION
        )

    def folded(self) -> Folded:
        r = self.first
        return Folded(
            r.node, r.operation, r.descriptor, r.offset, r.size, self.count, r.time_ns, self.last_ns, r.path
        )
