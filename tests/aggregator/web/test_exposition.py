import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.ingest.nodes import Nodes
from laggard_aggregator.web.exported_metrics import PER_NODE, TABLE
from laggard_aggregator.web.exposition import MAX_UNHEALTHY, Exposition, Scrape, scrape
from tests.support.builders import live_status
from tests.support.processes import run_command

GOLDEN = Path(__file__).parents[2] / "golden" / "exposition" / "metrics.txt"
DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


def exposed(view: live_status.MadeView) -> str:
    return generate_latest(Exposition(scrape(view), TABLE)).decode()


def samples(text: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
        if sample.name == name
    }


def test_the_golden_exposition() -> None:
    assert exposed(live_status.site()) == GOLDEN.read_text()


def test_an_empty_site_has_every_help_and_no_component() -> None:
    text = exposed(live_status.MadeView())
    for metric in TABLE:
        assert f"# TYPE {metric.name} {metric.type}\n" in text
    assert "component=" not in text
    assert "node=" not in text


def test_an_alarm_is_one_while_it_stands_and_gone_when_it_cleared() -> None:
    view = live_status.site()
    labels = (("component", "oss-1/wwn-2"), ("group", "luns"), ("level", "component"), ("metric", "await"))
    assert samples(exposed(view), "laggard_alarm_active")[labels] == 1
    view.alarms_.clear()
    text = exposed(view)
    assert samples(text, "laggard_alarm_active") == {}
    assert samples(text, "laggard_component_persistence")[labels] == 6


ALARM = {"component": "oss-1/wwn-2", "group": "luns", "level": "component", "metric": "await"}


def test_an_alarm_has_its_beginning_and_values_with_its_own_labels() -> None:
    view, labels = live_status.site(), tuple(sorted(ALARM.items()))
    text = exposed(view)
    assert samples(text, "laggard_alarm_since_timestamp_seconds")[labels] == live_status.NOW - 300
    with_unit = (*labels, ("unit", "ms"))
    assert samples(text, "laggard_component_observed")[with_unit] == 8.0
    assert samples(text, "laggard_component_reference")[with_unit] == 2.0
    assert samples(text, "laggard_component_factor_ratio")[labels] == 4.0
    view.names["oss-1/wwn-2"] = "oss-1/sdk"
    assert samples(exposed(view), "laggard_alarm_since_timestamp_seconds").keys() == {
        labels,
        *(key for key in samples(text, "laggard_alarm_since_timestamp_seconds") if key != labels),
    }
    view.alarms_.clear()
    assert samples(exposed(view), "laggard_alarm_since_timestamp_seconds") == {}
    assert with_unit in samples(exposed(view), "laggard_component_observed")  # its accumulator is not zero


@pytest.mark.parametrize(
    ("metric", "severity", "claim", "unit"),
    [
        ("await", 4.0, "is slower than", "ms"),
        ("await", 0.4, "is faster than", "ms"),
        ("await", 0.954, "behaves unlike", "ms"),
        ("await", live_status.NAN, "behaves unlike", "ms"),
        ("tps", 4.0, "behaves unlike", "operations/s"),
    ],
)
def test_what_an_alert_says_of_an_alarm(metric: str, severity: float, claim: str, unit: str) -> None:
    """The texts of an alert are labels of one series, so that none is a label of the alert."""
    view = live_status.MadeView(groups_=(live_status.group("luns", 5),), names={"oss-1/wwn-2": "oss-1/sdb"})
    alarm = replace(live_status.alarm("luns", "oss-1/wwn-2", severity), metric=metric)
    view.alarms_ = {alarm.key: alarm}
    text = generate_latest(Exposition(scrape(view, page="https://laggard.example.org"), TABLE)).decode()
    (labels,) = (dict(key) for key in samples(text, "laggard_alarm_info"))
    assert labels == {
        "group": "luns",
        "component": "oss-1/wwn-2",
        "metric": metric,
        "name": "oss-1/sdb",
        "claim": claim,
        "unit": unit,
        "page_url": f"https://laggard.example.org/component/luns/oss-1/wwn-2?metric={metric}"
        "&from=2025-10-09T02:56Z&to=2025-10-09T14:56Z",
    }


def test_what_differs_is_told_while_the_alarm_stands() -> None:
    view = live_status.site()
    key = ("luns", "oss-1/wwn-2", "await")
    view.alarms_[key] = replace(view.alarms_[key], causes=(("dd/dd/main", 12.5), ("dd/libc/read", 3.0)))
    labels = (("component", "oss-1/wwn-2"), ("group", "luns"), ("metric", "await"))
    found = samples(exposed(view), "laggard_alarm_cause")
    assert found == {(("cause", name), *labels): n for name, n in view.alarms_[key].causes}
    view.alarms_.clear()
    assert samples(exposed(view), "laggard_alarm_cause") == {}


def test_a_healthy_component_has_no_series() -> None:
    assert "wwn-1" not in exposed(live_status.site())
    assert "wwn-4" not in exposed(live_status.site())


def test_label_values_survive_what_the_format_would_end_them_with() -> None:
    view = live_status.site()
    hostile = 'a"} 1\nevil{x="\\'
    view.alarms_ = {key: value for value in (live_status.alarm("g", hostile),) for key in (value.key,)}
    text = exposed(view)
    assert [dict(labels)["component"] for labels in samples(text, "laggard_alarm_active")] == [hostile]
    assert "\nevil" not in text


def test_no_series_is_there_twice() -> None:
    lines = [line.rpartition(" ")[0] for line in exposed(live_status.site()).splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))


