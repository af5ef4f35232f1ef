"""The dashboards as files: what the script makes. Their queries are asked in tests/e2e/test_mosquitto.py."""

import json
import re
from pathlib import Path

import pytest

from deploy.grafana import generate
from deploy.grafana.generate import COLUMNS, DASHBOARDS, FOLDER, Dashboard
from laggard_aggregator.web import metric_table

RULES = Path(generate.__file__).parents[1] / "prometheus" / "laggard.rules.yml"
KNOWN = {metric.name for metric in metric_table.TABLE}
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
IDS = [dashboard.uid for dashboard in DASHBOARDS]


def test_the_files_are_those_that_the_script_makes() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {
        f"{dashboard.uid}.json": generate.text(dashboard) for dashboard in DASHBOARDS
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_panels_do_not_overlap_and_fit(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(generate.text(dashboard))["panels"]:
        at = panel["gridPos"]
        places = {
            (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
        }
        assert not places & taken
        assert max(x for x, _ in places) < COLUMNS
        taken |= places


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_queries_name_metrics_and_variables_that_there_are(dashboard: Dashboard) -> None:
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text()))
    variables = {name for name, _ in dashboard.variables} | {"__rate_interval"}
    queries = [expression for panel in dashboard.panels for expression, _ in panel.queries]
    for expression in (*queries, *(query for _, query in dashboard.variables)):
        assert set(re.findall(r"\$(\w+)", expression)) <= variables
        named = set(re.findall(r"\b(?:laggard|process)[_:][\w:]+", expression))
        assert named
        assert named <= KNOWN | PROCESS | recorded


def test_every_metric_of_a_role_and_of_a_node_is_shown() -> None:
    text = " ".join(e for d in DASHBOARDS for panel in d.panels for e, _ in panel.queries)
    shown = set(re.findall(r"laggard_\w+", text))
    left_out = {"laggard_role_dropped_samples", "laggard_role_missed_ticks", "laggard_role_cpu_seconds"}
    left_out |= {"laggard_role_clock_offset_seconds_quantile", "laggard_role_spool_bytes_quantile"}
    assert {m.name for m in (*metric_table.PER_ROLE, *metric_table.PER_NODE)} - shown == left_out
