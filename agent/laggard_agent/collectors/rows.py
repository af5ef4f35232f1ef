"""Readings whose unchanged rows stay the same objects, and collectors' reports about themselves."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat

from laggard_agent.collectors.interface import Reading
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_FIELDS
from laggard_common.wire.schema import Component, Field, FieldKind

Counters = Mapping[str, int | None]


def gauges(*names: str) -> tuple[Field, ...]:
    """Gauges without a unit."""
    return tuple(Field(name, FieldKind.GAUGE) for name in names)


@lru_cache(4096)
def named(name: str) -> Component:
    """A component that is identified by its name."""
    return Component(name, name)


class RowCache:
    """Makes the readings of `source`; rows and components equal to those before stay the same objects."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._components: tuple[Component, ...] = ()
        self._rows: list[Row] = []

    def reading(
        self, at_ns: int, fields: tuple[Field, ...], components: tuple[Component, ...], rows: Sequence[Row]
    ) -> Reading:
        """The reading with `rows`, one for each of `components`."""
        before: Sequence[Row | None] = self._rows
        if components != self._components:
            known = {component.id: row for component, row in zip(self._components, self._rows, strict=True)}
            before = [known.get(component.id) for component in components]
            self._components = components
        self._rows = [old if old == new else new for old, new in zip(before, rows, strict=True)]
        return Reading(self._source, fields, at_ns, self._components, self._rows)


class ColumnTable(RowCache):
    """Rows of counters by name, in columns that only grow: `fields`, at most MAX_FIELDS."""

    def __init__(self, source: str, fields: Iterable[Field] = ()) -> None:
        super().__init__(source)
        self.fields: tuple[Field, ...] = ()
        self.names: dict[str, int | None] = {}
        self._made: dict[str, tuple[Counters, Row]] = {}
        self.grow(fields)

    def grow(self, fields: Iterable[Field]) -> None:
        """Adds columns while there is room."""
        new = [field for field in fields if field.name not in self.names][: MAX_FIELDS - len(self.fields)]
        self.fields += tuple(new)
        self.names |= {field.name: None if field.kind is FieldKind.GAUGE else 0 for field in new}

    def table(self, at_ns: int, rows: Iterable[tuple[Component, Counters, bool]]) -> Reading:
        """The reading with a row for each component, made from its counters.

        A missing counter is None; where the counters are complete, it never counted and is 0.
        """
        before, self._made = self._made, {}
        components = []
        for component, counters, are_complete in rows:
            made = before.get(component.id)
            if made is None or made[0] is not counters or len(made[1]) != len(self.fields):
                missing = self.names.values() if are_complete else repeat(None)
                made = counters, tuple(map(counters.get, self.names, missing))
            self._made[component.id] = made
            components.append(component)
        return self.reading(at_ns, self.fields, tuple(components), [row for _, row in self._made.values()])


class OwnRow(RowCache):
    """The one row of `source`, whose component has the name `name`."""

    def __init__(self, source: str, fields: tuple[Field, ...], name: str = "") -> None:
        super().__init__(source)
        self._fields = fields
        self._own = (named(name or source),)

    def of(self, at_ns: int, *row: int | float | None) -> Reading:
        """The reading with `row`."""
        return self.reading(at_ns, self._fields, self._own, [row])


class OnceLogged:
    """A warning that is logged when a state begins, and again only after the state has ended."""

    def __init__(self, collector: str) -> None:
        self._log = logging.getLogger(f"{__package__}.{collector}.collector")
        self._collector = collector
        self._holds = False

    def update_lines(self, lines: Sequence[bytes], place: str = "") -> None:
        """`update` with the lines that were not understood, in the file `place`."""
        text = ""
        if lines:
            first = lines[0][:60].decode("ascii", "replace")
            text = f"{place}{': ' if place else ''}{len(lines)} lines not understood, the first: {first!r}"
        self.update(bool(lines), text)

    def update(self, holds: bool, text: str) -> None:
        """Logs `text` when `holds` becomes true."""
        if holds and not self._holds:
            self._log.warning("collector %s: %s", self._collector, text)
        self._holds = holds


def raise_first(failures: Sequence[CollectError]) -> None:
    """Raises the first of `failures`, with the number of the others; nothing without any."""
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise CollectError(failures[0].path, failures[0].reason + more) from failures[0]
