"""Increments of cumulative fields from one reading of a component to the next.

The rules are those of the windows: no difference is taken across a reset (a field fell, or the time since
when it counts changed) or a gap, and a sampler of long intervals has longer gaps. An increment that is not
known is a gap, never zero.
"""

from dataclasses import dataclass

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS
from laggard_aggregator.jobs.rollups.readings import Column, CounterReadings, joined_readings


@dataclass(frozen=True, slots=True)
class Increments:
    """N readings in the order of component and tick, each with its increments since the one before.

    `before_ns` (N,): time of reading of the one before, equal to `read_ns` where the increment is not known.
    `rises`: by field, 0 where `known` says that it is unknown.
    """

    component: IntArray
    tick_ns: IntArray
    before_ns: IntArray
    read_ns: IntArray
    rises: dict[str, Column]
    known: dict[str, BoolArray]


class IncrementStream:
    """Increments over consecutive slices; the last reading of each component is carried from one to the
    next."""

    def __init__(self) -> None:
        self._last: CounterReadings = joined_readings([])

    def add(self, readings: CounterReadings, until_ns: int) -> Increments:
        """Increments of the readings of a slice that ends at `until_ns`."""
        begins = np.diff(readings.component, prepend=-1) != 0
        increments = _increments(readings, np.flatnonzero(begins), self._last)
        absent = ~np.isin(self._last.component, readings.component[begins])
        ends = np.append(begins[1:], np.ones(min(begins.size, 1), np.bool_))
        last = joined_readings([self._last.only(absent), readings.only(ends)])
        last = last.only(last.tick_ns > until_ns - MOST_GAP_NS)
        self._last = last.only(np.argsort(last.component))
        return increments


def _increments(readings: CounterReadings, begins: IntArray, carried: CounterReadings) -> Increments:
    """Increments since the reading before; `carried` has that of components' first rows, `begins`."""
    place = np.searchsorted(carried.component, readings.component[begins])
    is_carried = place < carried.component.size
    is_carried[is_carried] = carried.component[place[is_carried]] == readings.component[begins[is_carried]]
    rows, place = begins[is_carried], place[is_carried]

    def since_before(values: Column, before: Column | None) -> Column:
        rise = np.zeros_like(values)
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(values[1:], values[:-1], out=rise[1:])  # wraps around at 2^64 as the counter does
            rise[begins] = 0
            if before is not None:
                rise[rows] = values[rows] - before[place]
        return rise

    good: BoolArray = np.ones(readings.tick_ns.size, dtype=np.bool_)
    good[begins] = False
    good[rows] = True
    seconds = since_before(readings.read_ns, carried.read_ns)
    good &= (since_before(readings.tick_ns, carried.tick_ns) <= readings.limit_ns) & (seconds > 0)
    if readings.started.any():
        started = np.zeros_like(readings.started)
        started[1:] = readings.started[:-1]
        started[rows] = carried.started[place]
        good &= (readings.started == started) | (readings.started == 0) | (started == 0)
    rises = {name: since_before(values, carried.values.get(name)) for name, values in readings.values.items()}
    both: dict[str, BoolArray] = {}
    for name, rise in rises.items():
        kept = rise >= 0
        if name in readings.known or name in carried.known or (rows.size and name not in carried.values):
            own = readings.known.get(name, np.ones(rise.size, dtype=np.bool_))
            both[name] = there = own.copy()
            there[1:] &= own[:-1]
            of_carried = carried.known.get(name, np.full(carried.component.size, name in carried.values))
            there[rows] = own[rows] & of_carried[place]
            kept |= ~there
        good &= kept
    known = {name: both[name] & good if name in both else good for name in rises}
    for name, rise in rises.items():
        rise[~known[name]] = 0
    return Increments(
        component=readings.component,
        tick_ns=readings.tick_ns,
        before_ns=np.where(good, readings.read_ns - seconds, readings.read_ns),
        read_ns=readings.read_ns,
        rises=rises,
        known=known,
    )
