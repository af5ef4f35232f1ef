"""The table of paths has each client's target and each node's forwarder, a day once."""

from pathlib import Path

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.jobs.background import BackgroundTask
from laggard_aggregator.jobs.join.path_pass import PathEdge, PathPass
from laggard_aggregator.jobs.join.volumes import FORWARDER
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.status.background import BackgroundWork
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS
from tests.support.clock import FakeClock

START = START_NS // MS
BEGIN = START / 1000
LATER_NS = START_NS + 50 * 3600 * 10**9
CLIENTS = (
    ("cn1", "lustre_osc", "scratch-OST0000-osc-ffff8b5260000800", 0, 120),
    ("fwd1", "lustre_osc", "scratch-OST0001-osc-ffff8b5260000800", 60, 600),
    ("fwd1", "lustre_mdc", "scratch-MDT0000-mdc-ffff8b5260000800", 0, 60),
    ("odd", "lustre_osc", "no client", 0, 60),
)


def archive(folder: Path) -> Path:
    batches = []
    for lsn, (node, source, name, first, last) in enumerate(CLIENTS, 1):
        ticks = [START + second * 1000 for second in range(first + 10, last + 1, 10)]
        readings = [NaiveReading(tick, tick, {"read_bytes_sum": tick}) for tick in ticks]
        component = name.rpartition("-")[0] or name
        batches.append(
            job_batch(node, component, readings, lsn=lsn, received_ns=START_NS, source=source, name=name)
        )
    write_parts(folder, [batches], START_NS)
    RollupPass(folder).run(LATER_NS, 30)
    return folder


def stored(folder: Path) -> list[PathEdge]:
    return [PathEdge(**row) for row in ArchiveReader(folder).table("paths").to_pylist()]


def targets_of(edges: list[PathEdge], node: str, at: float) -> set[str]:
    """OSTs and MDTs that a node reached at a time, its own and those of its forwarders, by the edges."""
    hops = {node} | {
        each.target
        for each in edges
        if each.node == node and each.layer == FORWARDER and each.start <= at < each.end
    }
    return {
        each.target
        for each in edges
        if each.node in hops and each.layer != FORWARDER and each.start <= at < each.end
    }


def test_edges_of_a_day(tmp_path: Path) -> None:
    paths = PathPass(archive(tmp_path), "site", {"cn2": "fwd1", "cn1": "fwd1"})
    assert paths.run(START_NS + 3600 * 10**9) in (0, 1)  # of the day before, the forwarders alone
    assert not {each.target for each in stored_if_any(tmp_path)} & {"scratch-OST0000"}
    assert paths.run(LATER_NS) >= 1
    assert paths.run(LATER_NS) == 0
    found = [each for each in stored(tmp_path) if each.source == "osc"]
    assert found == [
        PathEdge("cn1", "fwd1", "scratch-OST0000", "server", "osc", BEGIN, BEGIN + 120),
        PathEdge("fwd1", None, "scratch-MDT0000", "metadata", "osc", BEGIN, BEGIN + 60),
        PathEdge("fwd1", None, "scratch-OST0001", "server", "osc", BEGIN + 60, BEGIN + 600),
    ]
    day = [each for each in stored(tmp_path) if each.source == "forwarders"]
    assert {(each.node, each.forwarder, each.target) for each in day} == {
        ("cn1", "fwd1", "fwd1"),
        ("cn2", "fwd1", "fwd1"),
    }
    edges = stored(tmp_path)
    assert targets_of(edges, "cn2", BEGIN + 30) == {"scratch-MDT0000"}
    assert targets_of(edges, "cn1", BEGIN + 90) == {"scratch-OST0000", "scratch-OST0001"}
    assert targets_of(edges, "cn1", BEGIN + 700) == targets_of(edges, "gone", BEGIN) == set()


def stored_if_any(folder: Path) -> list[PathEdge]:
    return stored(folder) if (folder / "kind=paths").is_dir() else []


def test_the_daemon_writes_them(tmp_path: Path) -> None:
    archive(tmp_path)
    work = BackgroundWork()
    task = BackgroundTask(ArchiveTable(tmp_path), JobsTable(), "site", work, clock=FakeClock(LATER_NS))
    assert task.attempt()
    assert {each.node for each in stored(tmp_path)} == {"cn1", "fwd1"}
