"""Peer groups with their stores, and the routes of a schema's components to groups and rows of their stores.

A group is created with its first member. Routes are computed once per schema and reused for its batches.
"""

import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.groups.membership import (
    ConfiguredMembership,
    PeerGroup,
    component_key,
    moves,
    shown_name,
)
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.function_counters import NodeFunctions
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.schedule import WindowSchedule
from laggard_aggregator.windows.store import MAX_COMPONENTS, GroupStore
from laggard_aggregator.windows.sums_store import SumsStore
from laggard_common.wire.schema import FieldType, Schema

MAX_GROUPS = 1024
"""Limit of automatic groups; configured groups are always admitted."""

MAX_ONE_NODE_GROUPS = MAX_GROUPS // 2
"""From this number of groups on, automatic groups within one node are refused."""

MAX_NODE_GROUPS = 64
"""Limit of automatic groups that one node creates."""

MAX_NODE_ROWS = 16_384
"""Limit of components of one node, over all groups and over time: a quarter of a group's rows."""

MAX_SOURCE_SCHEMAS = 8
"""Limit of schemas of a source, one per stream, whose groups are cached."""

START_TIME = "start_time"
"""The field with the time since when a component's counters count: docs/wire-format.md."""

ABSENT = -1
"""Column of a counter that a schema lacks."""

CROWDED_SHARE = 0.75
"""Share of MAX_NODE_ROWS, or of a group's MAX_COMPONENTS, from which components that are gone make room."""
GONE_NS = 600 * 1_000_000_000
ORIGIN_BITS = 20
_ORIGIN_MASK = (1 << ORIGIN_BITS) - 1
"""Bits of an origin's number; the bits above say which of the `optional` counters a component lacks."""


@dataclass(frozen=True, slots=True)
class Route:
    """From the batches of one schema to one group's store. `rows` (components,): -1 for non-members.

    `columns` (counters,): the field of each of the store's counters, ABSENT for a missing optional one,
    `missing`: those. `optional`: optional counters that the schema has, and single components may lack.
    `origin`: number of the node and its set of counters. `varies`: the origin may change with each batch, as
    components move between nodes or lack counters. `moving`: components may move between nodes. `started`:
    the column of START_TIME, or ABSENT.
    """

    store: GroupStore
    rows: IntArray
    complete: bool
    columns: IntArray
    missing: IntArray
    optional: IntArray
    origin: int
    varies: bool
    moving: bool
    started: int

    @property
    def alone(self) -> bool:
        """Whether its blocks cannot be stored together with those of other nodes."""
        return self.moving or self.started != ABSENT

    def late(self, counters: Block) -> int:
        """Number of samples if all are late for the group and change nothing in its store, else 0.

        The backlog of an outage consists of such samples; no block is made of them.
        """
        if counters.tick_ns[-1] > self.store.watermark_ns or self.varies or counters.present is not None:
            return 0
        return counters.tick_ns.size * int(np.count_nonzero(self.rows[counters.indexes] >= 0))

    def block(self, batch: Batch) -> tuple[Block, IntArray | int]:
        """The batch's rows of this group, and their origin: one number, or one per row."""
        counters = batch.counters
        rows = self.rows[counters.indexes]
        values = counters.values.take(self.columns, axis=2)
        origins: IntArray | int = self.origin
        if counters.present is not None:
            present = counters.present[:, self.columns] & (self.columns != ABSENT)
            rows = np.where(self.store.has_metric(present), rows, -1)
            if self.optional.size:
                lacking = ~present[:, self.optional]
                origins = self._origins(lacking)
                at, counter = np.nonzero(lacking)
                values[:, at, self.optional[counter]] = 0
        if self.missing.size:
            values[:, :, self.missing] = 0
        started = counters.values[:, :, self.started] if self.started != ABSENT else None
        idle = counters.idle
        if not self.complete or counters.present is not None:
            keep = rows >= 0
            idle = int(np.count_nonzero(keep[rows.size - idle :]))
            rows, values = rows[keep], values[:, keep]
            started = None if started is None else started[:, keep]
            origins = origins if isinstance(origins, int) else origins[keep]
        return Block(rows, values, None, counters.tick_ns, counters.read_ns, idle, started), origins

    def _origins(self, lacking: BoolArray) -> IntArray:
        """One origin per set of counters that components lack: `lacking` (c, optional), to (c,).

        A counter without a value reads as 0; the change of origin hides its fall to 0 and its rise from
        there.
        """
        bits = np.left_shift(1, ORIGIN_BITS + np.arange(self.optional.size, dtype=np.int64))
        origins: IntArray = np.where(lacking, bits, 0).sum(axis=1) + self.origin
        return origins


