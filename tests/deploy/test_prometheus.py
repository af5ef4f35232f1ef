"""Rules, their tests, their runbook and the example configurations, held against what is really exposed."""

import re
import shutil
from pathlib import Path

import pytest

from laggard_aggregator.groups.topology import LEVELS
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.web import exported_metrics
from tests.support.container import PROJECT
from tests.support.processes import run_command

FOLDER = PROJECT / "deploy" / "prometheus"
RULES = (FOLDER / "laggard.rules.yml").read_text()
TEST_FILES = sorted(FOLDER.glob("*_test.yml"))
TESTS = "".join(path.read_text() for path in TEST_FILES)
RUNBOOK = (PROJECT / "docs" / "runbook.md").read_text()
ALERTS = re.findall(r"- alert: (\w+)", RULES)
RULE_NAMES = re.findall(r"- (?:alert|record): (\S+)", RULES)
ALERTMANAGER = PROJECT / "deploy" / "alertmanager" / "alertmanager.yml"
TARGET_LABELS = {"site", "exported_site", "job", "instance"}
"""Labels that Prometheus adds; laggard_build_info has its own site."""
PROCESS_METRICS = {"process_cpu_seconds_total"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (prometheus)")


def checked(*command: str) -> str:
    return run_command(command).stdout


@needs_promtool
def test_rules_and_scrapes_are_valid() -> None:
    assert f"{len(ALERTS) + 7} rules found" in checked(
        "promtool", "check", "rules", str(FOLDER / "laggard.rules.yml")
    )
    checked("promtool", "check", "config", str(FOLDER / "prometheus.yml"))


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    assert "SUCCESS" in checked("promtool", "test", "rules", *map(str, TEST_FILES))


@needs_promtool
def test_the_rules_tests_can_fail(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "laggard_lasting_test.yml", tmp_path)
    (tmp_path / "laggard.rules.yml").write_text(RULES.replace("> 96 * 3600", "> 94 * 3600"))
    done = run_command(["promtool", "test", "rules", tmp_path / "laggard_lasting_test.yml"], check=False)
    assert done.returncode == 1


def test_every_alert_is_seen_to_fire_in_a_test() -> None:
    assert len(ALERTS) == len(set(ALERTS)) > 15
    assert set(re.findall(r'alertname="(\w+)"', TESTS)) == set(ALERTS)


def test_every_alert_links_to_what_to_do_about_it() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)
    anchors = [name.lower() for name in re.findall(r"runbook_url: .*?/runbook/(\w+)", RULES)]
    assert anchors == [alert.lower() for alert in ALERTS]
    for section in re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]:
        assert "**Means.**" in section
        assert "**Look at" in section
        assert "**Do.**" in section or "**Look at, do.**" in section


def test_the_runbook_confirms_and_undoes_by_every_level_and_source() -> None:
    for heading, named, columns in (
        ("By level", {"component", *LEVELS, "network"}, 6),
        ("By source", {*SOURCES, *FUNCTIONS}, 3),
    ):
        section = RUNBOOK.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
        assert {len(row) for row in rows} == {columns}
        assert all(cell.strip() for row in rows for cell in row)
        assert named <= set(re.findall(r"\w+", " ".join(row[0] for row in rows)))


@pytest.mark.parametrize("text", [RULES, TESTS, RUNBOOK], ids=["rules", "tests", "runbook"])
def test_every_metric_and_label_that_is_named_is_exposed(text: str) -> None:
    known = {metric.name: metric for metric in exported_metrics.TABLE}
    assert set(re.findall(r"\blaggard_(?!test\b)[a-z0-9_]+\b", text)) <= set(known)
    assert set(re.findall(r"\bprocess_\w+", text)) <= PROCESS_METRICS
    assert set(re.findall(r"\blaggard:\w+:\w+", text)) <= set(re.findall(r"record: (\S+)", RULES))
    for name, matchers in re.findall(r"\b(laggard_[a-z0-9_]+)\{([^}]*)\}", text):
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers)) - TARGET_LABELS
        assert labels <= set(known[name].labels), name


def test_every_aggregation_keeps_the_site_and_the_instance() -> None:
    kept = [set(re.findall(r"\w+", labels)) for labels in re.findall(r"\bby \(([^)]*)\)", RULES)]
    assert len(kept) > 10
    assert all({"site", "instance"} <= labels for labels in kept)
    assert not re.findall(r"\b(?:sum|max|min|count) ?\(", RULES)


def test_no_alert_has_a_label_that_changes_with_a_reboot_or_a_window() -> None:
    """Prometheus begins an alert again when one of its labels changes."""
    expressions = re.findall(r"expr: (.*(?:\n {10,}.*)*)", RULES)
    assert len(expressions) == len(RULE_NAMES)
    named = {name for expression in expressions for name in re.findall(r"\w+", expression)}
    assert "laggard_alarm_active" in named
    assert not {"name", "claim", "unit", "page_url", "laggard_component_info"} & named
    assert "humanize }}" not in RULES


def test_alerts_about_alarms_link_to_the_page() -> None:
    rules = dict(zip(RULE_NAMES, re.split(r"- (?:alert|record): ", RULES)[1:], strict=True))
    linked = [name for name, rule in rules.items() if "page_url:" in rule]
    about_alarms = ("LaggardStraggler", "LaggardGroupSlow", "LaggardGroupSplit")
    assert linked == [alert for alert in ALERTS if alert.startswith(about_alarms)] != []


def test_the_example_scrapes_name_their_site() -> None:
    text = (FOLDER / "prometheus.yml").read_text()
    assert text.count("{site: example}") == text.count("job_name:") == text.count('["mon:9464"]') > 0


def test_an_alert_inhibits_only_alerts_of_its_own_site() -> None:
    text = ALERTMANAGER.read_text()
    assert re.findall(r"group_by: \[(\w+)", text) == ["site"]
    equal = [set(re.findall(r"\w+", labels)) for labels in re.findall(r"equal: \[(.*)\]", text)]
    assert len(equal) == text.count("- source_matchers") > 0
    assert all({"site", "instance"} <= labels for labels in equal)


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool (prometheus-alertmanager)")
def test_the_alertmanager_s_example_is_valid() -> None:
    checked("amtool", "check-config", str(ALERTMANAGER))


def test_the_alertmanager_s_example_names_alerts_that_there_are() -> None:
    text = ALERTMANAGER.read_text()
    assert set(re.findall(r"\bLaggard\w+", text)) - {"Laggard"} <= set(ALERTS)
