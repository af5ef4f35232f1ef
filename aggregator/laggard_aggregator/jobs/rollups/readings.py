"""Readings of cumulative counters, by component and time."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import BoolArray, IntArray

SECOND_NS = 1_000_000_000

Column = NDArray[np.int64] | NDArray[np.float64]


@dataclass(slots=True)
class CounterReadings:
    """N readings in the order of component and tick, no two of one component and tick.

    `component` (N,): numbers of `Components`. `limit_ns`: longest difference that ends here. `values` (N,):
    by the column of a cumulative field; `known` (N,): of those that are not known throughout. `started`:
    START_TIME, 0 where unknown.
    """

    component: IntArray
    tick_ns: IntArray
    read_ns: IntArray
    limit_ns: IntArray
    started: IntArray
    values: dict[str, Column] = field(default_factory=dict)
    known: dict[str, BoolArray] = field(default_factory=dict)

    def only(self, rows: IntArray | BoolArray) -> "CounterReadings":
        """The same of some rows."""
        return CounterReadings(
            self.component[rows],
            self.tick_ns[rows],
            self.read_ns[rows],
            self.limit_ns[rows],
            self.started[rows],
            {name: column[rows] for name, column in self.values.items()},
            {name: column[rows] for name, column in self.known.items()},
        )


class Components:
    """Numbers of components by node and id, and the newest name of each."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []
        self.names: dict[int, tuple[int, str]] = {}
        self._number: dict[tuple[str, str], int] = {}

    def number(self, node: str, component: str) -> int:
        """Number of a component, given at its first use."""
        key = (node, component)
        found = self._number.get(key)
        if found is None:
            found = self._number[key] = len(self.keys)
            self.keys.append(key)
        return found

    def named(self, number: int, tick_ns: int, name: str) -> None:
        """Notes a name as of a tick; of two at once the one later in the alphabet counts."""
        self.names[number] = max(self.names.get(number, (0, "")), (tick_ns, name))

    def ranks(self) -> IntArray:
        """Place of each number in the order of node and component."""
        order = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks


def sorted_readings(found: list[CounterReadings]) -> CounterReadings:
    """Rows of several in the order of component and tick, one of each component and tick.

    Where two have the same the order of arrival does not decide.
    """
    joined = joined_readings(found)
    rows = _in_order(joined)
    component, tick = joined.component[rows], joined.tick_ns[rows]
    again = (component[1:] == component[:-1]) & (tick[1:] == tick[:-1])
    if again.any():  # sent or written twice
        ties = [joined.values[name] for name in sorted(joined.values)]
        rows = np.lexsort((*ties, joined.read_ns, joined.tick_ns, joined.component))
        rows = rows[np.insert(~again, 0, True)]
    return joined.only(rows)


def _in_order(readings: CounterReadings) -> IntArray:
    """The order of component and tick, of equal ones that of the rows.

    Ticks of a component mostly come in order; then a sort by component alone is enough, by radix where its
    numbers are small.
    """
    component = readings.component
    small = component.size and component.max() < 1 << 16
    rows: IntArray = np.argsort(component.astype(np.uint16) if small else component, kind="stable")
    tick, sorted_component = readings.tick_ns[rows], component[rows]
    if ((tick[1:] < tick[:-1]) & (sorted_component[1:] == sorted_component[:-1])).any():
        return np.lexsort((readings.tick_ns, component))
    return rows


def joined_readings(found: list[CounterReadings]) -> CounterReadings:
    """Rows of several, in this order, with the columns of all."""
    found = [each for each in found if each.tick_ns.size]
    if not found:
        none = np.zeros(0, dtype=np.int64)
        return CounterReadings(none, none, none, none, none)
    if len(found) == 1:
        return found[0]
    names = dict.fromkeys(name for each in found for name in each.values)
    sizes = [each.tick_ns.size for each in found]
    values: dict[str, Column] = {}
    known: dict[str, BoolArray] = {}
    for name in names:
        values[name] = np.concatenate(
            [each.values.get(name, np.zeros(n, dtype=np.int64)) for each, n in zip(found, sizes, strict=True)]
        )
        if any(name in each.known or name not in each.values for each in found):
            known[name] = np.concatenate(
                [
                    each.known.get(name, np.full(n, name in each.values))
                    for each, n in zip(found, sizes, strict=True)
                ]
            )
    return CounterReadings(
        np.concatenate([each.component for each in found]),
        np.concatenate([each.tick_ns for each in found]),
        np.concatenate([each.read_ns for each in found]),
        np.concatenate([each.limit_ns for each in found]),
        np.concatenate([each.started for each in found]),
        values,
        known,
    )
