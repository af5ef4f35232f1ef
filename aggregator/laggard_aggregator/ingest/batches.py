"""Messages of the broker, and the batches decoded from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_common.wire.schema import Schema

Message = tuple[str, bytes, int]
"""Topic, payload, and receive time (ns since the epoch, by the aggregator's clock)."""


@dataclass(frozen=True, slots=True)
class CounterBatch:
    """The counters of one message: n ticks, c components, f fields.

    `indexes` (c,) uint32: positions in the schema's components. `values` (n, c, f) int64: raw 64-bit lanes.
    `present` (c, f) bool, or None when every component has every field. `tick_ns` (n,) int64: nominal times,
    `read_ns` (n,) int64: times of reading, both ns since the epoch. `idle`: number of components at the end
    of `indexes` whose rows are the same in all ticks.
    """

    indexes: NDArray[np.uint32]
    values: NDArray[np.int64]
    present: NDArray[np.bool_] | None
    tick_ns: NDArray[np.int64]
    read_ns: NDArray[np.int64]
    idle: int

    @property
    def samples(self) -> int:
        """Ticks times components."""
        return self.tick_ns.size * self.indexes.size

    def only(self, ticks: NDArray[np.bool_]) -> "CounterBatch":
        """The same with the selected ticks, at least one: (n,) bool."""
        values, tick_ns, read_ns = self.values[ticks], self.tick_ns[ticks], self.read_ns[ticks]
        return CounterBatch(self.indexes, values, self.present, tick_ns, read_ns, self.idle)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is neither duplicate nor malformed, with its schema.

    `lsn`: its sequence number, common with window closes. `seq`: the message's, the first of coalesced
    batches; `tick_ns` has a gap where one of those is a duplicate. `received_ns`: receive time by the
    aggregator's clock, ns since the epoch. `late` (n,) bool: ticks received after a window over them was
    closed in at least one group; they are archived and counted, and each group skips them by its own
    watermark, online and offline alike. `accepted`: as in `log.entries.BatchEntry`.
    """

    lsn: int
    site: str
    role: str
    stream: bytes
    seq: int
    received_ns: int
    schema: Schema
    counters: CounterBatch
    late: NDArray[np.bool_]
    accepted: bool = True
