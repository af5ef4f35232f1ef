"""Parents shared by components, their node, a controller, a couplet; and other attributes that they share.

A component is named `node/device`, so its node needs no configuration; `[[topology]]` gives the rest, and the
node of `*/address`. Agents tell attributes of disks, too (`groups.attributes`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from laggard_aggregator.detect.interface import Level

LEVELS = ("node", "controller", "couplet")
"""Levels of parents, from narrow to wide."""
ATTRIBUTES = ("model", "firmware", "adapter", "pool", "switch")
"""Attributes along which a group may fall into two; none is blamed in place of its components."""


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
        found = {"node": node} if slash and node != "*" else {}
        for expression, parents in self._compiled:
            match = expression.fullmatch(component)
            if match is not None:
                for level, name in parents.items():
                    if name:
                        found.setdefault(level, match.expand(name))
        return found

    def levels(self, components: Sequence[str]) -> tuple[Level, ...]:
        """The levels at which `components` have parents, narrow to wide."""
        return _levels([self.parents_of(component) for component in components], LEVELS)

    def attributes(
        self, components: Sequence[str], told: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> tuple[Level, ...]:
        """The attributes that some of `components` have.

        `told`: by attribute the values that agents sent, one for each of `components`, empty if unknown;
        those of `[[topology]]` come before them.
        """
        own = [self._named(component) for component in components]
        for name, values in told.items():
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


def _level(name: str, of: Sequence[str | None]) -> Level:
    parents = tuple(dict.fromkeys(parent for parent in of if parent is not None))
    place = {parent: at for at, parent in enumerate(parents)}
    return Level(name, parents, np.array([-1 if p is None else place[p] for p in of], dtype=np.int64))
