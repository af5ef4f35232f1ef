"""Jobs whose nodes have traces of their clients and no counters, or both."""

from pathlib import Path

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.jobs.join.accounts import JoinedJob
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.summary import component_rows, series_rows, summary_row
from laggard_common.wire.trace_document import TraceDocument, encode_document
from laggard_common.wire.trace_records import Folded
from tests.aggregator.jobs.test_join import SECOND, a_job, client, moving, store_jobs
from tests.support.builders.archives import START_NS
from tests.support.builders.documents import document

MIB = 2**20
READS = ((60, 77), (160, 177), (260, 277))
"""Seconds in which each node reads 1 MiB ten times a second, and writes as much in the 17 s after."""


def folded(
    host: str,
    operation: str,
    span: tuple[float, float],
    count: int,
    size: int = MIB,
    descriptor: str = "41:3",
) -> Folded:
    first, last = (START_NS + round(at * SECOND) for at in span)
    return Folded(host, operation, descriptor, 0, size, count, first, last, f"/scratch/{host}")


def records(host: str) -> list[Folded]:
    """Three times reading, then writing, after opening 64 files; the second read is in two records."""
    found = []
    for begin, end in READS:
        found += [folded(host, "open", (begin - 1, begin - 1), 64, 0, "41:9")]
        found += [folded(host, "readdir", (begin - 1, begin - 1), 1, 4096, "41:9")]
        found += [folded(host, "write", (end, end + 17), 170)]
        middle = begin + 8
        found += [folded(host, "read", (begin, middle), 80), folded(host, "read", (middle, end), 90)]
    return found


def send(directory: Path, *documents: TraceDocument, node: str) -> None:
    """Documents of a node, by one run of a writer."""
    writer = ArchiveWriter(directory, "site", START_NS)
    for each in documents:
        content = encode_document(each)
        writer.document(document(1, START_NS + 400 * SECOND, content, node=node, source="traces"))
    writer.flush()
    assert writer.refused_documents == 0


def traced(directory: Path, *nodes: str, job: str = "1") -> None:
    for node in nodes:
        send(directory, TraceDocument(job, "/log", 1, 0, 9000, records(node)), node=node)


def joined(directory: Path, *jobs: JoinedJob) -> list[dict[str, object]]:
    return [summary_row(account, 1) for account in Join(directory, "site", jobs).run()]


def test_volumes_rates_and_components_of_a_job_that_has_traces_alone(tmp_path: Path) -> None:
    traced(tmp_path, "n0", "n1")
    (account,) = Join(tmp_path, "site", [a_job("c/1", 0, 400, "n0", "n1", "n2")]).run()
    row = summary_row(account, 1)
    moved = 3 * 2 * 170 * MIB
    assert (row["read_bytes"], row["written_bytes"], row["metadata_operations"]) == (moved, moved, 3 * 2 * 65)
    assert (row["coverage"], row["nodes_with_io"], row["trace_difference"]) == (1.0, 2, None)
    assert row["mean_read_mib_per_second"] == pytest.approx(20, rel=0.01)
    assert row["mean_written_mib_per_second"] == pytest.approx(20, rel=0.01)
    assert row["active_seconds"] == pytest.approx(3 * 35, rel=0.02)
    (series,) = series_rows(account, 1)
    assert (series["layer"], series["reading_seconds"], len(series["read_bytes"])) == ("client", 0.0, 400)
    assert series["read_bytes"][61] == pytest.approx(20 * MIB, rel=0.01)
    parts = [(each["node"], each["direction"], each["operations"]) for each in component_rows(account, 1)]
    assert parts == [
        (node, direction, count)
        for node in ("n0", "n1")
        for direction, count in (("read", 510), ("write", 510), ("metadata", 195))
    ]


