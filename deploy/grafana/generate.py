#!/usr/bin/env python3
"""Writes Laggard's Grafana dashboards: `python deploy/grafana/generate.py` after a change here.

Panels are rows of a small table below, so that the four dashboards look alike and every query can be run by a
test. Nothing but the standard library; made for Grafana 9 and later.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
PAGE = "http://127.0.0.1:9464"
"""The address of Laggard's pages; each dashboard has a field for it."""
COLUMNS = 24
"""The width of a Grafana dashboard, in its own units."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_KEYS = "job, instance, group, component"
_NAMED = f"* on ({_KEYS}) group_left (name) laggard_component_info"
_HERE = 'site=~"$site",instance=~"$instance"'
"""Matchers of every query: the variables of every dashboard."""
_TEXTS = f"* on ({_KEYS}, metric) group_left (name, claim, unit, page_url) laggard:alarm:info"
_PAGE = {"title": "Open in Laggard", "targetBlank": True}
_FIELD_LINK = {**_PAGE, "url": "${__field.labels.page_url}"}
_ROW_LINK = {**_PAGE, "url": "${__data.fields.page_url}"}
_YES_NO = {"0": ("no", "red"), "1": ("yes", "green")}
_ANOMALOUS = {"0": ("normal", "green"), "1": ("anomalous", "orange")}
_TIMES_SLOWER = ((1.5, "yellow"), (2.0, "orange"), (5.0, "red"))
_SOME = ((1.0, "orange"),)


@dataclass(frozen=True)
class Panel:
    """A panel: its queries with their legends; width and height in columns and rows of Grafana.

    `mappings`: text and colour by value. `thresholds`: colours from a value upwards, above green. `link`: the
    path of a page of Laggard, empty for the page of an alarm where the query gives it, else the overview.
    """

    title: str
    kind: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    about: str = ""
    stacked: bool = False
    mappings: Mapping[str, tuple[str, str]] | None = None
    thresholds: tuple[tuple[float, str], ...] = ()
    link: str = ""


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `variables`: names and the queries that list their values, beside those of EVERY.

    `matchers`: further ones of every metric, beside those of site and instance.
    """

    uid: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()
    matchers: str = ""


def stat(
    title: str,
    expression: str,
    about: str,
    unit: str = "short",
    *,
    mappings: Mapping[str, tuple[str, str]] | None = None,
    thresholds: tuple[tuple[float, str], ...] = (),
) -> Panel:
    """One number."""
    of = ((expression, ""),)
    return Panel(title, "stat", of, unit, 4, 4, about, mappings=mappings, thresholds=thresholds)


