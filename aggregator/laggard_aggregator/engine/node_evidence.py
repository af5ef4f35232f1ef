"""Evidence that is shown beside alarms of a node and raises none: errors of disks, of links, of LNet.

Kept in memory: the latest values, and for a day the times at which counters rose. A counter that is seen for
the first time, or that fell, has not risen. Values are compared by the id of a component, as other disks may
have the names after a boot, and shown by its name.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.metrics.declared import ConditionTable, CountTable, EvidenceTable
from laggard_aggregator.metrics.registry import EVIDENCE
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import FieldType, Schema

KEPT_SECONDS = 86_400.0
MOST_TABLES = 32_768
MOST_RISES = 256
"""Limit of rises kept for one node."""


@dataclass(frozen=True, slots=True)
class _Told:
    """The name of a component, and its known values by field."""

    name: str
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EventCount:
    """A number of events of one kind."""

    of: CountTable
    count: int


@dataclass(frozen=True, slots=True)
class NodeSign:
    """Evidence of one component of a node. `since`: its first event, epoch seconds; NaN without any."""

    component: str
    events: tuple[EventCount, ...]
    states: tuple[ConditionTable, ...]
    since: float

    @property
    def size(self) -> int:
        """Number of its events."""
        return sum(event.count for event in self.events)


@dataclass(frozen=True, slots=True)
class _Rise:
    at: float
    source: str
    component: str
    field: str
    count: int


@dataclass(slots=True)
class _LatestTable:
    schema: Schema
    block: Block
    tick_ns: int

    def told(self, table: EvidenceTable) -> Mapping[str, _Told]:
        """The latest values of the fields that `table` declares, by the id of their component."""
        wanted = {*(count.field for count in table.counts), *(state.field for state in table.states)}
        latest, present = self.block.values[-1], self.block.present
        columns = [
            (at, field.name)
            for at, field in enumerate(self.schema.fields[: latest.shape[1]])
            if field.name in wanted and field.type != FieldType.F64
        ]
        components = (self.schema.components[index] for index in self.block.indexes.tolist())
        return {
            component.id: _Told(
                component.name,
                {name: int(latest[row, at]) for at, name in columns if present is None or present[row, at]},
            )
            for row, component in enumerate(components)
        }


class NodeEvidence:
    """The evidence of all nodes, from the batches of the sources in `declared`."""

    def __init__(self, declared: Mapping[str, EvidenceTable] = EVIDENCE) -> None:
        self._declared = declared
        self._latest: dict[tuple[str, str], _LatestTable] = {}
        self._rises: dict[str, deque[_Rise]] = {}

    def add(self, batch: Batch) -> None:
        """Notes a batch. One of another source, or from before the latest of its node, has no effect."""
        block, schema = batch.counters, batch.schema
        table = self._declared.get(schema.source)
        if table is None or not block.indexes.size:
            return
        key, tick_ns = (schema.node, schema.source), int(block.tick_ns[-1])
        before = self._latest.get(key)
        if before is not None and tick_ns <= before.tick_ns:
            return
        if before is not None and before.schema is schema and _is_unchanged(before.block, block):
            before.tick_ns = tick_ns
            return
        now = _LatestTable(schema, _last_row(block), tick_ns)
        if before is not None:
            self._note(key, table, before.told(table), now.told(table), tick_ns / 1e9)
        self._latest.pop(key, None)
        self._latest[key] = now
        if len(self._latest) > MOST_TABLES:
            node, source = next(iter(self._latest))
            del self._latest[node, source]
            self._rises.pop(node, None)

    def _note(
        self,
        key: tuple[str, str],
        table: EvidenceTable,
        before: Mapping[str, _Told],
        now: Mapping[str, _Told],
        at: float,
    ) -> None:
        node, source = key
        for id_, told in now.items():
            values, old = told.values, before[id_].values if id_ in before else {}
            for count in table.counts:
                if count.field in values and count.field in old and values[count.field] > old[count.field]:
                    rise = _Rise(at, source, told.name, count.field, values[count.field] - old[count.field])
                    self._rises.setdefault(node, deque(maxlen=MOST_RISES)).append(rise)

    def of(self, node: str, now: float) -> tuple[NodeSign, ...]:
        """The evidence of a node in the day before `now`, the component with most events first."""
        signs: list[NodeSign] = []
        for source, table in self._declared.items():
            latest = self._latest.get((node, source))
            is_fresh = latest is not None and latest.tick_ns / 1e9 > now - KEPT_SECONDS
            latest_told = latest.told(table).values() if latest is not None and is_fresh else ()
            values = {told.name: told.values for told in latest_told}
            counts: dict[str, Counter[str]] = {}
            since: dict[str, float] = {}
            for rise in self._rises.get(node, ()):
                if rise.source == source and rise.at > now - KEPT_SECONDS:
                    counts.setdefault(rise.component, Counter())[rise.field] += rise.count
                    since[rise.component] = min(rise.at, since.get(rise.component, math.inf))
            for component in dict.fromkeys((*values, *counts)):
                states = tuple(
                    state for state in table.states if values.get(component, {}).get(state.field, 0) > 0
                )
                own = counts.get(component, Counter())
                events = tuple(EventCount(c, own[c.field]) for c in table.counts if own[c.field])
                if states or events:
                    signs.append(NodeSign(component, events, states, since.get(component, math.nan)))
        return tuple(sorted(signs, key=lambda sign: (-sign.size, sign.component)))


def _last_row(block: Block) -> Block:
    """The last tick by itself: a view would keep the arrays of all batches that were decoded together."""
    last = block.only(slice(-1, None))
    present = None if last.present is None else last.present.copy()
    return replace(last, indexes=last.indexes.copy(), values=last.values.copy(), present=present)


def _is_unchanged(before: Block, now: Block) -> bool:
    """Whether all values are those of the one row of `before`."""
    return (
        np.array_equal(before.indexes, now.indexes)
        and before.values.shape[1:] == now.values.shape[1:]
        and bool((before.values == now.values).all())
        and (before.present is now.present or np.array_equal(before.present, now.present))  # type: ignore[arg-type]
    )
