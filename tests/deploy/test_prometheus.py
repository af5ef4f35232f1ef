"""Rules, their tests, their runbook and the example configurations, held against what is really exposed."""

import re
import shutil
from pathlib import Path

import pytest

from laggard_aggregator.web import metric_table
from tests.support.container import PROJECT
from tests.support.processes import run_command

FOLDER = PROJECT / "deploy" / "prometheus"
RULES = (FOLDER / "laggard.rules.yml").read_text()
TEST_FILES = sorted(FOLDER.glob("*_test.yml"))
TESTS = "".join(path.read_text() for path in TEST_FILES)
RUNBOOK = (PROJECT / "docs" / "runbook.md").read_text()
ALERTS = re.findall(r"- alert: (\w+)", RULES)
PROCESS_METRICS = {"process_cpu_seconds_total"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (prometheus)")


def checked(*command: str) -> str:
    return run_command(command).stdout


@needs_promtool
def test_rules_and_scrapes_are_valid() -> None:
    assert f"{len(ALERTS) + 4} rules found" in checked(
        "promtool", "check", "rules", str(FOLDER / "laggard.rules.yml")
    )
    checked("promtool", "check", "config", str(FOLDER / "prometheus.yml"))


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    assert "SUCCESS" in checked("promtool", "test", "rules", *map(str, TEST_FILES))


@needs_promtool
def test_the_rules_tests_can_fail(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "laggard_lasting_test.yml", tmp_path)
    (tmp_path / "laggard.rules.yml").write_text(RULES.replace("for: 96h", "for: 94h"))
    done = run_command(["promtool", "test", "rules", tmp_path / "laggard_lasting_test.yml"], check=False)
    assert done.returncode == 1


def test_every_alert_is_seen_to_fire_in_a_test() -> None:
    assert len(ALERTS) == len(set(ALERTS)) > 15
    assert set(re.findall(r'alertname="(\w+)"', TESTS)) == set(ALERTS)


def test_every_alert_links_to_what_to_do_about_it() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)
    anchors = re.findall(r"runbook_url: https://runbooks\.example/laggard\.html#(\w+)", RULES)
    assert anchors == [alert.lower() for alert in ALERTS]
    for section in re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]:
        assert "**Means.**" in section
        assert "**Look at" in section
        assert "**Do.**" in section or "**Look at, do.**" in section


@pytest.mark.parametrize("text", [RULES, TESTS, RUNBOOK], ids=["rules", "tests", "runbook"])
def test_every_metric_and_label_that_is_named_is_exposed(text: str) -> None:
    known = {metric.name: metric for metric in metric_table.TABLE}
    assert set(re.findall(r"\blaggard_(?!test\b)[a-z0-9_]+\b", text)) <= set(known)
    assert set(re.findall(r"\bprocess_\w+", text)) <= PROCESS_METRICS
    assert set(re.findall(r"\blaggard:\w+:\w+", text)) <= set(re.findall(r"record: (\S+)", RULES))
    for name, matchers in re.findall(r"\b(laggard_[a-z0-9_]+)\{([^}]*)\}", text):
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers)) - {"job", "instance"}
        assert labels <= set(known[name].labels), name


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool (prometheus-alertmanager)")
def test_the_alertmanager_s_example_is_valid() -> None:
    checked("amtool", "check-config", str(PROJECT / "deploy" / "alertmanager" / "alertmanager.yml"))


def test_the_alertmanager_s_example_names_alerts_that_there_are() -> None:
    text = (PROJECT / "deploy" / "alertmanager" / "alertmanager.yml").read_text()
    assert set(re.findall(r"\bLaggard\w+", text)) - {"Laggard"} <= set(ALERTS)
