"""Jobs in the archive: fed twice, shuffled, overlapping, by several processes, beside compaction."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laggard_aggregator.archive import layout, part_reader, retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.table import Table, last_revisions
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.settle import records, settled
from laggard_aggregator.jobs.records.store import JobStore, last_nodes
from laggard_common.errors import ConfigError
from tests import naive_revisions
from tests.support.job_records import FOLDER, read_table
from tests.support.thorough import times

SUBMIT = 1_700_000_000
STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "REQUEUED", "NODE_FAIL", "CANCELLED")


def some_jobs(seed: int, count: int = 400) -> list[dict[str, Any]]:
    """Records in no order of few jobs over several days."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        raw = rng.randrange(1, 30)
        state = rng.choice(STATES)
        start = SUBMIT + raw * 7000
        end = rng.choice((None, start + 10, start + 200_000)) if state in STATES[3:] else None
        nodes, source = rng.choice(("n1", "n[1-3]", "m[01,07]")), rng.choice(("sacct", "jsonl"))
        row = {"cluster": "c1", "raw_id": raw, "submit": SUBMIT + raw, "job": str(raw), "state": state}
        row |= {"start": None if state == "PENDING" else start, "end": end, "name": rng.choice("ab")}
        rows.append(row | {"node_list": nodes, "source": source})
    return rows


def add(directory: Path, table: pa.Table) -> int:
    """Feeds a table; returns how many rows were written."""
    store = JobStore(directory, "site")
    store.add(table)
    store.flush()
    return store.added


def content(directory: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The jobs that count and their nodes, but for the time of the revision."""
    reader = ArchiveReader(directory)
    jobs = last_revisions(reader.table("jobs"))
    nodes = last_nodes(reader.table("job_nodes"), jobs)
    plain = [table.drop_columns(["revision_at"]).to_pylist() for table in (jobs, nodes)]
    return (
        sorted(plain[0], key=lambda row: row["job_key"]),
        sorted(plain[1], key=lambda row: (row["job_key"], row["node"])),
    )


def test_nodes_belong_to_the_last_revision(tmp_path: Path) -> None:
    table = read_table(FOLDER / "sacct.txt")
    assert add(tmp_path, table) == len(table)
    jobs, nodes = content(tmp_path)
    assert len(jobs) == len(table)
    names = [row["node"] for row in nodes if row["job_key"] == "c1/41/1700000000"]
    assert names == ["n01", "n03", "n04"]
    lost = next(row for row in nodes if row["job_key"] == "c1/91/1700000000")
    assert (lost["start"], lost["end"], lost["doubtful"], lost["node"]) == (
        1700000010,
        1700000100,
        True,
        "n05",
    )
    assert not [row for row in nodes if row["job_key"] == "c1/90/1700000000"], "it never started"


def test_a_list_of_millions_is_counted(tmp_path: Path) -> None:
    report = ReadReport()
    store = JobStore(tmp_path, "site", report)
    store.add(read_table(FOLDER / "sacct.txt"))
    store.flush()
    assert report.bad_node_lists == 1
    assert "more than 131072 nodes" in report.named[-1]


def test_fed_twice_changes_nothing(tmp_path: Path) -> None:
    table = read_table(FOLDER / "sacct.txt")
    add(tmp_path, table)
    files = sorted(tmp_path.rglob("*.parquet"))
    assert add(tmp_path, table) == 0
    assert sorted(tmp_path.rglob("*.parquet")) == files


@pytest.mark.parametrize("seed", range(times(5, 2)))
def test_order_and_portions_do_not_matter(tmp_path: Path, seed: int) -> None:
    rows = some_jobs(seed)
    add(tmp_path / "once", settled(records(rows)))
    rng = random.Random(seed)
    several = rows * 2
    rng.shuffle(several)
    for at in range(0, len(several), 97):
        add(tmp_path / "parts", settled(records(several[at : at + 97])))
        if at % 3 == 0:
            retention.compact(tmp_path / "parts", (SUBMIT + 90 * 86_400) * 10**9)
    assert content(tmp_path / "once") == content(tmp_path / "parts")
    found = {row["job_key"]: row for row in content(tmp_path / "parts")[0]}
    expected = naive_revisions.last(settled(records(rows)).to_pylist())
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert naive_revisions.stage(found[key]) == naive_revisions.stage(row)
        assert found[key]["end"] == row["end"]


def test_rows_lie_at_the_day_of_their_end(tmp_path: Path) -> None:
    add(tmp_path, read_table(FOLDER / "sacct.txt"))
    days = {day for kind in ("jobs", "job_nodes") for day, _ in layout.days(tmp_path, kind)}
    assert days == {"2023-11-14"}
    row = {
        "cluster": "c",
        "raw_id": 1,
        "submit": SUBMIT,
        "start": SUBMIT,
        "end": SUBMIT + 86_400,
        "node_list": "n",
    }
    add(tmp_path, settled(records([{**row, "state": "COMPLETED", "job": "1"}])))
    assert [day for day, _ in layout.days(tmp_path, "jobs")] == ["2023-11-14", "2023-11-15"]


def test_a_job_whose_row_was_lost_in_a_crash_gets_its_nodes_again(tmp_path: Path) -> None:
    table = read_table(FOLDER / "sacct.txt")
    add(tmp_path, table)
    expected = content(tmp_path)
    for path in (tmp_path / "kind=jobs").rglob("*.parquet"):
        path.unlink()  # as if killed between the nodes and the jobs
    assert add(tmp_path, table) == len(table)
    jobs, nodes = content(tmp_path)
    assert jobs == expected[0]
    assert {tuple(row.items()) for row in nodes} == {tuple(row.items()) for row in expected[1]}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_the_archive_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to user"):
        add(tmp_path, read_table(FOLDER / "sacct.txt"))


@pytest.mark.parametrize("known", [True, False], ids=["set aside before", "found by the store"])
def test_jobs_of_a_damaged_file_are_written_again_when_they_come_again(tmp_path: Path, known: bool) -> None:
    table = read_table(FOLDER / "sacct.txt")
    add(tmp_path, table)
    before = content(tmp_path)
    store = JobStore(tmp_path, "site")
    store.add(table)
    store.flush()
    assert store.added == 0
    part = Table(tmp_path, "jobs").files()[-1]
    data = bytearray(part.path.read_bytes())
    data[len(data) // 2] ^= 1
    part.path.write_bytes(data)
    if known:
        part_reader.set_aside(layout.DamagedPartError(part, "a test"))
    else:
        store = JobStore(tmp_path, "site")
    store.add(table)
    store.flush()
    assert store.added > 0
    assert content(tmp_path) == before
    assert len(list(tmp_path.glob("damaged/kind=jobs/**/*.parquet"))) == 1
