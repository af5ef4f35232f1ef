"""Rows of all bricks, or all clients, of this node, in columns that only grow."""

from collections.abc import Mapping, Sequence

from laggard_agent.collectors.gluster.process import Process, field_of
from laggard_agent.collectors.interface import Reading
from laggard_agent.collectors.rows import RowCache
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_FIELDS
from laggard_common.wire.schema import Component, Field, FieldKind

# Columns from the first sample on; other counters get a column when they first count.
ALWAYS = tuple(
    field_of(name)
    for name in (
        *("bytes_read", "bytes_written", "fop_read_count", "fop_read_latency_ns"),
        *("fop_write_count", "fop_write_latency_ns"),
    )
)


class ProcessTable:
    """One source. A brick has some 190 counters, most of which never count and get no column.

    A counter missing from a fully parsed dump never counted: it is 0. In any other dump it is None.
    """

    def __init__(self, source: str) -> None:
        self._fields: tuple[Field, ...] = ()
        self._defaults: tuple[int | None, ...] = ()
        self._cache = RowCache(source)
        self._made: dict[str, tuple[Mapping[str, int | None], Row]] = {}

    def reading(self, at_ns: int, found: Sequence[tuple[Component, Process]]) -> Reading:
        """Reading with the rows of these components."""
        fields = self._fields
        self._grow([process.values for _, process in found])
        before, self._made = self._made, {}
        for component, process in found:
            made = before.get(component.id)
            if made is None or made[0] is not process.values or fields is not self._fields:
                made = (process.values, self._row(process))
            self._made[component.id] = made
        components = tuple(component for component, _ in found)
        rows = [row for _, row in self._made.values()]
        return self._cache.reading(at_ns, self._fields, components, rows)

    def _row(self, process: Process) -> Row:
        get = process.values.get
        if process.dump is None or process.dump.leftovers:
            return tuple(get(field.name) for field in self._fields)
        return tuple(
            get(field.name, default) for field, default in zip(self._fields, self._defaults, strict=True)
        )

    def _grow(self, every: Sequence[Mapping[str, int | None]]) -> None:
        new = {field.name: field for field in self._fields or ALWAYS}
        for values in every:
            for name, value in values.items():
                if name not in new and len(new) < MAX_FIELDS:
                    field = field_of(name)
                    if value or field.kind is FieldKind.GAUGE:
                        new[name] = field
        if len(new) != len(self._fields):
            self._fields = tuple(new.values())
            self._defaults = tuple(None if f.kind is FieldKind.GAUGE else 0 for f in self._fields)
