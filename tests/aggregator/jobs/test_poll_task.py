"""Polls of sacct by programs that print as Slurm's do: rights, hostile names, failures, restarts."""

import asyncio
import logging
import os
import stat
from pathlib import Path

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.table import last_revisions
from laggard_aggregator.jobs.records.poll_task import PollTask
from laggard_aggregator.jobs.records.sacct_poll import COLUMNS, PollError, SlurmCommands
from laggard_aggregator.settings.aggregator import AggregatorSettings, ArchiveTable, StateTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.status.background import JobPolls
from laggard_common.config import parse
from laggard_common.errors import ConfigError
from tests.support.clock import FakeClock
from tests.support.wait import async_wait_until

NOW = 1_700_100_000
ROWS = (
    "1 1 c1 ann 2001 phys batch COMPLETED 1700000000 1700000000 1700000010 1700000100 90 1 4 0:0 n1",
    "2 2 c1 eve 2003 bio batch RUNNING 1700000000 1700000000 1700000010 Unknown 90 1 4 0:0 n2",
)
NAMES = (
    ("1", "1700000000", "c1", "wrf_7.sh"),
    ("2", "1700000000", "c1", "two\n1\x1f1700000000\x1fc1\x1fforged"),
    ("2", "1700000000", "c1", "two"),
)


class Slurm:
    """Programs `sacct`, `sacctmgr` and `scontrol` in a folder that is the first of PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        folder.mkdir()
        self.program("sacctmgr", "echo Operator")
        self.program("scontrol", "exit 1")
        self.jobs(ROWS, NAMES)

    def program(self, name: str, body: str) -> None:
        """Makes a program."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $SLURM_TIME_FORMAT $TZ $*" >> {self.calls}\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def jobs(self, rows: tuple[str, ...], names: tuple[tuple[str, ...], ...]) -> None:
        """Sets the output of sacct."""
        table = [COLUMNS.replace(",", "\x1f"), *(row.replace(" ", "\x1f") for row in rows)]
        (self.folder / "rows").write_text("\n".join(table) + "\n")
        lines = ["JobIDRaw\x1fSubmit\x1fCluster\x1fJobName", *("\x1f".join(name) for name in names)]
        (self.folder / "names").write_text("\n".join(lines) + "\n")
        chosen = f'case "$*" in *JobName*) cat {self.folder}/names;; *) cat {self.folder}/rows;; esac'
        self.program("sacct", chosen)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Programs that print two jobs."""
    found = Slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}{os.environ['PATH']}")
    return found


def task(folder: Path, polls: JobPolls, clock: FakeClock, uid: int = 12345) -> PollTask:
    """A task over an archive and a state in `folder`."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    settings = AggregatorSettings(
        archive=ArchiveTable(folder / "archive"), state=StateTable(state), jobs=JobsTable(sacct=True)
    )
    return PollTask(settings, clock, polls, uid=uid)


def jobs_of(folder: Path) -> dict[int, dict[str, object]]:
    """The last revisions by raw id."""
    table = last_revisions(ArchiveReader(folder / "archive").table("jobs"))
    return {row["raw_id"]: row for row in table.to_pylist()}


def test_a_poll_writes_jobs_and_names(tmp_path: Path, slurm: Slurm) -> None:
    polls = JobPolls()
    clock = FakeClock(NOW * 10**9)
    one = task(tmp_path, polls, clock)
    assert one.attempt()
    found = jobs_of(tmp_path)
    assert (found[1]["user"], found[1]["state"]) == ("ann", "COMPLETED")
    assert found[2]["name"] == "two"
    assert found[1]["name"] == "", "two names of one job: none is believed"
    assert polls.revisions == 2
    assert one.attempt()
    assert polls.revisions == 2, "nothing is written twice"
    clock.step(300.0)
    slurm.jobs((ROWS[0], ROWS[1].replace("RUNNING", "FAILED").replace("Unknown", "1700000200")), NAMES[:1])
    assert one.attempt()
    assert jobs_of(tmp_path)[2]["state"] == "FAILED"
    assert jobs_of(tmp_path)[1]["application"] == "wrf"


def test_commands_are_as_documented(tmp_path: Path, slurm: Slurm) -> None:
    task(tmp_path, JobPolls(), FakeClock(NOW * 10**9)).attempt()
    rights, config, names, rows = slurm.calls.read_text().splitlines()
    assert config == "scontrol %s UTC show config"
    assert rights == "sacctmgr %s UTC -n -P show user name=12345 format=AdminLevel"
    start = "%s UTC -X -P -D -a --noconvert --delimiter=\x1f -S 2023-11-13T02:00:00 -o "
    assert names == f"sacct {start}JobIDRaw,Submit,Cluster,JobName"
    assert rows == f"sacct {start}{COLUMNS}"


def test_a_restart_continues_behind_the_last_poll(tmp_path: Path, slurm: Slurm) -> None:
    clock = FakeClock(NOW * 10**9)
    task(tmp_path, JobPolls(), clock).attempt()
    later = FakeClock((NOW + 30 * 86_400) * 10**9)
    task(tmp_path, JobPolls(), later).attempt()
    assert "-S 2023-11-13T02:00:00" in slurm.calls.read_text().splitlines()[-1], "not a month later"
    task(tmp_path, JobPolls(), later).attempt()
    assert "-S 2023-12-13T02:00:00" in slurm.calls.read_text().splitlines()[-1]
    (tmp_path / "state" / "sacct_poll.json").write_text("{")
    assert task(tmp_path, JobPolls(), later).attempt()


