"""The counters of one message, decoded."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
        """The same with those ticks only, of which there must be one: (n,) bool."""
        values, tick_ns, read_ns = self.values[ticks], self.tick_ns[ticks], self.read_ns[ticks]
        return CounterBatch(self.indexes, values, self.present, tick_ns, read_ns, self.idle)
