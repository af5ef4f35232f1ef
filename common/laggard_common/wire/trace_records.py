"""I/O trace records and folded records with a counter (Beacon, section 3.2).

The agent folds (`laggard_agent.tools.iotrace.fold`); `trace_codec` is the encoding.
"""

from dataclasses import dataclass, field

MAX_POSITION = 2**63 - 1  # the largest offset of a file, and the last nanosecond that a message can carry


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One operation of one process on one open file.

    `operation`: `read`, `write`, `open`, `close`, ... as the source names it. `descriptor` identifies an open
    file of a node. `offset`: first byte, None if not applicable or unknown. `size`: bytes moved. `time_ns`:
    start, ns since the epoch. `path`: the file, empty if unknown.

    Kept out of messages and comparisons: `asked`: bytes asked for, None if unknown. `end_ns`: end, None if
    unknown. `thread`: that made the call, -1 if unknown.
    """

    node: str
    operation: str
    descriptor: str
    offset: int | None
    size: int
    time_ns: int
    path: str = ""
    asked: int | None = field(default=None, compare=False, repr=False)
    end_ns: int | None = field(default=None, compare=False, repr=False)
    thread: int = field(default=-1, compare=False, repr=False)


def direction_of(operation: str) -> str:
    """`read`, `write`, or empty for an operation that moves no bytes of files."""
    name = operation.lower()
    if name.startswith(("readdir", "readlink")):
        return ""
    return next((direction for direction in ("read", "write") if direction in name), "")


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