def test_every_node_is_in_the_exposition_of_nodes_alone() -> None:
    view = live_status.site()
    text = generate_latest(Exposition(Scrape(nodes=view.nodes()), PER_NODE)).decode()
    assert {dict(labels)["node"] for labels in samples(text, "laggard_node_up")} == {
        "oss-1",
        "oss-2",
        "oss-9",
        "mds-1",
    }
    assert 'laggard_node_up{node="oss-1"' not in exposed(view)
    assert {family.name for family in parse(text)} == {
        metric.name.removesuffix("_total") for metric in PER_NODE
    }


def test_a_component_that_came_back_from_silence_has_one_series() -> None:
    """Its alarm and its row in the window are one standing."""
    view = live_status.site()
    view.judgements_ = (replace(view.judgements_[0], persistence=view.judgements_[0].persistence * 0),)
    found = samples(exposed(view), "laggard_component_persistence")
    assert {dict(labels)["component"]: value for labels, value in found.items()} == {"oss-1/wwn-2": 0}


def test_openmetrics_is_well_formed() -> None:
    text = generate_openmetrics(Exposition(scrape(live_status.site()), TABLE)).decode()  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert families["laggard_messages"].samples[0].value == 1000
    assert len(families) == len(TABLE)


def test_promtool_finds_nothing_wrong() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (package prometheus) is not installed")
    checked = run_command([promtool, "check", "metrics"], stdin_text=exposed(live_status.site()), check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_documentation_names_exactly_these_metrics() -> None:
    documented = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `laggard_") and len(cells) == 4:
            labels = tuple(label.strip("` ") for label in cells[2].split(",") if label.strip("` "))
            documented[cells[0].strip("`")] = (cells[1], labels, cells[3])
    assert documented == {metric.name: (metric.type, metric.labels, metric.help) for metric in TABLE}


def test_nodes_that_came_once_are_a_number_beyond_a_bound() -> None:
    view = live_status.site()
    silent = next(node for node in view.nodes_ if node.state == "silent")
    failing = replace(silent, node="failing", state="up")
    view.nodes_ = (
        *(replace(silent, node=f"n{at:05}", last_sample=1e9 + at) for at in range(10_000)),
        failing,
    )
    values = scrape(view)
    assert (len(values.nodes), values.unlisted_nodes) == (MAX_UNHEALTHY, 10_001 - MAX_UNHEALTHY)
    names = {node.node for node in values.nodes}
    assert {"failing", "n09999", f"n{10_001 - MAX_UNHEALTHY:05}"} <= names, "and those that were heard last"
    text = generate_latest(Exposition(values, TABLE)).decode()
    assert samples(text, "laggard_unlisted_nodes") == {(): 10_001 - MAX_UNHEALTHY}
    assert len(text) < 500_000


def test_nodes_that_are_listed_are_told_of_though_they_are_well() -> None:
    values = scrape(live_status.site(), ["oss-1", "oss-2", "nobody"])
    assert sorted(node.node for node in values.nodes) == ["mds-1", "oss-1", "oss-2", "oss-9"]


TAIHULIGHT = {"compute": 40_960, "forwarding": 288, "storage": 288, "metadata": 2}
"""Nodes by role (Beacon paper, section 2)."""


def test_the_largest_healthy_site_is_told_of_in_less_than_a_megabyte() -> None:
    book, status = (
        Nodes(),
        {"state": "up", "spool_bytes": 0, "cpu_seconds": 9.5, "resident_bytes": 26_000_000},
    )
    sources = ("diskstats", "net", "host", "lustre", "fnprofile")
    status["collectors"] = {name: {"success": True, "seconds": 0.001} for name in sources}
    for role, count in TAIHULIGHT.items():
        for at in range(count):
            name = f"{role}-{at:05d}"
            book.add(name, role, 10**18)
            book.status(name, status, 10**18, 10**18)
    assert len(book) == 41_538
    luns = [f"storage-{node:05d}/wwn-{lun:02d}" for node in range(288) for lun in range(64)]
    quiet = live_status.judgement("luns", luns, [0] * len(luns), [1.0] * len(luns), [False] * len(luns))
    groups = tuple(live_status.group(f"compute/lustre/{at}", 16) for at in range(1024))
    view = live_status.MadeView(
        judgements_=(quiet,),
        groups_=(live_status.group("luns", len(luns)), *groups),
        nodes_=book.views(10**18),
        roles_=book.roles(),
    )
    text = exposed(view)
    assert len(text) < 1_000_000
    assert 'laggard_nodes{role="compute",state="up"} 40960.0' in text
    assert "laggard_component_score{" not in text
    assert "node=" not in text


def test_nodes_under_maintenance_have_a_series_and_are_not_silent() -> None:
    view = live_status.site()
    before = samples(exposed(view), "laggard_nodes")
    gone = next(node for node in view.unhealthy_nodes() if node.state in ("silent", "down"))
    healthy = next(node for node in view.nodes() if node.state == "up")
    view.decisions_ = tuple(
        Decision("drain", target, "ops", 1.0) for target in (gone.node, healthy.node, "elsewhere/*")
    )
    text = exposed(view)
    drained = {dict(labels)["node"]: value for labels, value in samples(text, "laggard_node_drained").items()}
    assert drained == {gone.node: 1, healthy.node: 1}
    after = samples(text, "laggard_nodes")

    def of(counts: dict[tuple[tuple[str, str], ...], float], state: str) -> float:
        return counts[("role", gone.role), ("state", state)]

    assert of(after, gone.state) == of(before, gone.state) - 1
    assert (of(before, "drained"), of(after, "drained")) == (0, 1)
    assert sum(after.values()) == sum(before.values())
    assert (
        "laggard_node_drained{"
        in generate_latest(
            Exposition(Scrape(nodes=view.nodes(), decisions=view.decisions()), PER_NODE)
        ).decode()
    )
