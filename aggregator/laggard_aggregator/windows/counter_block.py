"""What a message says, as a group's store takes it, and what the store counts."""

from dataclasses import dataclass

from laggard_aggregator.metrics.definition import IntArray


@dataclass(frozen=True, slots=True)
class Reading:
    """A message's counters as a group's store takes them.

    `rows` (c,): the group's row of each component; `values` (n, c, counters) in the order of the store's own
    counters; the first `changing` components are those whose values may differ from tick to tick; `tick_ns`,
    `read_ns` (n,) ascending. `started` (n, c): when the counters began, in whatever unit, 0 where
    it is not told; None where nobody tells it.
    """

    rows: IntArray
    values: IntArray
    tick_ns: IntArray
    read_ns: IntArray
    changing: int
    received_ns: int
    started: IntArray | None = None


@dataclass(slots=True)
class StoreCounts:
    """Totals since the start; `late` and `future` count readings of one component, `resets` counters anew."""

    late: int = 0
    future: int = 0
    resets: int = 0
