"""The dashboards as files: what the script makes. Their queries are asked in tests/e2e/test_mosquitto.py."""

import json
import re
import shutil
from pathlib import Path

import pytest

from deploy.grafana import generate
from deploy.grafana.generate import COLUMNS, DASHBOARDS, FOLDER, Dashboard
from laggard_aggregator.web import exported_metrics
from tests.support.processes import run_command

RULES = Path(generate.__file__).parents[1] / "prometheus" / "laggard.rules.yml"
KNOWN = {metric.name for metric in exported_metrics.TABLE}
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


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_every_panel_is_complete(dashboard: Dashboard) -> None:
    """A unit, the data source's variable, colours, and a link to a page of Laggard."""
    made = json.loads(generate.text(dashboard))
    for panel in made["panels"]:
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"]
        assert panel["description"] or panel["type"] != "stat"
        assert {target["datasource"]["uid"] for target in [*panel["targets"], panel]} == {"${datasource}"}
        first, *above = defaults["thresholds"]["steps"]
        assert first == {"value": None, "color": "green"}
        assert [step["value"] for step in above] == sorted(step["value"] for step in above)
        (link,) = defaults["links"]
        page_of_alarm = r"\$\{__(?:data\.fields|field\.labels)\.page_url\}"
        assert re.fullmatch(page_of_alarm + r"|\$\{page\}/[a-z]*(?:/\$\S+)?", link["url"])
        if "page_url" in link["url"]:
            assert all("page_url" in target["expr"] for target in panel["targets"])


def test_states_are_words_on_a_timeline() -> None:
    panels = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]
    timelines = [panel for panel in panels if panel.kind == "state-timeline"]
    assert len(timelines) >= 4
    assert all(panel.mappings or panel.thresholds for panel in timelines)
    one = r"(?:min|max)?(?: by \(\w+\) )?\(?"
    truth = one + r"laggard_\w*(?:ready|durable|judged|anomalous|success|up)\b(?!.*== 0)"
    states = [panel for panel in panels if any(re.match(truth, query) for query, _ in panel.queries)]
    assert len(states) >= 6
    assert all(panel.mappings is not None for panel in states)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_every_query_and_annotation_is_of_the_chosen_sites_instances_and_job(dashboard: Dashboard) -> None:
    made = json.loads(generate.text(dashboard))
    matchers = {f'{name}=~"${name}"' for name in ("site", "instance")}
    variables = {variable["name"]: variable for variable in made["templating"]["list"]}
    if "job" in variables:
        matchers.add('job=~"$job"')
    assert {"datasource", "site", "instance", "page"} <= variables.keys()
    assert all(
        variables[name]["allValue"] == ".*" and variables[name]["multi"] for name in ("site", "instance")
    )
    (alarms,) = made["annotations"]["list"]
    assert (alarms["enable"], alarms["datasource"]["uid"]) == (True, "${datasource}")
    assert 'alertname="LaggardStraggler"' in alarms["expr"]
    queries = [target["expr"] for panel in made["panels"] for target in panel["targets"]]
    for query in (*queries, alarms["expr"]):
        selectors = re.findall(r"\b(?:laggard[_:][\w:]+|process_\w+|ALERTS)\b(\{[^}]*\})?", query)
        assert selectors
        for selector in selectors:
            assert matchers <= set(selector.strip("{}").split(",")), query


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_times_are_utc_as_on_the_page_and_in_mails(dashboard: Dashboard) -> None:
    assert json.loads(generate.text(dashboard))["timezone"] == "utc"


def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (package prometheus) is not installed")
    values = dict.fromkeys(("site", "instance", "job", "group", "node"), "x") | {"__rate_interval": "1m"}
    queries = [query for dashboard in DASHBOARDS for _, query in generate.asked(dashboard, values)]
    rules = [{"record": f"a:{at}", "expr": query} for at, query in enumerate(queries)]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    checked = run_command([promtool, "check", "rules", file])
    assert f"{len(queries)} rules found" in checked.stdout


def test_every_metric_of_a_role_and_of_a_node_is_shown() -> None:
    text = " ".join(e for d in DASHBOARDS for panel in d.panels for e, _ in panel.queries)
    shown = set(re.findall(r"laggard_\w+", text))
    left_out = {f"laggard_role_{name}_total" for name in ("dropped_samples", "missed_ticks", "cpu_seconds")}
    left_out |= {"laggard_role_clock_offset_seconds_quantile", "laggard_role_spool_bytes_quantile"}
    assert {m.name for m in (*exported_metrics.PER_ROLE, *exported_metrics.PER_NODE)} - shown == left_out
