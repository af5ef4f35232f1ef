"""Parents shared by components, their node, a controller, a couplet; and other attributes that they share.

A component is named `node/device`, so its node needs no configuration; `[[topology]]` gives the rest, and the
node of `*/address`. Agents send attributes of disks, too, as labels: model, firmware, adapter and pool.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import Level
from laggard_aggregator.groups.membership import moves
from laggard_common.wire.schema import Component

LEVELS = ("node", "controller", "couplet")
"""Levels of parents, from narrow to wide."""
ATTRIBUTES = ("model", "firmware", "adapter", "pool", "switch")
"""Attributes along which a group may fall into two; none is blamed in place of its components."""
OF_SITE, OF_NODE = ("model", "firmware"), ("adapter", "pool")
"""Labels whose values mean the same on all nodes, and those that name something within one."""
MAX_ATTRIBUTE_CHARS = 64


@dataclass(frozen=True, slots=True)
class Branch:
    r"""Parents of the components `node/device` that the expression `components` matches in full.

    `parents`: names by level; they may hold groups of the expression (`\1`, `\g<name>`), and an empty one
    means none.
    """

    components: str
    parents: Mapping[str, str]


class Topology:
    """The parents and attributes of components, by level."""

    def __init__(self, branches: Sequence[Branch] = ()) -> None:
        self.branches = tuple(branches)
        self._compiled = [(re.compile(branch.components), branch.parents) for branch in branches]

    def parents_of(self, component: str) -> dict[str, str]:
        """Parents of `component` by level; the first branch that names a level decides it."""
        return {level: name for level, name in self._named(component).items() if level in LEVELS}

    def _named(self, component: str) -> dict[str, str]:
        """Parents and attributes of `component` by name; the first branch that names one decides it."""
        node, slash, _ = component.partition("/")
        names = {"node": node} if slash and node != "*" else {}
        for expression, parents in self._compiled:
            match = expression.fullmatch(component)
            if match is not None:
                for level, name in parents.items():
                    if name:
                        names.setdefault(level, match.expand(name))
        return names

    def levels(self, components: Sequence[str]) -> tuple[Level, ...]:
        """The levels at which `components` have parents, narrow to wide."""
        return _levels([self.parents_of(component) for component in components], LEVELS)

    def attributes(
        self, components: Sequence[str], columns: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> tuple[Level, ...]:
        """The attributes that some of `components` have.

        `columns`: by attribute the values that agents sent, one for each of `components`, empty if unknown;
        those of `[[topology]]` come before them.
        """
        own = [self._named(component) for component in components]
        for name, values in columns.items():
            for above, value in zip(own, values, strict=True):
                if value:
                    above.setdefault(name, value)
        return _levels(own, ATTRIBUTES)

    def parents_of_node(self, node: str) -> dict[str, str]:
        """Parents of a node by level; its components share them."""
        return {level: name for level, name in self.parents_of(f"{node}/").items() if level != "node"}

    def levels_of_nodes(self, nodes: Sequence[str]) -> tuple[Level, ...]:
        """The levels at which `nodes` have parents, narrow to wide."""
        return _levels([self.parents_of_node(node) for node in nodes], LEVELS)


def _levels(parents: Sequence[Mapping[str, str]], names: Sequence[str]) -> tuple[Level, ...]:
    levels = (_level(name, [above.get(name) for above in parents]) for name in names)
    return tuple(level for level in levels if level.parents)


def _level(name: str, parent_of: Sequence[str | None]) -> Level:
    parents = tuple(dict.fromkeys(parent for parent in parent_of if parent is not None))
    place = {parent: at for at, parent in enumerate(parents)}
    return Level(name, parents, np.array([-1 if p is None else place[p] for p in parent_of], dtype=np.int64))


def attributes_of(node: str, component: Component) -> dict[str, str]:
    """The attributes of a component by name, printable and bounded.

    Unknown ones are left out; a component that moves between nodes has none.
    """
    if moves(component):
        return {}
    labels = dict(component.labels)
    values = {name: _checked(labels.get(name, "")) for name in (*OF_SITE, *OF_NODE)}
    return {name: f"{node}/{value}" if name in OF_NODE else value for name, value in values.items() if value}


class ToldAttributes:
    """The attributes of all components by permanent ID."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, str]] = {}
        self._columns: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {}

    def put(self, key: str, attributes: Mapping[str, str]) -> None:
        """Replaces the attributes of a component."""
        if self._of.get(key, {}) != attributes:
            self._of[key] = dict(attributes)
            self._columns.clear()

    def keep_only(self, keys: frozenset[str]) -> None:
        """Drops the components that are not among `keys`."""
        self._of = {key: attributes for key, attributes in self._of.items() if key in keys}

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
        return {key: dict(attributes) for key, attributes in self._of.items() if attributes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        for key, attributes in state.items():
            self.put(str(key), {str(name): str(value) for name, value in attributes.items()})


def _checked(value: str) -> str:
    text = value.strip()[:MAX_ATTRIBUTE_CHARS]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
