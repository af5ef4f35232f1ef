"""Finds components, nodes and groups by a part of their names."""

from collections.abc import Iterator
from typing import Any

from laggard_aggregator.status import urls
from laggard_aggregator.web.pages.page_state import Now

MOST = 50
MAX_CHARS = 200


def search(now: Now, asked: str) -> dict[str, Any]:
    """Names that contain `asked`, ignoring case; those that begin with it first."""
    text = " ".join(asked[:MAX_CHARS].split())
    wanted = text.casefold()

    def rank(hit: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        return not hit[1].casefold().startswith(wanted), hit

    hits = sorted(_hits(now, wanted), key=rank) if wanted else []
    return {"asked": text, "hits": hits[:MOST], "total": len(hits)}


def _hits(now: Now, wanted: str) -> Iterator[tuple[str, str, str, str]]:
    """Kind, name, detail and URL of each match."""
    judged = ((each.group, component) for each in now.judgements for component in each.components)
    for group, component in dict.fromkeys(judged):  # each once, for any number of metrics
        name = now.shown(component)
        if wanted in name.casefold() or wanted in component.casefold():
            also = "" if name == component else f", {component}"
            yield "component", name, f"in {group}{also}", urls.component(group, component)
    for node in now.nodes or ():
        if wanted in node.node.casefold():
            yield "node", node.node, f"{node.role}, {node.state}", urls.node(node.node)
    for name, view in now.groups.items():
        if wanted in name.casefold():
            yield "group", name, f"{view.live} live", urls.group(name)
