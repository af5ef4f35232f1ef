"""Metrics of one peer group by interval, derived from its counters at interval boundaries.

When a window closes, the intervals up to its end are differenced once, with the times of reading. A component
that missed up to BRIDGE intervals gets their mean in each, so that a missed sample costs only resolution; an
interval with a counter reset has no value.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.metrics.definition import Differences, IntArray, Metric
from laggard_aggregator.windows.counter_ring import CounterRing

BRIDGE = 4
"""Longest span of one difference, in intervals."""

_BASE = ("_base", "_base_read", "_base_interval")
_CHUNK = 65_536  # readings differenced at once: bounds the memory of a close, and fits the cache


class IntervalMetrics:
    """Metrics of every component, one row each, in the closed intervals.

    `metrics`, `load`: by name, float32 (rows, columns), the newest interval last, NaN where data is missing.
    """

    def __init__(
        self,
        counters: tuple[str, ...],
        metrics: Mapping[str, Metric],
        load: Mapping[str, Metric],
        columns: int,
    ) -> None:
        """`counters`: the ring's, in its order. `columns`: number of intervals kept."""
        self._counters = counters
        self._derived, self._derived_load = metrics, load
        self._columns = columns
        self.metrics = {name: _missing(0, columns) for name in metrics}
        self.load = {name: _missing(0, columns) for name in load}
        # The last reading before the watermark: the start of the next difference.
        self._base = np.zeros((0, len(counters)), dtype=np.int64)
        self._base_read = np.zeros(0, dtype=np.int64)
        self._base_interval = np.zeros(0, dtype=np.int64)

    def close(self, ring: CounterRing, end: int, rows: int) -> None:
        """Derives the metrics of the first `rows` components up to the interval `end`."""
        self._shift_left(end - ring.watermark)
        slots = ring.open_until(end)
        rows_at_once = max(_CHUNK // (slots.size + 1), 1)
        for first in range(0, rows, rows_at_once):
            self._difference(ring, slots, end, slice(first, min(first + rows_at_once, rows)))

    def grow_rows(self, rows: int) -> None:
        """Grows to `rows` components."""
        more = rows - self._base_read.size
        for rings in (self.metrics, self.load):
            for name, ring in rings.items():
                rings[name] = np.concatenate([ring, _missing(more, self._columns)])
        for name in ("_base_read", "_base_interval"):
            setattr(self, name, np.pad(getattr(self, name), (0, more)))
        self._base = np.pad(self._base, ((0, more), (0, 0)))

    def keep_rows(self, keep: IntArray) -> None:
        """Drops all components except the rows `keep`, which are renumbered."""
        for name in _BASE:
            setattr(self, name, getattr(self, name)[keep])
        for rings in (self.metrics, self.load):
            for name, ring in rings.items():
                rings[name] = ring[keep]

    def state(self, rows: int) -> dict[str, Any]:
        """State of the first `rows` components as copied arrays."""
        return {
            "metrics": {name: ring[:rows].copy() for name, ring in self.metrics.items()},
            "load": {name: ring[:rows].copy() for name, ring in self.load.items()},
            **{name: getattr(self, name)[:rows].copy() for name in _BASE},
        }

    def restore(self, state: Mapping[str, Any], rows: int) -> None:
        """Restores `state(rows)` of the same metrics. Raises ValueError when it is malformed."""
        for name in _BASE:
            put_rows(getattr(self, name), state[name], rows)
        for rings, kept in ((self.metrics, state["metrics"]), (self.load, state["load"])):
            for name, ring in rings.items():
                put_rows(ring, kept[name], rows)

    def _difference(self, ring: CounterRing, slots: IntArray, end: int, rows: slice) -> None:
        """Fills the columns of `rows` from the ring's `slots`, the last of which is that of `end`."""
        first = ring.watermark + 1
        present = ring.tick[slots, rows] > 0  # (S, C)
        known = self._base_interval[rows] > 0
        # For each slot and component the place of the reading before it: -1 the base, -2 none.
        places = np.where(present, np.arange(slots.size)[:, None], -2)
        before = np.maximum.accumulate(np.vstack([np.where(known, -1, -2)[None, :], places]))[:-1]
        at, component = np.nonzero(present & (before > -2))
        came = before[at, component]
        from_base = came < 0
        row = component + rows.start
        previous_slot = slots[np.maximum(came, 0)] if slots.size else came
        start = np.where(from_base[:, None], self._base[row], ring.values[previous_slot, row])
        start_read = np.where(from_base, self._base_read[row], ring.read[previous_slot, row])
        start_interval = np.where(from_base, self._base_interval[row], first + came)
        slot = slots[at]
        rises = ring.values[slot, row] - start
        seconds = (ring.read[slot, row] - start_read) / 1e9
        span = first + at - start_interval
        good = (span <= BRIDGE) & (seconds > 0) & (rises >= 0).all(axis=1) & ~ring.reset[slot, row]
        differences = Differences(self._counters, rises[good], seconds[good])
        self._fill(differences, row[good], (end - first - at)[good], span[good])
        self._rebase(ring, slots, first, rows, present)

    def _fill(self, differences: Differences, row: IntArray, back: IntArray, span: IntArray) -> None:
        """Writes derived values into the column `back` before the last, and into the others spanned."""
        for metrics, rings in ((self._derived, self.metrics), (self._derived_load, self.load)):
            for name, metric in metrics.items():
                values = metric.derive(differences)
                if metric.amount:
                    values = values / span
                for earlier in range(int(span.max(initial=0))):
                    column = self._columns - 1 - back - earlier
                    inside = (span > earlier) & (column >= 0)
                    rings[name][row[inside], column[inside]] = values[inside]

    def _rebase(
        self, ring: CounterRing, slots: IntArray, first: int, rows: slice, present: NDArray[np.bool_]
    ) -> None:
        """Makes each component's last reading in `slots` its base."""
        if not slots.size:
            return
        some = present.any(axis=0)
        last = slots.size - 1 - present[::-1].argmax(axis=0)[some]
        row = np.flatnonzero(some) + rows.start
        self._base[row] = ring.values[slots[last], row]
        self._base_read[row] = ring.read[slots[last], row]
        self._base_interval[row] = first + last

    def _shift_left(self, intervals: int) -> None:
        """Shifts the columns by `intervals` new ones."""
        keep = max(self._columns - intervals, 0)
        for ring in (*self.metrics.values(), *self.load.values()):
            ring[:, :keep] = ring[:, self._columns - keep :].copy()
            ring[:, keep:] = np.nan


def put_rows(into: NDArray[Any], kept: NDArray[Any], count: int) -> None:
    """Copies `count` restored rows. Raises ValueError on another shape or type."""
    if kept.shape != (count, *into.shape[1:]) or kept.dtype != into.dtype:
        raise ValueError(f"an array of shape {kept.shape}")
    into[:count] = kept


def _missing(rows: int, columns: int) -> NDArray[np.float32]:
    return np.full((rows, columns), np.nan, dtype=np.float32)
