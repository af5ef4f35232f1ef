"""The counters of one message, and the counts of a group's store."""

from dataclasses import dataclass

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Block:
    """Counters of one message, or of those of its components that belong to a group.

    n ticks, c components, f counters. `indexes` (c,): positions in the schema's components; for a group, rows
    of its store. `values` (n, c, f) int64: raw 64-bit lanes, of the schema's fields; for a group, of the
    store's counters. `present` (c, f), or None when every component has every field. `tick_ns` (n,)
    ascending: nominal times, `read_ns` (n,): times of reading, both ns since the epoch. `idle`: number of
    components at the end of `indexes` whose rows are the same in all ticks. `started` (n, c): time since when
    the counters of a group's component count, in any unit, 0 for unknown; None without such a field.
    """

    indexes: IntArray
    values: IntArray
    present: BoolArray | None
    tick_ns: IntArray
    read_ns: IntArray
    idle: int
    started: IntArray | None = None

    def only(self, ticks: BoolArray | slice) -> "Block":
        """The same with the selected ticks, at least one."""
        return Block(
            self.indexes,
            self.values[ticks],
            self.present,
            self.tick_ns[ticks],
            self.read_ns[ticks],
            self.idle,
            None if self.started is None else self.started[ticks],
        )

    def of(self, components: BoolArray) -> "Block":
        """The same with the selected components (c,)."""
        return Block(
            self.indexes[components],
            self.values[:, components],
            None if self.present is None else self.present[components],
            self.tick_ns,
            self.read_ns,
            int(np.count_nonzero(components[components.size - self.idle :])),
            None if self.started is None else self.started[:, components],
        )


@dataclass(slots=True)
class StoreCounts:
    """Totals since the start: `late` and `future` samples of one component, `resets` of counters."""

    late: int = 0
    future: int = 0
    resets: int = 0
