"""The nodes with the state of their agents, and one node with its components."""

import math
from collections.abc import Collection
from typing import Any

from laggard_aggregator.ingest.node_view import CollectorView, NodeView
from laggard_aggregator.status import urls
from laggard_aggregator.status.formatting import or_zero
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
    view = next((node for node in now.nodes or () if node.node == name), None)
    if view is None:
        raise NotKnownError(f"no node {name!r}")
    slow_here = [s for s in slow(now) if s.name == name or s.name.startswith(f"{name}/")]
    itself = next((s for s in slow_here if s.component == name), None)
    blamed_in = {evidence.standing.group for evidence in itself.evidence} if itself else set()
    components = _on_node(now, name, blamed_in)
    components.sort(key=lambda row: (not row["anomalous"], -or_zero(row["factor"]), row["name"]))
    return {
        "view": view,
        "problems": problems(view),
        "itself": itself,
        "slow": [s for s in slow_here if s is not itself],
        "compared": len({row["name"] for row in components} - {name}),
        "table": _components(components, query),
        "tables": [collectors := _collectors(view, query)],
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
    texts = [states[node.state]] if node.state in states else []
    for name, collector in sorted(node.collectors.items()):
        if not collector.success:
            texts.append(f"collector {name}: {collector.error or 'failed'}")
    if not node.healthy and node.state == "up" and all(c.success for c in node.collectors.values()):
        texts.append(f"its clock is off by {node.clock_offset_seconds:+.1f} s")
    if node.dropped_samples:
        texts.append(f"{node.dropped_samples:,} samples dropped: its spool was full")
    return tuple(texts)


def _components(rows: list[dict[str, Any]], query: Query) -> PageTable[dict[str, Any]]:
    """The compared components of a node."""
    columns = (
        PageColumn[dict[str, Any]]("name", "Component", lambda row: row["name"]),
        PageColumn[dict[str, Any]]("component", "", lambda row: row["component"]),
        PageColumn[dict[str, Any]]("group", "Group", lambda row: row["group"]),
        PageColumn[dict[str, Any]]("metric", "Metric", lambda row: row["metric"]),
        PageColumn[dict[str, Any]]("factor", "Factor", lambda row: row["factor"], right=True),
        PageColumn[dict[str, Any]]("severity", "", lambda row: row["severity"]),
        PageColumn[dict[str, Any]]("state", "Verdict", lambda row: row["verdict"]),
    )
    filters = (
        Filter[dict[str, Any]]("group", "Group", lambda row: row["group"]),
        Filter[dict[str, Any]]("factor", "Factor at least", lambda row: row["factor"], is_number=True),
        Filter[dict[str, Any]](
            "state",
            "Verdict",
            lambda row: (row["verdict"],),
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
    column = PageColumn[tuple[str, CollectorView]]
    columns = (
        column("collector", "Collector", lambda named: named[0]),
        column("state", "State", lambda named: "healthy" if named[1].success else "failed"),
        column("error", "", lambda named: named[1].error or None),
        column("seconds", "Took", lambda named: named[1].seconds, right=True),
    )
    keep = ("sort", "group", "factor", "state", "from", "to")
    return PageTable("collectors", columns, sorted(node.collectors.items()), query, keep=keep, is_first=False)


def _on_node(now: Now, name: str, blamed_in: Collection[str]) -> list[dict[str, Any]]:
    """Compared components of a node, and the node itself. `blamed_in`: groups in which the node is blamed."""
    rows = []
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
                rows.append(
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
    return rows
