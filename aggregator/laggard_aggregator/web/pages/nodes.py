"""The nodes with the state of their agents, and one node with its components."""

import math
from dataclasses import dataclass

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.ingest.node_view import NodeView
from laggard_aggregator.status import urls
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.web.pages.page_state import Now, Page, paged

NODES_A_PAGE = 100
COMPONENTS_SHOWN = 200
_WORST_FIRST = {"down": 0, "silent": 1, "up": 2, "stopped": 3}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node and its problems as text."""

    view: NodeView
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodesPage:
    """The list of nodes. `counts`: role, state and number."""

    rows: Page[NodeRow]
    counts: tuple[tuple[str, str, int], ...]
    role: str
    state: str


@dataclass(frozen=True, slots=True)
class OnNode:
    """A component of the node in a group."""

    name: str
    url: str
    group: str
    metric: str
    severity: float
    verdict: str
    anomalous: bool


@dataclass(frozen=True, slots=True)
class NodePage:
    """One node."""

    row: NodeRow
    components: tuple[OnNode, ...]
    more: int
    decisions: tuple[Decision, ...]


def nodes(now: Now, role: str, state: str, page: int) -> NodesPage:
    """The nodes of a role and state (empty: any), unhealthy ones first."""
    chosen = [
        node
        for node in now.nodes or ()
        if role in ("", node.role) and (state in ("", node.state) or (state == "unwell" and not node.healthy))
    ]
    chosen.sort(key=lambda node: (node.healthy, _WORST_FIRST[node.state], node.node))
    some = paged(chosen, page, NODES_A_PAGE)
    rows = tuple(NodeRow(node, problems(node)) for node in some.items)
    counts = tuple((r, s, count) for (r, s), count in sorted(now.node_counts.items()))
    return NodesPage(Page(rows, some.number, some.size, some.total), counts, role, state)


def node(now: Now, name: str, found: NodeView | None) -> NodePage:
    """The page of one node. Raises NotKnownError when `found` is None."""
    if found is None:
        raise NotKnownError(f"no node {name!r}")
    components = _on_node(now, name)
    components.sort(key=lambda each: (not each.anomalous, -_or_zero(each.severity), each.name))
    more = max(len(components) - COMPONENTS_SHOWN, 0)
    return NodePage(
        NodeRow(found, problems(found)), tuple(components[:COMPONENTS_SHOWN]), more, now.decided(name)
    )


def problems(node: NodeView) -> tuple[str, ...]:
    """Problems of a node, the worst first."""
    found = []
    if node.state == "down":
        found.append("the broker lost its agent")
    elif node.state == "silent":
        found.append("sends no samples though its agent should be up")
    elif node.state == "stopped":
        found.append("its agent was stopped in order")
    for name, collector in sorted(node.collectors.items()):
        if not collector.success:
            found.append(f"collector {name}: {collector.error or 'failed'}")
    if not node.healthy and node.state == "up" and all(c.success for c in node.collectors.values()):
        found.append(f"its clock is off by {node.clock_offset_seconds:+.1f} s")
    if node.dropped_samples:
        found.append(f"{node.dropped_samples:,} samples dropped: its spool was full")
    return tuple(found)


def _on_node(now: Now, name: str) -> list[OnNode]:
    """Compared components of a node, and the node itself."""
    found = []
    for judged in now.judgements:
        v = judged.verdicts
        for at, component in enumerate(judged.components):
            if component == name or component.startswith(f"{name}/"):
                said = bool(v.judged[at])
                anomalous = said and bool(v.anomalous[at])
                verdict = "anomalous" if anomalous else "like its peers" if said else "not judged"
                found.append(
                    OnNode(
                        name=now.shown(component),
                        url=urls.component(judged.group, component, judged.metric),
                        group=judged.group,
                        metric=judged.metric,
                        severity=float(v.severity[at]) if said else math.nan,
                        verdict=verdict,
                        anomalous=anomalous,
                    )
                )
    return found


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
