"""Accepted batches and the closes of windows, in one order.

`ordinal` counts batches and closes together. A batch reaches the windows whose close has a larger ordinal,
but for ticks at or before the end of its group's last closed window: those are late. A replay in the order of
ordinals therefore gives the verdicts that the daemon gave.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_common.wire.schema import Schema


@dataclass(frozen=True, slots=True)
class CounterBatch:
    """The counters of one message: n ticks, c components, f fields.

    `indexes` (c,) uint32: positions in the schema's components. `values` (n, c, f) int64: raw 64-bit lanes.
    `present` (c, f) bool, or None when every component has every field. `tick_ns` (n,) int64: nominal times,
    `read_ns` (n,) int64: times of reading, both ns since the epoch. `idle` counts the last components of
    `indexes` whose rows stayed the same over all ticks.
    """

    indexes: NDArray[np.uint32]
    values: NDArray[np.int64]
    present: NDArray[np.bool_] | None
    tick_ns: NDArray[np.int64]
    read_ns: NDArray[np.int64]
    idle: int

    def only(self, ticks: NDArray[np.bool_]) -> "CounterBatch":
        """The batch with the ticks of mask `ticks` (n,) bool, at least one, only."""
        values, tick_ns, read_ns = self.values[ticks], self.tick_ns[ticks], self.read_ns[ticks]
        return CounterBatch(self.indexes, values, self.present, tick_ns, read_ns, self.idle)


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """An accepted batch with its schema.

    `seq` is the sequence number of the message, of coalesced batches the first; `batch.tick_ns` has a gap
    where one of those was a duplicate. `received_ns`: arrival by the aggregator's clock, ns since the epoch.
    `late` (n,) bool: ticks of which a window had closed in at least one group; they are archived and counted,
    and each group skips them by its own watermark, online and offline alike.
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