@dataclass(frozen=True, slots=True)
class FunctionRoute:
    """As Route, for a schema whose components are functions. `columns` as in Route."""

    store: FunctionStore
    node: NodeFunctions
    columns: IntArray

    def block(self, batch: Batch) -> Block:
        """The batch's functions of this group of nodes."""
        counters = batch.counters
        rows = self.node.rows[counters.indexes]
        keep = rows >= 0
        if counters.present is not None:
            keep &= counters.present[:, self.columns].all(axis=1)
        idle = int(np.count_nonzero(keep[rows.size - counters.idle :]))
        values = counters.values.take(self.columns, axis=2)[:, keep]
        return Block(rows[keep], values, None, counters.tick_ns, counters.read_ns, idle)


@dataclass(frozen=True, slots=True)
class SchemaRoutes:
    """The routes of one schema with `width` of its fields, sent by a node of `role`.

    `alone`: its blocks cannot be stored together with those of other nodes.
    """

    schema: Schema
    role: str
    width: int
    routes: tuple[Route | FunctionRoute, ...]
    alone: bool

    def match(self, batch: Batch) -> bool:
        """Whether they are those of `batch`; a forgotten stream may come back with another schema."""
        width = batch.counters.values.shape[2]
        return self.schema is batch.schema and (self.role, self.width) == (batch.role, width)


@dataclass(slots=True)
class _GroupRows:
    """A group's components in one schema. `rows` as in Route, None until the first batch of the schema.

    `earlier`: the rows of the schema before it in the stream, -1 for components that changed.
    """

    places: list[int]
    moving: bool
    rows: IntArray | None = None
    earlier: IntArray = field(default_factory=lambda: _NO_ROWS)


_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)

_SchemaGroups = tuple[Schema, str, Mapping[str, _GroupRows]]
"""A schema, a role, and the groups of the schema's components for that role, by name."""


def _changed(earlier: Schema, schema: Schema) -> list[int]:
    """The places of components that are not those of the `earlier` schema of the same stream."""
    known = earlier.components
    return [
        at for at, component in enumerate(schema.components) if at >= len(known) or component is not known[at]
    ]


def _kept(earlier: _SchemaGroups, schema: Schema) -> dict[str, _GroupRows]:
    """The groups of the `earlier` schema of the same stream, without components that changed."""
    known, _, groups = earlier
    gone = [at for at in _changed(known, schema) if at < len(known.components)]
    changed = set(gone)
    members = {}
    for name, before in groups.items():
        places = [at for at in before.places if at not in changed] if changed else before.places.copy()
        rows = (before.earlier if before.rows is None else before.rows).copy()
        rows[[at for at in gone if at < rows.size]] = -1
        moving = before.moving and any(moves(schema.components[at]) for at in places)
        if places:
            members[name] = _GroupRows(places, moving, None, rows)
    return members


