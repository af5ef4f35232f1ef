"""Rows of all bricks, or all clients, of this node, in columns that only grow."""

from collections.abc import Mapping, Sequence

from laggard_agent.collectors.gluster.process import Process, field_of
from laggard_agent.collectors.interface import Reading
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_FIELDS
from laggard_common.wire.schema import Component, Field, FieldKind

# Columns from the first sample on; other counters get a column when they first count.
ALWAYS = tuple(
    map(
        field_of,
        (
            "bytes_read",
            "bytes_written",
            "fop_read_count",
            "fop_read_latency_ns",
            "fop_write_count",
            "fop_write_latency_ns",
        ),
    )
)


class ProcessTable:
    """One source. A brick has some 190 counters, most of which never count and get no column.

    A counter missing from a fully parsed dump never counted: it is 0. In any other dump it is None.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._fields: tuple[Field, ...] = ()
        self._defaults: tuple[int | None, ...] = ()
        self._components: tuple[Component, ...] = ()
        self._taken: dict[str, tuple[Mapping[str, int | None], Row]] = {}

    def reading(self, at_ns: int, found: Sequence[tuple[Component, Process]]) -> Reading | None:
        """Reading with the rows of these components; None without any."""
        if not found:
            self._taken = {}
            return None
        fields = self._fields
        self._grow([process.values for _, process in found])
        taken = {}
        for component, process in found:
            before = self._taken.get(component.id)
            if before is None or before[0] is not process.values or fields is not self._fields:
                row = self._row(process)
                before = (process.values, row if before is None or before[1] != row else before[1])
            taken[component.id] = before
        components = tuple(component for component, _ in found)
        if components != self._components:
            self._components = components
        self._taken = taken
        return Reading(self.source, self._fields, at_ns, self._components, [row for _, row in taken.values()])

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
