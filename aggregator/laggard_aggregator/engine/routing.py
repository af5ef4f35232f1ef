"""Peer groups with their stores, and the way of every node's components to them.

A group is created with its first member. Routes are computed once per schema and reused for its batches.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.engine.origins import NodeOrigins
from laggard_aggregator.engine.routes import ABSENT, START_TIME, FunctionRoute, Route, SchemaRoutes, kept
from laggard_aggregator.engine.schema_groups import NO_ROWS, GroupRows, SchemaGroups
from laggard_aggregator.groups.membership import (
    ConfiguredMembership,
    PeerGroup,
    component_key,
    shown_name,
)
from laggard_aggregator.groups.topology import ToldAttributes, attributes_of
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.schedule import WindowSchedule
from laggard_aggregator.windows.store import MAX_COMPONENTS, GroupStore
from laggard_aggregator.windows.sums_store import SumsStore
from laggard_common.wire.schema import Component, FieldType, Schema

MAX_GROUPS = 1024
"""Limit of automatic groups; configured groups are always admitted."""

MAX_ONE_NODE_GROUPS = MAX_GROUPS // 2
"""From this number of groups on, automatic groups within one node are refused."""

MAX_NODE_GROUPS = 64
"""Limit of automatic groups that one node creates."""

MAX_NODE_ROWS = 16_384
"""Limit of components of one node, over all groups and over time: a quarter of a group's rows."""

CROWDED_SHARE = 0.75
"""Share of MAX_NODE_ROWS, or of a group's MAX_COMPONENTS, from which components that are gone make room."""
GONE_NS = 600 * 1_000_000_000
HELD_NS = 60 * 1_000_000_000
HELD_WAITS = 2
"""A component that may move is taken over after a silence of its node: of HELD_NS, and of HELD_WAITS times
the time that a window waits for batches."""
FEW_MEMBERS = 4
"""Components that a node may always have in a group."""
SENDERS = 3
"""With this many other nodes, one node has at most half as many components of a group as they have."""


