"""The store: converted once, the same after a kill, wrong inputs in one line."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.mining import Mine
from laggard_aggregator.mining.building import MineSources, build
from laggard_aggregator.mining.store import MineStore
from laggard_common.errors import InputError
from tests.support.builders import mine_store
from tests.support.builders.darshan_log import LogWriter
from tests.support.wait import LONG_TEST_LIMIT_SECONDS

pytest.importorskip("darshan")
pytest.importorskip("duckdb")
STORES = 4
LOGS, BATCH = 12, 2
KILLS = int(os.environ.get("LAGGARD_KILLS", "8"))


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
    mine_store.logs(tmp_path / "logs", LOGS)
    program = (
        "import sys; from pathlib import Path; from laggard_aggregator.mining import building;"
        f"building.BATCH_LOGS = {BATCH};"
        "building.build(Path(sys.argv[2]), building.MineSources(darshan=[Path(sys.argv[1])]), 1)"
    )

    def started(store: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", program, str(tmp_path / "logs"), str(store)]
        return subprocess.Popen(command, start_new_session=True)

    begin = time.monotonic()
    assert started(tmp_path / "whole").wait() == 0
    length = time.monotonic() - begin
    expected = content(tmp_path / "whole")
    chance = random.Random(2)
    kills = 0
    for trial in range(KILLS):
        store = tmp_path / f"killed{trial % STORES}"
        child = started(store)
        commits = min(committed(store) + chance.randint(0, 2), LOGS // BATCH - 1)
        while child.poll() is None and committed(store) < commits:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, length / (LOGS // BATCH)))
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            kills += 1
        child.wait()
    for trial in range(STORES):
        store = tmp_path / f"killed{trial}"
        assert started(store).wait() == 0
        assert content(store) == expected
    assert kills > 0


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
        ("a.txt", "JobIDRaw|Start|End|NodeList\n1|soon|6|n1\n", "expected a time"),
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
