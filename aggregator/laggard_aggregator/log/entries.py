"""Journal entries, and their sequence numbers (lsn): every input that changes the machine's state, in order.

Duplicates, malformed messages, and messages that wait for their schema change no lasting state and are not
journaled. A batch reaches the windows whose close has a larger lsn, except ticks at or before the end of its
group's last closed window: those are late. Replaying the entries in order repeats every verdict to the bit.
"""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A message with a batch, as received.

    `accepted` is False where the archive had no room for it: the batch is judged, but neither archived nor
    acknowledged, and its agent sends it again.
    """

    lsn: int
    received_ns: int
    topic: str
    payload: bytes
    accepted: bool = True


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema message as received, accepted after the batch or close `lsn`."""

    lsn: int
    received_ns: int
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class WindowClose:
    """The close of a group's window: batches after `lsn` do not change it. Epoch seconds.

    Overrides take effect here: the window has no `drained` component, and the state of those to `restart` is
    dropped before it. With `start` equal to `end` there is no window: the clock had been ahead, and the
    group's windows continue after `end`.
    """

    lsn: int
    group: str
    start: float
    end: float
    closed_at: float
    drained: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """Old gaps were declared as of `now_ns`; with `forget`, silent nodes and components were dropped."""

    lsn: int
    now_ns: int
    forget: bool


@dataclass(frozen=True, slots=True)
class ForgetEntry:
    """An operator dropped what `target` names and was silent since `before_ns`."""

    lsn: int
    now_ns: int
    before_ns: int
    target: str


class EntryTimes(NamedTuple):
    """Times of a journal's oldest entries by lsn: receipt of batches, ns, and closing of windows, seconds."""

    batches: dict[int, int]
    closes: dict[int, float]


LogEntry = BatchEntry | SchemaEntry | WindowClose | SweepEntry | ForgetEntry


@dataclass(slots=True)
class LogSequence:
    """The newest log sequence number (lsn) of batches and window closes; the first one is 1."""

    last: int = 0
