"""Jobs on a real GlusterFS cluster, disturbed by a slow brick and by small requests of their own."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.e2e import test_gluster as gluster
from tests.support.processes import run_command
from tests.support.wait import LONG_TEST_LIMIT_SECONDS

BENCH = [sys.executable, "-m", "bench.testbed.gluster.jobs"]
QUICK = ("--history", "5", "--mib", "24", "--run", "own change", "brick")
MIB = 2.0**20

pytestmark = gluster.pytestmark


@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
def test_each_disturbed_job_gets_the_right_sentence(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [*BENCH, *QUICK, "--output", results, "--scratch", tmp_path]
    ran = run_command(command, cwd=gluster.ROOT, check=False, seconds=LONG_TEST_LIMIT_SECONDS)
    if ran.returncode == 2:
        pytest.skip(ran.stderr.strip())
    runs = {each["run"]: each for each in json.loads(results.read_text())["runs"]}
    assert re.search(r"gl-1//srv/b0/data (was|has been) a straggler", runs["brick"]["sentence"]), ran.stderr
    assert "25% of its bytes" in runs["brick"]["sentence"]
    assert "its mean write of 4 KiB was 32.0 times smaller" in runs["own change"]["sentence"], ran.stderr
    assert [each["kind"] for each in runs["own change"]["findings"]] == ["own change", "small writes"]
    for each in runs.values():
        assert each["written_bytes"] == pytest.approx(16 * 24 * MIB, rel=0.01), "what fio wrote"
    assert gluster.devices_on(tmp_path) == []
    assert list(tmp_path.iterdir()) == [results]
