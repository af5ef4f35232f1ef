"""The background task of the daemon: it follows the archive, and no error of it ends anything else."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.jobs.background import ROLLUPS, BackgroundTask
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.status.background import BackgroundWork
from laggard_common.errors import ArchiveError
from tests.aggregator.jobs.job_archives import job_batch, write_parts
from tests.aggregator.jobs.test_join import SECOND, a_job, client, moving, store_jobs
from tests.aggregator.jobs.test_series60 import LATER_NS, START, steady, stored_minutes
from tests.support.builders.archives import START_NS
from tests.support.clock import FakeClock
from tests.support.processes import started
from tests.support.wait import async_wait_until

_PASS = """
import sys
from pathlib import Path
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
print("begins", flush=True)
RollupPass(Path(sys.argv[1])).run(int(sys.argv[2]), 30)
"""


def hours(directory: Path, count: int = 3) -> None:
    found = steady(START + 1000, 360 * count, step=10_000)
    batches = [job_batch("n", f"c{at}", found, lsn=at, received_ns=START_NS) for at in range(4)]
    write_parts(directory, [batches], START_NS)


def task_of(directory: Path, work: BackgroundWork, *, is_right: bool = True) -> BackgroundTask:
    """With a clock that stands still at LATER_NS."""
    clock = FakeClock(LATER_NS)
    return BackgroundTask(
        ArchiveTable(directory), JobsTable(), "site", work, clock=clock, is_right=lambda: is_right
    )


def test_it_rolls_up_what_is_there_and_stops(tmp_path: Path) -> None:
    hours(tmp_path)
    work = BackgroundWork()

    async def go() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(task_of(tmp_path, work).run(stop))
        await async_wait_until(lambda: work.rolled_hours)
        stop.set()
        await task

    asyncio.run(go())
    assert (work.rolled_hours, work.rolled_rows, work.failing, work.lag_seconds) == (3, 720, {}, 0.0)


def test_an_error_is_one_warning_and_the_next_pass_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hours(tmp_path)
    work = BackgroundWork()
    task = task_of(tmp_path, work)

    def full(*_: object) -> None:
        raise ArchiveError(str(tmp_path), "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(layout, "write_part", full)
        assert not task.attempt()
        assert not task.attempt()
    assert (work.failures, "No space" in work.failing[ROLLUPS]) == (2, True)
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
    assert task.attempt()
    assert (work.failing, work.rolled_rows) == ({}, 720)


def test_nothing_is_done_while_the_clock_is_not_confirmed_or_there_is_no_archive(tmp_path: Path) -> None:
    hours(tmp_path)
    work = BackgroundWork()
    assert task_of(tmp_path, work, is_right=False).attempt()
    assert task_of(tmp_path / "none", work).attempt()
    assert work.rolled_hours == 0


def test_killed_at_any_moment_and_done_again_the_rows_are_the_same(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for each in (whole, killed):
        hours(each, 12)
    RollupPass(whole).run(LATER_NS, 30)
    chance = int.from_bytes(os.urandom(4))
    print("seed", chance)
    for at in range(6):
        command = [sys.executable, "-c", _PASS, str(killed), str(LATER_NS)]
        with started(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait((chance >> at) % 97 / 100)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
    RollupPass(killed).run(LATER_NS, 30)
    assert stored_minutes(killed) == stored_minutes(whole)


def test_it_joins_jobs_and_rests_after_a_scan(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 300))
    store_jobs(tmp_path, [a_job("j", 0, 200, "n1")], START_NS)
    work = BackgroundWork()
    task = task_of(tmp_path, work)
    assert task.attempt()
    assert work.joined_jobs == 1
    store_jobs(tmp_path, [a_job("k", 0, 100, "n1", raw_id=2)], START_NS + SECOND)
    assert task.attempt()
    assert work.joined_jobs == 1, "the clock stands still"


def test_an_archive_that_cannot_be_looked_at_is_a_failed_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours(tmp_path)
    work = BackgroundWork()
    task = task_of(tmp_path, work)

    def broken(*_: object, **__: object) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", broken)
        patched.setattr(os, "scandir", broken)
        patched.setattr(os, "listdir", broken)
        assert not task.attempt()
    assert "Input/output error" in work.failing[ROLLUPS]
    assert task.attempt()
    assert work.failing == {}
