"""The counters of one message as a group's store takes them, and the store's counts."""

from dataclasses import dataclass

from laggard_aggregator.metrics.definition import IntArray


@dataclass(frozen=True, slots=True)
class Block:
    """Counters of one message for one group.

    `rows` (c,): the group's row of each component. `values` (n, c, counters), in the order of the store's
    counters; only the first `changing` components may differ from tick to tick. `tick_ns`, `read_ns` (n,)
    ascending. `started` (n, c): time since when the counters count, in any unit, 0 for unknown; None where
    the source has no such field.
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
    """Totals since the start: `late` and `future` samples of one component, `resets` of counters."""

    late: int = 0
    future: int = 0
    resets: int = 0
