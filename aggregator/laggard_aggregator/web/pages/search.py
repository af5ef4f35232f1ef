"""Finds components, nodes and groups by words that are parts of their names."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from laggard_aggregator.status import urls
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query

MOST = 50
MAX_WORDS = 8
_STATES = ("anomalous", "like its peers", "not judged", "up", "silent", "down", "stopped")


class Hit(NamedTuple):
    """A match, in the order of the page.

    `rank`: 0 if the words are the name or its parts, 1 if parts begin with them, 2 otherwise. `place`: of
    its kind in _KINDS.
    """

    rank: int
    place: int
    name: str
    group: str = ""
    component: str = ""
    role: str = ""
    state: str = ""
    factor: float = math.nan

    @property
    def kind(self) -> str:
        """`node`, `component` or `group`."""
        return _KINDS[self.place]

    @property
    def url(self) -> str:
        """Its page."""
        if self.kind == "component":
            return urls.component(self.group, self.component)
        return urls.node(self.name) if self.kind == "node" else urls.group(self.name)


_KINDS = ("node", "component", "group")
_NODE, _COMPONENT, _GROUP = range(3)


def search(now: Now, query: Query) -> dict[str, Any]:
    """Values of the template: names with every word of the parameter `q`, the best matches first.

    The words of `oss-07 sdd` find the component `oss-07/sdd`.
    """
    words = [word for text in query.text("q").split()[:MAX_WORDS] if (word := text.strip("/"))]
    hits = sorted(_hits(now, _Words(words))) if words else []
    columns = (
        PageColumn[Hit]("name", "Name", lambda hit: hit.name),
        PageColumn[Hit]("kind", "Kind", lambda hit: hit.kind),
        PageColumn[Hit]("component", "", lambda hit: hit.component or None),
        PageColumn[Hit]("group", "Group", lambda hit: hit.group or None),
        PageColumn[Hit]("role", "Role", lambda hit: hit.role or None),
        PageColumn[Hit]("state", "State", lambda hit: hit.state or None),
        PageColumn[Hit]("factor", "Factor", lambda hit: hit.factor, right=True),
    )
    roles = tuple(sorted({*now.roles(), *(role for role, _ in now.node_counts)}))
    filters = (
        Filter[Hit]("role", "Role", lambda hit: (hit.role,), roles),
        Filter[Hit]("group", "Group", lambda hit: hit.group),
        Filter[Hit]("factor", "Factor at least", lambda hit: hit.factor, is_number=True),
        Filter[Hit]("state", "State", lambda hit: (hit.state,), _STATES),
    )
    return {
        "asked": " ".join(words),
        "table": PageTable("matches", columns, hits, query, filters=filters, keep=("q",), size=MOST),
    }


class _Words:
    """Words to find in names."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [word.casefold() for word in words]
        self._beginnings = [f"/{word}" for word in self._words]
        self._parts = [f"/{word}/" for word in self._words]

    def rank(self, name: str, other: str = "") -> int | None:
        """The rank of a match of all words in a name, or in the other name of the same; None without one."""
        text = (f"/{name}/" if name == other else f"/{name}/\n/{other}/").casefold()
        for word in self._words:
            if word not in text:
                return None
        for rank, wanted in enumerate((self._parts, self._beginnings)):
            if all(word in text for word in wanted):
                return rank
        return 2


def _hits(now: Now, words: _Words) -> Iterator[Hit]:
    """Each match once, a component with the worst of its metrics."""
    names: dict[str, str] = {}
    ranks: dict[str, int | None] = {}
    state_of: dict[tuple[str, str], tuple[str, float]] = {}
    for judged in now.judgements:
        v = judged.verdicts
        figures = zip(v.judged.tolist(), v.anomalous.tolist(), now.factors(judged).tolist(), strict=True)
        for component, (said, anomalous, factor) in zip(judged.components, figures, strict=True):
            if component not in ranks:
                names[component] = now.shown(component)
                ranks[component] = words.rank(component, names[component])
            if ranks[component] is None:
                continue
            key = (judged.group, component)
            state, worst = state_of.get(key, ("not judged", math.nan))
            if said:
                worst = worst if worst >= factor or math.isnan(factor) else factor
                state = "anomalous" if anomalous or state == "anomalous" else "like its peers"
            state_of[key] = state, worst
    for (group, component), (state, worst) in state_of.items():
        found_by, role = ranks[component] or 0, now.role_of(group)
        yield Hit(found_by, _COMPONENT, names[component], group, component, role, state, worst)
    for node in now.nodes or ():
        if (rank := words.rank(node.node)) is not None:
            yield Hit(rank, _NODE, node.node, role=node.role, state=node.state)
    for group, view in now.groups.items():
        if (rank := words.rank(group)) is not None:
            yield Hit(rank, _GROUP, group, group, role=view.role)
