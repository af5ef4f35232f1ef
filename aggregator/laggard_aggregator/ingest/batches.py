"""What ingest hands on: batches that were taken for good, and the closes of windows, in one order.

`ordinal` counts batches and closes together. A batch reaches the windows whose close has a larger ordinal,
but for ticks at or before the end of its group's last closed window: those are late. A replay in the order of
ordinals therefore gives the verdicts that the daemon gave.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.ingest.counter_batch import CounterBatch
from laggard_common.wire.schema import Schema


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """A batch that is neither duplicate nor malformed, with the schema that reads it.

    `seq` is the message's, the first one of batches that were joined; `tick_ns` has a gap where one of those
    had come before. `received_ns`: the aggregator's clock when the message came, ns since the epoch. `late`
    (n,) bool: ticks that came after a window over them had closed in at least one group; they are archived
    and counted, and each group skips them by its own watermark, online and offline alike.
    """

    ordinal: int
    site: str
    role: str
    stream: bytes
    seq: int
    received_ns: int
    schema: Schema
    batch: CounterBatch
    late: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WindowClose:
    """The moment a group's window was closed: no batch after `ordinal` may change it. Epoch seconds.

    Operators' decisions take effect here: the `drained` are absent from the window, and all that is known of
    those to be judged `afresh` is forgotten before it.
    """

    ordinal: int
    group: str
    start: float
    end: float
    closed_at: float
    drained: tuple[str, ...] = ()
    afresh: tuple[str, ...] = ()
