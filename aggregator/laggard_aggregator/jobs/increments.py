"""Increments of cumulative fields from one reading of a component to the next.

The rules are those of the windows: no difference is taken across a reset (a field fell, or the time since
when it counts changed) or a gap, and a sampler of long intervals has longer gaps. An increment that is not
known is a gap, never zero.
"""

from dataclasses import dataclass

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.jobs.readings import MOST_GAP_NS, Column, CounterReadings, joined_readings


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
        carried = self._last.component.size
        every = joined_readings([self._last, readings]) if carried else readings
        if carried and readings.component.size:
            order = np.lexsort((every.tick_ns, every.component))
            every, new = every.only(order), order >= carried
        else:
            new = np.full(every.component.size, not carried)
        found = _increments(every, new)
        last = np.append(
            every.component[1:] != every.component[:-1], np.ones(min(every.component.size, 1), np.bool_)
        )
        self._last = every.only(last & (every.tick_ns > until_ns - MOST_GAP_NS))
        return found


def _increments(every: CounterReadings, new: BoolArray) -> Increments:
    n = every.tick_ns.size
    same = np.zeros(n, dtype=np.bool_)
    same[1:] = every.component[1:] == every.component[:-1]
    spans = np.diff(every.tick_ns, prepend=every.tick_ns[:1])
    seconds = np.diff(every.read_ns, prepend=every.read_ns[:1])
    good = same & (spans <= every.limit_ns) & (seconds > 0)
    started = np.zeros(n, dtype=np.bool_)
    started[1:] = (
        (every.started[1:] != every.started[:-1]) & (every.started[1:] != 0) & (every.started[:-1] != 0)
    )
    good &= ~started
    rises: dict[str, Column] = {}
    both: dict[str, BoolArray] = {}
    for name, values in every.values.items():
        rise = np.zeros_like(values)
        with np.errstate(over="ignore", invalid="ignore"):
            rise[1:] = values[1:] - values[:-1]  # wraps around at 2^64 as the counter does
        there = every.known[name].copy()
        there[1:] &= every.known[name][:-1]
        good &= ~(there & ~(rise >= 0))
        rises[name], both[name] = rise, there
    chosen = good[new]
    known = {name: there[new] & chosen for name, there in both.items()}
    read = every.read_ns[new]
    return Increments(
        component=every.component[new],
        tick_ns=every.tick_ns[new],
        before_ns=np.where(chosen, read - seconds[new], read),
        read_ns=read,
        rises={name: np.where(known[name], rise[new], 0) for name, rise in rises.items()},
        known=known,
    )