class Routing:
    """Groups with their stores by name, and the routes of every node's components to them.

    No group is ever removed. `routes`: those of the latest batch, by node and source. `names`: components'
    current names by permanent ID; `attributes`: what agents told of them. Groups and components without room
    are counted in `refused`.
    """

    def __init__(
        self, membership: ConfiguredMembership, judge: Judge, windows: WindowSchedule, refused: Counter[str]
    ) -> None:
        self.groups: dict[str, PeerGroup] = {}
        self.stores: dict[str, GroupStore | FunctionStore] = {}
        self.routes: dict[tuple[str, str], SchemaRoutes] = {}
        self.names: dict[str, str] = {}
        self.attributes = ToldAttributes()
        self._membership = membership
        self._judge = judge
        self._windows = windows
        self._refused = refused
        self._node_groups: Counter[str] = Counter()
        self._schema_groups = SchemaGroups(self._groups_of, self._set_apart)
        self._origins = NodeOrigins()
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

    def block(self, route: Route, batch: Batch) -> tuple[Block, IntArray | int]:
        """The batch's rows of a route's group, and their origins, without components that another node holds.

        Two nodes that send one component at once would hide it: each batch would be of another origin.
        """
        block, origins = route.block(batch)
        if not route.moving or not block.indexes.size:
            return block, origins
        held = self._held(route.store, block.indexes, batch.schema.node, int(block.tick_ns[0]))
        if not held.any():
            return block, origins
        self._refused["claimed"] += int(np.count_nonzero(held))
        return kept(block, origins, ~held)

    def _held(self, store: GroupStore, rows: IntArray, node: str, tick_ns: int) -> BoolArray:
        """Which of `rows` another node than `node` has sent until shortly before `tick_ns`, or after it."""
        long_ns = max(HELD_NS, HELD_WAITS * self._windows.wait_ns(store.group.name))
        held: BoolArray = store.latest_ticks()[rows] > tick_ns - long_ns
        by = self._origins.nodes_of(store.origins()[rows[held]])
        held[held] = [holder not in ("", node) for holder in by]
        return held

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
        self.attributes.keep_only(frozenset(kept))
        stores = list(self._group_stores().values())
        self._origins.drop(frozenset(nodes), stores)
        self._node_rows = self._origins.count_rows(stores)

    def gone_from_crowds(self) -> Iterator[tuple[str, IntArray]]:
        """The groups and rows of components that are gone, where a group or a node has little room left.

        Gone: silent for GONE_NS while others of its node go on, by the node's clock.
        """
        crowded = {node for node, rows in self._node_rows.items() if rows > CROWDED_SHARE * MAX_NODE_ROWS}
        for name, store in self._group_stores().items():
            full = len(store.components) > CROWDED_SHARE * MAX_COMPONENTS
            if not (full or crowded):
                continue
            nodes = self._origins.nodes_of(store.origins())
            newest_ns: dict[str, int] = {}
            ticks = store.latest_ticks().tolist()
            for node, tick_ns in zip(nodes, ticks, strict=True):
                newest_ns[node] = max(newest_ns.get(node, 0), tick_ns)
            gone = [
                row
                for row, (node, tick_ns) in enumerate(zip(nodes, ticks, strict=True))
                if (full or node in crowded) and tick_ns < newest_ns[node] - GONE_NS
            ]
            if gone:
                yield name, np.array(gone, dtype=np.int64)

    def state(self) -> dict[str, Any]:
        """Groups created and rows per node, origins, names and attributes as plain data."""
        attributes = self.attributes.state()
        return {
            **({"attributes": attributes} if attributes else {}),
            "node_groups": dict(self._node_groups),
            "origins": self._origins.state(),
            "node_rows": dict(self._node_rows),
            "shown": dict(self.names),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`, without the groups. Raises ValueError when it is malformed."""
        self._node_groups.update({str(node): int(count) for node, count in state["node_groups"].items()})
        self._origins.restore(state["origins"])
        self._node_rows.update({str(node): int(count) for node, count in state["node_rows"].items()})
        self.names.update(state["shown"])
        self.attributes.restore(state.get("attributes", {}))

    def hosts(self) -> dict[str, str]:
        """The nodes that latest sent the components which may move, such as OSTs."""
        hosts: dict[str, str] = {}
        for store in self._group_stores().values():
            if SOURCES[store.group.source].place == "server":
                nodes = zip(store.components, self._origins.nodes_of(store.origins()), strict=True)
                hosts.update((key, node) for key, node in nodes if node and "/" not in key)
        return hosts

    def _group_stores(self) -> dict[str, GroupStore]:
        """The stores whose rows have origins, by group: all but those of functions."""
        return {name: store for name, store in self.stores.items() if isinstance(store, GroupStore)}

    def _make_routes(self, batch: Batch) -> Iterator[Route | FunctionRoute]:
        for name, members in self._schema_groups.of_batch(batch).items():
            store = self.stores[name]
            route: Route | FunctionRoute | None
            if isinstance(store, FunctionStore):
                route = self._function_route(store, batch, members)
            else:
                route = self._route(store, batch, members)
            if route is not None:
                yield route

    def _groups_of(self, batch: Batch, component: Component) -> Iterator[str]:
        """Names of the groups of a component, which exist."""
        schema = batch.schema
        for group in self._membership.groups_of(
            schema.node, batch.role, schema.source, component, batch.received_ns / 1e9
        ):
            if self._exists(group, schema, batch.received_ns):
                yield group.name

    def _set_apart(self, batch: Batch, members: dict[str, GroupRows]) -> None:
        """Puts components that would let a node outvote the others of a group into a group of its own.

        Components that have a row keep it; new ones go together.
        """
        schema = batch.schema
        for name, rows in list(members.items()):
            group, store = self.groups[name], self.stores[name]
            if not group.automatic or group.one_node or isinstance(store, FunctionStore | SumsStore):
                continue
            own = f"{name}@{schema.node}"  # no class has an @
            mine = self.stores.get(own)
            moved: list[int] = []
            new: list[int] = []
            for at in rows.places:
                key = component_key(schema.node, schema.components[at])
                if isinstance(mine, GroupStore) and mine.knows(key):
                    moved.append(at)
                elif not store.knows(key):
                    new.append(at)
            known = len(rows.places) - len(new) - len(moved)
            if new and self._outvotes(store, schema.node, known, known + len(new)):
                moved += new
            if moved and self._exists(replace(group, name=own, one_node=True), schema, batch.received_ns):
                gone = set(moved)
                rows.places = [at for at in rows.places if at not in gone]
                there = members.setdefault(own, GroupRows([], rows.moving))
                there.places += moved
                if not rows.places:
                    del members[name]

    def _outvotes(self, store: GroupStore, node: str, known: int, count: int) -> bool:
        """Whether `count` components of a node, `known` of which have a row, are too many for a group."""
        if count <= max(FEW_MEMBERS, (len(store.components) - known) // 2):
            return False
        senders = set(self._origins.nodes_of(np.unique(store.origins()))) - {"", node}
        return len(senders) >= SENDERS

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

    def _function_route(self, store: FunctionStore, batch: Batch, members: GroupRows) -> FunctionRoute | None:
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

    def _route(self, store: GroupStore, batch: Batch, members: GroupRows) -> Route | None:
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
            rows[: before.size], members.earlier = before, NO_ROWS
            places = np.array(members.places, dtype=np.int64)
            new = places[rows[places] < 0]
            rows[new] = self._rows(store, schema, new.tolist(), batch.received_ns)
        self._windows.announce(store.group.name, schema.node, schema.interval_ns * schema.batch_ticks)
        origin = self._origins.number(schema.node, absent)
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

    def _rows(self, store: GroupStore, schema: Schema, places: list[int], now_ns: int) -> IntArray:
        """The rows of the components at `places` in `store`, -1 where there is no room."""
        components = [schema.components[at] for at in places]
        keys = [store.key(schema.source, component_key(schema.node, component)) for component in components]
        known = len(store.components)
        rows = store.rows_of(keys, MAX_NODE_ROWS - self._node_rows[schema.node])
        self._node_rows[schema.node] += len(store.components) - known
        held = np.zeros(rows.size, dtype=np.bool_)
        held[rows >= 0] = self._held(store, rows[rows >= 0], schema.node, now_ns)
        for key, component, row, is_held in zip(keys, components, rows.tolist(), held.tolist(), strict=True):
            if is_held:
                continue  # its name and attributes are those that its node told
            if row >= 0:
                self.names[key] = shown_name(schema.node, component)
                self.attributes.put(key, attributes_of(schema.node, component))
            else:
                self._refused["rows"] += 1
        return rows


def _columns_of(batch: Batch) -> dict[str, int]:
    """The column of each integer field of the batch, by name."""
    sent = batch.schema.fields[: batch.counters.values.shape[2]]
    return {field.name: at for at, field in enumerate(sent) if field.type != FieldType.F64}
