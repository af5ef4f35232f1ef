"""Where the components of a schema go: to which peer groups, and to which rows of their stores.

A group comes into being with its first member. What was worked out for a schema is kept for its batches.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import IntArray
from laggard_aggregator.engine.group_registry import GroupRegistry
from laggard_aggregator.engine.schema_parts import ABSENT, ORIGIN_BITS, FunctionPart, Index, Part
from laggard_aggregator.groups.membership import Membership, PeerGroup, component_key, moves, shown_name
from laggard_aggregator.ingest.batches import TakenBatch
from laggard_aggregator.ingest.dedup_state import MAX_STREAMS
from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.store import GroupStore
from laggard_common.wire.schema import FieldType, Schema

MAX_NODE_ROWS = 16_384
"""Components that one node may bring, over all groups and over time: a quarter of a group's room."""

START_TIME = "start_time"
"""The field by which a source tells when a component's counters began: docs/wire-format.md."""


@dataclass(slots=True)
class _Members:
    """A group's components in one schema. `rows` as in Part, None until the group reads a batch of it."""

    places: list[int]
    moving: bool
    rows: IntArray | None = None


@dataclass(frozen=True, slots=True)
class _Placing:
    """Which groups the components of a schema, sent by a node of a role, belong to."""

    schema: Schema
    role: str
    members: Mapping[str, _Members]


class Placement:
    """Which groups every node's components belong to, and in which rows; how batches are read accordingly.

    `indexes`: by node and source, for batches like the last one. `shown`: components' names of the day by
    key. What finds no room is counted in `refused`.
    """

    def __init__(self, membership: Membership, registry: GroupRegistry, refused: Counter[str]) -> None:
        self.indexes: dict[tuple[str, str], Index] = {}
        self.shown: dict[str, str] = {}
        self._membership = membership
        self._registry = registry
        self._refused = refused
        self._placings: dict[tuple[str, str], deque[_Placing]] = {}
        self._origins: dict[tuple[str, tuple[int, ...]], int] = {}
        self._node_rows: Counter[str] = Counter()

    def index(self, taken: TakenBatch) -> Index:
        """The index for batches like this, made again when the one before was for others."""
        key = (taken.schema.node, taken.schema.source)
        index = self.indexes.get(key)
        if index is None or not index.reads(taken):
            parts = tuple(self._parts(taken))
            alone = any(isinstance(part, FunctionPart) or part.alone for part in parts)
            index = Index(taken.schema, taken.role, taken.batch.values.shape[2], parts, alone)
            self.indexes[key] = index
        return index

    def forgotten(self) -> None:
        """Takes in that components or nodes were forgotten: rows have moved, and there is room again."""
        self.indexes.clear()
        self._placings.clear()
        kept = {key for store in self._registry.stores.values() for key in store.components}
        self.shown = {key: name for key, name in self.shown.items() if key in kept}
        self._count_rows()

    def state(self) -> dict[str, Any]:
        """What lasts as plain data, from which `restore` goes on exactly."""
        return {
            "origins": [(node, absent, number) for (node, absent), number in self._origins.items()],
            "node_rows": dict(self._node_rows),
            "shown": dict(self.shown),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state()`. Raises ValueError on what is none."""
        for node, absent, number in state["origins"]:
            self._origins[str(node), tuple(map(int, absent))] = int(number)
        self._node_rows.update({str(node): int(count) for node, count in state["node_rows"].items()})
        self.shown.update(state["shown"])

    def _count_rows(self) -> None:
        """Counts anew how many rows each node has, by where the components' counters came from last."""
        nodes = {number: node for (node, _), number in self._origins.items()}
        self._node_rows = Counter(
            nodes[origin & ((1 << ORIGIN_BITS) - 1)]
            for store in self._registry.stores.values()
            if isinstance(store, GroupStore)
            for origin in store.origins().tolist()
            if origin
        )

    def _parts(self, taken: TakenBatch) -> Iterator[Part | FunctionPart]:
        for name, members in self._placing(taken).members.items():
            store = self._registry.stores[name]
            part: Part | FunctionPart | None
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
        if group.name in self._registry.stores:
            return True
        known = SOURCES.get(group.source)
        if isinstance(known, JoinedMetrics):
            if known.leading != schema.source:
                return False
            self._placings.clear()  # those who were told so before are members now
            self.indexes.clear()
        return self._registry.admit(group, schema.node, now_ns)

    def _functions(self, store: FunctionStore, taken: TakenBatch, members: _Members) -> FunctionPart | None:
        """How `store` reads a node's functions; None when counters are missing, or there is no room."""
        schema = taken.schema
        numbers = _counters_of(taken)
        if not set(store.counters) <= set(numbers):
            return None
        node, strangers = store.join(schema, members.places)
        self._refused["functions"] += strangers
        if node is None:
            return None
        self._registry.windows.announce(
            store.group.name, schema.node, schema.interval_ns * schema.batch_ticks
        )
        columns = np.array([numbers[name] for name in store.counters], dtype=np.int64)
        return FunctionPart(store, node, columns)

    def _part(self, store: GroupStore, taken: TakenBatch, members: _Members) -> Part | None:
        """How `store` reads its `members`; None when counters that it needs are missing."""
        schema = taken.schema
        numbers = _counters_of(taken)
        columns = tuple(numbers.get(name, ABSENT) for name in store.counters)
        if not store.tells(np.array([columns]) != ABSENT)[0]:
            return None
        absent = tuple(at for at, column in enumerate(columns) if column == ABSENT)
        unsure = [at for at in range(len(store.required), len(columns)) if columns[at] != ABSENT]
        rows = members.rows
        if rows is None:
            rows = members.rows = np.full(len(schema.components), -1, dtype=np.int64)
            rows[members.places] = self._rows(store, schema, members.places)
        self._registry.windows.announce(
            store.group.name, schema.node, schema.interval_ns * schema.batch_ticks
        )
        origin = self._origins.setdefault((schema.node, absent), len(self._origins) + 1)
        varies = members.moving or bool(unsure)
        if not varies:
            store.begin(rows[rows >= 0], origin)
        return Part(
            store=store,
            rows=rows,
            complete=bool((rows >= 0).all()),
            columns=np.array(columns, dtype=np.int64),
            missing=np.array(absent, dtype=np.int64),
            unsure=np.array(unsure, dtype=np.int64),
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
                self.shown[key] = shown_name(schema.node, component)
            else:
                self._refused["rows"] += 1
        return rows


def _counters_of(taken: TakenBatch) -> dict[str, int]:
    """The column of each integer field that the batch has, by name."""
    sent = taken.schema.fields[: taken.batch.values.shape[2]]
    return {field.name: at for at, field in enumerate(sent) if field.type != FieldType.F64}
