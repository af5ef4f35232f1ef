"""From batches and window closes to judgements: what the daemon and a replay of its archive share.

No clock and no loop: the same batches and closes in the same order give the same judgements.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laggard_aggregator.alarms.life import Transition
from laggard_aggregator.decisions.book import covering
from laggard_aggregator.detect.seam import BoolArray, IntArray
from laggard_aggregator.engine import Engine, FunctionWindow, Judgement, Window
from laggard_aggregator.groups import Membership, PeerGroup, component_key, moves, shown_name
from laggard_aggregator.ingest.alike import MOST_VALUES
from laggard_aggregator.ingest.function_node import NodeFunctions
from laggard_aggregator.ingest.function_store import FunctionStore
from laggard_aggregator.ingest.joined_store import JoinedStore
from laggard_aggregator.ingest.reading import Reading, StoreCounts
from laggard_aggregator.ingest.store import GroupStore
from laggard_aggregator.ingest.streams import MAX_STREAMS
from laggard_aggregator.ingest.taken import TakenBatch, WindowClose
from laggard_aggregator.ingest.together import Together
from laggard_aggregator.metrics.functions import FUNCTIONS
from laggard_aggregator.metrics.joined import JoinedMetrics
from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.windows import DueWindow, WindowSchedule
from laggard_common.schema import FieldType, Schema

MAX_GROUPS = 1024
"""Of which automatic ones may be; those of the configuration always find room."""

MAX_ONE_NODE_GROUPS = MAX_GROUPS // 2
"""When there are so many groups, those whose members are of one node alone find no room any more."""

MAX_NODE_GROUPS = 64
"""Automatic groups that one node may bring into being: it must not take the others' places."""

MAX_NODE_ROWS = 16_384
"""Components that one node may bring, over all groups and over time: a quarter of a group's room."""

START_TIME = "start_time"
"""The field by which a source tells when a component's counters began: docs/wire-format.md."""

_ABSENT = -1
_ORIGIN_BITS = 20


@dataclass(frozen=True, slots=True)
class _Part:
    """One group's share of a schema. `rows` (components,): the group's rows, -1 for strangers.

    `columns` (counters,): the field of each of the store's counters, -1 for an optional one that is missing.
    `unsure`: places of optional counters that are not missing, and may still be absent of single components.
    `origin`: what the counters come from, a node and a set of them. `varies`: it may be another with a batch,
    as components may move between nodes, or some have fewer counters than others. `moving`: they may be
    components of other nodes, too. `started`: the field that tells when a component's counters began, -1
    where there is none.
    """

    store: GroupStore
    rows: IntArray
    complete: bool
    columns: IntArray
    missing: IntArray
    unsure: IntArray
    origin: int
    varies: bool
    moving: bool
    started: int

    @property
    def alone(self) -> bool:
        """Whether its readings are not to be stored together with those of other nodes."""
        return self.moving or self.started != _ABSENT


@dataclass(frozen=True, slots=True)
class _Functions:
    """A group's share of a schema whose components are functions. `columns` as in _Part."""

    store: FunctionStore
    node: NodeFunctions
    columns: IntArray


@dataclass(slots=True)
class _Members:
    """A group's components in one schema. `rows` as in _Part, None until the group reads a batch of it."""

    places: list[int]
    moving: bool
    rows: IntArray | None = None


@dataclass(frozen=True, slots=True)
class _Placing:
    """Which groups the components of a schema, sent by a node of a role, belong to."""

    schema: Schema
    role: str
    members: Mapping[str, _Members]


@dataclass(frozen=True, slots=True)
class _Index:
    """How to spread the batches of one schema with `width` of its fields over the groups of a role.

    `alone`: they are not to be stored together with those of other nodes.
    """

    schema: Schema
    role: str
    width: int
    parts: tuple[_Part | _Functions, ...]
    alone: bool

    def reads(self, taken: TakenBatch) -> bool:
        """Whether it is for batches like this; a forgotten stream may come back with another schema."""
        width = taken.batch.values.shape[2]
        return self.schema is taken.schema and (self.role, self.width) == (taken.role, width)


