"""`laggard demo` as a newcomer types it."""

import os
import pty
import re
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.figures import Stated, in_rows, in_sentences, plain
from tests.support.openapi import problems
from tests.support.processes import get_json, get_text, is_running, run_command, started
from tests.support.wait import LIMIT_SECONDS, wait_until

DEMO = [sys.executable, "-P", "-m", "laggard_aggregator.cli.main", "demo"]

pytestmark = pytest.mark.e2e


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children() if is_running(child.pid)]


def gone(pids: list[int]) -> bool:
    return not any(is_running(pid) for pid in pids)


def test_once_finds_the_right_lun_and_no_other(tmp_path: Path) -> None:
    ran = run_command([*DEMO, "--once"], env={**os.environ, "TMPDIR": str(tmp_path)})
    lines = ran.stdout.splitlines()
    assert "laggard blamed oss-08/loop27: right" in lines
    raised = [
        line for line in lines if line.startswith("laggard: alarm on ") and line.endswith("not cleared yet")
    ]
    assert len(raised) == 1
    assert "cdf" not in ran.stdout
    assert any(line.startswith("this machine itself: ") for line in lines)
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []  # the folder of the run is gone


def test_page_top_metrics_and_terminal_name_the_same_lun(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with (
        log.open("wb") as output,
        started([*DEMO, "--speed", "20"], stdout=output, stderr=output, env=environment) as demo,
    ):
        wait_until(lambda: "not cleared yet" in log.read_text(), "the alarm")
        address = next(word for word in log.read_text().split() if word.endswith("/metrics"))
        url = address.removesuffix("/metrics")
        listed = get_json(f"{url}/api/v1/stragglers")["stragglers"]
        top = run_command([*DEMO[:-1], "top", "--once", "--url", url]).stdout
        metrics, page = get_text(address), get_text(url)
        (job,) = get_json(f"{url}/api/v1/jobs/1")["jobs"]
        jobs, job_page = get_text(f"{url}/jobs"), get_text(f"{url}/jobs/1")
        slow_jobs = get_text(f"{url}/jobs?finding=slow+component&from=-7d")
        component_page = get_text(f"{url}/component/luns/oss-08/loop27")
        printed = log.read_text()
        assert_api_is_as_described(url)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(LIMIT_SECONDS) == 0
    terminal = re.findall(r"laggard: alarm on (\S+):", printed)
    assert terminal == ["oss-08/loop27"]
    assert [(each["name"], each["group"]) for each in listed] == [("oss-08/loop27", "luns")]
    assert re.findall(r"oss-\d+/loop\d+", top) == ["oss-08/loop27"]
    assert re.findall(r'laggard_alarm_active\{component="([^"]+)"', metrics) == ["oss-08/loop27"]
    (headline,) = re.findall(r"<h1[^>]*>(.*?)</h1>", page, re.DOTALL)
    assert headline.split()[0] == "oss-08/loop27"
    assert "more straggler" not in headline
    assert '<a href="./jobs"' in page
    assert "recording%2F1%2F" in jobs
    assert re.search(
        r'"Verdict">too few runs; <span class="soft">slow component <span class="name">oss-08/loop27',
        jobs,
    )
    assert "recording%2F1%2F" in slow_jobs, "it has just ended: it is of this week"
    assert "recorded on 2026-11-21" in job_page
    assert (job["verdict"], job["coverage"]) == ("too few runs", 1.0)
    assert_factors_are_quotients(listed[0], top, metrics, printed, page, component_page)


def assert_api_is_as_described(url: str) -> None:
    """The answers of the running daemon are those of its OpenAPI document."""
    document = get_json(f"{url}/api/v1/openapi.json")
    asked = {
        "/api/v1/components/{group}/{component}": "/api/v1/components/luns/oss-08/loop27",
        "/api/v1/history": "/api/v1/history?component=oss-08/loop27&from=-1h",
        "/api/v1/jobs/{job}": "/api/v1/jobs/1",
    }
    for path, methods in document["paths"].items():
        if "get" in methods:
            address = url + asked.get(path, path)
            wait_until(partial(get_json, address), path)  # the archive is written at intervals
            answer = get_json(address)
            assert (path, problems(answer, path, document)) == (path, [])


def assert_factors_are_quotients(
    listed: dict[str, Any], top: str, metrics: str, terminal: str, page: str, component_page: str
) -> None:
    """Wherever a factor stands beside two values, it is their quotient."""
    assert listed["factor"] == listed["observed"] / listed["reference"]
    (located,) = re.findall(r"([\d.]+)×", listed["evidence"])
    heading, row = (re.split("  +", line) for line in top.splitlines()[1:3])
    ranked = dict(zip(heading, row, strict=True))
    exposed = {
        name: float(value)
        for name, value in re.findall(
            r"^laggard_component_(\w+)\{[^}]*loop27[^}]*\} (\S+)$", metrics, re.MULTILINE
        )
    }
    assert exposed["factor_ratio"] == exposed["observed"] / exposed["reference"]
    assert 'metric="await",unit="ms"' in metrics
    stated = [
        Stated(located, listed["observed"], listed["reference"]),
        Stated(ranked["times slower"], *(float(ranked[name].split()[0]) for name in ("own", "peers"))),
        *in_sentences(plain(page)),
        *in_sentences(plain(component_page)),
        *in_rows(component_page),
    ]
    assert len(stated) >= 7, "the API, top, the sentences of two pages, and three windows and more"
    assert [each for each in stated if not each.agrees] == []
    assert re.search(r"laggard: alarm on \S+: it has been [\d.]+ times slower than its peers", terminal)


def test_it_ends_after_the_seconds_asked_for_and_keeps_its_folder_on_request(tmp_path: Path) -> None:
    ran = run_command([*DEMO, "--seconds", "1", "--keep"], env={**os.environ, "TMPDIR": str(tmp_path)})
    assert ran.stderr == ""
    (folder,) = tmp_path.iterdir()
    assert f"Configuration, logs, archive: {folder} (kept)" in ran.stdout
    assert {"aggregator.toml", "aggregator.log"} <= {path.name for path in folder.iterdir()}


def test_a_signal_ends_it_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    folder = tmp_path / "tmp"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    with log.open("wb") as output, started(DEMO, stdout=output, stderr=output, env=environment) as demo:
        wait_until(lambda: re.search(r"second \d+ of", log.read_text()), "the first line")
        url = next(word for word in log.read_text().split() if word.endswith("/metrics")).removesuffix(
            "/metrics"
        )
        assert get_json(f"{url}/readyz") == {"ready": True}
        agents = children_of(demo.pid)
        assert len(agents) == 13
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(LIMIT_SECONDS) == 0
    assert gone(agents)
    assert list(folder.iterdir()) == []
    assert "Traceback" not in log.read_text()


def test_agents_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with log.open("wb") as output, started(DEMO, stdout=output, stderr=output, env=environment) as demo:
        wait_until(lambda: re.search(r"second \d+ of", log.read_text()), "the first line")
        agents = children_of(demo.pid)
        assert agents
        demo.kill()
        demo.wait()
        wait_until(lambda: gone(agents), "the agents to be gone")


def test_a_terminal_gets_a_live_table(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    terminal = {"TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    environment = {**os.environ, "TMPDIR": str(tmp_path), **terminal}
    shown = [b"peers", b"oss-12/loop31", b"replayed at 20x the speed"]
    seen, signalled, deadline = b"", False, time.monotonic() + LIMIT_SECONDS
    command = [*DEMO, "--speed", "20"]
    with started(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as demo:
        os.close(theirs)
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65536):
                seen += data
                is_late = time.monotonic() > deadline
                if not signalled and (is_late or all(text in seen for text in shown)):
                    demo.send_signal(signal.SIGINT)
                    signalled = True
        assert demo.wait(LIMIT_SECONDS) == 0
    os.close(ours)
    assert list(tmp_path.iterdir()) == []
    assert all(text in seen for text in shown), seen.decode(errors="replace")


def test_bad_options_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for options, says in (
        (["--speed", "7"], "--speed"),
        (["--seconds", "soon"], "--seconds"),
        (["--recording", str(tmp_path / "none.xz")], "No such file"),
        (["--recording", str(tmp_path)], "Is a directory"),
    ):
        ran = run_command([*DEMO, "--once", *options], check=False)
        assert ran.returncode == 2
        assert says in ran.stderr
        assert ran.stderr.count("\n") == 1
