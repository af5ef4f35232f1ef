"""The aggregator's deterministic state machine: messages, closes, sweeps and forget requests in; results out.

No clock, no event loop. Every event that changes lasting state is recorded as a journal entry before its
effect is visible. The same entries in the same order give the same judgements to the bit, in a restart from
the journal and in the replay of an archive.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from laggard_aggregator.alarms.alarms import AlarmEvent, AlarmsCleared
from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.alarms.overrides import Overrides
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.interface import FunctionWindow, IntArray, Window, without
from laggard_aggregator.engine.node_evidence import NodeEvidence
from laggard_aggregator.engine.routes import FunctionRoute
from laggard_aggregator.engine.routing import Routing
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup
from laggard_aggregator.groups.patterns import covering
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.admission import NO_ROOM, Admission, Room
from laggard_aggregator.ingest.batches import Accepted, Document, Message
from laggard_aggregator.ingest.decode import MOST_VALUES
from laggard_aggregator.log.entries import (
    BatchEntry,
    ForgetEntry,
    LogEntry,
    LogSequence,
    SchemaEntry,
    SweepEntry,
    WindowClose,
)
from laggard_aggregator.windows.counter_block import StoreCounts
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.schedule import WindowSchedule
from laggard_aggregator.windows.store import BulkStore, GroupStore

_log = logging.getLogger(__name__)

Result = Accepted | WindowClose | Judgement | AlarmsCleared
"""A result of an entry, as the archive records it."""


class Machine:
    """Admission, groups with their stores and windows, judge, overrides.

    `forget_ns`: nodes and components that are silent for longer are dropped. `groups`, `stores`: by group
    name. `refused`: components without room, by reason. A caller serializes all methods except
    `judge.evaluate`, which may run beside `receive`.
    """

    def __init__(
        self,
        membership: ConfiguredMembership,
        topology: Topology | None = None,
        *,
        lateness_seconds: float,
        after_seconds: float = 0.0,
        site: str = "",
        forget_ns: int = 2**62,
    ) -> None:
        self.membership = membership
        self.topology = topology or Topology()
        self.sequence = LogSequence()
        self.admission = Admission(site, self.sequence)
        self.windows = WindowSchedule(round(lateness_seconds * 1e9))
        self.judge = Judge({}, after_seconds, self.topology)
        self.overrides = Overrides()
        self.evidence = NodeEvidence()
        self.samples = self.windows_closed = 0
        self.refused: Counter[str] = Counter()
        self._routing = Routing(membership, self.judge, self.windows, self.refused)
        self.groups = self._routing.groups
        self.stores = self._routing.stores
        self.unread: list[BatchEntry] = []
        """Accepted batches of a replay whose schema was damaged in the journal. They had no effect."""
        self._cleared: list[AlarmEvent] = []
        self._forget_ns = forget_ns

    @property
    def names(self) -> Mapping[str, str]:
        """Current names of components by permanent ID."""
        return self._routing.names

    def hosts(self) -> Mapping[str, str]:
        """The nodes of the components that may move between nodes."""
        return self._routing.hosts()

    def record(self, record: Callable[[LogEntry], None]) -> None:
        """Calls `record` with every entry from now on, in the caller's thread."""
        self.admission.record = record

    def receive(
        self, messages: Sequence[Message], room: Room | None = None, *, replayed: bool = False
    ) -> Iterator[Accepted]:
        """Admits and stores messages; yields the accepted ones. To be iterated to the end.

        `room`: free space of the archive's queue. A batch beyond it is judged but not accepted. `replayed`:
        from the journal.
        """
        run: list[Message] = []
        for message in messages:
            run.append(message)
            if "/schema/" in message[0]:  # may release many batches
                yield from self.store(self.admission.receive(run, room, replayed=replayed))
                run = []
        yield from self.store(self.admission.receive(run, room, replayed=replayed))

    def store(self, batches: Iterable[Accepted]) -> Iterator[Accepted]:
        """Stores batches; yields the accepted ones, their late ticks flagged. To be iterated to the end.

        Documents are yielded as they are.
        """
        bulk, waiting = BulkStore(), set[tuple[str, str]]()
        known = self._routing.routes
        for batch in batches:
            if isinstance(batch, Document):
                yield batch
                continue
            counters, name = batch.counters, (batch.schema.node, batch.schema.source)
            self.evidence.add(batch)
            if not counters.indexes.size:
                if batch.accepted:
                    yield batch  # no effect on any store, as it leaves no row in the archive for a replay
                continue
            routes = known.get(name)
            if name in waiting or routes is None or not routes.match(batch):
                bulk.flush()
                waiting.clear()
                routes = self._routing.routes_of(batch)
            alone = routes.alone or counters.present is not None or counters.values.size > MOST_VALUES
            waiting.add(name)
            late_ns = -1
            for route in routes.routes:
                late_ns = max(late_ns, route.store.watermark_ns)
                if isinstance(route, FunctionRoute):
                    route.store.add(route.node, route.block(batch), batch.received_ns)
                    continue
                if late := route.late(counters):
                    route.store.counts.late += late
                    continue
                block, origins = self._routing.block(route, batch)
                if not block.indexes.size:
                    continue
                if not alone and isinstance(origins, int):
                    bulk.add(route.store, block, batch.received_ns, origins if route.varies else 0)
                    continue
                if route.varies:
                    route.store.set_origin(block.indexes, origins)
                route.store.add(block, batch.received_ns)
            if batch.accepted:
                self.samples += counters.tick_ns.size * counters.indexes.size
                on_time = counters.tick_ns[0] > late_ns
                yield batch if on_time else replace(batch, late=counters.tick_ns <= late_ns)
        bulk.flush()

    def closes(self, due: Sequence[tuple[str, int, int]], now_ns: int) -> Iterator[WindowClose]:
        """The closes of windows that are due. Each is to be sealed before the next is requested."""
        for group, end_ns, _ in due:
            end = end_ns / 1e9
            start = end - self.stores[group].window_seconds
            drained, restart = self._overridden(group)
            self.sequence.last += 1
            close = WindowClose(self.sequence.last, group, start, end, now_ns / 1e9, drained, restart)
            self.admission.record(close)
            yield close

    def rewinds(self, now_ns: int) -> Iterator[WindowClose]:
        """Closes without a window, of groups that closed one after `now_ns` while the clock was ahead.

        Each sets its group back, so that data are not late, and is to be sealed before the next is requested.
        """
        for group, end_ns in self.windows.ahead(now_ns):
            self.sequence.last += 1
            end = end_ns / 1e9
            close = WindowClose(self.sequence.last, group, end, end, now_ns / 1e9)
            self.admission.record(close)
            yield close

    def seal(self, close: WindowClose) -> Window | None:
        """The window that `close` closes, None without data; ticks received for it later are late.

        Drops the state of the components to restart first.
        """
        store = self.stores.get(close.group)
        if close.start == close.end:
            self._rewind(close)
            return None
        self.windows_closed += 1
        if store is not None and close.restart:
            gone = set(close.restart)
            absent = gone.union(close.drained)
            left = [name for name in store.compared if name not in absent]
            self._cleared += self._forget_state(close.group, gone, left, close.end)
        end_ns = round(close.end * 1e9)
        if store is None or end_ns <= store.watermark_ns:
            return None
        window = store.close(end_ns)
        if isinstance(window, FunctionWindow):
            self.refused["functions"] += window.left_out
        elif window is not None:
            attributes = self._routing.attributes.columns(close.group, window.components)
            window = replace(window, tests_at_once=self._tests_at_once(), attributes=attributes)
        return window if window is None or not close.drained else without(window, close.drained)

    def close(self, close: WindowClose) -> tuple[Judgement, ...]:
        """Seals and judges a window in one step, as in a replay."""
        window = self.seal(close)
        return () if window is None else self.judge.evaluate(window)

    def pop_cleared(self) -> list[AlarmEvent]:
        """The alarms cleared since the last call because their components restarted."""
        cleared, self._cleared = self._cleared, []
        return cleared

    def sweep(self, now_ns: int, *, forget: bool = False) -> list[AlarmEvent]:
        """Declares old gaps; with `forget` drops silent nodes and components. Returns the alarms cleared.

        None is dropped while a batch of a silent node is not durable.
        """
        forget = forget and not self.admission.is_pending(now_ns - self._forget_ns)
        self.admission.record(SweepEntry(self.sequence.last, now_ns, forget))
        return self._sweep(now_ns, forget)

    def forget(self, target: str, now_ns: int, before_ns: int) -> tuple[list[str], list[AlarmEvent]]:
        """Drops what `target` names and is silent since `before_ns`: the nodes, and the alarms cleared.

        Raises ValueError while a batch of one of the nodes is not durable.
        """
        if self.admission.is_pending(before_ns, target):
            raise ValueError(f"{target}: its latest samples are not on the state disk yet; try again later")
        self.admission.record(ForgetEntry(self.sequence.last, now_ns, before_ns, target))
        return self._forget(target, now_ns, before_ns)

    def forget_components(
        self, before_ns: int, nodes: Collection[str], at: float, target: str = "*"
    ) -> list[AlarmEvent]:
        """Drops `nodes`, and components named by `target` without a sample since `before_ns`.

        `before_ns` is nominal time, by the node's clock. Returns the alarms cleared, at `at`.
        """
        cleared: list[AlarmEvent] = []
        dropped = False
        for name, store in self.stores.items():
            silent = self._rows_named(target, store, store.silent_since(before_ns))
            if silent.size:
                dropped = True
                gone = store.forget(silent)
                cleared += self._forget_state(name, gone, store.compared, at)
        if dropped or nodes:
            self._routing.forget(nodes)
        return cleared

    def replay(self, entry: LogEntry) -> Iterator[Result]:
        """Applies a journal entry; yields its results in order. Entries come in the order of recording."""
        if isinstance(entry, BatchEntry | SchemaEntry):
            self.sequence.last = entry.lsn - isinstance(entry, BatchEntry)
            accepted = not isinstance(entry, BatchEntry) or entry.accepted
            message = (entry.topic, entry.payload, entry.received_ns)
            yield from self.receive((message,), None if accepted else NO_ROOM, replayed=True)
            if isinstance(entry, BatchEntry) and self.admission.drop_held():
                self.sequence.last = entry.lsn  # its own: admitted with a later one it would be another batch
                if accepted:
                    self.unread.append(entry)
            self.admission.acks.durable(entry.lsn)
        elif isinstance(entry, WindowClose):
            self.sequence.last = entry.lsn
            if entry.group in self.groups:
                self.windows.closed(entry.group, round(entry.end * 1e9))
            yield entry
            yield from self.close(entry)
            yield from _with_lsn(entry.lsn, self.pop_cleared())
        elif isinstance(entry, SweepEntry):
            yield from _with_lsn(entry.lsn, self._sweep(entry.now_ns, entry.forget))
        else:
            yield from _with_lsn(entry.lsn, self._forget(entry.target, entry.now_ns, entry.before_ns)[1])

    def start_counting(self) -> None:
        """Resets all counters after a replay, whose entries were counted and are durable."""
        self.admission.acks.durable(self.sequence.last)
        self.admission.start_counting()
        self.samples = self.windows_closed = 0
        self._cleared = []
        self.refused.clear()
        for store in self.stores.values():
            store.counts = StoreCounts()

    def state(self) -> Iterator[dict[str, Any]]:
        """Groups, stores and judge as plain data and arrays: a common part, then one part per group."""
        yield {**self._routing.state(), "alarms": self.judge.alarms.state()}
        for name, store in self.stores.items():
            yield {
                "group": name,
                "spans": self.windows.spans(name),
                "store": store.state(),
                "engine": self.judge.state(name),
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the common part of `state()`. Raises ValueError when it is malformed."""
        self._routing.restore(state)
        self.judge.alarms.restore(state["alarms"])

    def restore_group(self, group: PeerGroup, state: Mapping[str, Any]) -> None:
        """Restores a group's part of `state()`. Raises ValueError on the state of another kind of group."""
        self._routing.add_group(group, 0)
        store = self.stores[group.name]
        store.restore(state["store"])
        self.judge.restore(group.name, state["engine"])
        self.windows.closed(group.name, store.watermark_ns)
        for node, span_ns in state["spans"].items():
            self.windows.announce(group.name, str(node), int(span_ns))

    def finish_restore(self, lsn: int) -> None:
        """All groups are restored, up to `lsn`; the alarms of other groups are dropped."""
        self.judge.alarms.keep_only(self.groups)
        self.sequence.last = lsn

    def _overridden(self, group: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Components of `group` that are drained, and those to restart."""
        overrides = self.overrides
        if not (overrides.decisions or overrides.restarts) or not overrides.concern(group):
            return (), ()
        return self.overrides.at_close(group, self.stores[group].compared, self.names)

    def _rewind(self, close: WindowClose) -> None:
        """Sets a group back to the end of `close`."""
        end_ns = round(close.end * 1e9)
        self.admission.nodes.rewind(round(close.closed_at * 1e9))
        if close.group in self.stores:
            self.stores[close.group].rewind(end_ns)
            self.windows.rewind(close.group, end_ns)
            self._routing.forget(())

    def _tests_at_once(self) -> int:
        """Component-metric series of the site, rounded up to a power of two so that it seldom changes."""
        series = sum(
            store.series
            for name, store in self.stores.items()
            if not registry.find(self.groups[name].detect.detector).by_itself
        )
        return 1 << max(series - 1, 0).bit_length()

    def _sweep(self, now_ns: int, forget: bool) -> list[AlarmEvent]:
        self.admission.sweep(now_ns)
        cleared = self._make_room(now_ns / 1e9)
        return cleared + (self._forget("*", now_ns, now_ns - self._forget_ns)[1] if forget else [])

    def _forget_state(
        self, group: str, gone: Collection[str], left: Sequence[str], at: float
    ) -> list[AlarmEvent]:
        """Drops the judge's state of the components that are `gone`; returns the alarms cleared."""
        return self.judge.forget(group, gone, left, at, self._routing.attributes.columns(group, left))

    def _make_room(self, at: float) -> list[AlarmEvent]:
        """Drops components that are gone, where there is little room; none with an alarm."""
        cleared: list[AlarmEvent] = []
        slow = {(group, component) for group, component, _ in self.judge.alarms.standing}
        crowds = list(self._routing.gone_from_crowds())
        for name, rows in crowds:
            store = self.stores[name]
            kept = [row for row in rows.tolist() if (name, store.components[row]) not in slow]
            gone = store.forget(np.array(kept, dtype=np.int64))
            cleared += self._forget_state(name, gone, store.compared, at)
            _log.info(
                "group %s: forgot %d components that are gone, to make room for others", name, len(gone)
            )
        if crowds:
            self._routing.forget(())
        return cleared

    def _forget(self, target: str, now_ns: int, before_ns: int) -> tuple[list[str], list[AlarmEvent]]:
        nodes = self.admission.forget(before_ns, target)
        return nodes, self.forget_components(before_ns, nodes, now_ns / 1e9, target)

    def _rows_named(self, target: str, store: GroupStore | FunctionStore, rows: IntArray) -> IntArray:
        """The `rows` whose components `target` names."""
        if target == "*" or not rows.size:
            return rows
        keys, covered = list(store.components), covering((target,))
        named = [
            row
            for row in rows.tolist()
            if covered((*store.names_of(keys[row]), self.names.get(keys[row], keys[row])))
        ]
        return np.array(named, dtype=np.int64)


def _with_lsn(lsn: int, cleared: list[AlarmEvent]) -> Iterator[AlarmsCleared]:
    if cleared:
        yield AlarmsCleared(lsn, tuple(cleared))
