"""Groups of a schema's components, kept for the latest schemas of each source.

Two streams that alternate must not cost a lookup of every component with every message, nor must a schema
that has a component more than the one before.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.detect.interface import IntArray
from laggard_aggregator.groups.membership import moves
from laggard_aggregator.ingest.batches import Batch
from laggard_common.wire.schema import Component, Schema

MAX_SOURCE_SCHEMAS = 8
"""Limit of schemas of a source, one per stream, whose groups are cached."""

NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class GroupRows:
    """A group's components in one schema. `rows` as in Route, None until the first batch of the schema.

    `earlier`: the rows of the schema before it in the stream, -1 for components that changed.
    """

    places: list[int]
    moving: bool
    rows: IntArray | None = None
    earlier: IntArray = field(default_factory=lambda: NO_ROWS)


@dataclass(frozen=True, slots=True)
class _CachedSchema:
    """A schema, the role of its node, and the groups of the schema's components for that role, by name."""

    schema: Schema
    role: str
    groups: Mapping[str, GroupRows]


class SchemaGroups:
    """The groups of each source's latest schemas. `groups_of`: names of a component's groups.

    `apart` moves the members of a batch's schema that are in another group, as their node has too many.
    """

    def __init__(
        self,
        groups_of: Callable[[Batch, Component], Iterable[str]],
        apart: Callable[[Batch, dict[str, GroupRows]], None],
    ) -> None:
        self._groups_of = groups_of
        self._apart = apart
        self._known: dict[tuple[str, str], deque[_CachedSchema]] = {}

    def clear(self) -> None:
        """Forgets all."""
        self._known.clear()

    def of_batch(self, batch: Batch) -> Mapping[str, GroupRows]:
        """The groups of the batch's schema, by name."""
        schema, role = batch.schema, batch.role
        key = (schema.node, schema.source)
        cached = self._known.setdefault(key, deque(maxlen=MAX_SOURCE_SCHEMAS))
        earlier: _CachedSchema | None = None
        for known in cached:
            if known.schema is schema and known.role == role:
                return known.groups
            if (known.schema.stream, known.role) == (schema.stream, role):
                earlier = known
        if earlier is not None and len(earlier.schema.components) > len(schema.components):
            earlier = None  # of a stream that was forgotten
        members = {} if earlier is None else _kept(earlier, schema)
        for at in range(len(schema.components)) if earlier is None else _changed(earlier.schema, schema):
            component = schema.components[at]
            for name in self._groups_of(batch, component):
                rows = members.setdefault(name, GroupRows([], moving=False))
                rows.places.append(at)
                rows.moving |= moves(component)
        self._apart(batch, members)
        for rows in members.values():
            rows.places.sort()
        others = [known for known in cached if earlier is None or known.schema is not earlier.schema]
        self._known[key] = deque([*others, _CachedSchema(schema, role, members)], maxlen=MAX_SOURCE_SCHEMAS)
        return members


def _changed(earlier: Schema, schema: Schema) -> list[int]:
    """The places of components that are not those of the `earlier` schema of the same stream."""
    known = earlier.components
    return [
        at for at, component in enumerate(schema.components) if at >= len(known) or component is not known[at]
    ]


def _kept(earlier: _CachedSchema, schema: Schema) -> dict[str, GroupRows]:
    """The groups of the `earlier` schema of the same stream, without components that changed."""
    gone = [at for at in _changed(earlier.schema, schema) if at < len(earlier.schema.components)]
    changed = set(gone)
    members = {}
    for name, before in earlier.groups.items():
        places = [at for at in before.places if at not in changed] if changed else before.places.copy()
        rows = (before.earlier if before.rows is None else before.rows).copy()
        rows[[at for at in gone if at < rows.size]] = -1
        moving = before.moving and any(moves(schema.components[at]) for at in places)
        if places:
            members[name] = GroupRows(places, moving, None, rows)
    return members
