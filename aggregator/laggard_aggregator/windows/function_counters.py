"""Function counters of one node: cumulative counters in, rises by detection interval out.

All functions of a node come in one message with one time of reading, so times, resets and gaps are the
node's. A new function counts from 0. A function missing from readings, because its row went to a busier one,
continues from its last value (a tracer's), or from 0 if its value is lower (a profiler's).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.metrics.definition import FloatArray, IntArray
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.interval_metrics import BRIDGE
from laggard_common import wire
from laggard_common.wire.schema import Schema


@dataclass(slots=True)
class _Last:
    """The newest reading of an interval: `values` (c, counters) of `rows` (c,). `reset`: a counter fell."""

    tick_ns: int
    read_ns: int
    rows: IntArray
    values: IntArray
    reset: bool


_ARRAYS = {
    "rows": 0,
    "ids": 0,
    "_rises": 1,
    "_covered": None,
    "_base": 0,
    "_base_told": 0,
    "_latest": 0,
    "_latest_told": 0,
}
"""By name, the axis with one entry per function (of `rows`: per place), None without such an axis."""


class NodeFunctions:
    """One node's functions, one row each in the order of the schema.

    `ids` (rows,): their numbers in the group. `rows` (places,): the row of each of the schema's components,
    -1 if not compared.
    """

    def __init__(self, schema: Schema, width: int, intervals: int, interval_ns: int) -> None:
        """`width`: counters per function. `intervals`: intervals per window."""
        self.schema = schema
        self.rows = np.zeros(0, dtype=np.int64)
        self.ids = np.zeros(0, dtype=np.int64)
        self._interval_ns = interval_ns
        self._open: dict[int, _Last] = {}
        self._rises = np.zeros((intervals, 0, width))
        self._covered = np.zeros(intervals)
        # The last reading before the watermark: the start of the next difference.
        self._base = np.zeros((0, width), dtype=np.int64)
        self._base_told = np.zeros(0, dtype=np.bool_)
        self._base_read = 0
        self._base_interval: int | None = None
        # The newest reading, to detect resets between messages.
        self._latest = np.zeros((0, width), dtype=np.int64)
        self._latest_told = np.zeros(0, dtype=np.bool_)
        self.latest_tick_ns = 0
        """Nominal time of the newest reading, 0 before the first."""

    def continues(self, schema: Schema) -> bool:
        """Whether `schema` is this node's schema, or an earlier or later epoch of it."""
        if schema is self.schema:
            return True
        shared = min(len(schema.components), len(self.schema.components))
        return (
            schema.stream == self.schema.stream
            and schema.components[:shared] == self.schema.components[:shared]
        )

    def grow(self, schema: Schema, rows: IntArray, ids: IntArray) -> None:
        """Switches to a later epoch: `rows` (places,) extends the earlier one, `ids` are of all rows."""
        self.schema, self.rows, self.ids = schema, rows, ids
        more = ids.size - self._base.shape[0]
        self._base = np.pad(self._base, ((0, more), (0, 0)))
        self._latest = np.pad(self._latest, ((0, more), (0, 0)))
        self._base_told = np.pad(self._base_told, (0, more))
        self._latest_told = np.pad(self._latest_told, (0, more))
        self._rises = np.pad(self._rises, ((0, 0), (0, more), (0, 0)))

    def state(self) -> dict[str, Any]:
        """State as plain data and copied arrays."""
        return {
            "schema": wire.encode_schema(self.schema),
            "open": [
                (at, last.tick_ns, last.read_ns, last.rows, last.values, last.reset)
                for at, last in self._open.items()
            ],
            "base": (self._base_read, self._base_interval, self.latest_tick_ns),
            "arrays": {name: getattr(self, name).copy() for name in _ARRAYS},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()` of a node with this schema and the same counters.

        Raises ValueError when it is malformed.
        """
        arrays = state["arrays"]
        places, functions = arrays["rows"].size, arrays["ids"].size
        for name, rows in _ARRAYS.items():
            mine, kept = getattr(self, name), arrays[name]
            shape = list(mine.shape)
            if rows is not None:
                shape[rows] = places if name == "rows" else functions
            if list(kept.shape) != shape or kept.dtype != mine.dtype:
                raise ValueError(f"functions' {name} of shape {kept.shape}")
            setattr(self, name, kept)
        if places and not -1 <= self.rows.min() <= self.rows.max() < functions:
            raise ValueError("rows of functions out of bounds")
        for at, tick_ns, read_ns, rows, values, reset in state["open"]:
            if values.shape != (rows.size, self._base.shape[1]) or (
                rows.size and not 0 <= rows.min() <= rows.max() < functions
            ):
                raise ValueError("an open interval of another shape")
            self._open[int(at)] = _Last(int(tick_ns), int(read_ns), rows, values, bool(reset))
        self._base_read, self._base_interval, self.latest_tick_ns = state["base"]

    def add(self, block: Block) -> int:
        """Stores a message's counters, none of them late; returns the number of resets."""
        ticks = block.tick_ns
        fell = self._falls(block)
        intervals = -(-ticks // self._interval_ns)
        ends = [*np.flatnonzero(intervals[1:] != intervals[:-1]).tolist(), ticks.size - 1]
        first = 0
        for end in ends:
            self._keep(
                int(intervals[end]),
                _Last(
                    int(ticks[end]),
                    int(block.read_ns[end]),
                    block.indexes,
                    block.values[end].copy(),
                    bool(fell[first : end + 1].any()),
                ),
            )
            first = end + 1
        return int(np.count_nonzero(fell))

    def close(self, watermark: int, end: int) -> None:
        """Closes the open intervals after `watermark` up to `end`."""
        self._shift_left(end - watermark)
        for interval in sorted(at for at in self._open if at <= end):
            last = self._open.pop(interval)
            if self._base_interval is not None:
                self._difference(last, interval, end)
            self._base[last.rows] = last.values
            self._base_told[:] = False
            self._base_told[last.rows] = True
            self._base_read, self._base_interval = last.read_ns, interval

    def covered(self, intervals: int) -> float:
        """Seconds of the last `intervals` with data."""
        return float(self._covered[self._covered.size - intervals :].sum())

    def sums(self, seconds: float) -> FloatArray:
        """The window's rises (rows, counters), scaled from the time with data to `seconds`."""
        sums: FloatArray = self._rises.sum(axis=0) * (seconds / self._covered.sum())
        return sums

    def _falls(self, block: Block) -> NDArray[np.bool_]:
        """The ticks with a counter lower than before, inside the message or in the newest one before it."""
        rows, values, ticks = block.indexes, block.values, block.tick_ns
        fell = np.zeros(ticks.size, dtype=np.bool_)
        inside = values[:, : rows.size - block.idle]
        fell[1:] = (inside[1:] < inside[:-1]).any(axis=(1, 2))
        if ticks[0] > self.latest_tick_ns:
            fell[0] = (values[0] < self._latest[rows])[self._latest_told[rows]].any()
        if ticks[-1] > self.latest_tick_ns:
            self._latest[rows] = values[-1]
            self._latest_told[:] = False
            self._latest_told[rows] = True
            self.latest_tick_ns = int(ticks[-1])
        return fell

    def _keep(self, interval: int, last: _Last) -> None:
        known = self._open.get(interval)
        if known is None:
            self._open[interval] = last
        elif known.tick_ns < last.tick_ns:
            last.reset |= known.reset
            self._open[interval] = last
        else:
            known.reset |= last.reset

    def _difference(self, last: _Last, interval: int, end: int) -> None:
        """Spreads the rise since the base evenly over the intervals between; none after a reset."""
        assert self._base_interval is not None
        rises = last.values - self._base[last.rows]
        fell = (rises < 0).any(axis=1)
        begun = fell & ~self._base_told[last.rows]
        rises[begun] = last.values[begun]
        span = interval - self._base_interval
        seconds = (last.read_ns - self._base_read) / 1e9
        if last.reset or (rises < 0).any():
            self._base[:] = 0  # all counters restarted, including those missing since
            return
        if span > BRIDGE or seconds <= 0:
            return
        newest = self._covered.size - 1 - (end - interval)
        for at in range(max(newest - span + 1, 0), newest + 1):
            self._rises[at, last.rows] = rises / span
            self._covered[at] = seconds / span

    def _shift_left(self, intervals: int) -> None:
        keep = max(self._covered.size - intervals, 0)
        for ring in (self._rises, self._covered):
            ring[:keep] = ring[self._covered.size - keep :].copy()
            ring[keep:] = 0
