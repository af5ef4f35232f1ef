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
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.keys)
            self.keys.append(key)
        return number

    def named(self, number: int, tick_ns: int, name: str) -> None:
        """Notes a name as of a tick; of two at once the one later in the alphabet counts."""
        self.names[number] = max(self.names.get(number, (0, "")), (tick_ns, name))

    def ranks(self) -> IntArray:
        """Place of each number in the order of node and component."""
        order = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks


def sorted_readings(parts: list[CounterReadings]) -> CounterReadings:
    """Rows of several in the order of component and tick, one of each component and tick.

    Where two have the same the order of arrival does not decide.
    """
    joined = joined_readings(parts)
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


def joined_readings(parts: list[CounterReadings]) -> CounterReadings:
    """Rows of several, in this order, with the columns of all."""
    parts = [part for part in parts if part.tick_ns.size]
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return CounterReadings(none, none, none, none, none)
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.values)
    sizes = [part.tick_ns.size for part in parts]
    values: dict[str, Column] = {}
    known: dict[str, BoolArray] = {}
    for name in names:
        values[name] = np.concatenate(
            [part.values.get(name, np.zeros(n, dtype=np.int64)) for part, n in zip(parts, sizes, strict=True)]
        )
        if any(name in part.known or name not in part.values for part in parts):
            known[name] = np.concatenate(
                [
                    part.known.get(name, np.full(n, name in part.values))
                    for part, n in zip(parts, sizes, strict=True)
                ]
            )
    return CounterReadings(
        np.concatenate([part.component for part in parts]),
        np.concatenate([part.tick_ns for part in parts]),
        np.concatenate([part.read_ns for part in parts]),
        np.concatenate([part.limit_ns for part in parts]),
        np.concatenate([part.started for part in parts]),
        values,
        known,
    )
