"""Jobs that still run: their I/O so far, by the counters that the archive has until now."""

from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.show import full_record
from laggard_aggregator.jobs.verdict import running
from laggard_aggregator.jobs.verdict.judge import JobJudge
from laggard_aggregator.jobs.verdict.running import RunningJobs
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.aggregator.jobs.test_join import SECOND, START, client
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS
from tests.support.builders.job_tables import job_row, node_rows, write_rows

ADMIN = Principal("", Role.ADMIN)
MIB = 2**20


def reading_in_bursts(seconds: int) -> list[NaiveReading]:
    """A reading a second of a client that reads 100 MiB a second in the first 20 s of every minute."""
    moved, readings = 0, []
    for at in range(seconds):
        values = {"read_bytes_sum": moved, "write_bytes_sum": 0, "read_bytes_samples": moved // MIB}
        readings.append(NaiveReading(START + 1000 * at, START + 1000 * at, values))
        moved += 100 * MIB if at % 60 < 20 else 0
    return readings


def site(folder: Path) -> dict[str, object]:
    """A job that began 60 s after START on n1, one that begins later, and n1's counters of ten minutes."""
    client(folder, "n1", reading_in_bursts(600))
    row = job_row(1, start=START_NS / 1e9 + 60, end=None, state="RUNNING")
    later = job_row(2, start=START_NS / 1e9 + 9000, end=None, state="PENDING")
    write_rows(folder, "jobs", [row, later], START_NS / 1e9, "site")
    write_rows(folder, "job_nodes", node_rows(row, ["n1"]), START_NS / 1e9, "site")
    return row


def record_of(folder: Path, key: object, now_ns: int, **known: Any) -> dict[str, object]:
    index = JobIndex(folder)
    index.refresh()
    queries = JobQueries(index)
    try:
        judge = JobJudge(folder, queries, now_ns=lambda: now_ns, **known)
        job = queries.job(ADMIN, str(key))
        assert job is not None
        return full_record(queries, judge, job)
    finally:
        queries.close()


def test_a_running_job_has_what_it_did_so_far(tmp_path: Path) -> None:
    row = site(tmp_path)
    found = record_of(tmp_path, row["job_key"], START_NS + 180 * SECOND)
    summary = found["summary"]
    assert isinstance(summary, dict)
    assert summary["read_bytes"] == 2 * 20 * 100 * MIB
    assert summary["mean_read_mib_per_second"] == pytest.approx(100, rel=0.01)
    assert (found["end"], found["verdict"], found["coverage"]) == (None, "not judged", pytest.approx(1.0))
    assert str(found["sentence"]).startswith("It runs: until ")
    assert "it read 4.19 GB and wrote 0 B" in str(found["sentence"])
    phases = found["phases"]
    assert isinstance(phases, list)
    assert [phase["start"] - START_NS / 1e9 for phase in phases] == [60, 120]
    parts = found["components"]
    assert isinstance(parts, list)
    assert [part["component"] for part in parts] == ["scratch"]


def test_forwarders_and_servers_tell_of_a_running_job(tmp_path: Path) -> None:
    row = site(tmp_path)
    client(tmp_path, "fwd", reading_in_bursts(600), lsn=1000)
    moved = [
        NaiveReading(START + 1000 * at, START + 1000 * at, {"read_bytes_sum": at * MIB, "write_bytes_sum": 0})
        for at in range(60, 190, 10)  # those that are there by then
    ]
    entry = job_batch("oss", "fs-OST0001:1", moved, lsn=1, received_ns=START_NS, source="lustre_job_ost")
    write_parts(tmp_path, [[entry]], START_NS + 2000)
    known = {"served_by": {"n1": "fwd"}, "jobid_format": "%j"}
    found = record_of(tmp_path, row["job_key"], START_NS + 180 * SECOND, **known)
    volumes = found["volumes"]
    assert isinstance(volumes, dict)
    assert volumes["client_read_bytes"] == volumes["forwarder_read_bytes"] == 2 * 20 * 100 * MIB
    assert volumes["server_read_bytes"] == 180 * MIB, "from zero, as the entry came with the job"
    alone = record_of(tmp_path, row["job_key"], START_NS + 180 * SECOND)["volumes"]
    assert isinstance(alone, dict)
    assert (alone["forwarder_read_bytes"], alone["server_read_bytes"]) == (None, None)


def test_the_last_part_of_a_long_job_has_no_bytes_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry was last read long before the part begins, so its next reading holds an unknown past."""
    row = site(tmp_path)
    monkeypatch.setattr(running, "MOST_SECONDS", 600.0)
    moved = [
        NaiveReading(START + 1000 * at, START + 1000 * at, {"read_bytes_sum": at * MIB, "write_bytes_sum": 0})
        for at in (*range(60, 100, 10), *range(1700, 1800, 10))
    ]
    entry = job_batch("oss", "fs-OST0001:1", moved, lsn=1, received_ns=START_NS, source="lustre_job_ost")
    write_parts(tmp_path, [[entry]], START_NS + 2000)
    record = record_of(tmp_path, row["job_key"], START_NS + 1795 * SECOND, jobid_format="%j")
    volumes = record["volumes"]
    assert isinstance(volumes, dict)
    assert volumes["server_read_bytes"] == 90 * MIB


def test_its_first_minute_and_a_job_that_has_not_begun(tmp_path: Path) -> None:
    row = site(tmp_path)
    early = record_of(tmp_path, row["job_key"], START_NS + 75 * SECOND)
    assert "it read 1.57 GB and wrote 0 B" in str(early["sentence"])
    key = job_row(2)["job_key"]
    pending = record_of(tmp_path, key, START_NS + 75 * SECOND)
    assert pending["sentence"] == "Not judged: it has not begun"


def test_of_a_long_job_the_last_hours_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_SECONDS", 120.0)
    row = site(tmp_path)
    index = JobIndex(tmp_path)
    index.refresh()
    queries = JobQueries(index)
    job = queries.job(ADMIN, str(row["job_key"]))
    queries.close()
    assert job is not None
    now_ns = START_NS + 600 * SECOND
    jobs = RunningJobs(tmp_path, {}, lambda: now_ns)
    so_far = jobs.of(job)
    assert so_far is not None
    assert so_far.since * 1e9 == START * MS + 480 * SECOND
    assert so_far.summary["read_bytes"] == 2 * 20 * 100 * MIB
    assert jobs.of(job) is so_far