OVERVIEW = Dashboard(
    "laggard-overview",
    "Laggard: overview",
    "Current stragglers and the health of the monitoring.",
    (
        stat(
            "Alarms",
            "count(laggard_alarm_active == 1) or vector(0)",
            "Stragglers with a raised alarm.",
            thresholds=_SOME,
        ),
        stat(
            "Worst",
            "max(laggard:alarm_severity:ratio) or vector(1)",
            "Times slower than its peers; 1 is as fast.",
            "none",
            thresholds=_TIMES_SLOWER,
        ),
        stat("Silenced", "count(laggard_alarm_silenced) or vector(0)", "Alarms that an operator silenced."),
        stat(
            "Nodes not up",
            'sum(laggard_nodes{state=~"silent|down"}) or vector(0)',
            "Silent, or lost by the broker.",
            thresholds=_SOME,
        ),
        stat(
            "Without a verdict",
            "count(laggard_group_judged == 0) or vector(0)",
            "Groups, counted once for each metric: too few members, or no data.",
        ),
        stat(
            "Window lag",
            "max(laggard_window_lag_seconds)",
            "How late the latest window was judged.",
            "s",
            thresholds=((60.0, "red"),),
        ),
        Panel(
            "Stragglers now",
            "table",
            ((f"sort_desc(laggard:alarm_severity:ratio {_TEXTS})", ""),),
            "none",
            width=24,
            about="How many times slower than its peers, on average, whatever has an alarm is; 1 if unknown.",
            thresholds=_TIMES_SLOWER,
        ),
        Panel(
            "Alarms over time",
            "state-timeline",
            ((f"laggard:alarm_severity:ratio {_TEXTS}", "{{name}} {{metric}}"),),
            "none",
            width=24,
            about="One row per alarm while it is raised, coloured by severity.",
            thresholds=_TIMES_SLOWER,
        ),
        Panel(
            "Alarms: times slower, on average",
            "timeseries",
            (
                (
                    f"laggard:alarm_severity:ratio {_TEXTS}",
                    "{{name}} {{metric}}",
                ),
            ),
            "none",
            about="1 is like its peers.",
            thresholds=_TIMES_SLOWER,
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
            "Components, live and silent",
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
            "Times slower than the peers, on average",
            "timeseries",
            ((f'laggard_component_severity_ratio{{group="$group"}} {_NAMED}', "{{name}} {{metric}}"),),
            "none",
            about="Only components that were anomalous of late have a series.",
            thresholds=_TIMES_SLOWER,
            link="/group/$group",
        ),
        Panel(
            "Own value and peers",
            "timeseries",
            (
                (f'laggard_component_observed{{group="$group"}} {_NAMED}', "{{name}} {{metric}} {{unit}}"),
                (
                    f'laggard_component_reference{{group="$group"}} {_NAMED}',
                    "peers of {{name}} {{metric}} {{unit}}",
                ),
            ),
            "none",
            about="In the unit that the legend names.",
            link="/group/$group",
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
            "state-timeline",
            ((f'laggard_component_anomalous{{group="$group"}} {_NAMED}', "{{name}} {{metric}}"),),
            mappings=_ANOMALOUS,
            link="/group/$group",
        ),
        Panel(
            "Components, live and silent",
            "timeseries",
            (('laggard_group_components{group="$group"}', "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Judged",
            "state-timeline",
            (('laggard_group_judged{group="$group"}', "{{metric}}"),),
            mappings=_YES_NO,
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
        stat("Up", f"max(laggard_node_up{_NODE})", "Its agent is up and sends samples.", mappings=_YES_NO),
        stat(
            "Under maintenance",
            f"max(laggard_node_drained{_NODE}) or vector(0)",
            "laggard drain: no alarm, and no alert of nodes.",
            mappings=_YES_NO,
        ),
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
            "Dropped in an hour",
            f"max(increase(laggard_agent_dropped_samples_total{_NODE}[1h]))",
            "Samples dropped in the last hour because the spool was full.",
        ),
        stat("Memory", f"max(laggard_agent_resident_bytes{_NODE})", "Resident memory of the agent.", "bytes"),
        Panel(
            "Its slow components: times slower, on average",
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
            about="Of components that were anomalous of late; 1 without any.",
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
            "state-timeline",
            ((f"max by (collector) (laggard_agent_collector_success{_NODE})", "{{collector}}"),),
            mappings=_YES_NO,
            link="/node/$node",
        ),
        Panel("Spool", "timeseries", ((f"max(laggard_agent_spool_bytes{_NODE})", "bytes"),), "bytes"),
        Panel(
            "Not acknowledged",
            "timeseries",
            ((f"max(laggard_agent_unacknowledged_seconds{_NODE})", "seconds"),),
            "s",
            about="Time for which the aggregator has acknowledged none of its batches.",
        ),
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
        stat(
            "Ready",
            "min(laggard_ready)",
            "State restored, connected to the broker, subscribed.",
            mappings=_YES_NO,
        ),
        stat(
            "Durable",
            "min(laggard_state_durable)",
            "Batches are journaled and acknowledged.",
            mappings=_YES_NO,
        ),
        stat("Samples a second", f"sum({_rate('laggard_samples_total')})", "Readings of one component."),
        stat("Messages a second", f"sum({_rate('laggard_messages_total')})", "From agents."),
        stat("Memory", "sum(process_resident_memory_bytes)", "Of the aggregator.", "bytes"),
        stat(
            "CPU",
            "sum(rate(process_cpu_seconds_total[$__rate_interval]))",
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
            "Refused messages",
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
            (("laggard_role_resident_bytes_quantile", "{{role}} {{quantile}}"),),
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
            about="On so many nodes.",
        ),
        Panel(
            "Time of a reading, the slowest node",
            "timeseries",
            (('laggard_role_collector_seconds_quantile{quantile="1"}', "{{role}} {{collector}}"),),
            "s",
        ),
    ),
    (("job", "label_values(laggard_ready, job)"),),
    '{job=~"$job"}',
)

EVERY = (("site", "label_values(laggard_ready, site)"), ("instance", "label_values(laggard_ready, instance)"))
"""Variables of every dashboard. `site` has values if the targets have that label; all of them otherwise."""
DASHBOARDS = (OVERVIEW, GROUP, NODE, ITSELF)


def rendered(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana's JSON."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["laggard"],
        "timezone": "utc",
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["laggard"], "title": "Laggard", "keepTime": True}],
        "annotations": {"list": [_alarms(dashboard)]},
        "templating": {
            "list": [
                _datasource(),
                *(_variable(*each, several=True) for each in EVERY),
                *(_variable(*each) for each in dashboard.variables),
                _page(),
            ]
        },
        "panels": list(_panels(dashboard)),
    }


