#!/usr/bin/env python3
"""Writes Laggard's Grafana dashboards: `python deploy/grafana/generate.py` after a change here.

Panels are rows of a small table below, so that the four dashboards look alike and every query can be run by a
test. Nothing but the standard library; made for Grafana 9 and later.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
COLUMNS = 24
"""The width of a Grafana dashboard, in its own units."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_KEYS = "job, instance, group, component"
_NAMED = f"* on ({_KEYS}) group_left (name) laggard_component_info"


@dataclass(frozen=True)
class Panel:
    """A panel: its queries with their legends; width and height in columns and rows of Grafana."""

    title: str
    kind: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    about: str = ""
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `variables`: names and the queries that list their values."""

    uid: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()


def stat(title: str, expression: str, about: str, unit: str = "short") -> Panel:
    """One number."""
    return Panel(title, "stat", ((expression, ""),), unit, width=4, height=4, about=about)


OVERVIEW = Dashboard(
    "laggard-overview",
    "Laggard: overview",
    "Current stragglers and the health of the monitoring.",
    (
        stat("Alarms", "count(laggard_alarm_active == 1) or vector(0)", "Stragglers with a standing alarm."),
        stat(
            "Worst",
            "max(laggard:alarm_severity:ratio) or vector(1)",
            "Times slower than its peers; 1 is as fast.",
            "none",
        ),
        stat("Silenced", "count(laggard_alarm_silenced) or vector(0)", "Alarms that an operator silenced."),
        stat(
            "Nodes not up",
            'sum(laggard_nodes{state=~"silent|down"}) or vector(0)',
            "Silent, or lost by the broker.",
        ),
        stat(
            "Groups without verdict",
            "count(laggard_group_judged == 0) or vector(0)",
            "One row per group and metric; too few members, or no data.",
        ),
        stat("Window lag", "max(laggard_window_lag_seconds)", "How late the latest window was judged.", "s"),
        Panel(
            "Stragglers now",
            "table",
            ((f"sort_desc((laggard_component_severity_ratio and laggard_alarm_active == 1) {_NAMED})", ""),),
            width=24,
            about="How many times slower than its peers whatever has an alarm is.",
        ),
        Panel(
            "How much slower",
            "timeseries",
            (
                (
                    f"(laggard_component_severity_ratio and laggard_alarm_active == 1) {_NAMED}",
                    "{{name}} {{metric}}",
                ),
            ),
            "none",
            about="Alarms by component; 1 is like its peers.",
        ),
        Panel(
            "Alarms by group",
            "timeseries",
            (
                (
                    "count by (group) (laggard_alarm_active == 1)"
                    " or 0 * count by (group) (laggard_group_components)",
                    "{{group}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Nodes by role and state",
            "timeseries",
            (("sum by (role, state) (laggard_nodes)", "{{role}} {{state}}"),),
            stacked=True,
        ),
        Panel(
            "Components compared",
            "timeseries",
            (("sum by (state) (laggard_group_components)", "{{state}}"),),
            about="Live: with data in the latest window.",
        ),
    ),
)

GROUP = Dashboard(
    "laggard-group",
    "Laggard: peer group",
    "One peer group: which components differ, by how much, since when.",
    (
        Panel(
            "Times slower than the peers",
            "timeseries",
            ((f'laggard_component_severity_ratio{{group="$group"}} {_NAMED}', "{{name}} {{metric}}"),),
            "none",
            about="Only components that were anomalous of late have a series.",
        ),
        Panel(
            "Persistence",
            "timeseries",
            ((f'laggard_component_persistence{{group="$group"}} {_NAMED}', "{{name}} {{metric}}"),),
            about="Anomalous windows less normal ones; what stays high needs a look (Intrepid, 4.3).",
        ),
        Panel(
            "Score",
            "timeseries",
            ((f'laggard_component_score{{group="$group"}} {_NAMED}', "{{name}} {{metric}}"),),
            about="In the detector's own unit; larger is worse.",
        ),
        Panel(
            "Anomalous in the latest window",
            "timeseries",
            ((f'laggard_component_anomalous{{group="$group"}} {_NAMED}', "{{name}} {{metric}}"),),
        ),
        Panel(
            "Components",
            "timeseries",
            (('laggard_group_components{group="$group"}', "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Judged",
            "timeseries",
            (('laggard_group_judged{group="$group"}', "{{metric}}"),),
            about="0: no verdict.",
        ),
    ),
    (("group", "label_values(laggard_group_components, group)"),),
)

_NODE = '{node="$node"}'
NODE = Dashboard(
    "laggard-node",
    "Laggard: node",
    "One node's agent, and the alarms of its components.",
    (
        stat("Up", f"max(laggard_node_up{_NODE})", "Its agent is up and sends samples."),
        stat(
            "Clock offset",
            f"max(laggard_node_clock_offset_seconds{_NODE})",
            "Clock of the node minus clock of the aggregator.",
            "s",
        ),
        stat(
            "Newest sample",
            f"time() - max(laggard_node_last_sample_timestamp_seconds{_NODE})",
            "Its age.",
            "s",
        ),
        stat(
            "Spool", f"max(laggard_agent_spool_bytes{_NODE})", "Bytes that wait to be acknowledged.", "bytes"
        ),
        stat(
            "Dropped",
            f"max(laggard_agent_dropped_samples_total{_NODE})",
            "Samples dropped because the spool was full.",
        ),
        stat("Memory", f"max(laggard_agent_resident_bytes{_NODE})", "Resident memory of the agent.", "bytes"),
        Panel(
            "Alarms of its components",
            "timeseries",
            (
                (
                    'laggard_component_severity_ratio{component=~"$node(/.*)?"}'
                    " or on () (0 * max(laggard_ready) + 1)",
                    "{{component}} {{metric}}",
                ),
            ),
            "none",
            width=24,
            about="Times slower than the peers; 1 when there is nothing to say.",
        ),
        Panel(
            "Agent's CPU",
            "timeseries",
            ((f"max(rate(laggard_agent_cpu_seconds_total{_NODE}[$__rate_interval]))", "CPU"),),
            "percentunit",
        ),
        Panel(
            "Time of a reading",
            "timeseries",
            ((f"max by (collector) (laggard_agent_collector_seconds{_NODE})", "{{collector}}"),),
            "s",
        ),
        Panel(
            "Collectors that work",
            "timeseries",
            ((f"max by (collector) (laggard_agent_collector_success{_NODE})", "{{collector}}"),),
        ),
        Panel("Spool", "timeseries", ((f"max(laggard_agent_spool_bytes{_NODE})", "bytes"),), "bytes"),
    ),
    (("node", "label_values(laggard_node_up, node)"),),
)


def _rate(metric: str) -> str:
    return f"rate({metric}[$__rate_interval])"


ITSELF = Dashboard(
    "laggard-itself",
    "Laggard: itself",
    "Aggregator and agents: load, loss, lag, memory.",
    (
        stat("Ready", "min(laggard_ready)", "State restored, connected to the broker, subscribed."),
        stat("Durable", "min(laggard_state_durable)", "Batches are journaled and acknowledged."),
        stat("Samples a second", f"sum({_rate('laggard_samples_total')})", "Readings of one component."),
        stat("Messages a second", f"sum({_rate('laggard_messages_total')})", "From agents."),
        stat("Memory", 'sum(process_resident_memory_bytes{job="$job"})', "Of the aggregator.", "bytes"),
        stat(
            "CPU",
            'sum(rate(process_cpu_seconds_total{job="$job"}[$__rate_interval]))',
            "Of the aggregator.",
            "percentunit",
        ),
        Panel(
            "Window lag",
            "timeseries",
            (("laggard_window_lag_seconds", "{{instance}}"),),
            "s",
            about="How long after its deadline the latest window was judged.",
        ),
        Panel(
            "Gaps, duplicates, late, rejected and dropped",
            "timeseries",
            tuple(
                (f"sum({_rate(f'laggard_{name}_total')})", name.replace("_", " "))
                for name in (
                    "gaps",
                    "duplicates",
                    "late_samples",
                    "wire_errors",
                    "queue_dropped_messages",
                    "archive_dropped_records",
                )
            ),
            "ops",
        ),
        Panel(
            "Refused",
            "timeseries",
            (
                (
                    f"sum by (reason) ({_rate('laggard_refused_messages_total')}) or on () vector(0)",
                    "{{reason}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Journal and snapshot",
            "timeseries",
            (("laggard_journal_bytes", "journal"), ("laggard_snapshot_bytes", "snapshot")),
            "bytes",
        ),
        Panel(
            "Agents' memory",
            "timeseries",
            (("laggard_role_resident_bytes_quantile", "{{role}} {{q}}"),),
            "bytes",
            about="Quantiles over the nodes of a role.",
        ),
        Panel(
            "Agents' spools",
            "timeseries",
            (("laggard_role_spool_bytes", "{{role}}"),),
            "bytes",
            about="All nodes of a role together.",
        ),
        Panel(
            "Collectors that fail",
            "timeseries",
            (("laggard_role_collectors_failing", "{{role}} {{collector}}"),),
            about="Nodes.",
        ),
        Panel(
            "Time of a reading, the slowest node",
            "timeseries",
            (('laggard_role_collector_seconds_quantile{percentile="100"}', "{{role}} {{collector}}"),),
            "s",
        ),
    ),
    (("job", "label_values(laggard_build_info, job)"),),
)

DASHBOARDS = (OVERVIEW, GROUP, NODE, ITSELF)


def rendered(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana's JSON."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["laggard"],
        "timezone": "browser",
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["laggard"], "title": "Laggard", "keepTime": True}],
        "templating": {"list": [_datasource(), *(_variable(*each) for each in dashboard.variables)]},
        "panels": list(_panels(dashboard)),
    }


def text(dashboard: Dashboard) -> str:
    """The file of a dashboard."""
    return json.dumps(rendered(dashboard), indent=1) + "\n"


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    x = y = row = 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > COLUMNS:
            x, y, row = 0, y + row, 0
        yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x, row = x + panel.width, max(row, panel.height)


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": _SOURCE,
            "expr": expression,
            "legendFormat": legend or "__auto",
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for at, (expression, legend) in enumerate(panel.queries)
    ]
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    made: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
    }
    if panel.kind == "table":
        gone = ("Time", "__name__", "job", "instance", "component")
        exclude = {"excludeByName": dict.fromkeys(gone, True), "renameByName": {"Value": "times slower"}}
        made["transformations"] = [{"id": "organize", "options": exclude}]
    return made


def asked(dashboard: Dashboard, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Titles and queries of all panels as Prometheus is asked them, with `values` in place of variables."""
    for panel in dashboard.panels:
        for expression, _ in panel.queries:
            yield panel.title, Template(expression).substitute(values)


def main() -> None:
    """Writes all dashboards."""
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.uid}.json").write_text(text(dashboard))


if __name__ == "__main__":
    main()
