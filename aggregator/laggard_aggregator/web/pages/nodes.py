"""The nodes with the state of their agents, and one node with its components."""

import math
from collections.abc import Collection
from typing import Any

from laggard_aggregator.ingest.node_view import NodeView
from laggard_aggregator.status import urls
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.window_history import ANOMALOUS, NORMAL, UNJUDGED
from laggard_aggregator.web.pages.overview import troubles
from laggard_aggregator.web.pages.page_state import Now, paged
from laggard_aggregator.web.pages.straggler_rows import slow, verdict

NODES_A_PAGE = 100
COMPONENTS_SHOWN = 200
_WORST_FIRST = {"down": 0, "silent": 1, "up": 2, "stopped": 3}


def nodes(now: Now, role: str, state: str, page: int) -> dict[str, Any]:
    """The nodes of a role and state (empty: any), unhealthy ones first."""
    chosen = [
        node
        for node in now.nodes or ()
        if role in ("", node.role) and (state in ("", node.state) or (state == "unwell" and not node.healthy))
    ]
    chosen.sort(key=lambda node: (node.healthy, _WORST_FIRST[node.state], node.node))
    return {
        "rows": paged(chosen, page, NODES_A_PAGE, lambda node: {"view": node, "problems": problems(node)}),
        "counts": [(*role_and_state, count) for role_and_state, count in sorted(now.node_counts.items())],
        "role": role,
        "state": state,
        "troubles": troubles(now),
    }


def node(now: Now, name: str) -> dict[str, Any]:
    """One node. Raises NotKnownError."""
    found = next((node for node in now.nodes or () if node.node == name), None)
    if found is None:
        raise NotKnownError(f"no node {name!r}")
    found_slow = [each for each in slow(now) if each.name == name or each.name.startswith(f"{name}/")]
    itself = next((each for each in found_slow if each.component == name), None)
    blamed_in = {evidence.standing.group for evidence in itself.evidence} if itself else set()
    components = _on_node(now, name, blamed_in)
    components.sort(key=lambda each: (not each["anomalous"], -_or_zero(each["severity"]), each["name"]))
    return {
        "view": found,
        "problems": problems(found),
        "itself": itself,
        "slow": [each for each in found_slow if each is not itself],
        "compared": len({each["name"] for each in components} - {name}),
        "components": components[:COMPONENTS_SHOWN],
        "more": max(len(components) - COMPONENTS_SHOWN, 0),
        "decisions": now.decided(name),
    }


def problems(node: NodeView) -> tuple[str, ...]:
    """Problems of a node, the worst first."""
    states = {
        "down": "the broker lost its agent",
        "silent": "sends no samples though its agent should be up",
        "stopped": "its agent was stopped in order",
    }
    found = [states[node.state]] if node.state in states else []
    for name, collector in sorted(node.collectors.items()):
        if not collector.success:
            found.append(f"collector {name}: {collector.error or 'failed'}")
    if not node.healthy and node.state == "up" and all(c.success for c in node.collectors.values()):
        found.append(f"its clock is off by {node.clock_offset_seconds:+.1f} s")
    if node.dropped_samples:
        found.append(f"{node.dropped_samples:,} samples dropped: its spool was full")
    return tuple(found)


def _on_node(now: Now, name: str, blamed_in: Collection[str]) -> list[dict[str, Any]]:
    """Compared components of a node, and the node itself. `blamed_in`: groups in which the node is blamed."""
    found = []
    for judged in now.judgements:
        v = judged.verdicts
        for at, component in enumerate(judged.components):
            if component == name or component.startswith(f"{name}/"):
                said = bool(v.judged[at])
                anomalous = said and bool(v.anomalous[at])
                state = ANOMALOUS if anomalous else NORMAL if said else UNJUDGED
                severity = float(v.severity[at]) if said else math.nan
                blamed = judged.group in blamed_in and component != name
                found.append(
                    {
                        "name": now.shown(component),
                        "url": urls.component(judged.group, component, judged.metric),
                        "group": judged.group,
                        "metric": judged.metric,
                        "severity": severity,
                        "verdict": verdict(state, severity, blamed=blamed),
                        "anomalous": anomalous,
                    }
                )
    return found


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
