"""Joining jobs with counters: what each moved, and that each byte is in one place."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from laggard_aggregator.archive import layout, part_reader, retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.table import Table
from laggard_aggregator.jobs.join.accounts import JoinedJob
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
from laggard_aggregator.jobs.join.membership import FREE, Membership, Occupation
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.server_jobs import JobIdFormat
from laggard_aggregator.jobs.join.summary import series_rows, summary_row
from laggard_aggregator.jobs.tables import JOB_FINDINGS, JOB_NODES, JOBS
from laggard_aggregator.settings.jobs import JobsTable
from laggard_common.errors import ArchiveError, InputError
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS

START = START_NS // MS
SECOND = 10**9
LATER_NS = START_NS + 30 * 3600 * SECOND


def moving(first_ms: int, seconds: int, rate: int = 1_000_000, before: int = 0) -> list[NaiveReading]:
    """A reading a second of a client that reads `rate` bytes and writes half of it a second."""
    return [
        NaiveReading(
            first_ms + 1000 * at,
            first_ms + 1000 * at,
            {
                "read_bytes_sum": before + rate * at,
                "write_bytes_sum": (before + rate * at) // 2,
                "read_bytes_samples": at,
                "write_bytes_samples": at,
                "open_samples": 3 * at,
            },
        )
        for at in range(seconds)
    ]


def a_job(key: str, start: float, end: float, *nodes: str, raw_id: int = 1) -> JoinedJob:
    """Times in seconds after START."""
    times = START_NS + round(start * SECOND), START_NS + round(end * SECOND)
    return JoinedJob(key, raw_id, *times, tuple((node, *times) for node in nodes), 4)


def client(directory: Path, node: str, readings: Sequence[NaiveReading], lsn: int = 1) -> None:
    parts = [
        [job_batch(node, "scratch", readings[at : at + 60], lsn=lsn + at, received_ns=START_NS)]
        for at in range(0, len(readings), 60)
    ]
    write_parts(directory, parts, START_NS + lsn)


def store_jobs(
    directory: Path,
    jobs: Sequence[JoinedJob],
    revision_ns: int,
    node_list: str = "",
    *,
    is_over: bool = True,
    kinds: Sequence[str] = ("job_nodes", "jobs"),
) -> None:
    """Rows of kind jobs and job_nodes, as the import writes them."""
    rows, nodes = [], []
    for job in jobs:
        common = {"job_key": job.key, "revision_at": revision_ns, "source": "jsonl"}
        row = dict.fromkeys(JOBS.names) | common
        row |= dict.fromkeys(("sluid", "job", "user", "account", "name", "application", "partition"), "")
        row |= {
            "cluster": "c",
            "raw_id": job.raw_id,
            "submit": 0,
            "state": "COMPLETED",
            "node_list": node_list,
        }
        rows.append(
            row
            | {"start": job.start_ns / 1e9, "end": job.end_ns / 1e9 if is_over else None, "cpus": job.cpus}
        )
        for node, start, end in job.held:
            held = {
                "node": node,
                "start": start / 1e9,
                "end": end / 1e9 if is_over else None,
                "doubtful": False,
            }
            nodes.append(dict.fromkeys(JOB_NODES.names) | common | held)
    tables = {"job_nodes": (JOB_NODES, nodes), "jobs": (JOBS, rows)}
    for kind in kinds:
        schema, found = tables[kind]
        where = layout.folder(directory, kind, layout.OWN, layout.day_of(jobs[0].end_ns), "site")
        table = pa.Table.from_pylist(found, schema=schema)
        number = layout.next_part(where)
        layout.write_part(where, layout.stamp(revision_ns), (number, number), schema, [table])


def test_each_state_of_a_node_is_told() -> None:
    held = [Occupation(0, "n", 10 * SECOND, 20 * SECOND), Occupation(1, "n", 15 * SECOND, 30 * SECOND)]
    found = Membership(held, 0)
    one = found.divide(*(np.array([value]) for value in (found.number("n"), 5 * SECOND, 25 * SECOND)))
    assert [found.jobs_of[state] for state in one.state.tolist()] == [(0,), (0, 1), (1,)]
    assert one.share[-1, 1] == 1.0
    assert found.number("m") == -1
    assert found.jobs_of[FREE] == ()


def test_a_job_has_what_its_node_counted_in_its_time(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 900))
    join = Join(tmp_path, "site", [a_job("j", 100.5, 700.5, "n1")])
    (account,) = join.run()
    row = summary_row(account, 1)
    assert row["read_bytes"] == pytest.approx(601e6), (
        "the increments at the edges, when nobody else was there"
    )
    assert row["read_bytes"] + join.conserved.free[0] == 899e6
    assert row["coverage"] == pytest.approx(1.0)
    assert row["metadata_operations"] == 3 * 601
    assert row["mean_read_mib_per_second"] == pytest.approx(1e6 / 2**20, rel=0.01)
    assert (row["nodes_with_io"], row["core_hours"], row["shared"]) == (1, 4 * 600 / 3600, False)
    (series,) = series_rows(account, 1)
    assert sum(series["read_bytes"]) == pytest.approx(row["read_bytes"], rel=1 / 4000)
    assert series["resolution_seconds"] == 1.0


def test_what_several_jobs_share_is_split_between_none(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 1000))
    jobs = [a_job("a", 100, 500, "n1"), a_job("b", 300, 900, "n1", raw_id=2)]
    join = Join(tmp_path, "site", jobs)
    rows = [summary_row(each, 1) for each in join.run()]
    assert [row["read_bytes"] for row in rows] == [200e6, 400e6]
    assert all(row["shared"] for row in rows)
    assert (join.conserved.job[0], join.conserved.shared[0], join.conserved.free[0]) == (600e6, 200e6, 199e6)
    assert rows[0]["coverage"] == pytest.approx(1.0)
    (series,) = series_rows(join.accounts[0], 1)
    assert series["read_bytes"][250] is None, "shared time is no zero"


@pytest.mark.parametrize(("clients", "amplification"), [(True, 3.5), (False, None)])
def test_amplification_is_known_from_forwarders(
    tmp_path: Path, clients: bool, amplification: float | None
) -> None:
    if clients:
        client(tmp_path, "n1", moving(START, 900))
    client(tmp_path, "fwd1", moving(START, 900, rate=3_500_000), lsn=2)
    (account,) = Join(tmp_path, "site", [a_job("j", 100, 700, "n1")], served_by={"n1": "fwd1"}).run()
    row = summary_row(account, 1)
    assert row["forwarder_read_bytes"] == pytest.approx(3.5e6 * 600, rel=0.01)
    assert row["amplification"] == (None if amplification is None else pytest.approx(amplification, rel=1e-3))


def test_jobs_one_after_another_divide_the_increment_between_them_by_time(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 100))
    jobs = [a_job("a", 10, 20.25, "n1"), a_job("b", 20.25, 30, "n1", raw_id=2)]
    rows = [summary_row(each, 1) for each in Join(tmp_path, "site", jobs).run()]
    assert [row["read_bytes"] for row in rows] == [10.25e6, 9.75e6]


def test_a_job_shorter_than_an_interval_has_all_of_it(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 100))
    (account,) = Join(tmp_path, "site", [a_job("a", 10.2, 10.7, "n1")]).run()
    assert summary_row(account, 1)["read_bytes"] == 1e6


def test_a_gap_is_unknown_and_no_zero(tmp_path: Path) -> None:
    found = moving(START, 600)
    client(tmp_path, "n1", found[:200] + found[400:])
    (account,) = Join(tmp_path, "site", [a_job("a", 0, 599, "n1")]).run()
    row = summary_row(account, 1)
    assert row["read_bytes"] == 398e6
    assert row["coverage"] == pytest.approx(398 / 599)
    (series,) = series_rows(account, 1)
    assert series["read_bytes"][300] is None
    assert series["read_bytes"][100] == pytest.approx(1e6, rel=1 / 4000)


def test_a_slice_without_a_known_increment_stops_no_join(tmp_path: Path) -> None:
    """As the first readings of all nodes after a long gap are."""
    client(tmp_path, "n1", moving(START, 1))
    (account,) = Join(tmp_path, "site", [a_job("j", 0, 300, "n1")]).run()
    assert summary_row(account, 1)["read_bytes"] is None


def test_a_node_has_its_name_with_or_without_a_domain(tmp_path: Path) -> None:
    client(tmp_path, "N1.cluster.example", moving(START, 100))
    (account,) = Join(tmp_path, "site", [a_job("a", 0, 99, "n1")]).run()
    assert summary_row(account, 1)["read_bytes"] == 99e6
    assert {key[1] for key in account.components} == {"n1"}


def test_servers_name_the_job(tmp_path: Path) -> None:
    entry = [
        NaiveReading(
            START + 1000 * at, START + 1000 * at, {"read_bytes_sum": 5000 + at, "write_bytes_sum": 0}
        )
        for at in range(110, 300, 10)
    ]
    other = [NaiveReading(START + 200_000, START + 200_000, {"read_bytes_sum": 9, "write_bytes_sum": 0})]
    batches = [
        job_batch("oss", f"fs-OST0001:{name}", found, lsn=at, received_ns=START_NS, source="lustre_job_ost")
        for at, (name, found) in enumerate((("7:1000:n1", entry), ("8:1000:n1", other), ("dd.0", other)))
    ]
    write_parts(tmp_path, [batches], START_NS)
    client(tmp_path, "n1", moving(START, 300, rate=100))
    job = a_job("a", 100, 280, "n1", raw_id=7)
    (account,) = Join(tmp_path, "site", [job], format_=JobIdFormat("%j:%u:%h")).run()
    row = summary_row(account, 1)
    assert row["server_read_bytes"] == 5000 + 290, "from zero, as the entry came with the job"
    assert row["amplification"] == pytest.approx(5290 / (18_000 + 9000))
    assert [key for key in account.components if key[0] == "server"] == [
        ("server", "n1", "fs-OST0001", False)
    ]


def test_forwarders_of_one_job_alone_are_its_own(tmp_path: Path) -> None:
    client(tmp_path, "fwd", moving(START, 400))
    jobs = [a_job("a", 0, 100, "n1"), a_job("b", 50, 200, "n2", raw_id=2)]
    served = {"n1": "fwd", "n2": "fwd"}
    rows = [summary_row(each, 1) for each in Join(tmp_path, "site", jobs, served_by=served).run()]
    assert [row["forwarder_read_bytes"] for row in rows] == [50e6, 100e6]
    assert all(row["shared"] and row["client_read_bytes"] is None for row in rows)


def test_a_forwarder_is_unknown_while_it_is_shared_and_amplifies_nothing(tmp_path: Path) -> None:
    client(tmp_path, "fwd", moving(START, 400))
    client(tmp_path, "n1", moving(START, 400, rate=3_000_000), lsn=1000)
    jobs = [a_job("a", 0, 100, "n1"), a_job("b", 50, 200, "n2", raw_id=2)]
    account, _ = Join(tmp_path, "site", jobs, served_by={"n1": "fwd", "n2": "fwd"}).run()
    own = {row["layer"]: row["read_bytes"] for row in series_rows(account, 1)}
    assert own["forwarder"] == [pytest.approx(1e6, rel=1e-3)] * 50 + [None] * 50
    assert None not in own["client"]
    assert summary_row(account, 1)["amplification"] is None


@pytest.mark.parametrize(
    ("text", "good"), [("%j:%u:%H", True), ("%j", True), ("%e.%u", False), ("%j%j", False), ("%j:%x", False)]
)
def test_a_format_has_the_job_once(text: str, good: bool) -> None:
    assert bool(list(JobsTable(jobid_format=text).problems())) != good


def test_the_pass_joins_a_job_when_it_is_due_and_again_when_more_comes(tmp_path: Path) -> None:
    found = moving(START, 900)
    client(tmp_path, "n1", found[:400])
    assert JoinPass(tmp_path, "site", JoinSettings()).run(LATER_NS, 30).jobs == 0
    job = a_job("j", 0, 899, "n1")
    store_jobs(tmp_path, [job], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    assert join.run(job.end_ns + 899 * SECOND, 30).jobs == 0
    assert join.run(job.end_ns + 900 * SECOND, 30).jobs == 1
    assert join.run(LATER_NS, 30).jobs == 0
    late = [job_batch("n1", "scratch", found[400:], lsn=9, received_ns=LATER_NS)]
    write_parts(tmp_path, [late], LATER_NS)
    assert join.run(LATER_NS + SECOND, 30).jobs == 1
    rows = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()
    assert [row["read_bytes"] for row in rows] == [399e6, 899e6]


@pytest.mark.parametrize("is_before", [False, True])
def test_a_job_is_joined_again_when_the_other_one_of_its_last_interval_becomes_known(
    tmp_path: Path, is_before: bool
) -> None:
    """They had the node one after the other, within one interval of its readings."""
    client(tmp_path, "n1", moving(START, 100)[::10])
    first, second = a_job("a", 10, 23, "n1"), a_job("b", 26, 40, "n1", raw_id=2)
    known, late = (second, first) if is_before else (first, second)
    join = JoinPass(tmp_path, "site", JoinSettings())
    store_jobs(tmp_path, [known], START_NS)
    assert join.run(known.end_ns + 900 * SECOND, 30).jobs == 1
    store_jobs(tmp_path, [late], START_NS + 1, kinds=["job_nodes"])
    join.run(known.end_ns + 901 * SECOND, 30)
    store_jobs(tmp_path, [late], START_NS + 1, kinds=["jobs"])
    assert join.run(LATER_NS, 30).jobs == 2
    rows = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()
    read = {row["job_key"]: row["read_bytes"] for row in rows}
    assert sum(read.values()) == 30e6
    assert read["a"] == pytest.approx(10e6 + 10e6 * 3 / 7, abs=1)


def test_a_job_is_joined_again_when_another_one_behind_its_forwarder_becomes_known(tmp_path: Path) -> None:
    client(tmp_path, "fwd", moving(START, 400))
    one, other = a_job("a", 0, 100, "n1"), a_job("b", 50, 200, "n2", raw_id=2)
    join = JoinPass(tmp_path, "site", JoinSettings(served_by={"n1": "fwd", "n2": "fwd"}))
    store_jobs(tmp_path, [one], START_NS)
    assert join.run(LATER_NS, 30).jobs == 1
    store_jobs(tmp_path, [other], START_NS + 1)
    assert join.run(LATER_NS + 1, 30).jobs == 2
    rows = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()
    assert {row["job_key"]: row["forwarder_read_bytes"] for row in rows} == {"a": 50e6, "b": 100e6}


def test_the_end_of_a_job_joins_the_one_before_it_no_second_time(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 100)[::10])
    running = a_job("b", 26, 4000, "n1", raw_id=2)
    join = JoinPass(tmp_path, "site", JoinSettings())
    store_jobs(tmp_path, [a_job("a", 10, 23, "n1")], START_NS)
    store_jobs(tmp_path, [running], START_NS, is_over=False)
    assert join.run(START_NS + 2000 * SECOND, 30).jobs == 1
    store_jobs(tmp_path, [running], START_NS + 4001 * SECOND)
    assert join.run(LATER_NS, 30).jobs == 1


def test_counters_that_a_wrong_clock_received_are_joined_when_they_are_written(tmp_path: Path) -> None:
    """The clock was two hours behind; set right, it made the job due before the last rows were written."""
    readings = moving(START, 900)
    client(tmp_path, "n1", readings[:400])
    store_jobs(tmp_path, [a_job("j", 0, 899, "n1")], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    assert join.run(LATER_NS, 30).jobs == 1
    before_ns = START_NS - 7200 * SECOND
    write_parts(
        tmp_path, [[job_batch("n1", "scratch", readings[400:], lsn=9, received_ns=before_ns)]], before_ns
    )
    assert join.run(LATER_NS + SECOND, 30).jobs == 1


def test_a_job_is_joined_a_moment_after_its_end_and_once_more_when_it_is_due(tmp_path: Path) -> None:
    found = moving(START, 900)
    job = a_job("j", 0, 600, "n1")
    client(tmp_path, "n1", found[:620])
    store_jobs(tmp_path, [job, a_job("later", 0, 840, "n2", raw_id=2)], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    assert join.run_early(job.end_ns + 30 * SECOND, 30) == 0, "no pass has noted it"
    assert join.run(job.end_ns + 29 * SECOND, 30).jobs == 0
    assert join.run_early(job.end_ns + 29 * SECOND, 30) == 0
    assert [join.run_early(job.end_ns + at * SECOND, 30) for at in (30, 60)] == [1, 0]
    assert join.run_early(job.end_ns + 270 * SECOND, 30) == 1
    assert join.run(job.end_ns + 900 * SECOND, 30).jobs == 1
    assert join.run_early(job.end_ns + 960 * SECOND, 30) == 0
    rows = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()
    assert [(row["job_key"], row["read_bytes"]) for row in rows] == [
        ("j", 600e6),
        ("later", None),
        ("j", 600e6),
    ]


def test_counters_that_came_in_time_and_were_written_late_are_joined(tmp_path: Path) -> None:
    """An archive that lags writes rows long after they were received; merged files bring no job twice."""
    found = moving(START, 900)
    job = a_job("j", 0, 899, "n1")
    client(tmp_path, "n2", found)
    store_jobs(tmp_path, [job], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    now_ns = job.end_ns + 900 * SECOND
    assert join.run(now_ns, 30).jobs == 1
    for at in range(0, 900, 300):
        received_ns = found[at + 299].read * MS + SECOND
        batch = job_batch("n1", "scratch", found[at : at + 300], lsn=9 + at, received_ns=received_ns)
        write_parts(tmp_path, [[batch]], START_NS + 10 + at)
        now_ns += 60 * SECOND
        assert join.run(now_ns, 30).jobs == 1
    rows = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()
    assert [row["read_bytes"] for row in rows] == [None, 299e6, 599e6, 899e6]
    for at in (1900, 1960):
        recent = moving(START + 1000 * at, 60)
        batch = job_batch("n1", "scratch", recent, lsn=at, received_ns=START_NS + (at + 61) * SECOND)
        write_parts(tmp_path, [[batch]], START_NS + at)
        if at == 1960:
            retention.compact(tmp_path, START_NS + 2 * 86_400 * SECOND)
        assert join.run(START_NS + (at + 90) * SECOND, 30).jobs == 0


def test_a_full_disk_leaves_the_job_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path, "n1", moving(START, 300))
    store_jobs(tmp_path, [a_job("j", 0, 200, "n1")], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())

    def full(*_: object) -> None:
        raise ArchiveError(str(tmp_path), "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(layout, "write_part", full)
        with pytest.raises(ArchiveError, match="No space"):
            join.run(LATER_NS, 30)
    assert join.run(LATER_NS, 30).jobs == 1
    assert ArchiveReader(tmp_path).table("job_summaries").num_rows == 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_or_missing_file_is_a_gap(tmp_path: Path, gone: bool) -> None:
    client(tmp_path, "n1", moving(START, 900))
    store_jobs(tmp_path, [a_job("j", 0, 899, "n1")], START_NS)
    file = sorted(tmp_path.glob("kind=counters/**/*.parquet"))[5]
    if gone:
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[100:3000] = bytes(2900)
        file.write_bytes(content)
    assert JoinPass(tmp_path, "site", JoinSettings()).run(LATER_NS, 30).jobs == 1
    (row,) = ArchiveReader(tmp_path).table("job_summaries").drop_columns(["revision_at"]).to_pylist()
    assert row["read_bytes"] == 899e6 - 61e6
    assert row["coverage"] == pytest.approx(838 / 899)


def damage(directory: Path, kind: str) -> None:
    """Flips a bit in the file of a kind, which is set aside, as by the daemon's check."""
    (file,) = directory.glob(f"kind={kind}/**/*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        ArchiveReader(directory).table(kind)
    (part,) = Table(directory, kind).files()
    part_reader.set_aside(layout.DamagedPartError(part, "a test"))


@pytest.mark.parametrize("kind", ["job_series", "job_components", "job_summaries", "job_findings"])
def test_a_job_is_joined_again_after_its_results_were_damaged(tmp_path: Path, kind: str) -> None:
    client(tmp_path, "n1", moving(START, 300))
    job = a_job("j", 0, 200, "n1")
    store_jobs(tmp_path, [job], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    assert join.run(LATER_NS, 30).jobs == 1
    if kind == "job_findings":
        row = {"job_key": "j", "revision_at": LATER_NS, "joined_at": LATER_NS, "verdict": "usual"}
        Table(tmp_path, kind, site="site").append_rows(
            layout.day_of(job.end_ns), [row], LATER_NS, JOB_FINDINGS
        )
    damage(tmp_path, kind)
    assert join.run(LATER_NS + SECOND, 30).jobs == 1
    assert join.run(LATER_NS + 2 * SECOND, 30).jobs == 0
    assert JoinPass(tmp_path, "site", JoinSettings()).run(LATER_NS + 3 * SECOND, 30).jobs == 0
    last = ArchiveReader(tmp_path).table("job_summaries").sort_by("revision_at").to_pylist()[-1]
    assert last["read_bytes"] == 200e6


def test_the_nodes_of_a_job_are_known_after_their_file_was_damaged(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 300))
    store_jobs(tmp_path, [a_job("j", 0, 200, "n1")], START_NS, node_list="n1")
    damage(tmp_path, "job_nodes")
    assert JoinPass(tmp_path, "site", JoinSettings()).run(LATER_NS, 30).jobs == 1
    (row,) = ArchiveReader(tmp_path).table("job_summaries").to_pylist()
    assert row["read_bytes"] == 200e6


def test_what_was_known_before_raw_data_expired_stays(tmp_path: Path) -> None:
    client(tmp_path, "n1", moving(START, 300))
    job = a_job("j", 0, 200, "n1")
    store_jobs(tmp_path, [job], START_NS)
    join = JoinPass(tmp_path, "site", JoinSettings())
    join.run(LATER_NS, 30)
    for file in tmp_path.glob("kind=counters/**/*.parquet"):
        file.unlink()
    store_jobs(tmp_path, [job], LATER_NS)
    join.run(START_NS + 30 * 86_400 * SECOND, 30)
    assert ArchiveReader(tmp_path).table("job_summaries").num_rows == 1
