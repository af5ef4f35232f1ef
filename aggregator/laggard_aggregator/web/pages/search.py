"""Finds components, nodes and groups by words that are parts of their names."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from laggard_aggregator.status import urls
from laggard_aggregator.web.pages.page_state import Filter, Now, PageColumn, Query, Table

MOST = 50
MAX_WORDS = 8
_STATES = ("anomalous", "like its peers", "not judged", "up", "silent", "down", "stopped")


class Hit(NamedTuple):
    """A match. `rank`: 0 if the words are the name or its parts, 1 if parts begin with them, 2 otherwise."""

    rank: int
    kind: str
    name: str
    url: str
    component: str = ""
    group: str = ""
    role: str = ""
    state: str = ""
    severity: float = math.nan


_ORDER = {"node": 0, "component": 1, "group": 2}


def search(now: Now, query: Query) -> dict[str, Any]:
    """Values of the template: names with every word of the parameter `q`, the best matches first.

    The words of `oss-07 sdd` find the component `oss-07/sdd`.
    """
    words = query.text("q").split()[:MAX_WORDS]
    hits = list(_hits(now, [word.casefold() for word in words])) if words else []
    hits.sort(key=lambda hit: (hit.rank, _ORDER[hit.kind], hit.name, hit.group))
    columns = (
        PageColumn[Hit]("name", "Name", lambda hit: hit.name),
        PageColumn[Hit]("kind", "Kind", lambda hit: hit.kind),
        PageColumn[Hit]("component", "", lambda hit: hit.component or None),
        PageColumn[Hit]("group", "Group", lambda hit: hit.group or None),
        PageColumn[Hit]("role", "Role", lambda hit: hit.role or None),
        PageColumn[Hit]("state", "State", lambda hit: hit.state or None),
        PageColumn[Hit]("severity", "Factor", lambda hit: hit.severity, right=True),
    )
    roles = tuple(sorted({*now.roles(), *(role for role, _ in now.node_counts)}))
    filters = (
        Filter[Hit]("role", "Role", lambda hit: (hit.role,), roles),
        Filter[Hit]("group", "Group", lambda hit: hit.group),
        Filter[Hit]("factor", "Factor at least", lambda hit: hit.severity, is_number=True),
        Filter[Hit]("state", "State", lambda hit: (hit.state,), _STATES),
    )
    return {
        "asked": " ".join(words),
        "table": Table("matches", columns, hits, query, filters=filters, keep=("q",), size=MOST),
    }


def _hits(now: Now, words: list[str]) -> Iterator[Hit]:
    """Each match once, a component with the worst of its metrics."""
    ranks: dict[str, int | None] = {}
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for judged in now.judgements:
        v = judged.verdicts
        for at, component in enumerate(judged.components):
            if component not in ranks:
                ranks[component] = _rank(words, component, now.shown(component))
            if ranks[component] is None:
                continue
            known, severity = found.get((judged.group, component), ("not judged", math.nan))
            if v.judged[at]:
                severity = float(np.fmax(severity, v.severity[at]))
                known = "anomalous" if v.anomalous[at] or known == "anomalous" else "like its peers"
            found[judged.group, component] = known, severity
    for (group, component), (state, severity) in found.items():
        name, role, url = now.shown(component), now.role_of(group), urls.component(group, component)
        yield Hit(ranks[component] or 0, "component", name, url, component, group, role, state, severity)
    for node in now.nodes or ():
        if (rank := _rank(words, node.node)) is not None:
            yield Hit(rank, "node", node.node, urls.node(node.node), role=node.role, state=node.state)
    for group, view in now.groups.items():
        if (rank := _rank(words, group)) is not None:
            yield Hit(rank, "group", group, urls.group(group), group=group, role=view.role)


def _rank(words: list[str], name: str, other: str = "") -> int | None:
    """The rank of a match of all words in a name, or in the other name of the same; None without one."""
    text = f"{name}\n{other}".casefold()
    if not all(word in text for word in words):
        return None
    names = text.split("\n") if name != other else [name.casefold()]
    parts = [part for each in names for part in (each, *each.split("/"))]
    if all(word in parts for word in words):
        return 0
    return 1 if all(any(part.startswith(word) for part in parts) for word in words) else 2
