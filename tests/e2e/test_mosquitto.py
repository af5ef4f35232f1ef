"""As on a real site: mosquitto, an agent process a node, an aggregator process, Prometheus scraping it."""

import json
import shutil
import sys
import urllib.parse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana import generate
from laggard_aggregator.demo.recording import read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES, make_site
from laggard_common.clock import SystemClock
from tests.support.loop_thread import beside
from tests.support.ports import free_port
from tests.support.processes import end, get_json, run_command, running
from tests.support.wait import wait_until

SYSSTAT = Path(__file__).parents[1] / "fixtures" / "demo" / "recording.sa.xz"
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "laggard.rules.yml"
SPEED = 10

MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 100000
max_inflight_messages 1000
"""

AGGREGATOR = """\
site = "demo"

[mqtt]
host = "127.0.0.1"
port = {mqtt}
topics = ["laggard/1/demo/#"]

[http]
listen = "127.0.0.1:{http}"
nodes = ["oss-01"]

[detect]
interval_seconds = {interval}
window_samples = 60
shift_samples = 30
confirm = 3

[[group]]
name = "luns"
source = "diskstats"
role = "storage"
components = "oss-[0-9]+/loop.*"
metrics = ["await"]

[archive]
directory = {archive}

[state]
directory = {state}
"""

PROMETHEUS = """\
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: laggard
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


def program(name: str, package: str) -> str:
    """Where Debian's program is, or a skip."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{name} (package {package}) is not installed")
    return found


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


class Prometheus:
    """The query API of a running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ready(self) -> bool:
        return get_json(f"{self.url}/api/v1/status/buildinfo") is not None

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = get_json(f"{self.url}/api/v1/query?query={urllib.parse.quote(expression)}")
        return [] if answer is None else answer["data"]["result"]

    def numbers(self, expression: str, label: str = "") -> dict[str, float]:
        """Values by a label; the one value by an empty text without a label."""
        return {row["metric"].get(label, ""): float(row["value"][1]) for row in self.query(expression)}

    def drawn(self, expression: str) -> list[dict[str, Any]]:
        """The series of the last minute, as a graph asks for them."""
        now = SystemClock().wall_ns() / 1e9
        asked = urllib.parse.urlencode({"query": expression, "start": now - 60.0, "end": now, "step": 5.0})
        answer = get_json(f"{self.url}/api/v1/query_range?{asked}")
        assert answer is not None, f"Prometheus refuses {expression}"
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def components(self, expression: str) -> set[str]:
        return {series["metric"]["component"] for series in self.query(expression)}


def panels() -> list[tuple[str, str]]:
    """Titles, as `dashboard: panel`, and queries of all panels of Grafana's dashboards."""
    values = {
        "group": "luns",
        "node": "oss-01",
        "job": "laggard",
        "site": ".*",
        "instance": ".*",
        "__rate_interval": "30s",
    }
    return [
        (f"{dashboard.title.removeprefix('Laggard: ')}: {title}", expression)
        for dashboard in generate.DASHBOARDS
        for title, expression in generate.asked(dashboard, values)
    ]


def silent_panels(queries: Prometheus) -> list[str]:
    """The panels whose queries are answered without data, at a moment or over time."""
    return [
        f"{title}: {expression}"
        for title, expression in panels()
        if not queries.query(expression) or not queries.drawn(expression)
    ]


