"""A real GlusterFS cluster with a slow brick, seen through real agents, a real broker, a real aggregator."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS, LONG_TEST_LIMIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, "-m", "bench.testbed.gluster"]
QUICK = ("--servers", "4", "--clients", "1", "--window", "12", "--shift", "6", "--healthy", "12")
PACKAGES = {
    "glusterfsd": "glusterfs-server",
    "fio": "fio",
    "mosquitto": "mosquitto",
    "nft": "nftables",
    "ip": "iproute2",
}
LACKS = [name for program, name in PACKAGES.items() if not shutil.which(program)]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and loop devices need root"),
    pytest.mark.skipif(bool(LACKS), reason=f"needs {', '.join(LACKS)}"),
    pytest.mark.skipif(
        not Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").exists(), reason="needs cgroup v1"
    ),
]


def devices_on(folder: Path) -> list[str]:
    """The loop devices whose files are in a folder: others may come and go meanwhile."""
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return [path.parts[3] for path in backing if path.read_text().startswith(str(folder))]


def groups_of(pid: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup/cpu").glob(f"laggard-{pid}-*"))


@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
def test_a_throttled_brick_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    options = ("--run", "brick", *QUICK, "--minutes", "2", "--until-found")
    command = [*BENCH, *options, "--output", results, "--scratch", tmp_path]
    ran = run_command(command, cwd=ROOT, check=False, seconds=LONG_TEST_LIMIT_SECONDS)
    if ran.returncode == 2:
        pytest.skip(ran.stderr.strip())
    assert results.exists(), ran.stderr
    (only,) = json.loads(results.read_text())["runs"]
    named = {alarm["component"] for alarm in only["alarms"]["right"]}
    assert named == {only["target"]}, only
    assert not [alarm for alarm in only["alarms"]["false"] if alarm["source"] == "gluster_brick"], only
    figures = only["figures"]["fault"]
    assert figures["write latency"]["faulty"] > 5 * figures["write latency"]["peers_highest"]
    assert devices_on(tmp_path) == []
    assert list(tmp_path.iterdir()) == [results]
    assert "stays behind" not in ran.stderr


def test_an_interrupt_takes_everything_down(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [*BENCH, "--run", "control", *QUICK, "--scratch", tmp_path]

    def all_run_or_end() -> bool:
        running = [group for group in groups_of(bench.pid) if (group / "cgroup.procs").read_text()]
        return bench.poll() is not None or len(running) == 4

    with log.open("wb") as output, started(command, cwd=ROOT, stdout=output, stderr=output) as bench:
        wait_until(all_run_or_end, "glusterd of every server, or the end")
        if bench.poll() == 2:
            pytest.skip(log.read_text().strip())
        bench.send_signal(signal.SIGINT)
        assert bench.wait(LIMIT_SECONDS) == 128 + signal.SIGINT, log.read_text()
    assert devices_on(tmp_path) == []
    assert groups_of(bench.pid) == []
    assert list(tmp_path.iterdir()) == [log]
    said_last = log.read_text()
    assert "Traceback" not in said_last
    assert "stays behind" not in said_last