def test_ends_soon_after_a_start_of_slurmctld_are_doubtful(tmp_path: Path, slurm: Slurm) -> None:
    end = jobs_end(tmp_path, slurm)
    clock = FakeClock((end + 1000) * 10**9)
    for start, doubtful in ((end + 1, False), (end, True), (end - 60, True), (end - 61, False)):
        folder = tmp_path / str(start)
        folder.mkdir()
        slurm.program(
            "scontrol", f"echo 'Configuration data as of 1'; echo 'BOOT_TIME               = {start}'"
        )
        assert task(folder, JobPolls(), clock).attempt()
        assert jobs_of(folder)[1]["doubtful"] is doubtful
        slurm.program("scontrol", "exit 1")
        assert task(folder, JobPolls(), clock).attempt(), (
            "a restart of the aggregator while slurmctld is down"
        )
        assert jobs_of(folder)[1]["doubtful"] is doubtful
    for damage in (
        '{"polled_at": 1, "controller_starts": 3}',
        '{"polled_at": 1, "controller_starts": [-1]}',
        "[]",
    ):
        (tmp_path / str(end) / "state" / "sacct_poll.json").write_text(damage)
        assert task(tmp_path / str(end), JobPolls(), clock).attempt()


def jobs_end(folder: Path, slurm: Slurm) -> int:
    """The end of job 1, which alone has one."""
    (folder / "first").mkdir()
    assert slurm.calls.parent.exists()
    assert task(folder / "first", JobPolls(), FakeClock(NOW * 10**9)).attempt()
    return int(str(jobs_of(folder / "first")[1]["end"]).split(".", maxsplit=1)[0])


def test_without_rights_nothing_is_read(
    tmp_path: Path, slurm: Slurm, caplog: pytest.LogCaptureFixture
) -> None:
    slurm.program("sacctmgr", "echo None")
    polls = JobPolls()
    one = task(tmp_path, polls, FakeClock(NOW * 10**9))
    with caplog.at_level(logging.INFO):
        assert not one.attempt()
        assert not one.attempt()
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once"
    assert "set AdminLevel=Operator" in caplog.text
    assert "sacct " not in slurm.calls.read_text()
    assert polls.failures == 2
    slurm.program("sacctmgr", "echo Administrator")
    assert one.attempt()
    assert not polls.failure
    slurm.program("sacctmgr", "exit 1")
    assert task(tmp_path, JobPolls(), FakeClock(NOW * 10**9), uid=0).attempt(), "root needs none"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo slurm_load: no database >&2; exit 1", "sacct: slurm_load: no database"),
        ("exit 3", "sacct: exit code 3"),
        ("kill -9 $$", "sacct: ended by signal 9"),
        ("echo nonsense", "no header of sacct -P"),
    ],
)
def test_failures_are_said(tmp_path: Path, slurm: Slurm, body: str, message: str) -> None:
    slurm.program("sacct", body)
    polls = JobPolls()
    assert not task(tmp_path, polls, FakeClock(NOW * 10**9)).attempt()
    assert message in polls.failure
    assert not (tmp_path / "state" / "sacct_poll.json").exists()


def test_output_and_time_are_bounded(slurm: Slurm) -> None:
    slurm.program("sacct", "exec yes")
    with pytest.raises(PollError, match="more than 2 MiB"):
        SlurmCommands(max_bytes=2 << 20).output(["sacct"])
    slurm.program("sacct", "exec sleep 600")
    with pytest.raises(PollError, match="ended by signal 9"):
        SlurmCommands(timeout_seconds=0.2).output(["sacct"])
    with pytest.raises(PollError, match="No such file"):
        SlurmCommands().output(["/no/such/sacct"])


def test_a_hook_is_followed_by_a_poll_of_the_last_minutes(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_aggregator.jobs.records.poll_task.TOLD_SECONDS", 0.05)
    clock = FakeClock(NOW * 10**9)
    one = task(tmp_path, polls := JobPolls(), clock)

    async def run() -> None:
        stop, told = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(one.run(stop, told))
        await async_wait_until(lambda: polls.succeeded_at == NOW)
        kept = (tmp_path / "state" / "sacct_poll.json").read_text()
        slurm.jobs((*ROWS, ROWS[1].replace("2 2 c1", "3 3 c1")), NAMES)
        clock.step(100.0)
        told.set()
        await async_wait_until(lambda: polls.revisions == 3)
        assert (tmp_path / "state" / "sacct_poll.json").read_text() == kept, "the long ones go on as before"
        stop.set()
        await running

    asyncio.run(run())
    calls = [line for line in slurm.calls.read_text().splitlines() if line.startswith("sacct ")]
    starts = [line.split(" -S ")[1].split()[0] for line in calls]
    assert starts == ["2023-11-13T02:00:00"] * 2 + ["2023-11-16T01:46:40"] * 2


def test_a_stop_ends_a_poll_that_hangs(tmp_path: Path, slurm: Slurm) -> None:
    slurm.program("sacct", f"touch {tmp_path}/hangs; exec sleep 600")

    async def run() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(
            task(tmp_path, JobPolls(), FakeClock(NOW * 10**9)).run(stop, asyncio.Event())
        )
        await async_wait_until((tmp_path / "hangs").exists)
        stop.set()
        await running

    asyncio.run(run())


def test_sacct_needs_an_archive() -> None:
    with pytest.raises(ConfigError, match=r"jobs\.sacct: needs \[archive\]"):
        parse(AggregatorSettings, {"jobs": {"sacct": True}})
