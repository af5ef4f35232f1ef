"""I/O servers with traced and sampled functions, one with a CPU hog: it is named, and nothing is left."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import started
from tests.support.wait import LONG_TEST_LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, "-m", "bench.testbed.hotdep"]
QUICK = ("--peers", "4", "--interval", "1", "--window", "5", "--shift", "2", "--untrained", "--healthy", "10")
MOST_RUNS = 3
PACKAGES = {"gcc": "gcc", "make": "make", "mosquitto": "mosquitto", "ip": "iproute2"}
LACKS = [name for program, name in PACKAGES.items() if not shutil.which(program)]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="control groups, loop devices and perf events need root"),
    pytest.mark.skipif(bool(LACKS), reason=f"needs {', '.join(LACKS)}"),
    pytest.mark.skipif(
        not Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device").exists(), reason="needs cgroup v1"
    ),
]


def run_of_the_hog(folder: Path) -> tuple[dict[str, Any], str, int]:
    """The bench's record of one run, its messages, and its process id."""
    results = folder / "results.json"
    options = ("--run", "cpu", *QUICK, "--minutes", "2", "--until-found")
    command = [*BENCH, *options, "--output", results, "--scratch", folder]
    with started(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as bench:
        _, said = bench.communicate(timeout=LONG_TEST_LIMIT_SECONDS)
    if bench.returncode == 2 and said.startswith("bench.testbed.hotdep: "):
        pytest.skip(said.strip())
    assert results.exists(), said
    assert list(folder.iterdir()) == [results]
    (run,) = json.loads(results.read_text())["runs"]
    return run, said, bench.pid


def disturbed(run: dict[str, Any]) -> bool:
    """Whether another program of the machine raised an alarm before the hog began: that run tells nothing."""
    return any(alarm["delay_seconds"] < 0 for alarm in run["alarms"]["false"])


@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
def test_a_cpu_hog_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    for attempt in range(MOST_RUNS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        run, said, pid = run_of_the_hog(folder)
        assert not [*Path("/sys/fs/cgroup").glob(f"*/laggard-{pid}-*")]
        assert "stays behind" not in said
        if not disturbed(run):
            break
    told = json.dumps(run, indent=1)
    by_samples = {alarm["component"] for alarm in run["alarms"]["right"]}
    assert by_samples == {run["target"]}, told
    named = {cause["name"].split("/")[0] for alarm in run["alarms"]["right"] for cause in alarm["causes"]}
    assert "sha256sum" in named, told
    # Other programs on a busy machine may disturb a peer's profile for a window, but not as the hog does.
    by_samples_wrong = [alarm for alarm in run["alarms"]["false"] if alarm["metric"] == "samples"]
    assert not [alarm for alarm in by_samples_wrong if alarm["observed"] > 2 * alarm["reference"]], told
    assert run["diagnose_agrees"], told
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    assert not [path for path in backing if path.read_text().startswith(str(tmp_path))]
