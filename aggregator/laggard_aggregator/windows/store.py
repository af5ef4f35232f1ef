"""Store of one peer group: counters at interval boundaries, and the metrics derived from them.

A message costs a handful of numpy calls: its counters go to the ring, and intervals with a reset are marked.
Metrics are derived when a window closes. `BulkStore` stores blocks of many messages together.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.definition import IntArray, SourceMetrics
from laggard_aggregator.windows.counter_block import Block, StoreCounts
from laggard_aggregator.windows.interval_metrics import BRIDGE, CounterRing, IntervalMetrics, put_rows

MAX_COMPONENTS = 65_536
FUTURE_NS = 5 * 1_000_000_000
"""Ticks further ahead of their reception than this and BRIDGE intervals are skipped: the clock is wrong."""

Table = NDArray[np.float32] | NDArray[np.float64]

_ABOVE_ALL = np.iinfo(np.int64).max  # any next value counts as a fall
_PER_ROW = ("_latest_tick", "_latest", "_started", "_origin")
MIN_BLOCKS = 4
"""Fewer blocks of one shape are stored one by one."""


class GroupStore:
    """The rings of one group. `watermark_ns`: end of the last closed window, a multiple of the interval."""

    def __init__(self, group: PeerGroup, source: SourceMetrics, history: int, watermark_ns: int) -> None:
        """`history`: samples before a window that the detectors need."""
        detect = group.detect
        self.group = group
        self.window_seconds = detect.window_seconds
        self.counts = StoreCounts()
        self.components: list[str] = []
        self.interval_ns = round(detect.interval_seconds * 1e9)
        self.required, self.optional = source.counters(group.metrics)
        self.counters = (*self.required, *self.optional)
        at = {name: place for place, name in enumerate(self.counters)}
        self._enough = [[at[name] for name in names] for names in source.told_by(group.metrics)]
        self._metrics = {name: source.metrics[name] for name in group.metrics}
        self._history = history
        self._shift = detect.shift_samples
        self._future_ns = FUTURE_NS + BRIDGE * self.interval_ns
        self._rows: dict[str, int] = {}
        self._kept = source.kept(group.metrics)
        self._start_over(watermark_ns)
        width = len(self.counters)
        # The newest stored reading of each component, to detect resets between messages.
        self._latest_tick = np.zeros(0, dtype=np.int64)
        self._started = np.zeros(0, dtype=np.int64)
        self._latest = np.zeros((0, width), dtype=np.int64)
        self._origin = np.zeros(0, dtype=np.int64)

    @property
    def watermark_ns(self) -> int:
        """End of the last closed window: readings at or before it are late."""
        return self._ring.watermark * self.interval_ns

    @property
    def series(self) -> int:
        """Number of series that share the site's false-alarm budget."""
        return len(self.compared) * len(self._metrics)

    @property
    def compared(self) -> list[str]:
        """The compared components."""
        return self.components

    def key(self, source: str, component: str) -> str:  # noqa: ARG002 - there is one
        """Key of the row of a source's component."""
        return component

    def names_of(self, key: str) -> tuple[str, ...]:
        """The permanent IDs that may refer to `key`."""
        return (key,)

    @property
    def live(self) -> int:
        """Number of components with data in the last `shift` intervals of the last closed window."""
        return int(np.count_nonzero(self._live))

    def rows_of(self, keys: Iterable[str], most_new: int = MAX_COMPONENTS) -> IntArray:
        """The row of each component, added if new; -1 in a full group, or after `most_new` new ones."""
        most = min(len(self._rows) + most_new, MAX_COMPONENTS)
        rows = np.fromiter((self._row(key, most) for key in keys), dtype=np.int64)
        if len(self._rows) > self._latest_tick.size:
            self._grow(min(max(64, 1 << (len(self._rows) - 1).bit_length()), MAX_COMPONENTS))
        return rows

    def knows(self, key: str) -> bool:
        """Whether a component has a row."""
        return key in self._rows

    def has_metric(self, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the counters `there` (c, counters), in this store's order, suffice for a metric: (c,)."""
        has_metric = np.zeros(there.shape[0], dtype=np.bool_)
        for needs in self._enough:
            has_metric |= there[:, needs].all(axis=1)
        return has_metric

    def set_origin(self, rows: IntArray, origin: int | IntArray) -> None:
        """Sets the origin of `rows`; no delta is computed across a change of origin.

        One origin for all rows, or one per row. An origin is a node with its set of counters.
        """
        other = rows[(self._origin[rows] != origin) & (self._origin[rows] != 0)]
        self._latest[other] = _ABOVE_ALL
        self._origin[rows] = origin

    def add(self, block: Block, received_ns: int) -> None:
        """Stores a message's counters; late and future ticks are skipped and counted."""
        ticks = block.tick_ns
        if (
            int(ticks[0]) <= self.watermark_ns
            or int(ticks[-1]) > received_ns + self._future_ns
            or not self._ring.reaches(-(-int(ticks[-1]) // self.interval_ns))
        ):
            first, last = self._usable(block, received_ns)
            if first >= last:
                return
            block = block.only(slice(first, last))
        in_order = self._mark_resets(block)
        for end in self._interval_ends(block.tick_ns):
            tick = int(block.tick_ns[end])
            self._ring.write(
                -(-tick // self.interval_ns),
                block.indexes,
                block.values[end],
                tick,
                int(block.read_ns[end]),
                in_order=in_order,
            )

    def add_bulk(self, blocks: Sequence[Block], received: IntArray, origins: IntArray) -> NDArray[np.bool_]:
        """Stores blocks of one shape, no two with a common component, as `add` would; returns which (m,).

        `received` (m,): receive times, ns. It skips blocks with late or future ticks, out of order, with a
        reset, or with another origin than before: `origins` (m,), 0 for any.
        """
        m = len(blocks)
        rows = np.concatenate([block.indexes for block in blocks]).reshape(m, -1)
        ticks = np.concatenate([block.tick_ns for block in blocks]).reshape(m, -1)
        reads = np.concatenate([block.read_ns for block in blocks]).reshape(m, -1)
        values = np.concatenate([block.values for block in blocks])
        values = values.reshape(m, ticks.shape[1], rows.shape[1], -1)
        intervals = -(-ticks // self.interval_ns)
        plain = (ticks[:, 0] > self.watermark_ns) & (ticks[:, -1] <= received + self._future_ns)
        plain &= intervals[:, -1] <= self._ring.watermark + self._ring.slots
        plain &= (self._latest_tick[rows] < ticks[:, :1]).all(axis=1)
        plain &= (origins == 0) | (self._origin[rows] == origins[:, None]).all(axis=1)
        plain &= (values[:, 0] >= self._latest[rows]).all(axis=(1, 2))
        plain &= (values[:, 1:] >= values[:, :-1]).all(axis=(1, 2, 3))
        if not plain.all():
            rows, ticks, reads, values, intervals = (
                column[plain] for column in (rows, ticks, reads, values, intervals)
            )
        self._latest_tick[rows] = ticks[:, -1:]
        self._latest[rows] = values[:, -1]
        ends = np.ones(ticks.shape, dtype=np.bool_)
        ends[:, :-1] = intervals[:, 1:] != intervals[:, :-1]
        at, tick = np.nonzero(ends)
        self._ring.write_together(
            intervals[at, tick], rows[at], values[at, tick], ticks[at, tick], reads[at, tick]
        )
        return plain

    def close(self, end_ns: int) -> GroupWindow | None:
        """The window that ends at `end_ns`, a multiple of the interval after the watermark; None when empty.

        Data up to `end_ns` is late afterwards.
        """
        end = end_ns // self.interval_ns
        self._intervals.close(self._ring, end, len(self._rows))
        self._ring.advance(end)
        return self._window(end_ns)

    def rewind(self, end_ns: int) -> None:
        """Continues without history after `end_ns`, before the watermark; components stay."""
        self._start_over(end_ns)
        self._ring.grow_rows(self._latest_tick.size)
        self._intervals.grow_rows(self._latest_tick.size)
        ahead = self._latest_tick > end_ns
        self._latest_tick[ahead] = 0
        self._latest[ahead] = 0

    def state(self) -> dict[str, Any]:
        """State as plain data and copied arrays."""
        count = len(self._rows)
        return {
            "components": list(self.components),
            "counters": list(self.counters),
            "history": self._history,
            "ring": self._ring.state(count),
            **self._intervals.state(count),
            "live": self._live,
            **{name: getattr(self, name)[:count].copy() for name in _PER_ROW},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`, also of another history. Raises ValueError on other counters or metrics."""
        keys = state["components"]
        same = (list(self.counters), set(self._intervals.metrics), set(self._intervals.load))
        if same != (state["counters"], set(state["metrics"]), set(state["load"])):
            raise ValueError("the group is compared by something else now")
        if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys) <= MAX_COMPONENTS:
            raise ValueError("components that repeat")
        self.rows_of(keys)
        count = len(keys)
        for name in _PER_ROW:
            put_rows(getattr(self, name), state[name], count)
        self._intervals.restore(state, count)
        live = state["live"]
        if live.dtype != np.bool_ or live.ndim != 1 or live.size > count:
            raise ValueError("who was live is not told")
        self._live = live
        self._ring.restore(state["ring"], count)

    def silent_since(self, before_ns: int) -> IntArray:
        """The rows of components whose newest reading is from before `before_ns`."""
        return np.flatnonzero(self._latest_tick[: len(self._rows)] < before_ns)

    def forget(self, rows: IntArray) -> list[str]:
        """Drops the `rows` and returns their components; the other rows are renumbered."""
        keep = np.setdiff1d(np.arange(len(self._rows)), rows)
        gone = [self.components[row] for row in rows]
        self.components = [self.components[row] for row in keep]
        self._rows = {key: row for row, key in enumerate(self.components)}
        self._live = self._live[keep[keep < self._live.size]]
        self._ring.keep_rows(keep)
        for name in _PER_ROW:
            setattr(self, name, getattr(self, name)[keep])
        self._intervals.keep_rows(keep)
        return gone

    def latest_ticks(self) -> IntArray:
        """Nominal time of the newest reading of each row, ns; 0 without one."""
        return self._latest_tick[: len(self._rows)]

    def origins(self) -> IntArray:
        """The latest origin of each row."""
        return self._origin[: len(self._rows)]

    def _start_over(self, watermark_ns: int) -> None:
        detect = self.group.detect
        watermark = watermark_ns // self.interval_ns
        self._ring = CounterRing(len(self.counters), watermark, slots=detect.shift_samples + 16)
        self._intervals = IntervalMetrics(
            self.counters, *self._kept, columns=self._history + detect.window_samples
        )
        self._live = np.zeros(0, dtype=np.bool_)

    def _usable(self, block: Block, received_ns: int) -> tuple[int, int]:
        """The range of ticks that are neither late nor future; counts the others."""
        ticks, components = block.tick_ns, block.indexes.size
        first = int(np.searchsorted(ticks, self.watermark_ns, side="right"))
        last = int(np.searchsorted(ticks, received_ns + self._future_ns, side="right"))
        while last > first and not self._ring.reaches(-(-int(ticks[last - 1]) // self.interval_ns)):
            last -= 1
        self.counts.late += first * components
        self.counts.future += max(ticks.size - last, 0) * components
        return first, last

    def _interval_ends(self, ticks: IntArray) -> list[int]:
        """The place of the last tick of each interval."""
        last = ticks.size - 1
        if int(ticks[0]) > (-(-int(ticks[-1]) // self.interval_ns) - 1) * self.interval_ns:
            return [last]
        intervals = -(-ticks // self.interval_ns)
        return [*np.flatnonzero(intervals[1:] != intervals[:-1]).tolist(), last]

    def _mark_resets(self, block: Block) -> bool:
        """Marks the intervals in which a counter fell, inside the message or since the newest before it.

        START_TIME marks restarted counters too, which may have grown past their earlier value. Returns
        whether every component's reading is newer than all before it.
        """
        rows, values, ticks = block.indexes, block.values, block.tick_ns
        if block.started is not None:
            self._mark_restarts(block, block.started)
        if ticks.size > 1:
            inside = values[:, : rows.size - block.idle]
            fell = inside[1:] < inside[:-1]
            if fell.any():
                tick, component = np.nonzero(fell.any(axis=2))
                self._mark(ticks[tick + 1], rows[component])
        before = self._latest_tick[rows]
        later = before < ticks[0]
        in_order = bool(later.all())
        jumped = values[0] < self._latest[rows]
        if jumped.any():
            self._mark(ticks[:1], rows[jumped.any(axis=1) & later & (before > 0)])
        last = values[-1]
        if not in_order:
            newest = before < ticks[-1]
            rows, last = rows[newest], last[newest]
        self._latest_tick[rows] = ticks[-1]
        self._latest[rows] = last
        return in_order

    def _mark_restarts(self, block: Block, started: IntArray) -> None:
        """Marks the intervals in which counters restarted without a fall.

        A component that was read without START_TIME and now has one restarted, too; one without it now is as
        it was.
        """
        rows, values = block.indexes, block.values
        later = self._latest_tick[rows] < block.tick_ns[0]
        whole = np.vstack([np.where(later, self._started[rows], started[0]), started])
        if not started.all():
            for at in range(1, len(whole)):
                whole[at] = np.where(whole[at] == 0, whole[at - 1], whole[at])
        changed = whole[1:] != whole[:-1]
        changed[0] &= self._latest_tick[rows] > 0
        tick, component = np.nonzero(changed)
        if tick.size:
            before = np.where((tick > 0)[:, None], values[tick - 1, component], self._latest[rows[component]])
            grew = (values[tick, component] >= before).all(axis=1)
            self._mark(block.tick_ns[tick[grew]], rows[component[grew]])
        restarted = later & (whole[-1] != 0)
        self._started[rows[restarted]] = whole[-1, restarted]

    def _mark(self, ticks: IntArray, rows: IntArray) -> None:
        """Marks a reset of each of `rows` at its tick, or at the only one."""
        self._ring.mark_reset(-(-ticks // self.interval_ns), rows)
        self.counts.resets += rows.size

    def _window(self, end_ns: int) -> GroupWindow | None:
        """The window of the components with data in it."""
        names, columns, load = self._tables()
        some = np.logical_or.reduce([~np.isnan(column[:, self._history :]) for column in columns.values()])
        self._live = some[:, -self._shift :].any(axis=1)
        rows = np.flatnonzero(some.any(axis=1))
        if not rows.size:
            return None
        kept = {name: column[rows].astype(np.float64) for name, column in columns.items()}
        return GroupWindow(
            group=self.group.name,
            components=tuple(names[row] for row in rows),
            start=end_ns / 1e9 - self.window_seconds,
            end=end_ns / 1e9,
            history=self._history,
            metrics={name: metric.values(name, kept, self._shift) for name, metric in self._metrics.items()},
            load={name: column[rows].astype(np.float64) for name, column in load.items()},
            worse={name: metric.worse for name, metric in self._metrics.items()},
            explanations=frozenset(name for name, metric in self._metrics.items() if metric.explains),
        )

    def _tables(self) -> tuple[list[str], Mapping[str, Table], Mapping[str, Table]]:
        """Compared components (C,), and the values of every interval for metrics and load."""
        count = len(self._rows)
        metrics = {name: ring[:count] for name, ring in self._intervals.metrics.items()}
        return self.components, metrics, {name: ring[:count] for name, ring in self._intervals.load.items()}

    def _row(self, key: str, most: int) -> int:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= most:
                return -1
            row = self._rows[key] = len(self._rows)
            self.components.append(key)
        return row

    def _grow(self, rows: int) -> None:
        more = rows - self._latest_tick.size
        self._ring.grow_rows(rows)
        self._intervals.grow_rows(rows)
        for name in ("_latest_tick", "_started", "_origin"):
            setattr(self, name, np.pad(getattr(self, name), (0, more)))
        self._latest = np.pad(self._latest, ((0, more), (0, 0)))


class BulkStore:
    """Blocks that wait for `flush`, which leaves the stores as if each had been stored when it was added."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, tuple[int, ...]], tuple[GroupStore, list[tuple[Block, int, int]]]] = {}

    def add(self, store: GroupStore, block: Block, received_ns: int, origin: int) -> None:
        """Adds a block. `origin`: the new origin of its rows, 0 for no change."""
        key = (id(store), block.values.shape)
        self._waiting.setdefault(key, (store, []))[1].append((block, received_ns, origin))

    def flush(self) -> None:
        """Stores the waiting blocks, no two of which share a component."""
        waiting, self._waiting = self._waiting, {}
        for store, added in waiting.values():
            left = added
            if len(added) >= MIN_BLOCKS:
                blocks, received, origins = zip(*added, strict=True)
                left = list(compress(added, ~store.add_bulk(blocks, np.array(received), np.array(origins))))
            for block, received_ns, origin in left:
                if origin:
                    store.set_origin(block.indexes, origin)
                store.add(block, received_ns)