class Pipeline:
    """All groups with their stores, windows and the engine."""

    def __init__(self, membership: Membership, engine: Engine, lateness_seconds: float) -> None:
        self.engine = engine
        self.windows = WindowSchedule(round(lateness_seconds * 1e9))
        self.groups: dict[str, PeerGroup] = {}
        self.stores: dict[str, GroupStore | FunctionStore] = {}
        self.shown: dict[str, str] = {}
        self.samples = 0
        self.windows_closed = 0
        self.refused: Counter[str] = Counter()
        self._ended: list[Transition] = []
        self._membership = membership
        self._indexes: dict[tuple[str, str], _Index] = {}
        self._placings: dict[tuple[str, str], deque[_Placing]] = {}
        self._origins: dict[tuple[str, tuple[int, ...]], int] = {}
        self._node_groups: Counter[str] = Counter()
        self._node_rows: Counter[str] = Counter()

    def take(self, taken: TakenBatch) -> TakenBatch:
        """Stores a batch, and gives it back with its late ticks flagged."""
        (stored,) = self.take_all((taken,))
        return stored

    def take_all(self, batches: Iterable[TakenBatch]) -> Iterator[TakenBatch]:
        """As `take` of each; all are stored when it is seen that there are no more."""
        together, waiting = Together(), set[tuple[str, str]]()
        for taken in batches:
            batch, name = taken.batch, (taken.schema.node, taken.schema.source)
            if not batch.indexes.size:
                yield taken  # nobody's: it leaves no row in the archive either, so a replay goes without it
                continue
            index = self._indexes.get(name)
            if name in waiting or index is None or not index.reads(taken):
                together.flush()
                waiting.clear()
                index = self._index(taken)
            self.samples += batch.tick_ns.size * batch.indexes.size
            alone = index.alone or batch.present is not None or batch.values.size > MOST_VALUES
            waiting.add(name)
            late_ns = -1
            for part in index.parts:
                late_ns = max(late_ns, part.store.watermark_ns)
                if isinstance(part, _Functions):
                    part.store.take(part.node, _of_functions(part, taken))
                    continue
                reading, origins = _reading(part, taken)
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
            for node in nodes:
                self.windows.forget(name, node)
            silent = self._those(target, store, store.silent_since(before_ns))
            if silent.size:
                found = True
                gone = store.forget(silent)
                ended += self.engine.forget(name, gone, store.compared, at)
        for node in nodes:
            self._node_groups.pop(node, None)
        if found or nodes:
            self._indexes.clear()
            self._placings.clear()
            kept = {key for store in self.stores.values() for key in store.components}
            self.shown = {key: name for key, name in self.shown.items() if key in kept}
            self._count_rows()
        return ended

    def state(self) -> Iterator[dict[str, Any]]:
        """What lasts as plain data and arrays, a group at a time; `restore` goes on exactly."""
        yield {
            "origins": [(node, absent, number) for (node, absent), number in self._origins.items()],
            "node_groups": dict(self._node_groups),
            "node_rows": dict(self._node_rows),
            "shown": dict(self.shown),
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
        for node, absent, number in state["origins"]:
            self._origins[str(node), tuple(map(int, absent))] = int(number)
        for counted, kept in ((self._node_groups, "node_groups"), (self._node_rows, "node_rows")):
            counted.update({str(node): int(count) for node, count in state[kept].items()})
        self.shown.update(state["shown"])
        self.engine.alarms.restore(state["alarms"])

    def restore_group(self, group: PeerGroup, state: Mapping[str, Any]) -> None:
        """Goes on from a group's part of `state()`. Raises ValueError when it is of another kind of group."""
        self._make(group, 0)
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

    def _count_rows(self) -> None:
        """Counts anew how many rows each node has, by where the components' counters came from last."""
        nodes = {number: node for (node, _), number in self._origins.items()}
        self._node_rows = Counter(
            nodes[origin & ((1 << _ORIGIN_BITS) - 1)]
            for store in self.stores.values()
            if isinstance(store, GroupStore)
            for origin in store.origins().tolist()
            if origin
        )

    def _index(self, taken: TakenBatch) -> _Index:
        """The index for batches like this, made again when the one before was for others."""
        key = (taken.schema.node, taken.schema.source)
        index = self._indexes.get(key)
        if index is None or not index.reads(taken):
            parts = tuple(self._parts(taken))
            alone = any(isinstance(part, _Functions) or part.alone for part in parts)
            index = _Index(taken.schema, taken.role, taken.batch.values.shape[2], parts, alone)
            self._indexes[key] = index
        return index

    def _parts(self, taken: TakenBatch) -> Iterator[_Part | _Functions]:
        for name, members in self._placing(taken).members.items():
            store = self.stores[name]
            part: _Part | _Functions | None
            if isinstance(store, FunctionStore):
                part = self._functions(store, taken, members)
            else:
                part = self._part(store, taken, members)
            if part is not None:
                yield part

    def _placing(self, taken: TakenBatch) -> _Placing:
        """The groups of the schema's components, kept for the streams that a source may have at a time.

        Two streams that take turns must not cost what their components cost with every message.
        """
        schema, role = taken.schema, taken.role
        kept = self._placings.setdefault((schema.node, schema.source), deque(maxlen=MAX_STREAMS))
        for placing in kept:
            if placing.schema is schema and placing.role == role:
                return placing
        members: dict[str, _Members] = {}
        for at, component in enumerate(schema.components):
            groups = self._membership.groups_of(
                schema.node, role, schema.source, component, taken.received_ns / 1e9
            )
            for group in groups:
                if self._known(group, schema, taken.received_ns):
                    own = members.setdefault(group.name, _Members([], moving=False))
                    own.places.append(at)
                    own.moving |= moves(component)
        kept.append(_Placing(schema, role, members))
        return kept[-1]

    def _known(self, group: PeerGroup, schema: Schema, now_ns: int) -> bool:
        """Whether `group`, of which `schema` has a member, has a store; made now if there is room for one.

        A group of sums comes with its leading part: the others may be there for their own sake.
        """
        if group.name in self.stores:
            return True
        node, known = schema.node, SOURCES.get(group.source)
        if isinstance(known, JoinedMetrics):
            if known.leading != schema.source:
                return False
            self._placings.clear()  # those who were told so before are members now
            self._indexes.clear()
        if group.automatic:
            room = MAX_ONE_NODE_GROUPS if group.one_node else MAX_GROUPS
            if len(self.stores) >= room or self._node_groups[node] >= MAX_NODE_GROUPS:
                self.refused["groups"] += 1
                return False
            self._node_groups[node] += 1
        self._make(group, now_ns)
        return True

    def _make(self, group: PeerGroup, now_ns: int) -> None:
        """The store and the windows of a group that is new."""
        detect = group.detect
        self.engine.add_group(group.name, detect)
        interval_ns = round(detect.interval_seconds * 1e9)
        begun_ns = self.windows.add(
            group.name, interval_ns * detect.shift_samples, interval_ns * detect.window_samples, now_ns
        )
        self.groups[group.name] = group
        if group.source in FUNCTIONS:
            self.stores[group.name] = FunctionStore(group, FUNCTIONS[group.source], begun_ns)
            return
        history = max(self.engine.history_samples(group.name, metric) for metric in group.metrics)
        known = SOURCES[group.source]
        self.stores[group.name] = (
            JoinedStore(group, known, history, begun_ns)
            if isinstance(known, JoinedMetrics)
            else GroupStore(group, known, history, begun_ns)
        )

    def _functions(self, store: FunctionStore, taken: TakenBatch, members: _Members) -> _Functions | None:
        """How `store` reads a node's functions; None when counters are missing, or there is no room."""
        schema = taken.schema
        sent = schema.fields[: taken.batch.values.shape[2]]
        numbers = {each.name: at for at, each in enumerate(sent) if each.type != FieldType.F64}
        if not set(store.counters) <= set(numbers):
            return None
        node, strangers = store.join(schema, members.places)
        self.refused["functions"] += strangers
        if node is None:
            return None
        self.windows.announce(store.group.name, schema.node, schema.interval_ns * schema.batch_ticks)
        columns = np.array([numbers[name] for name in store.counters], dtype=np.int64)
        return _Functions(store, node, columns)

    def _part(self, store: GroupStore, taken: TakenBatch, members: _Members) -> _Part | None:
        """How `store` reads its `members`; None when counters that it needs are missing."""
        schema = taken.schema
        sent = schema.fields[: taken.batch.values.shape[2]]
        numbers = {field.name: at for at, field in enumerate(sent) if field.type != FieldType.F64}
        columns = tuple(numbers.get(name, _ABSENT) for name in store.counters)
        if not store.tells(np.array([columns]) != _ABSENT)[0]:
            return None
        absent = tuple(at for at, column in enumerate(columns) if column == _ABSENT)
        unsure = [at for at in range(len(store.required), len(columns)) if columns[at] != _ABSENT]
        rows = members.rows
        if rows is None:
            rows = members.rows = np.full(len(schema.components), -1, dtype=np.int64)
            rows[members.places] = self._rows(store, schema, members.places)
        self.windows.announce(store.group.name, schema.node, schema.interval_ns * schema.batch_ticks)
        origin = self._origins.setdefault((schema.node, absent), len(self._origins) + 1)
        varies = members.moving or bool(unsure)
        if not varies:
            store.begin(rows[rows >= 0], origin)
        return _Part(
            store=store,
            rows=rows,
            complete=bool((rows >= 0).all()),
            columns=np.array(columns, dtype=np.int64),
            missing=np.array(absent, dtype=np.int64),
            unsure=np.array(unsure, dtype=np.int64),
            origin=origin,
            varies=varies,
            moving=members.moving,
            started=numbers.get(START_TIME, _ABSENT),
        )

    def _rows(self, store: GroupStore, schema: Schema, places: list[int]) -> IntArray:
        """The rows of the components at `places` in `store`, -1 where there is no room."""
        components = [schema.components[at] for at in places]
        keys = [store.key(schema.source, component_key(schema.node, component)) for component in components]
        known = len(store.components)
        rows = store.rows_of(keys, MAX_NODE_ROWS - self._node_rows[schema.node])
        self._node_rows[schema.node] += len(store.components) - known
        for key, component, row in zip(keys, components, rows.tolist(), strict=True):
            if row >= 0:
                self.shown[key] = shown_name(schema.node, component)
            else:
                self.refused["rows"] += 1
        return rows


def _reading(part: _Part, taken: TakenBatch) -> tuple[Reading, IntArray | int]:
    """What of a batch concerns one group, and where its counters come from: all, or each component's."""
    batch = taken.batch
    rows = part.rows[batch.indexes]
    values = batch.values.take(part.columns, axis=2)
    origins: IntArray | int = part.origin
    if batch.present is not None:
        there = batch.present[:, part.columns] & (part.columns != _ABSENT)
        rows = np.where(part.store.tells(there), rows, -1)
        if part.unsure.size:
            lacking = ~there[:, part.unsure]
            origins = _origins(part, lacking)
            at, counter = np.nonzero(lacking)
            values[:, at, part.unsure[counter]] = 0
    if part.missing.size:
        values[:, :, part.missing] = 0
    started = batch.values[:, :, part.started] if part.started != _ABSENT else None
    changing = rows.size - batch.idle
    if not part.complete or batch.present is not None:
        keep = rows >= 0
        changing = int(np.count_nonzero(keep[:changing]))
        rows, values = rows[keep], values[:, keep]
        started = None if started is None else started[:, keep]
        origins = origins if isinstance(origins, int) else origins[keep]
    return Reading(rows, values, batch.tick_ns, batch.read_ns, changing, taken.received_ns, started), origins


def _of_functions(part: _Functions, taken: TakenBatch) -> Reading:
    """What of a batch concerns a group of nodes that are compared by functions."""
    batch = taken.batch
    rows = part.node.rows[batch.indexes]
    keep = rows >= 0
    if batch.present is not None:
        keep &= batch.present[:, part.columns].all(axis=1)
    changing = int(np.count_nonzero(keep[: rows.size - batch.idle]))
    values = batch.values.take(part.columns, axis=2)[:, keep]
    return Reading(rows[keep], values, batch.tick_ns, batch.read_ns, changing, taken.received_ns)


def _origins(part: _Part, lacking: BoolArray) -> IntArray:
    """An origin for each set of counters that components lack: `lacking` (c, unsure), to (c,).

    A counter that is not told reads as 0, and must neither seem to have fallen nor to have risen from there.
    """
    bits = np.left_shift(1, _ORIGIN_BITS + np.arange(part.unsure.size, dtype=np.int64))
    origins: IntArray = np.where(lacking, bits, 0).sum(axis=1) + part.origin
    return origins


def closes(
    due: list[DueWindow], ordinals: Iterator[int], groups: Mapping[str, PeerGroup], now_ns: int
) -> Iterator[WindowClose]:
    """The closes of windows that are due, to be recorded and replayed."""
    for window in due:
        start = window.end_ns / 1e9 - groups[window.group].detect.window_seconds
        yield WindowClose(next(ordinals), window.group, start, window.end_ns / 1e9, now_ns / 1e9)
