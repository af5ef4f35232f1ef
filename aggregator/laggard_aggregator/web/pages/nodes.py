"""The nodes with the state of their agents, and one node with its components."""

import math
from collections.abc import Collection
from typing import Any

from laggard_aggregator.ingest.node_view import CollectorView, NodeView
from laggard_aggregator.status import urls
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.window_history import ANOMALOUS, NORMAL, UNJUDGED
from laggard_aggregator.web.pages.overview import troubles
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.straggler_rows import slow, verdict
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query

NODES_A_PAGE = 100
COMPONENTS_A_PAGE = 200
_WORST_FIRST = {"down": 0, "silent": 1, "up": 2, "stopped": 3}


def nodes(now: Now, query: Query) -> dict[str, Any]:
    """Values of the template: the nodes, unhealthy ones first."""
    columns = (
        PageColumn[NodeView]("node", "Node", lambda node: node.node),
        PageColumn[NodeView]("role", "Role", lambda node: node.role),
        PageColumn[NodeView]("state", "State", lambda node: node.state),
        PageColumn[NodeView]("healthy", "", lambda node: node.healthy),
        PageColumn[NodeView]("problems", "Problems", lambda node: "; ".join(problems(node))),
        PageColumn[NodeView]("last_sample", "Last sample", lambda node: node.last_sample, is_time=True),
        PageColumn[NodeView](
            "clock_offset_seconds", "Clock off by", lambda node: node.clock_offset_seconds, right=True
        ),
        PageColumn[NodeView]("spool_bytes", "Spool", lambda node: node.spool_bytes, right=True),
        PageColumn[NodeView]("dropped_samples", "", lambda node: node.dropped_samples),
        PageColumn[NodeView]("version", "Agent", lambda node: node.version or None),
    )
    filters = (
        Filter[NodeView](
            "role", "Role", lambda node: (node.role,), tuple(sorted({role for role, _ in now.node_counts}))
        ),
        Filter[NodeView](
            "state",
            "State",
            lambda node: (node.state,) if node.healthy else (node.state, "unwell"),
            ("unwell", *_WORST_FIRST),
        ),
    )
    rows = sorted(now.nodes or (), key=lambda node: (node.healthy, _WORST_FIRST[node.state], node.node))
    return {
        "table": PageTable(
            "nodes",
            columns,
            rows,
            query,
            filters=filters,
            size=NODES_A_PAGE,
            make=lambda node: {"view": node, "problems": problems(node)},
        ),
        "counts": [(*role_and_state, count) for role_and_state, count in sorted(now.node_counts.items())],
        "troubles": troubles(now),
    }


def node(now: Now, name: str, query: Query) -> dict[str, Any]:
    """One node. Raises NotKnownError."""
    found = next((node for node in now.nodes or () if node.node == name), None)
    if found is None:
        raise NotKnownError(f"no node {name!r}")
    found_slow = [each for each in slow(now) if each.name == name or each.name.startswith(f"{name}/")]
    itself = next((each for each in found_slow if each.component == name), None)
    blamed_in = {evidence.standing.group for evidence in itself.evidence} if itself else set()
    components = _on_node(now, name, blamed_in)
    components.sort(key=lambda each: (not each["anomalous"], -_or_zero(each["factor"]), each["name"]))
    return {
        "view": found,
        "problems": problems(found),
        "itself": itself,
        "slow": [each for each in found_slow if each is not itself],
        "compared": len({each["name"] for each in components} - {name}),
        "table": _components(components, query),
        "tables": [collectors := _collectors(found, query)],
        "collectors": collectors,
        "decisions": now.decided(name),
    }


def problems(node: NodeView) -> tuple[str, ...]:
    """Problems of a node, the worst first."""
    states = {
        "down": "the broker lost its agent",
        "silent": "sends no samples, although its agent should be up",
        "stopped": "its agent was shut down",
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


def _components(rows: list[dict[str, Any]], query: Query) -> PageTable[dict[str, Any]]:
    """The compared components of a node."""
    columns = (
        PageColumn[dict[str, Any]]("name", "Component", lambda each: each["name"]),
        PageColumn[dict[str, Any]]("component", "", lambda each: each["component"]),
        PageColumn[dict[str, Any]]("group", "Group", lambda each: each["group"]),
        PageColumn[dict[str, Any]]("metric", "Metric", lambda each: each["metric"]),
        PageColumn[dict[str, Any]]("factor", "Factor", lambda each: each["factor"], right=True),
        PageColumn[dict[str, Any]]("severity", "", lambda each: each["severity"]),
        PageColumn[dict[str, Any]]("state", "Verdict", lambda each: each["verdict"]),
    )
    filters = (
        Filter[dict[str, Any]]("group", "Group", lambda each: each["group"]),
        Filter[dict[str, Any]]("factor", "Factor at least", lambda each: each["factor"], is_number=True),
        Filter[dict[str, Any]](
            "state",
            "Verdict",
            lambda each: (each["verdict"],),
            ("anomalous", "slow with its node", "slower, not anomalous", "like its peers", "not judged"),
        ),
    )
    return PageTable(
        "components",
        columns,
        rows,
        query,
        filters=filters,
        keep=("sort_collectors", "from", "to"),
        size=COMPONENTS_A_PAGE,
    )


def _collectors(node: NodeView, query: Query) -> PageTable[tuple[str, CollectorView]]:
    """The collectors of a node's agent, at their latest read."""
    of = PageColumn[tuple[str, CollectorView]]
    columns = (
        of("collector", "Collector", lambda each: each[0]),
        of("state", "State", lambda each: "healthy" if each[1].success else "failed"),
        of("error", "", lambda each: each[1].error or None),
        of("seconds", "Took", lambda each: each[1].seconds, right=True),
    )
    keep = ("sort", "group", "factor", "state", "from", "to")
    return PageTable("collectors", columns, sorted(node.collectors.items()), query, keep=keep, is_first=False)


def _on_node(now: Now, name: str, blamed_in: Collection[str]) -> list[dict[str, Any]]:
    """Compared components of a node, and the node itself. `blamed_in`: groups in which the node is blamed."""
    found = []
    for judged in now.judgements:
        v = judged.verdicts
        factors = now.factors(judged)
        for at, component in enumerate(judged.components):
            if component == name or component.startswith(f"{name}/"):
                said = bool(v.judged[at])
                anomalous = said and bool(v.anomalous[at])
                state = ANOMALOUS if anomalous else NORMAL if said else UNJUDGED
                severity = float(v.severity[at]) if said else math.nan
                factor = float(factors[at]) if said else math.nan
                blamed = judged.group in blamed_in and component != name
                found.append(
                    {
                        "component": component,
                        "name": now.shown(component),
                        "url": urls.component(judged.group, component, judged.metric),
                        "group": judged.group,
                        "metric": judged.metric,
                        "factor": factor,
                        "severity": severity,
                        "verdict": verdict(state, factor, blamed=blamed),
                        "anomalous": anomalous,
                    }
                )
    return found


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
