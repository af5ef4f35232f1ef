"""The store: converted once, the same after a kill, wrong inputs in one line."""

import contextlib
import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.darshan import Mine, darshan_library, store_build, worker
from laggard_aggregator.jobs.darshan.readers import LogReader, ReadProblem, ReadTask
from laggard_aggregator.jobs.darshan.store import MineStore, StoreWriter
from laggard_aggregator.jobs.darshan.store_build import MineSources, build
from laggard_common.errors import InputError
from tests.support.builders import mine_store
from tests.support.builders.darshan_log import LogWriter
from tests.support.darshan import skip_without_darshan
from tests.support.processes import started
from tests.support.thorough import times
from tests.support.wait import LONG_TEST_LIMIT_SECONDS, wait_until

skip_without_darshan()
pytest.importorskip("duckdb")
LOGS, BATCH = 12, 2
KILLS = int(os.environ.get("LAGGARD_KILLS", times(8, 3)))
"""Kills of an incomplete store; each costs about a start of Python."""


def content(store: Path) -> dict[str, str]:
    """Digest of every file but the lock, by its name."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def committed(store: Path) -> int:
    """Batches that a reader would see."""
    return len(list((store / "commits").glob("*.json")))


def test_the_second_time_no_log_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine_store.logs(tmp_path / "logs", 6)
    (tmp_path / "logs/broken.darshan").write_bytes(b"3.41 and nothing")
    options = [
        "mine",
        "init",
        "--darshan",
        str(tmp_path / "logs"),
        "--store",
        str(tmp_path / "store"),
        "--json",
    ]
    assert main(options) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["read"], first["converted"], len(first["skipped"])) == (7, 6, 1)
    before = content(tmp_path / "store")
    assert main(options) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["read"], second["known"], len(second["skipped"])) == (0, 7, 1)
    assert content(tmp_path / "store") == before


def test_a_new_log_and_a_changed_one_are_read(tmp_path: Path) -> None:
    logs = mine_store.logs(tmp_path / "logs", 4)
    sources = MineSources(darshan=[tmp_path / "logs"])
    build(tmp_path / "store", sources, 1)
    LogWriter(job=77).write(tmp_path / "logs/new.darshan")
    log = LogWriter(job=3, processes=9)
    log.write(logs[3])
    report = build(tmp_path / "store", sources, 1)
    assert (report.read, report.converted, report.known) == (2, 2, 3)
    with Mine(tmp_path / "store") as mine:
        rows = mine.load("darshan_job").sort("job_id", "start_us").project("job_id", "processes").rows()
        assert [row["job_id"] for row in rows] == [1, 1, 2, 3, 77]
        assert rows[3]["processes"] == 9


def test_a_period_can_be_widened(tmp_path: Path) -> None:
    mine_store.logs(tmp_path / "logs", 6)
    low = (mine_store.START + 3 * 4000) * 1_000_000
    narrow = build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"], low_us=low), 1)
    assert (narrow.converted, narrow.outside) == (3, 3)
    again = build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"], low_us=low), 1)
    assert (again.read, again.outside) == (0, 3)
    wide = build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"]), 1)
    assert (wide.read, wide.converted, wide.known) == (3, 3, 3)


@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
def test_killed_at_random_moments_the_store_is_the_same(tmp_path: Path) -> None:
    """Kills the conversion alone, whose reader might go on, or both; after a complete store a new one."""
    mine_store.logs(tmp_path / "logs", LOGS)
    program = (
        "import sys; from pathlib import Path; from laggard_aggregator.jobs.darshan import store_build;"
        f"store_build.BATCH_LOGS = {BATCH};"
        "store_build.build(Path(sys.argv[2]), store_build.MineSources(darshan=[Path(sys.argv[1])]), 1)"
    )

    with contextlib.ExitStack() as stack:  # no reader that goes on is killed before the end

        def building(store: Path) -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-c", program, tmp_path / "logs", store]
            return stack.enter_context(started(command))

        begin = time.monotonic()
        assert building(tmp_path / "whole").wait() == 0
        length = time.monotonic() - begin
        expected = content(tmp_path / "whole")
        chance = random.Random(2)
        kills, number, at = 0, 0, []
        while kills < KILLS:
            store = tmp_path / f"killed{number}"
            child = building(store)
            if chance.random() < 0.8:  # after a commit or more; else at any moment, also while Python starts
                commits = committed(store) + 1
                wait_until(lambda: child.poll() is not None or committed(store) >= commits)  # noqa: B023
            time.sleep(chance.uniform(0, length / (LOGS // BATCH)))
            if child.poll() is None:
                is_group = chance.random() < 0.5
                (os.killpg if is_group else os.kill)(child.pid, signal.SIGKILL)
            assert child.wait() in {0, -signal.SIGKILL}
            if committed(store) < LOGS // BATCH:
                kills += 1
                at.append(committed(store))
                continue
            assert building(store).wait() == 0
            assert content(store) == expected
            number += 1
        store = tmp_path / f"killed{number}"
        assert building(store).wait() == 0
        assert content(store) == expected
    print(f"{kills} kills of {number + 1} stores, after {at} of {LOGS // BATCH} commits")


def test_a_folder_that_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="not a store"):
        MineStore(tmp_path)
    assert main(["mine", "jobs", "--store", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "JobIDRaw|Start|End\n1|2|3\n", "NodeList"),
        ("a.txt", "JobIDRaw|Start|End|NodeList\n1|2026-01-01T00:00:00|Unknown|n1\n", "--timezone"),
        ("a.txt", "JobIDRaw|Start|End|NodeList\nx|5|6|n1\n", "JobIDRaw"),
        ("a.txt", "JobIDRaw|Start|End|NodeList\n1|soon|6|n1\n", "expected times"),
        ("a.json", '{"1": {"start": 4}}', "nodelist"),
    ],
)
def test_wrong_slurm_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["mine", "init", "--slurm", str(tmp_path / name), "--store", str(tmp_path / "s")]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_init_needs_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine", "init", "--store", str(tmp_path / "s")]) == 2
    assert "expected a source" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/logs\xff"))
    mine_store.logs(folder, 2)
    report = build(tmp_path / "store", MineSources(darshan=[folder]), 1)
    assert (report.converted, report.skipped) == (2, [])
    assert build(tmp_path / "store", MineSources(darshan=[folder]), 1).known == 2


def test_files_of_the_user_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine_store.logs(tmp_path / "data/dxt", 1)
    (tmp_path / "data/lmt").mkdir()
    mine_store.lmt(tmp_path / "data/lmt/x.sqlite3")
    (tmp_path / "data/converting").mkdir()
    (tmp_path / "data/converting/thesis.txt").write_text("mine")
    before = content(tmp_path / "data")
    options = ["mine", "init", "--darshan", str(tmp_path / "data"), "--store", str(tmp_path / "data")]
    assert main(options) == 2
    assert "neither empty nor a store" in capsys.readouterr().err
    assert content(tmp_path / "data") == before
    assert not (tmp_path / "data/lock").exists()


def test_files_of_the_user_in_a_store_are_left_alone(tmp_path: Path) -> None:
    mine_store.logs(tmp_path / "logs", 2)
    build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"]), 1)
    own = tmp_path / "store/lmt/x.sqlite3"
    own.parent.mkdir()
    mine_store.lmt(own)
    part = next((tmp_path / "store/darshan_job").rglob("*.parquet"))
    left = part.with_name("00000077.parquet")
    left.write_bytes(b"of a run that was killed")
    build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"]), 1)
    assert own.exists()
    assert part.exists()
    assert not left.exists()


def test_reports_and_snapshots_beside_a_store(tmp_path: Path) -> None:
    mine_store.logs(tmp_path / "logs", 2)
    (tmp_path / "store/lost+found").mkdir(parents=True)
    sources = MineSources(darshan=[tmp_path / "logs"])
    build(tmp_path / "store", sources, 1)
    others = ("job.html", ".nfs0000000001", "commits/.nfs0000000002")
    for name in others:
        (tmp_path / "store" / name).write_text("mine")
    (tmp_path / "store/.snapshot").mkdir()
    mine_store.logs(tmp_path / "logs", 3)
    assert build(tmp_path / "store", sources, 1).read > 0
    assert all((tmp_path / "store" / name).read_text() == "mine" for name in others)


def test_another_version_reads_a_damaged_log_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine_store.logs(tmp_path / "logs", 2)
    (tmp_path / "logs/broken.darshan").write_bytes(b"3.41 and nothing")
    sources = MineSources(darshan=[tmp_path / "logs"])
    reads = []
    for version in ("1", "1", "2", "2"):
        monkeypatch.setattr(store_build, "reader_version", lambda version=version: version)
        report = build(tmp_path / "store", sources, 1)
        reads.append(report.read)
        assert len(report.skipped) == 1
    assert reads == [3, 0, 1, 0]


@pytest.mark.parametrize(
    ("program", "is_of_log"),
    [
        ("raise SystemExit(1)", False),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", False),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", True),
    ],
)
def test_a_crash_is_of_the_log_and_another_end_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, is_of_log: bool
) -> None:
    """A child that cannot import numpy, the end of a process group, and a crash of the C library."""
    (log,) = mine_store.logs(tmp_path / "logs", 1)
    child = tmp_path / "python"
    child.write_text(f"#!{sys.executable}\n{program}\n")
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    found = LogReader().convert(ReadTask(log, 1, tmp_path))
    assert found is not None
    assert found.is_of_log == is_of_log


@pytest.mark.parametrize("missing", ["cffi", "laggard_aggregator.jobs.darshan.convert"])
def test_a_package_that_cannot_be_imported_is_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (log,) = mine_store.logs(tmp_path / "logs", 1)
    (tmp_path / "out").mkdir()
    monkeypatch.setitem(sys.modules, missing, None)  # an import of it raises ImportError
    darshan_library.library.cache_clear()
    try:
        assert (worker.problem(log, 1, tmp_path / "out") or ("", ""))[0] == "installation"
    finally:
        darshan_library.library.cache_clear()


def test_a_passing_fault_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = mine_store.logs(tmp_path / "logs", 3)
    sources = MineSources(darshan=[tmp_path / "logs"])
    answered = LogReader.convert

    def failing(reader: LogReader, task: ReadTask) -> ReadProblem | None:
        if task.path == logs[1]:
            return ReadProblem(f"{task.path}: not converted: No space left on device", is_of_log=False)
        return answered(reader, task)

    monkeypatch.setattr(LogReader, "convert", failing)
    first = build(tmp_path / "store", sources, 1)
    assert (first.converted, len(first.skipped)) == (2, 1)
    monkeypatch.undo()
    second = build(tmp_path / "store", sources, 1)
    assert (second.read, second.converted, second.skipped) == (1, 1, [])


def test_problems_of_the_log_and_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log,) = mine_store.logs(tmp_path / "logs", 1)
    (tmp_path / "out").mkdir()
    assert worker.problem(log, 1, tmp_path / "out") is None
    assert (worker.problem(log, 1, tmp_path / "gone") or ("", ""))[0] == "run"  # as on a full disk
    assert (worker.problem(tmp_path / "gone.darshan", 1, tmp_path / "out") or ("", ""))[0] == "run"
    broken = tmp_path / "broken.darshan"
    broken.write_bytes(b"3.41 and nothing")
    assert (worker.problem(broken, 1, tmp_path / "out") or ("", ""))[0] == "log"
    monkeypatch.setattr(darshan_library, "find_spec", lambda _: None)
    darshan_library.library.cache_clear()
    try:
        assert (worker.problem(log, 1, tmp_path / "out") or ("", ""))[0] == "installation"
    finally:
        darshan_library.library.cache_clear()


def test_a_reader_that_is_killed_damages_no_log(tmp_path: Path) -> None:
    (log,) = mine_store.logs(tmp_path / "logs", 1)
    os.mkfifo(tmp_path / "pipe.darshan")  # a log whose reading never ends
    reader = LogReader()
    (tmp_path / "out").mkdir()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(reader.convert, ReadTask(tmp_path / "pipe.darshan", 1, tmp_path / "out"))
        child = wait_until(lambda: reader._child)
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        found = waiting.result()
    assert found is not None
    assert not found.is_of_log
    assert "killed" in found.text
    assert reader.convert(ReadTask(log, 1, tmp_path / "out")) is None
    reader.close()


def test_a_log_that_is_again_as_it_was_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "logs/a.darshan"
    path.parent.mkdir()
    sources = MineSources(darshan=[path.parent])
    states = [LogWriter(job=1, processes=4), LogWriter(job=1, processes=9, command="/bin/other")]
    for state in (0, 1, 0):
        states[state].write(path)
        os.utime(path, ns=(10**18 + state, 10**18 + state))
        build(tmp_path / "store", sources, 1)
        with Mine(tmp_path / "store") as mine:
            assert [row["processes"] for row in mine.load("darshan_job")] == [states[state].processes]
    assert build(tmp_path / "store", sources, 1).read == 0


def test_a_full_disk_ends_at_once_and_leaves_no_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second log's reading never ends; the first one cannot be committed."""
    (first,) = mine_store.logs(tmp_path / "logs", 1)
    os.mkfifo(tmp_path / "pipe.darshan")
    monkeypatch.setattr(store_build, "BATCH_LOGS", 1)
    monkeypatch.setattr(store_build, "logs_below", lambda _: [first, tmp_path / "pipe.darshan"])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(StoreWriter, "commit", full)
    with pytest.raises(InputError, match="No space left on device"):
        build(tmp_path / "store", MineSources(darshan=[tmp_path]), 2)
    assert not (tmp_path / "store/converting").exists()


