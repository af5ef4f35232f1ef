"""The rows of all bricks, or of all clients, of this node, in columns that only grow."""

from collections.abc import Mapping, Sequence

from laggard_agent.collectors.base import Reading
from laggard_common.codec import Row
from laggard_common.limits import MAX_FIELDS
from laggard_common.schema import Component, Field, FieldKind

# Columns from the first sample on; any other counter becomes one when it has counted.
ALWAYS = (
    Field("bytes_read", unit="bytes"),
    Field("bytes_written", unit="bytes"),
    Field("fop_read_count"),
    Field("fop_read_latency_ns", unit="ns"),
    Field("fop_write_count"),
    Field("fop_write_latency_ns", unit="ns"),
)


class Table:
    """One source. A brick knows some 190 counters, of which most never count: those are no columns."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._fields: tuple[Field, ...] = ()
        self._components: tuple[Component, ...] = ()
        self._rows: dict[str, Row] = {}

    def reading(
        self, at_ns: int, found: Sequence[tuple[Component, Mapping[Field, int | None]]]
    ) -> Reading | None:
        """The rows of these components; None when there are none. A value that a dump lacks is None."""
        if not found:
            self._rows = {}
            return None
        self._grow([values for _, values in found])
        rows: dict[str, Row] = {}
        for component, values in found:
            row = tuple(values.get(field) for field in self._fields)
            before = self._rows.get(component.id)
            rows[component.id] = row if before is None or before != row else before
        components = tuple(component for component, _ in found)
        if components != self._components:
            self._components = components
        self._rows = rows
        return Reading(self.source, self._fields, at_ns, self._components, list(self._rows.values()))

    def _grow(self, every: Sequence[Mapping[Field, int | None]]) -> None:
        known = set(self._fields) or set(ALWAYS)
        new = list(self._fields or ALWAYS)
        for values in every:
            for field, value in values.items():
                if (value or field.kind is FieldKind.GAUGE) and field not in known and len(new) < MAX_FIELDS:
                    known.add(field)
                    new.append(field)
        if len(new) != len(self._fields):
            self._fields = tuple(new)
