"""Jobs of a real Slurm on a real GlusterFS cluster: a slow brick, a neighbour, and what their owners read."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e import test_gluster as gluster
from tests.support import slurm_lab
from tests.support.processes import run_command
from tests.support.wait import LONG_TEST_LIMIT_SECONDS

BENCH = [sys.executable, "-m", "bench.testbed.gluster.slurm"]
LIMIT_SECONDS = 2 * LONG_TEST_LIMIT_SECONDS

pytestmark = [
    *gluster.pytestmark,
    pytest.mark.skipif(bool(slurm_lab.missing()), reason=slurm_lab.missing() or "it runs"),
]


@pytest.mark.timeout(LIMIT_SECONDS)
def test_owners_read_why_their_jobs_were_slow(tmp_path: Path) -> None:
    """On the page and in the comment by sacct, and of the slow brick while the job runs."""
    results = tmp_path / "results.json"
    with TemporaryDirectory() as folder:  # those of pytest are for their owner alone
        scratch = Path(folder)
        scratch.chmod(0o755)
        command = [*BENCH, "--output", results, "--scratch", scratch]
        ran = run_command(command, cwd=gluster.ROOT, check=False, seconds=LIMIT_SECONDS)
        assert gluster.devices_on(scratch) == []
        assert list(scratch.iterdir()) == []
    if ran.returncode == 2:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr[-3000:]
    runs = {each["run"]: each for each in json.loads(results.read_text())["runs"]}
    assert "gl-1//srv/b0/data was a straggler" in runs["brick"]["while_running"], ran.stderr
    assert "gl-1//srv/b0/data" in runs["brick"]["comment"], ran.stderr
    assert " of bin ran with " in runs["neighbour"]["comment"], ran.stderr
    for each in runs.values():
        assert each["as_it_should"], "the comment is the sentence, in lower case"
        assert each["on_page"]
