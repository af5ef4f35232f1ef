"""Finds components, nodes and groups by a part of their names."""

from dataclasses import dataclass

from laggard_aggregator.status import urls
from laggard_aggregator.web.pages.page_state import Now

MOST = 50
MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class Hit:
    """A match: `kind` is component, node or group."""

    kind: str
    name: str
    detail: str
    url: str


@dataclass(frozen=True, slots=True)
class Found:
    """The first MOST matches of each kind; `more`: number of further ones."""

    asked: str
    hits: tuple[Hit, ...]
    more: int


def search(now: Now, asked: str) -> Found:
    """Names that contain `asked`, ignoring case; those that begin with it first."""
    text = " ".join(asked[:MAX_CHARS].split())
    wanted = text.casefold()
    if not wanted:
        return Found(text, (), 0)
    hits = [*_components(now, wanted), *_nodes(now, wanted), *_groups(now, wanted)]
    hits.sort(key=lambda hit: (not hit.name.casefold().startswith(wanted), hit.kind, hit.name, hit.detail))
    return Found(text, tuple(hits[:MOST]), max(len(hits) - MOST, 0))


def _components(now: Now, wanted: str) -> list[Hit]:
    found = []
    judged = ((each.group, component) for each in now.judgements for component in each.components)
    for group, component in dict.fromkeys(judged):  # each once, for any number of metrics
        name = now.shown(component)
        if wanted in name.casefold() or wanted in component.casefold():
            also = "" if name == component else f", {component}"
            found.append(Hit("component", name, f"in {group}{also}", urls.component(group, component)))
    return found


def _nodes(now: Now, wanted: str) -> list[Hit]:
    return [
        Hit("node", node.node, f"{node.role}, {node.state}", urls.node(node.node))
        for node in now.nodes or ()
        if wanted in node.node.casefold()
    ]


def _groups(now: Now, wanted: str) -> list[Hit]:
    return [
        Hit("group", name, f"{group.live} live", urls.group(name))
        for name, group in now.groups.items()
        if wanted in name.casefold()
    ]
