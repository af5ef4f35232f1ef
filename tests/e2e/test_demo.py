"""`laggard demo` as a newcomer types it."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.processes import get_json, until

DEMO = [sys.executable, "-P", "-m", "laggard_aggregator.cli.main", "demo"]

pytestmark = pytest.mark.e2e


def children_of(pid: int) -> list[int]:
    """The pids of a process's children, seen in /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.timeout(150)
def test_once_finds_the_right_lun_and_no_other(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*DEMO, "--once"],
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert "laggard indicted oss-08/loop27: right" in lines
    raised = [line for line in lines if line.startswith("laggard: alarm on ") and line.endswith("stands")]
    assert len(raised) == 1
    assert any(line.startswith("cdf indicted ") for line in lines)
    assert any(line.startswith("this machine itself: ") for line in lines)
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []  # the folder of the run is gone


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    folder = tmp_path / "tmp"
    folder.mkdir()
    with log.open("wb") as said:
        demo = subprocess.Popen(DEMO, stdout=said, stderr=said, env={**os.environ, "TMPDIR": str(folder)})
    try:
        until("the first line", lambda: "second 0 of" in log.read_text(), 40)
        url = next(word for word in log.read_text().split() if word.endswith("/metrics")).removesuffix(
            "/metrics"
        )
        assert get_json(f"{url}/readyz") == {"ready": True}
        agents = children_of(demo.pid)
        assert len(agents) == 13
        demo.send_signal(number)
        assert demo.wait(20) == 0
    finally:
        demo.kill()
        demo.wait()
    assert gone(agents)
    assert list(folder.iterdir()) == []
    assert "Traceback" not in log.read_text()


@pytest.mark.timeout(60)
def test_agents_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as said:
        demo = subprocess.Popen(DEMO, stdout=said, stderr=said, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        until("the first line", lambda: "second 0 of" in log.read_text(), 40)
        agents = children_of(demo.pid)
        assert agents
    finally:
        demo.kill()
        demo.wait()
    until("the agents to be gone", lambda: gone(agents), 15)


@pytest.mark.timeout(60)
def test_a_terminal_gets_a_live_table(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        [*DEMO, "--seconds", "12", "--speed", "20"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm", "COLUMNS": "160", "LINES": "50"},
    )
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline and (demo.poll() is None or select.select([ours], [], [], 0)[0]):
        if select.select([ours], [], [], 0.2)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert demo.wait(20) == 0
    text = seen.decode(errors="replace")
    assert "peers' await" in text
    assert "oss-12/loop31" in text
    assert "replayed at 20x the speed" in text


@pytest.mark.timeout(120)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for options, says in (
        (["--speed", "7"], "--speed"),
        (["--seconds", "soon"], "--seconds"),
        (["--recording", str(tmp_path / "none.xz")], "No such file"),
        (["--recording", str(tmp_path)], "Is a directory"),
    ):
        ran = subprocess.run(
            [*DEMO, "--once", *options], capture_output=True, text=True, timeout=100, check=False
        )
        assert ran.returncode == 2
        assert says in ran.stderr
        assert ran.stderr.count("\n") == 1