def test_another_time_zone_is_another_reading(tmp_path: Path) -> None:
    sacct = mine_store.sacct(tmp_path / "sacct.txt", 3)
    starts = []
    for zone in ("UTC", "America/New_York", "America/New_York"):
        report = build(tmp_path / "store", MineSources(slurm=[sacct], slurm_zone=zone), 1)
        with Mine(tmp_path / "store") as mine:
            starts.append(mine.load("slurm").sort("job_id").rows()[0]["start_us"])
    assert starts[1] == starts[0] + 4 * 3_600_000_000 == starts[2]
    assert report.read == 0


def test_a_batch_ends_when_its_tables_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine_store.logs(tmp_path / "logs", 5)
    monkeypatch.setattr(store_build, "BATCH_BYTES", 1)
    build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"]), 2)
    assert committed(tmp_path / "store") == 5


@pytest.mark.parametrize("start", [0, 2**40, 2**62, -5])
def test_a_log_of_another_millennium_is_damaged(tmp_path: Path, start: int) -> None:
    LogWriter(start=start).write(tmp_path / "x.darshan")
    report = build(tmp_path / "store", MineSources(darshan=[tmp_path]), 1)
    assert report.converted == 0
    assert "times of start and end" in report.skipped[0]


def test_a_store_with_a_lost_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine_store.logs(tmp_path / "logs", 2)
    build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"]), 1)
    part = next((tmp_path / "store/darshan_file").rglob("*.parquet"))
    for content_of_part in (b"PAR1 and no more", None):
        part.unlink()
        if content_of_part is not None:
            part.write_bytes(content_of_part)
        capsys.readouterr()
        assert main(["mine", "jobs", "--store", str(tmp_path / "store")]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["st*re", "st[o]re", "st?re", "it's"])
def test_stores_with_special_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    mine_store.logs(tmp_path / "logs", 2)
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name)
    build(tmp_path / name, MineSources(darshan=[tmp_path / "logs"]), 1)
    monkeypatch.chdir(tmp_path)
    for store in (name, f"{tmp_path}/{name}", "link", f"./{name}/../{name}"):
        capsys.readouterr()
        assert (
            main(["mine", "query", "select count(*) as n from darshan_job", "--store", store, "--json"]) == 0
        )
        assert json.loads(capsys.readouterr().out) == {"n": 2}
