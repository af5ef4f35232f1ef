"""Ring of counters: each component's last reading in every detection interval that is still open.

Interval k covers the nominal times ((k - 1) D, k D], where D is the detection interval. A rate over an
interval needs only the readings at its two ends, so one row per component and interval is enough for any
sampling interval of the agents. Values are int64, as float64 loses integers past 2^53.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.metrics.definition import IntArray

MAX_SLOTS = 4096
_ARRAYS = ("values", "tick", "read", "reset")


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
