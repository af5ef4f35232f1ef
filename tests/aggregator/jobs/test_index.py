"""The hot index follows the archive whatever happens to its own file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from laggard_aggregator.archive import layout, table
from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.index.schema import PAGE_BYTES
from laggard_common.errors import ArchiveError
from tests.support.builders.job_tables import DAY, EPOCH, job_row, node_rows, write_rows

ADMIN = Principal("root", Role.ADMIN)


def _states(index: JobIndex) -> dict[int, tuple[str, list[str]]]:
    queries = JobQueries(index)
    found = {
        row["raw_id"]: (row["state"], [each["name"] for each in queries.nodes(row)])
        for row in queries.every(ADMIN, JobSelection())
    }
    queries.close()
    return found


def test_the_last_revision_wins_in_any_order(tmp_path: Path) -> None:
    running = job_row(1, state="RUNNING", end=None, revision_at=5)
    done = job_row(1, revision_at=9)
    for order in ((running, done), (done, running)):
        archive = tmp_path / order[0]["state"]
        index = JobIndex(archive)
        for job in order:
            names = ["n1", "n2"] if job is done else ["n7"]
            write_rows(archive, "job_nodes", node_rows(job, names))
            write_rows(archive, "jobs", [job])
            assert index.refresh() == 2
        assert _states(index) == {1: ("COMPLETED", ["n1", "n2"])}
        assert index.refresh() == 0


def test_nodes_appear_with_their_job(tmp_path: Path) -> None:
    running, done = job_row(1, state="RUNNING", end=None, revision_at=5), job_row(1, revision_at=9)
    index = JobIndex(tmp_path)
    write_rows(tmp_path, "job_nodes", node_rows(running, ["n1"]))
    write_rows(tmp_path, "jobs", [running])
    write_rows(tmp_path, "job_nodes", node_rows(done, ["n2"]))
    index.refresh()
    assert _states(index) == {1: ("RUNNING", ["n1"])}


def test_consecutive_nodes_are_one_range(tmp_path: Path) -> None:
    job = job_row(1)
    write_rows(tmp_path, "job_nodes", node_rows(job, [f"node{n}" for n in (*range(8, 120), 200)]))
    write_rows(tmp_path, "jobs", [job])
    index = JobIndex(tmp_path)
    index.refresh()
    with closing(index.connect()) as db:
        assert db.execute("select count(*) from members").fetchone()[0] == 1
        assert db.execute("select count(*) from boxes").fetchone()[0] == 1


@pytest.mark.parametrize("damage", ["missing", "text", "version", "cut", "schema"])
def test_an_unusable_index_is_rebuilt(tmp_path: Path, damage: str) -> None:
    job = job_row(1)
    write_rows(tmp_path, "job_nodes", node_rows(job, ["n1"]))
    write_rows(tmp_path, "jobs", [job])
    index = JobIndex(tmp_path)
    index.refresh()
    if damage == "missing":
        index.path.unlink()
    elif damage == "text":
        index.path.write_bytes(b"not a database" * 1000)
    elif damage == "version":
        with closing(sqlite3.connect(index.path)) as db:
            db.execute("pragma user_version = 99")
    elif damage == "schema":
        content = index.path.read_bytes()
        index.path.write_bytes(content.replace(b"CREATE TABLE ", b"CREATE TABLE\xff"))
        with pytest.raises(ArchiveError):
            _states(index)
    else:
        index.path.write_bytes(index.path.read_bytes()[:5000])
    index.refresh()
    assert _states(index) == {1: ("COMPLETED", ["n1"])}


def test_deleted_days_leave_the_index(tmp_path: Path) -> None:
    index = JobIndex(tmp_path)
    old = write_rows(tmp_path, "jobs", [job_row(1)])
    write_rows(tmp_path, "jobs", [job_row(2)], EPOCH + DAY)
    index.refresh()
    assert set(_states(index)) == {1, 2}
    old.unlink()
    old.parent.rmdir()
    index.refresh()
    assert set(_states(index)) == {2}


@pytest.mark.parametrize("may_move", [True, False], ids=["set aside", "of another user"])
def test_files_after_a_damaged_one_are_in_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, may_move: bool
) -> None:
    path = write_rows(tmp_path, "jobs", [job_row(1)])
    path.write_bytes(path.read_bytes()[:-20])
    write_rows(tmp_path, "jobs", [job_row(2)])
    if not may_move:

        def refuse(damaged: layout.DamagedPartError) -> None:
            raise ArchiveError(str(damaged.part.path), "Permission denied")

        monkeypatch.setattr(table, "set_aside", refuse)
    index = JobIndex(tmp_path)
    for _ in range(2):
        index.refresh()
    assert set(_states(index)) == {2}
    assert path.exists() != may_move
    assert len([message for message in caplog.messages if "damaged" in message]) == 1


def test_damage_that_a_reader_finds_is_mended_by_the_next_refresh(tmp_path: Path) -> None:
    jobs = [job_row(number) for number in range(1, 3001)]
    write_rows(tmp_path, "jobs", jobs)
    index = JobIndex(tmp_path)
    index.refresh()
    with closing(sqlite3.connect(index.path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        (page,) = db.execute("select rootpage from sqlite_master where name = 'jobs_at'").fetchone()
    with index.path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)
    with pytest.raises(ArchiveError, match="cannot be read"):
        JobQueries(index).list_jobs(ADMIN, JobSelection())
    assert index.refresh() == 1
    assert len(JobQueries(index).list_jobs(ADMIN, JobSelection(), 1000).jobs) == 1000
    assert index.refresh() == 0


def test_an_index_that_is_not_complete_is_not_read(tmp_path: Path) -> None:
    for number in (1, 2):
        write_rows(tmp_path, "jobs", [job_row(number)])
    index, left = JobIndex(tmp_path), iter([True, False])
    assert index.refresh(lambda: next(left)) == 1
    with pytest.raises(ArchiveError, match="is being built"):
        JobQueries(index).list_jobs(ADMIN, JobSelection())
    assert index.refresh() == 1
    assert set(_states(index)) == {1, 2}


def test_times_the_wrong_way_round_cost_no_other_job(tmp_path: Path) -> None:
    good, bad = job_row(1), job_row(2, end=EPOCH - 50.0)
    write_rows(tmp_path, "job_nodes", [*node_rows(good, ["n1"]), *node_rows(bad, ["n1"])])
    write_rows(tmp_path, "jobs", [good, bad])
    index = JobIndex(tmp_path)
    index.refresh()
    assert set(_states(index)) == {1, 2}
