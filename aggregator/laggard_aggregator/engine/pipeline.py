"""From batches and window closes to judgements: what the daemon and a replay of its archive share.

No clock and no loop: the same batches and closes in the same order give the same judgements.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from laggard_aggregator.alarms.alarms import Transition
from laggard_aggregator.alarms.judge import Engine, FunctionWindow, Judgement, Window
from laggard_aggregator.alarms.overrides import covering
from laggard_aggregator.detect.interface import IntArray
from laggard_aggregator.engine.group_registry import GroupRegistry
from laggard_aggregator.engine.routing import Placement
from laggard_aggregator.engine.schema_parts import FunctionPart
from laggard_aggregator.groups.membership import Membership, PeerGroup
from laggard_aggregator.ingest.batches import TakenBatch, WindowClose
from laggard_aggregator.ingest.bulk_decode import MOST_VALUES
from laggard_aggregator.windows.bulk_store import Together
from laggard_aggregator.windows.counter_block import StoreCounts
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.schedule import DueWindow, WindowSchedule
from laggard_aggregator.windows.store import GroupStore


class Pipeline:
    """All groups with their stores, windows and the engine."""

    def __init__(self, membership: Membership, engine: Engine, lateness_seconds: float) -> None:
        self.engine = engine
        self.windows = WindowSchedule(round(lateness_seconds * 1e9))
        self.samples = 0
        self.windows_closed = 0
        self.refused: Counter[str] = Counter()
        self._registry = GroupRegistry(engine, self.windows, self.refused)
        self._placement = Placement(membership, self._registry, self.refused)
        self._ended: list[Transition] = []
        self.groups = self._registry.groups
        self.stores = self._registry.stores

    @property
    def shown(self) -> Mapping[str, str]:
        """The components' names of the day, by key."""
        return self._placement.shown

    def take(self, taken: TakenBatch) -> TakenBatch:
        """Stores a batch, and gives it back with its late ticks flagged."""
        (stored,) = self.take_all((taken,))
        return stored

    def take_all(self, batches: Iterable[TakenBatch]) -> Iterator[TakenBatch]:
        """As `take` of each; all are stored when it is seen that there are no more."""
        together, waiting = Together(), set[tuple[str, str]]()
        indexes = self._placement.indexes
        for taken in batches:
            batch, name = taken.batch, (taken.schema.node, taken.schema.source)
            if not batch.indexes.size:
                yield taken  # nobody's: it leaves no row in the archive either, so a replay goes without it
                continue
            index = indexes.get(name)
            if name in waiting or index is None or not index.reads(taken):
                together.flush()
                waiting.clear()
                index = self._placement.index(taken)
            self.samples += batch.tick_ns.size * batch.indexes.size
            alone = index.alone or batch.present is not None or batch.values.size > MOST_VALUES
            waiting.add(name)
            late_ns = -1
            for part in index.parts:
                late_ns = max(late_ns, part.store.watermark_ns)
                if isinstance(part, FunctionPart):
                    part.store.take(part.node, part.reading(taken))
                    continue
                reading, origins = part.reading(taken)
                if not reading.rows.size:
                    continue
                if not alone and isinstance(origins, int):
                    together.add(part.store, reading, origins if part.varies else 0)
                    continue
                if part.varies:
                    part.store.begin(reading.rows, origins)
                part.store.take(reading)
            yield taken if batch.tick_ns[0] > late_ns else replace(taken, late=batch.tick_ns <= late_ns)
        together.flush()

    def due(self, now_ns: int) -> list[DueWindow]:
        """The windows to be closed now."""
        return self.windows.due(now_ns)

    def seal(self, close: WindowClose) -> Window | None:
        """The window that `close` closes, None when nobody had data; what comes later for it is late.

        Before that all is dropped that is known of those to be judged afresh.
        """
        self.windows_closed += 1
        store = self.stores.get(close.group)
        if store is not None and close.afresh:
            gone = set(close.afresh)
            absent = gone.union(close.drained)
            left = [name for name in store.compared if name not in absent]
            self._ended += self.engine.forget(close.group, gone, left, close.end)
        end_ns = round(close.end * 1e9)
        if store is None or end_ns <= store.watermark_ns:
            return None
        window = store.close(end_ns)
        if isinstance(window, FunctionWindow):
            self.refused["functions"] += window.left_out
        elif window is not None:
            window = replace(window, tests_at_once=self.tests_at_once())
        return window if window is None or not close.drained else window.without(close.drained)

    def judge(self, window: Window) -> tuple[Judgement, ...]:
        """The judgements of a sealed window; may run in a thread, one at a time."""
        return self.engine.judge(window)

    def close(self, close: WindowClose) -> tuple[Judgement, ...]:
        """Seals and judges in one go, as a replay does."""
        window = self.seal(close)
        return () if window is None else self.judge(window)

    def tests_at_once(self) -> int:
        """Component-metric series of the site, up to a power of two so that it seldom changes."""
        series = sum(store.series for store in self.stores.values())
        return 1 << max(series - 1, 0).bit_length()

    def ended(self) -> list[Transition]:
        """The alarms that ended since this was last asked, as their components were to be judged afresh."""
        ended, self._ended = self._ended, []
        return ended

    def forget(
        self, before_ns: int, nodes: Collection[str], at: float, target: str = "*"
    ) -> list[Transition]:
        """Frees components without a reading since `before_ns`, and `nodes`; their alarms end at `at`.

        Only components that `target` names. `before_ns` in nominal time, which may be the node's own.
        """
        ended: list[Transition] = []
        found = False
        for name, store in self.stores.items():
            silent = self._those(target, store, store.silent_since(before_ns))
            if silent.size:
                found = True
                gone = store.forget(silent)
                ended += self.engine.forget(name, gone, store.compared, at)
        self._registry.forget(nodes)
        if found or nodes:
            self._placement.forgotten()
        return ended

    def state(self) -> Iterator[dict[str, Any]]:
        """What lasts as plain data and arrays, a group at a time; `restore` goes on exactly."""
        yield {
            **self._registry.state(),
            **self._placement.state(),
            "alarms": self.engine.alarms.state(),
        }
        for name, store in self.stores.items():
            yield {
                "group": name,
                "spans": self.windows.spans(name),
                "store": store.state(),
                "engine": self.engine.state(name),
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from the first part of `state()`. Raises ValueError on what is none."""
        self._registry.restore(state)
        self._placement.restore(state)
        self.engine.alarms.restore(state["alarms"])

    def restore_group(self, group: PeerGroup, state: Mapping[str, Any]) -> None:
        """Goes on from a group's part of `state()`. Raises ValueError when it is of another kind of group."""
        self._registry.add(group, 0)
        store = self.stores[group.name]
        store.restore(state["store"])
        self.engine.restore(group.name, state["engine"])
        self.windows.closed(group.name, store.watermark_ns)
        for node, span_ns in state["spans"].items():
            self.windows.announce(group.name, str(node), int(span_ns))

    def begin_counting(self) -> None:
        """Counts from 0."""
        self.samples = self.windows_closed = 0
        self._ended = []
        self.refused.clear()
        for store in self.stores.values():
            store.counts = StoreCounts()

    def restored(self) -> None:
        """All groups are restored that are going to be; alarms of others end without a word."""
        self.engine.alarms.only(self.groups)

    def _those(self, target: str, store: GroupStore | FunctionStore, rows: IntArray) -> IntArray:
        """The `rows` whose components `target` names."""
        if target == "*" or not rows.size:
            return rows
        keys, covered = list(store.components), covering((target,))
        named = [
            row
            for row in rows.tolist()
            if covered((*store.names_of(keys[row]), self.shown.get(keys[row], keys[row])))
        ]
        return np.array(named, dtype=np.int64)


def closes(
    due: list[DueWindow], ordinals: Iterator[int], groups: Mapping[str, PeerGroup], now_ns: int
) -> Iterator[WindowClose]:
    """The closes of windows that are due, to be recorded and replayed."""
    for window in due:
        start = window.end_ns / 1e9 - groups[window.group].detect.window_seconds
        yield WindowClose(next(ordinals), window.group, start, window.end_ns / 1e9, now_ns / 1e9)
