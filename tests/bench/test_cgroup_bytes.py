"""Bytes of fio in real control groups, as the collector counts them."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_command

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="control groups and loop devices need root"),
    pytest.mark.skipif(not shutil.which("fio"), reason="needs fio"),
    pytest.mark.skipif(not shutil.which("losetup"), reason="needs util-linux"),
    pytest.mark.skipif(
        not Path("/sys/fs/cgroup/blkio/cgroup.procs").exists(), reason="needs v1's controller blkio"
    ),
]


def test_bytes_of_jobs_are_within_one_percent_of_fio_s() -> None:
    ran = run_command([sys.executable, "-m", "bench.cgroup_bytes", "--jobs", "4"], check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "at most 0.0" in ran.stdout
