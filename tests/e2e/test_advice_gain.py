"""Programs on a real GlusterFS cluster, as they are and as the advice on them says."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e import test_gluster as gluster
from tests.support.processes import run_command
from tests.support.wait import LONG_TEST_LIMIT_SECONDS

BENCH = [sys.executable, "-m", "bench.jobs_advice_gain"]
QUICK = ("--rule", "small writes", "metadata rate", "--rounds", "1")

pytestmark = gluster.pytestmark


@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
def test_a_gain_is_promised_and_reached(tmp_path: Path) -> None:
    """How near they are is the bench's business: other work on the machine is in a single round."""
    results = tmp_path / "results.json"
    command = [*BENCH, *QUICK, "--output", results, "--scratch", tmp_path]
    ran = run_command(command, cwd=gluster.ROOT, check=False, seconds=LONG_TEST_LIMIT_SECONDS)
    if ran.returncode == 2:
        pytest.skip(ran.stderr.strip())
    assert results.exists(), ran.stderr
    rounds = {each["rule"]: each for each in json.loads(results.read_text())["rounds"]}
    assert set(rounds) == {"small writes", "metadata rate"}
    for each in rounds.values():
        assert each["promised"] is not None, each
        assert 0 < each["promised"] <= each["before"] + 0.5, each
        assert each["after"] < each["before"], each
    assert gluster.devices_on(tmp_path) == []
    assert list(tmp_path.iterdir()) == [results]
