"""Attributes that agents send of components, as labels: the model, firmware, adapter and pool of a disk."""

from collections.abc import Mapping, Sequence
from typing import Any

from laggard_aggregator.groups.membership import moves
from laggard_common.wire.schema import Component

OF_SITE, OF_NODE = ("model", "firmware"), ("adapter", "pool")
"""Labels whose values mean the same on all nodes, and those that name something within one."""
MAX_CHARS = 64


def attributes_of(node: str, component: Component) -> dict[str, str]:
    """The attributes of a component by name, printable and bounded.

    Unknown ones are left out; a component that moves between nodes has none.
    """
    if moves(component):
        return {}
    labels = dict(component.labels)
    told = {name: _checked(labels.get(name, "")) for name in OF_SITE}
    told |= {name: f"{node}/{value}" if (value := _checked(labels.get(name, ""))) else "" for name in OF_NODE}
    return {name: value for name, value in told.items() if value}


class ToldAttributes:
    """The attributes of all components by permanent ID."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, str]] = {}
        self._columns: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {}

    def put(self, key: str, told: Mapping[str, str]) -> None:
        """Replaces the attributes of a component."""
        if self._of.get(key, {}) != told:
            self._of[key] = dict(told)
            self._columns.clear()

    def keep_only(self, keys: frozenset[str]) -> None:
        """Drops the components that are not among `keys`."""
        self._of = {key: told for key, told in self._of.items() if key in keys}

    def columns(self, group: str, components: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """As GroupWindow.attributes, cached until the group's components or any attribute change."""
        names, known = tuple(components), self._columns.get(group)
        if known is None or known[0] != names:
            rows = [self._of.get(name, {}) for name in names]
            present = {attribute for row in rows for attribute in row}
            columns = {
                name: tuple(row.get(name, "") for row in rows)
                for name in (*OF_SITE, *OF_NODE)
                if name in present
            }
            known = self._columns[group] = (names, columns)
        return known[1]

    def state(self) -> dict[str, dict[str, str]]:
        """The attributes as plain data."""
        return {key: dict(told) for key, told in self._of.items() if told}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        for key, told in state.items():
            self.put(str(key), {str(name): str(value) for name, value in told.items()})


def _checked(value: str) -> str:
    text = value.strip()[:MAX_CHARS]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
