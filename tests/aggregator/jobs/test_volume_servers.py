"""Bytes of GlusterFS: clients by mount, bricks by who mounts their volume."""

from pathlib import Path

import pytest

from laggard_aggregator.jobs.join.accounts import JobAccount
from laggard_aggregator.jobs.join.membership import Occupation
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.summary import component_rows, series_rows, summary_row
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.aggregator.jobs.test_join import SECOND, a_job
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS

RATE = 1_000_000
SECONDS = 400
BRICKS = {"gl-1": "data", "gl-2": "data", "gl-3": "other"}


def counted(rate: int) -> list[NaiveReading]:
    """A reading a second of who writes `rate` bytes a second by 128 KiB."""
    first = START_NS // MS
    return [
        NaiveReading(
            first + 1000 * at,
            first + 1000 * at,
            {
                "bytes_read": 0,
                "bytes_written": rate * at,
                "fop_read_count": 0,
                "fop_write_count": rate * at // 131_072,
                "fop_write_latency_ns": 2_000_000 * at,
                "fop_open_count": at,
                "fop_open_latency_ns": 3_000_000 * at,
                "fop_fstat_count": at,
                "fop_fstat_latency_ns": 1_000_000 * at,
            },
        )
        for at in range(SECONDS)
    ]


def archive(directory: Path) -> None:
    """Two clients of the volume `data`, its two bricks, and one of another volume."""
    batches = [
        job_batch(node, "data", counted(RATE), lsn=at, received_ns=START_NS, source="gluster_client")
        for at, node in enumerate(("cn-1", "cn-2"), 1)
    ]
    batches += [
        job_batch(
            node,
            "/srv/b0",
            counted(RATE),
            lsn=at,
            received_ns=START_NS,
            source="gluster_brick",
            labels=(("volume", volume),),
        )
        for at, (node, volume) in enumerate(BRICKS.items(), 10)
    ]
    write_parts(directory, [batches], START_NS)


def joined(directory: Path, *others: Occupation) -> JobAccount:
    archive(directory)
    (account,) = Join(directory, "site", [a_job("j", 100, 300, "cn-1", "cn-2")], others).run()
    return account


def test_bricks_of_its_volume_are_the_job_s_while_it_is_alone(tmp_path: Path) -> None:
    account = joined(tmp_path)
    row = summary_row(account, 1)
    assert row["written_bytes"] == pytest.approx(2 * RATE * 200, rel=0.01)
    assert row["server_written_bytes"] == pytest.approx(row["written_bytes"], rel=0.01)
    assert row["amplification"] == pytest.approx(1.0, rel=0.01)
    assert row["metadata_operations"] == pytest.approx(2 * 2 * 200, rel=0.02), "opens and stats of open files"
    assert row["coverage"] == pytest.approx(1.0)
    metadata = [each for each in component_rows(account, 1) if each["direction"] == "metadata"]
    assert [each["node"] for each in metadata] == ["cn-1", "cn-2"]
    assert metadata[0]["latency_seconds"] == pytest.approx(0.004 * 200, rel=0.02)
    servers = [each for each in component_rows(account, 1) if each["layer"] == "server"]
    assert [(each["node"], each["component"], each["shared"]) for each in servers] == [
        ("gl-1", "/srv/b0", False),
        ("gl-2", "/srv/b0", False),
    ]
    assert servers[0]["latency_seconds"] == pytest.approx(0.002 * 200, rel=0.02)
    assert {each["layer"] for each in series_rows(account, 1)} == {"client", "server"}


def test_bricks_are_shared_while_another_job_mounts_their_volume(tmp_path: Path) -> None:
    archive(tmp_path)
    jobs = [a_job("j", 100, 300, "cn-1"), a_job("k", 200, 350, "cn-2", raw_id=2)]
    join = Join(tmp_path, "site", jobs)
    first, _ = join.run()
    servers = [each for each in component_rows(first, 1) if each["layer"] == "server"]
    assert [(each["node"], each["shared"]) for each in servers] == [
        *[("gl-1", False), ("gl-1", True), ("gl-2", False), ("gl-2", True)]
    ]
    assert all(each["bytes"] == pytest.approx(RATE * 100, rel=0.02) for each in servers)
    row = summary_row(first, 1)
    assert row["written_bytes"] == pytest.approx(RATE * 200, rel=0.01)
    assert (row["amplification"], row["unaccounted_ratio"]) == (None, None), "its share is unknown"
    every = join.conserved.job + join.conserved.shared + join.conserved.free
    assert every[1] == pytest.approx(2 * RATE * (SECONDS - 1)), "of clients alone"


def test_another_job_on_a_node_without_the_mount_shares_nothing(tmp_path: Path) -> None:
    elsewhere = Occupation(1, "cn-9", START_NS, START_NS + 400 * SECOND)
    assert not summary_row(joined(tmp_path, elsewhere), 1)["shared"]


def test_what_a_dump_tells_late_is_the_job_s(tmp_path: Path) -> None:
    """A value may be a second old when it is read, so the second after the end may be of the job."""
    archive(tmp_path)
    (account,) = Join(tmp_path, "site", [a_job("j", 100.2, 299.8, "cn-1")]).run()
    assert summary_row(account, 1)["written_bytes"] == RATE * 201
    (follows, after) = Join(
        tmp_path, "site", [a_job("j", 100, 299.5, "cn-1"), a_job("k", 299.5, 350, "cn-1", raw_id=2)]
    ).run()
    both = [summary_row(each, 1)["written_bytes"] for each in (follows, after)]
    assert sum(both) == RATE * 251
    assert both[0] == pytest.approx(RATE * 200, rel=0.01)