class Routing:
    """Groups with their stores by name, and the routes of every node's components to them.

    No group is ever removed. `routes`: those of the latest batch, by node and source. `names`: components'
    current names by permanent ID. Groups and components without room are counted in `refused`.
    """

    def __init__(
        self, membership: ConfiguredMembership, judge: Judge, windows: WindowSchedule, refused: Counter[str]
    ) -> None:
        self.groups: dict[str, PeerGroup] = {}
        self.stores: dict[str, GroupStore | FunctionStore] = {}
        self.routes: dict[tuple[str, str], SchemaRoutes] = {}
        self.names: dict[str, str] = {}
        self._membership = membership
        self._judge = judge
        self._windows = windows
        self._refused = refused
        self._node_groups: Counter[str] = Counter()
        self._schema_groups: dict[tuple[str, str], deque[_SchemaGroups]] = {}
        self._origins: dict[tuple[str, tuple[int, ...]], int] = {}
        self._free_origins: list[int] = []  # a heap of numbers
        self._node_rows: Counter[str] = Counter()

    def routes_of(self, batch: Batch) -> SchemaRoutes:
        """The routes of `batch`, from `routes` where they match."""
        key = (batch.schema.node, batch.schema.source)
        known = self.routes.get(key)
        if known is None or not known.match(batch):
            routes = tuple(self._make_routes(batch))
            alone = any(isinstance(route, FunctionRoute) or route.alone for route in routes)
            width = batch.counters.values.shape[2]
            known = self.routes[key] = SchemaRoutes(batch.schema, batch.role, width, routes, alone)
        return known

    def add_group(self, group: PeerGroup, now_ns: int) -> None:
        """Creates the store and the window schedule of a new group."""
        detect = group.detect
        self._judge.add_group(group.name, detect)
        interval_ns = round(detect.interval_seconds * 1e9)
        begun_ns = self._windows.add(
            group.name, interval_ns * detect.shift_samples, interval_ns * detect.window_samples, now_ns
        )
        self.groups[group.name] = group
        if group.source in FUNCTIONS:
            self.stores[group.name] = FunctionStore(group, FUNCTIONS[group.source], begun_ns)
            return
        history = max(self._judge.history_samples(group.name, metric) for metric in group.metrics)
        known = SOURCES[group.source]
        self.stores[group.name] = (
            SumsStore(group, known, history, begun_ns)
            if isinstance(known, JoinedMetrics)
            else GroupStore(group, known, history, begun_ns)
        )

    def forget(self, nodes: Collection[str]) -> None:
        """Drops `nodes`, and all routes after components or nodes were dropped: rows have moved."""
        for node in nodes:
            for name in self.groups:
                self._windows.forget(name, node)
            self._node_groups.pop(node, None)
        self.routes.clear()
        self._schema_groups.clear()
        kept = {key for store in self.stores.values() for key in store.components}
        self.names = {key: name for key, name in self.names.items() if key in kept}
        self._drop_origins(frozenset(nodes))
        self._count_rows()

    def gone_from_crowds(self) -> Iterator[tuple[str, IntArray]]:
        """The groups and rows of components that are gone, where a group or a node has little room left.

        Gone: silent for GONE_NS while others of its node go on, by the node's clock.
        """
        crowded = {node for node, rows in self._node_rows.items() if rows > CROWDED_SHARE * MAX_NODE_ROWS}
        nodes = {number: node for (node, _), number in self._origins.items()}
        for name, store in self.stores.items():
            if not isinstance(store, GroupStore):
                continue
            full = len(store.components) > CROWDED_SHARE * MAX_COMPONENTS
            if not (full or crowded):
                continue
            of_rows = [nodes.get(number, "") for number in (store.origins() & _ORIGIN_MASK).tolist()]
            newest_ns: dict[str, int] = {}
            ticks = store.latest_ticks().tolist()
            for node, tick_ns in zip(of_rows, ticks, strict=True):
                newest_ns[node] = max(newest_ns.get(node, 0), tick_ns)
            gone = [
                row
                for row, (node, tick_ns) in enumerate(zip(of_rows, ticks, strict=True))
                if (full or node in crowded) and tick_ns < newest_ns[node] - GONE_NS
            ]
            if gone:
                yield name, np.array(gone, dtype=np.int64)

    def state(self) -> dict[str, Any]:
        """Groups created and rows per node, origins and names as plain data."""
        return {
            "node_groups": dict(self._node_groups),
            "origins": [(node, absent, number) for (node, absent), number in self._origins.items()],
            "node_rows": dict(self._node_rows),
            "shown": dict(self.names),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`, without the groups. Raises ValueError when it is malformed."""
        self._node_groups.update({str(node): int(count) for node, count in state["node_groups"].items()})
        for node, absent, number in state["origins"]:
            self._origins[str(node), tuple(map(int, absent))] = int(number)
        self._free_origins = self._unused_origins()
        self._node_rows.update({str(node): int(count) for node, count in state["node_rows"].items()})
        self.names.update(state["shown"])

    def hosts(self) -> dict[str, str]:
        """The nodes that latest sent the components which may move, such as OSTs."""
        nodes = {number: node for (node, _), number in self._origins.items()}
        found: dict[str, str] = {}
        for store in self.stores.values():
            if isinstance(store, GroupStore) and SOURCES[store.group.source].place == "server":
                numbers = store.origins() & _ORIGIN_MASK
                keys = zip(store.components, numbers.tolist(), strict=True)
                found.update((key, nodes[n]) for key, n in keys if n in nodes and "/" not in key)
        return found

    def _drop_origins(self, nodes: Collection[str]) -> None:
        """Frees the numbers of the origins of `nodes` that no row has."""
        if not nodes:
            return
        used = {
            origin & _ORIGIN_MASK
            for store in self.stores.values()
            if isinstance(store, GroupStore)
            for origin in store.origins().tolist()
        }
        self._origins = {
            origin: number
            for origin, number in self._origins.items()
            if origin[0] not in nodes or number in used
        }
        self._free_origins = self._unused_origins()

    def _unused_origins(self) -> list[int]:
        """The numbers below the highest that no origin has, as a heap."""
        used = set(self._origins.values())
        return [number for number in range(1, max(used, default=0)) if number not in used]

    def _origin(self, node: str, absent: tuple[int, ...]) -> int:
        """The number of an origin, the lowest free one if it is new."""
        number = self._origins.get((node, absent))
        if number is None:
            free = self._free_origins
            number = heapq.heappop(free) if free else max(self._origins.values(), default=0) + 1
            self._origins[node, absent] = number
        return number

    def _count_rows(self) -> None:
        """Recounts the rows of each node by the latest origin of each row."""
        nodes = {number: node for (node, _), number in self._origins.items()}
        self._node_rows = Counter(
            nodes[origin & _ORIGIN_MASK]
            for store in self.stores.values()
            if isinstance(store, GroupStore)
            for origin in store.origins().tolist()
            if origin
        )

    def _make_routes(self, batch: Batch) -> Iterator[Route | FunctionRoute]:
        for name, members in self._groups_of(batch).items():
            store = self.stores[name]
            route: Route | FunctionRoute | None
            if isinstance(store, FunctionStore):
                route = self._function_route(store, batch, members)
            else:
                route = self._route(store, batch, members)
            if route is not None:
                yield route

    def _groups_of(self, batch: Batch) -> Mapping[str, _GroupRows]:
        """The groups of the schema's components, cached for the latest streams of a source.

        Two streams that alternate must not cost a lookup of every component with every message, nor must a
        schema that has a component more than the one before.
        """
        schema, role = batch.schema, batch.role
        cached = self._schema_groups.setdefault(
            (schema.node, schema.source), deque(maxlen=MAX_SOURCE_SCHEMAS)
        )
        earlier: _SchemaGroups | None = None
        for known, known_role, groups in cached:
            if known is schema and known_role == role:
                return groups
            if (known.stream, known_role) == (schema.stream, role):
                earlier = known, role, groups
        if earlier is not None and len(earlier[0].components) > len(schema.components):
            earlier = None  # of a stream that was forgotten
        members = {} if earlier is None else _kept(earlier, schema)
        new = range(len(schema.components)) if earlier is None else _changed(earlier[0], schema)
        for at in new:
            component = schema.components[at]
            for group in self._membership.groups_of(
                schema.node, role, schema.source, component, batch.received_ns / 1e9
            ):
                if self._exists(group, schema, batch.received_ns):
                    own = members.setdefault(group.name, _GroupRows([], moving=False))
                    own.places.append(at)
                    own.moving |= moves(component)
        for own in members.values():
            own.places.sort()
        kept = [each for each in cached if earlier is None or each[0] is not earlier[0]]
        self._schema_groups[schema.node, schema.source] = deque(
            [*kept, (schema, role, members)], maxlen=MAX_SOURCE_SCHEMAS
        )
        return members

    def _exists(self, group: PeerGroup, schema: Schema, now_ns: int) -> bool:
        """Whether `group`, of which `schema` has a member, has a store; creates it if there is room.

        A group of sums is created by its leading source: the others may be there for their own groups.
        """
        if group.name in self.stores:
            return True
        known = SOURCES.get(group.source)
        if isinstance(known, JoinedMetrics):
            if known.leading != schema.source:
                return False
            self._schema_groups.clear()  # the other sources' components are members from now on
            self.routes.clear()
        if group.automatic:
            room = MAX_ONE_NODE_GROUPS if group.one_node else MAX_GROUPS
            if len(self.stores) >= room or self._node_groups[schema.node] >= MAX_NODE_GROUPS:
                self._refused["groups"] += 1
                return False
            self._node_groups[schema.node] += 1
        self.add_group(group, now_ns)
        return True

    def _function_route(
        self, store: FunctionStore, batch: Batch, members: _GroupRows
    ) -> FunctionRoute | None:
        """The route of a node's functions; None when counters are missing, or there is no room."""
        schema = batch.schema
        numbers = _columns_of(batch)
        if not set(store.counters) <= set(numbers):
            return None
        node, refused = store.join(schema, members.places)
        self._refused["functions"] += refused
        if node is None:
            return None
        self._windows.announce(store.group.name, schema.node, schema.interval_ns * schema.batch_ticks)
        columns = np.array([numbers[name] for name in store.counters], dtype=np.int64)
        return FunctionRoute(store, node, columns)

    def _route(self, store: GroupStore, batch: Batch, members: _GroupRows) -> Route | None:
        """The route of `members`; None when counters that the store requires are missing."""
        schema = batch.schema
        numbers = _columns_of(batch)
        columns = tuple(numbers.get(name, ABSENT) for name in store.counters)
        if not store.has_metric(np.array([columns]) != ABSENT)[0]:
            return None
        absent = tuple(at for at, column in enumerate(columns) if column == ABSENT)
        optional = [at for at in range(len(store.required), len(columns)) if columns[at] != ABSENT]
        rows = members.rows
        if rows is None:
            rows = members.rows = np.full(len(schema.components), -1, dtype=np.int64)
            before = members.earlier[: rows.size]
            rows[: before.size], members.earlier = before, _NO_ROWS
            places = np.array(members.places, dtype=np.int64)
            new = places[rows[places] < 0]
            rows[new] = self._rows(store, schema, new.tolist())
        self._windows.announce(store.group.name, schema.node, schema.interval_ns * schema.batch_ticks)
        origin = self._origin(schema.node, absent)
        varies = members.moving or bool(optional)
        if not varies:
            store.set_origin(rows[rows >= 0], origin)
        return Route(
            store=store,
            rows=rows,
            complete=bool((rows >= 0).all()),
            columns=np.array(columns, dtype=np.int64),
            missing=np.array(absent, dtype=np.int64),
            optional=np.array(optional, dtype=np.int64),
            origin=origin,
            varies=varies,
            moving=members.moving,
            started=numbers.get(START_TIME, ABSENT),
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
                self.names[key] = shown_name(schema.node, component)
            else:
                self._refused["rows"] += 1
        return rows


def _columns_of(batch: Batch) -> dict[str, int]:
    """The column of each integer field of the batch, by name."""
    sent = batch.schema.fields[: batch.counters.values.shape[2]]
    return {field.name: at for at, field in enumerate(sent) if field.type != FieldType.F64}
