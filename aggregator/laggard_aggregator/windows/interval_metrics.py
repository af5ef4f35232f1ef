"""Readings at the boundaries of open intervals, and the metrics of a peer group by interval.

Interval k covers the nominal times ((k - 1) D, k D], where D is the detection interval. A rate over an
interval needs only the readings at its two ends, so one row per component and interval is enough for any
sampling interval of the agents. Values are int64, as float64 loses integers past 2^53.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.metrics.definition import Differences, IntArray, Metric

MAX_SLOTS = 4096
_ARRAYS = ("values", "tick", "read", "reset")
BRIDGE = 4
"""Longest span of one difference, in intervals."""
_BASE = ("_base", "_base_read", "_base_interval")
_CHUNK = 65_536  # readings differenced at once: bounds the memory of a close, and fits the cache


class CounterRing:
    """Readings after the watermark (an interval number), written in any order. Rows are components.

    It has `slots` intervals, grows while readings lie further ahead (windows close late, a clock is ahead),
    and shrinks afterwards.

    `tick` (slots, rows): nominal time of the reading, ns, 0 for none. `read`: time of reading. `reset`:
    whether a counter fell inside the interval. `values` (slots, rows, counters).
    """

    def __init__(self, counters: int, watermark: int, slots: int) -> None:
        self.watermark = watermark
        self._least = slots
        self.values = np.zeros((slots, 0, counters), dtype=np.int64)
        self.tick = np.zeros((slots, 0), dtype=np.int64)
        self.read = np.zeros((slots, 0), dtype=np.int64)
        self.reset = np.zeros((slots, 0), dtype=np.bool_)

    @property
    def slots(self) -> int:
        """Number of open intervals it has room for."""
        return self.tick.shape[0]

    def grow_rows(self, rows: int) -> None:
        """Grows to `rows` components."""
        more = rows - self.tick.shape[1]
        self.values = np.pad(self.values, ((0, 0), (0, more), (0, 0)))
        self.tick = np.pad(self.tick, ((0, 0), (0, more)))
        self.read = np.pad(self.read, ((0, 0), (0, more)))
        self.reset = np.pad(self.reset, ((0, 0), (0, more)))

    def reaches(self, interval: int) -> bool:
        """Whether there is room for `interval`, growing up to MAX_SLOTS if need be."""
        ahead = interval - self.watermark
        if ahead <= self.slots:
            return True
        if ahead > MAX_SLOTS:
            return False
        self._resize(min(max(ahead, 2 * self.slots), MAX_SLOTS))
        return True

    def write(
        self,
        interval: int,
        rows: IntArray,
        values: IntArray,
        tick_ns: int,
        read_ns: int,
        *,
        in_order: bool = False,
    ) -> None:
        """Stores a reading of distinct `rows` where it is the newest of its interval; always with `in_order`.

        `values` (len(rows), counters). The interval lies after the watermark and `reaches`.
        """
        slot = interval % self.slots
        tick = self.tick[slot]
        if not in_order:
            newer = tick[rows] < tick_ns
            rows, values = rows[newer], values[newer]
        tick[rows] = tick_ns
        self.read[slot][rows] = read_ns
        self.values[slot][rows] = values

    def write_together(
        self, intervals: IntArray, rows: IntArray, values: IntArray, tick_ns: IntArray, read_ns: IntArray
    ) -> None:
        """Stores K readings as `write` with `in_order`, no two of one row and interval.

        `intervals`, `tick_ns`, `read_ns` (K,), `rows` (K, c), `values` (K, c, counters).
        """
        slots = (intervals % self.slots)[:, None]
        self.tick[slots, rows] = tick_ns[:, None]
        self.read[slots, rows] = read_ns[:, None]
        self.values[slots, rows] = values

    def mark_reset(self, intervals: IntArray, rows: IntArray) -> None:
        """Marks a reset of each of `rows` inside its interval."""
        self.reset[intervals % self.slots, rows] = True

    def open_until(self, interval: int) -> IntArray:
        """The slots of the intervals after the watermark up to `interval`, in order."""
        count = min(max(interval - self.watermark, 0), self.slots)
        return (self.watermark + 1 + np.arange(count, dtype=np.int64)) % self.slots

    def advance(self, interval: int) -> None:
        """Moves the watermark to `interval`, frees the slots before it, and shrinks the ring if it can.

        The size needed covers the readings stored now and those to come until the watermark moves as far
        again. It follows from `state` alone, so that a restored ring has the same size.
        """
        done = self.open_until(interval)
        self.tick[done] = 0
        self.reset[done] = False
        moved = max(interval - self.watermark, 0)
        self.watermark += moved
        if self.slots > self._least:
            ahead = (np.flatnonzero(self._used()) - self.watermark - 1) % self.slots + 1
            needed, slots = int(ahead.max(initial=0)) + moved, self._least
            while slots < needed:
                slots *= 2
            if slots < self.slots:
                self._resize(slots)

    def state(self, rows: int) -> dict[str, Any]:
        """State of the first `rows` components, without empty slots."""
        used = np.flatnonzero(self._used())
        return {
            "watermark": self.watermark,
            "slots": self.slots,
            "used": used,
            **{name: getattr(self, name)[used, :rows] for name in _ARRAYS},
        }

    def restore(self, state: Mapping[str, Any], rows: int) -> None:
        """Restores `state(rows)` of a ring with the same counters. Raises ValueError when it is malformed."""
        slots, watermark, used = state["slots"], state["watermark"], state["used"]
        if not self.slots <= slots <= MAX_SLOTS or not 0 <= watermark < 2**62:
            raise ValueError("a ring out of bounds")
        if used.size and not 0 <= used.min() <= used.max() < slots:
            raise ValueError("a ring's slots out of bounds")
        self.watermark = watermark
        for name in _ARRAYS:
            kept, mine = state[name], getattr(self, name)
            if kept.shape != (used.size, rows, *mine.shape[2:]) or kept.dtype != mine.dtype:
                raise ValueError(f"a ring's {name} of shape {kept.shape}")
            whole = np.zeros((slots, *mine.shape[1:]), dtype=mine.dtype)
            whole[used, :rows] = kept
            setattr(self, name, whole)

    def keep_rows(self, keep: IntArray) -> None:
        """Drops all components except the rows `keep`, which are renumbered."""
        for name in _ARRAYS:
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, keep]))

    def _used(self) -> BoolArray:
        """The slots in use: (slots,)."""
        return np.logical_or(self.tick.any(axis=1), self.reset.any(axis=1))

    def _resize(self, slots: int) -> None:
        """Resizes to `slots`; readings further ahead are dropped."""
        intervals = self.watermark + 1 + np.arange(min(self.slots, slots), dtype=np.int64)
        old, new = intervals % self.slots, intervals % slots
        for name in _ARRAYS:
            before = getattr(self, name)
            after = np.zeros((slots, *before.shape[1:]), dtype=before.dtype)
            after[new] = before[old]
            setattr(self, name, after)


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
        """Restores `state(rows)` of the same metrics, the newest columns of it. Raises ValueError."""
        for name in _BASE:
            put_rows(getattr(self, name), state[name], rows)
        for rings, kept in ((self.metrics, state["metrics"]), (self.load, state["load"])):
            for name, ring in rings.items():
                put_rows(ring, _newest(kept[name], self._columns), rows)

    def _difference(self, ring: CounterRing, slots: IntArray, end: int, rows: slice) -> None:
        """Fills the columns of `rows` from the ring's `slots`; the last is that of `end`."""
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


def _newest(kept: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """The last `columns` of `kept`, NaN before them where it has fewer. Raises ValueError."""
    if kept.ndim != 2:
        raise ValueError(f"an array of shape {kept.shape}")
    lacking = max(columns - kept.shape[1], 0)
    return np.hstack([_missing(len(kept), lacking), kept[:, kept.shape[1] - columns + lacking :]])


def _missing(rows: int, columns: int) -> NDArray[np.float32]:
    return np.full((rows, columns), np.nan, dtype=np.float32)
