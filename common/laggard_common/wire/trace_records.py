"""I/O trace records and folded records with a counter (Beacon, section 3.2).

The agent folds (`laggard_agent.tools.iotrace.fold`), the aggregator unfolds; `trace_codec` is the encoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

MAX_POSITION = 2**63 - 1  # the largest offset of a file, and the last nanosecond that a message can carry


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One operation of one process on one open file.

    `operation`: `read`, `write`, `open`, `close`, ... as the source names it. `descriptor` identifies an open
    file of a node. `offset`: first byte, None if not applicable or unknown. `size`: bytes moved. `time_ns`:
    start, ns since the epoch. `path`: the file, empty if unknown.
    """

    node: str
    operation: str
    descriptor: str
    offset: int | None
    size: int
    time_ns: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    """`count` records that differ only in their times and in their offsets, which advance by `size`.

    `offset`: of the first one; None when none of them has one. `first_ns`, `last_ns`: times of the first and
    of the last record; `last_ns` is smaller where the clock was set back in between.
    """

    node: str
    operation: str
    descriptor: str
    offset: int | None
    size: int
    count: int
    first_ns: int
    last_ns: int
    path: str = ""


def unfold(folded: Folded) -> Iterator[TraceRecord]:
    """Yields the original records; times between the first and the last are interpolated."""
    f = folded
    span_ns = f.last_ns - f.first_ns
    for i in range(f.count):
        yield TraceRecord(
            node=f.node,
            operation=f.operation,
            descriptor=f.descriptor,
            offset=None if f.offset is None else f.offset + i * f.size,
            size=f.size,
            time_ns=f.first_ns + (span_ns * i // (f.count - 1) if i else 0),
            path=f.path,
        )