def test_busy_seconds_of_a_traced_node_are_those_of_its_records_together(tmp_path: Path) -> None:
    spans = ((10, 20), (15, 30), (15, 18), (50, 60))
    found = [folded("n0", "write", span, 10, descriptor=f"{at}:3") for at, span in enumerate(spans)]
    send(tmp_path, TraceDocument("1", "/log", 1, 0, 9, found[:2]), node="n0")
    send(tmp_path, TraceDocument("1", "/log", 1, 9, 18, found[2:]), node="n0")
    client(tmp_path, "n1", moving(START_NS // 10**6 - 20_000, 460, rate=MIB))
    (account,) = Join(tmp_path, "site", [a_job("c/1", 0, 400, "n0", "n1")]).run()
    busy = {(row["node"], row["direction"]): row["busy_seconds"] for row in component_rows(account, 1)}
    assert busy["n0", "write"] == 30.0
    assert {seconds for (node, _), seconds in busy.items() if node == "n1"} == {None}


def test_traces_of_other_numbers_hosts_and_times_are_of_no_job(tmp_path: Path) -> None:
    traced(tmp_path, "n0", job="2")
    send(tmp_path, TraceDocument("1", "/forged", 1, 0, 9, records("n0")), node="n9")
    old = folded("n0", "read", (-900, -890), 10)
    send(tmp_path, TraceDocument("1", "/old", 1, 0, 9, [old]), node="n0")
    (row,) = joined(tmp_path, a_job("c/1", 0, 400, "n0"))
    assert (row["read_bytes"], row["coverage"]) == (None, 0.0)


def test_a_requeued_run_has_its_own_records(tmp_path: Path) -> None:
    found = [folded("n0", "read", (at, at), 1, size) for at, size in ((90, 3), (99, 5), (101, 7), (180, 11))]
    send(tmp_path, TraceDocument("1", "/log", 1, 0, 9, found), node="n0")
    first, second = a_job("c/1", 0, 95, "n0"), a_job("c/2", 105, 200, "n0")
    runs = (
        JoinedJob(first.key, 1, first.start_ns, first.end_ns, first.held, 4, second.start_ns),
        JoinedJob(second.key, 1, second.start_ns, second.end_ns, second.held, 4, last_end_ns=first.end_ns),
    )
    assert [row["read_bytes"] for row in joined(tmp_path, *runs)] == [8, 18]


def test_counters_count_where_there_are_both_and_a_difference_is_told(tmp_path: Path) -> None:
    client(tmp_path, "n0", moving(START_NS // 10**6 - 20_000, 460, rate=4 * 510 * MIB // 400))
    traced(tmp_path, "n0", "n1")
    (row,) = joined(tmp_path, a_job("c/1", 0, 400, "n0", "n1"))
    assert row["read_bytes"] == pytest.approx((4 + 1) * 510 * MIB, rel=0.01)
    assert row["coverage"] == pytest.approx(1.0, abs=0.01)
    assert row["trace_difference"] == pytest.approx(2 / 6 - 1, abs=0.01)


def test_mpi_io_segments_of_dxt_move_no_bytes_of_their_own(tmp_path: Path) -> None:
    found = [folded("n0", "read", (10, 20), 10, MIB, f"{layer}:0:1") for layer in ("mpiio", "posix")]
    send(tmp_path, TraceDocument("1", "/log", 1, 0, 9, found), node="n0")
    (row,) = joined(tmp_path, a_job("c/1", 0, 400, "n0"))
    assert row["read_bytes"] == 10 * MIB


def test_a_job_is_joined_again_when_its_traces_are_written_late(tmp_path: Path) -> None:
    job = a_job("c/1", 0, 400, "n0")
    store_jobs(tmp_path, [job, a_job("c/2", 0, 400, "n1", raw_id=2)], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    assert join.run(job.end_ns + 900 * SECOND, 30).jobs == 2
    traced(tmp_path, "n0")
    assert join.run(job.end_ns + 960 * SECOND, 30).jobs == 1
    assert join.run(job.end_ns + 1020 * SECOND, 30).jobs == 0
    rows = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()
    assert [(row["job_key"], row["read_bytes"]) for row in rows[2:]] == [("c/1", 510 * MIB)]