def text(dashboard: Dashboard) -> str:
    """The file of a dashboard."""
    return json.dumps(rendered(dashboard), indent=1) + "\n"


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _page() -> dict[str, Any]:
    """The address of the pages, for links; set it in `generate.py` or in the dashboard's settings."""
    return {
        "name": "page",
        "label": "Laggard's page",
        "type": "textbox",
        "query": PAGE,
        "current": {"text": PAGE, "value": PAGE},
    }


def _alarms(dashboard: Dashboard) -> dict[str, Any]:
    """Alarms as annotations, from Prometheus' own record of its alerts."""
    alerts = _selected('ALERTS{alertname="LaggardStraggler",alertstate="firing"}', dashboard)
    return {
        "name": "Alarms",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": alerts,
        "step": "60s",
        "titleFormat": "{{component}} {{metric}}",
        "textFormat": "{{group}} {{level}} {{site}}",
        "tagKeys": "group,level",
    }


_METRIC = re.compile(r"\b((?:laggard[_:][\w:]+|process_\w+|ALERTS)\b)(?:\{([^}]*)\})?")


def _selected(expression: str, dashboard: Dashboard) -> str:
    """`expression` with the matchers of the dashboard's variables at every metric."""
    own = dashboard.matchers.strip("{}")
    added = ",".join(filter(None, (_HERE, own)))
    return _METRIC.sub(lambda found: f"{found[1]}{{{','.join(filter(None, (found[2], added)))}}}", expression)


def _variable(name: str, query: str, *, several: bool = False) -> dict[str, Any]:
    every = {
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        **(every if several else {}),
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    x = y = row = 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > COLUMNS:
            x, y, row = 0, y + row, 0
        yield _panel(dashboard, panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x, row = x + panel.width, max(row, panel.height)


def _panel(dashboard: Dashboard, panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind in ("stat", "table")
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": _SOURCE,
            "expr": _selected(expression, dashboard),
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
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "custom": custom,
                "mappings": _mappings(panel),
                "thresholds": {"mode": "absolute", "steps": _steps(panel)},
                "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
                "links": [_link(panel)],
            },
            "overrides": [],
        },
    }
    if panel.kind == "table":
        gone = ("Time", "__name__", "job", "component")
        exclude = {"excludeByName": dict.fromkeys(gone, True), "renameByName": {"Value": "times slower"}}
        hidden = {"id": "custom.hidden", "value": True}  # the links need it
        made["fieldConfig"]["overrides"] = [
            {"matcher": {"id": "byName", "options": "page_url"}, "properties": [hidden]},
            {
                "matcher": {"id": "byName", "options": "times slower"},
                "properties": [{"id": "custom.cellOptions", "value": {"type": "color-background"}}],
            },
        ]
        made["transformations"] = [{"id": "organize", "options": exclude}]
    return made


def _mappings(panel: Panel) -> list[dict[str, Any]]:
    options = {
        value: {"text": text, "color": colour} for value, (text, colour) in (panel.mappings or {}).items()
    }
    return [{"type": "value", "options": options}] if options else []


def _steps(panel: Panel) -> list[dict[str, Any]]:
    above = [{"value": value, "color": colour} for value, colour in panel.thresholds]
    return [{"value": None, "color": "green"}, *above]


def _link(panel: Panel) -> dict[str, Any]:
    """To the page of the alarm where the query has it, else to a page of Laggard."""
    if any(_TEXTS in expression for expression, _ in panel.queries):
        return _ROW_LINK if panel.kind == "table" else _FIELD_LINK
    return {**_PAGE, "url": "${page}" + (panel.link.replace("$group", "${group:percentencode}") or "/")}


def asked(dashboard: Dashboard, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Titles and queries of all panels as Prometheus is asked them, with `values` in place of variables."""
    for panel in dashboard.panels:
        for expression, _ in panel.queries:
            yield panel.title, Template(_selected(expression, dashboard)).substitute(values)


def main() -> None:
    """Writes all dashboards."""
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.uid}.json").write_text(text(dashboard))


if __name__ == "__main__":
    main()
