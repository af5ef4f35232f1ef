"""Generated records of a site, imported by several processes at once: nothing lost, doubled or merged."""

import secrets
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.jobs_ingest.__main__ import compare, write_files
from bench.jobs_ingest.generator import generate
from tests.support.processes import started
from tests.support.wait import LIMIT_SECONDS

COMMAND = [sys.executable, "-m", "laggard_aggregator.cli.main", "jobs", "import"]


def test_generated_records_by_several_processes_at_once(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    site = generate(4000, seed)
    archive = tmp_path / "archive"
    files = write_files(site, tmp_path, 3, seed)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        running = [
            stack.enter_context(started([*COMMAND, "--sacct", path, "--archive", archive], **quiet))
            for path, _ in files
        ]
        assert [process.wait(LIMIT_SECONDS) for process in running] == [0] * len(files)
    assert not any(compare(site, archive).values())