def panels_by_api(queries: Prometheus, api: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Panels of which the API says the same: what each shows by its query, and what its title promises."""
    asked = dict(panels())
    asked_of_own_value, asked_of_peers = (e for title, e in panels() if title.endswith("Own value and peers"))
    stragglers = get_json(f"{api}/api/v1/stragglers")["stragglers"]
    groups = get_json(f"{api}/api/v1/groups")["groups"]
    nodes = get_json(f"{api}/api/v1/nodes")["nodes"]
    raised = {row["name"]: row for row in stragglers if row["alarm"]}
    worst = {name: row["severity"] for name, row in raised.items()}
    live = sum(group["live"] for group in groups)
    promised = {
        "overview: Alarms": {"": len(raised)},
        "overview: Worst": {"": max(worst.values(), default=1.0)},
        "overview: Silenced": {"": sum(row["silenced"] is not None for row in stragglers)},
        "overview: Nodes not up": {
            "": sum(states.get("silent", 0) + states.get("down", 0) for states in nodes.values())
        },
        "overview: Stragglers now": worst,
        "overview: Alarms by group": {"luns": len(raised)},
        "peer group: Times slower than the peers, on average": {
            row["name"]: row["severity"] for row in stragglers
        },
        "own value": {row["name"]: row["observed"] for row in stragglers},
        "its peers": {row["name"]: row["reference"] for row in stragglers},
        "peer group: Components, live and silent": {"live": live},
        "node: Up": {"": 1},
    }
    labels = {"overview: Alarms by group": "group", "peer group: Components, live and silent": "state"}
    shown = {
        title: queries.numbers(asked[title], labels.get(title, "name"))
        for title in promised
        if title in asked
    }
    shown["own value"] = queries.numbers(asked_of_own_value, "name")
    shown["its peers"] = queries.numbers(asked_of_peers, "name")
    return shown, promised


def unlike_the_api(queries: Prometheus, api: str) -> dict[str, Any]:
    """Panels that show another number than the API, which a scrape later may be right."""
    shown, promised = panels_by_api(queries, api)
    return {
        title: (shown[title], numbers)
        for title, numbers in promised.items()
        if {name: pytest.approx(shown[title].get(name), rel=1e-6) for name in numbers} != numbers
    }


def diagnosed(*arguments: str) -> set[str]:
    """The stragglers that `laggard diagnose` names."""
    ran = run_command(python("laggard_aggregator.cli.main", "diagnose", *arguments, "--json"))
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    return {r["component"] for r in records if r["record"] == "component" and r["straggler"]}


@pytest.mark.e2e
def test_the_recorded_fault_is_seen_by_prometheus_and_in_the_archive(tmp_path: Path) -> None:
    mosquitto, prometheus = program("mosquitto", "mosquitto"), program("prometheus", "prometheus")
    recording = read_recording()
    site = make_site(tmp_path / "site", recording.luns, 1 / SPEED, free_port(), free_port())
    site.write()
    faulty = site.component(recording.faulty)
    archive = tmp_path / "archive"
    files = {
        "mosquitto.conf": MOSQUITTO.format(port=site.mqtt_port),
        "aggregator.toml": AGGREGATOR.format(
            mqtt=site.mqtt_port,
            http=site.http_port,
            interval=site.tick_seconds,
            archive=json.dumps(str(archive)),
            state=json.dumps(str(tmp_path / "state")),
        ),
        "prometheus.yml": PROMETHEUS.format(port=site.http_port, rules=RULES),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    replay = Replay(recording, site.roots(), SPEED, SystemClock(), align_ticks=SHIFT_SAMPLES)
    replay.prepare()
    api = f"http://127.0.0.1:{site.http_port}"
    queries = Prometheus(f"http://127.0.0.1:{free_port()}")

    with ExitStack() as stack:
        stack.enter_context(
            running([mosquitto, "-c", str(tmp_path / "mosquitto.conf")], tmp_path / "mosquitto.log")
        )
        aggregator = stack.enter_context(
            running(
                python("laggard_aggregator.cli.daemon", "--config", str(tmp_path / "aggregator.toml")),
                tmp_path / "aggregator.log",
            )
        )
        scrape = (
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address={queries.url.removeprefix('http://')}",
        )
        stack.enter_context(running([prometheus, *scrape], tmp_path / "prometheus.log"))
        wait_until(lambda: get_json(f"{api}/readyz"), "the aggregator to be ready")
        for node in site.nodes.values():
            procfs = ("--procfs", str(site.procfs(node)))
            agent = python("laggard_agent", "--config", str(site.agent_toml(node)), *procfs)
            stack.enter_context(running(agent, site.log(node)))
        wait_until(queries.ready, "Prometheus to answer")
        wait_until(lambda: queries.query('laggard_nodes{role="storage",state="up"} == 12'), "twelve nodes up")
        assert queries.components("laggard_alarm_active") == set()

        stack.enter_context(beside(replay.run))
        wait_until(lambda: queries.query("laggard_alarm_active == 1"), "an alarm in Prometheus")
        assert queries.components("laggard_alarm_active == 1") == {faulty}
        wait_until(lambda: not silent_panels(queries), "every panel to have data")
        wait_until(lambda: not unlike_the_api(queries, api), "every panel to show what its title promises")
        recorded = "laggard:alarm_severity:ratio"
        assert wait_until(lambda: queries.components(recorded), "the rule") == {faulty}
        wait_until(lambda: not queries.query("laggard_alarm_active == 1"), "the alarm to clear")
        assert replay.recorded_seconds > recording.fault_end - recording.start
        assert queries.components("max_over_time(laggard_alarm_active[10m])") == {faulty}
        assert [series["value"][1] for series in queries.query("laggard_wire_errors_total")] == ["0"]
        assert end(aggregator) == 0

    assert diagnosed(str(archive)) == {faulty}
    program("sadf", "sysstat")
    of_sysstat = diagnosed(str(SYSSTAT), "--interval", "1", "--window", "60", "--shift", "30")
    assert {name.rpartition("/")[2] for name in of_sysstat} == {recording.faulty}
