"""Runs of jobs from rows of the collector `cgroup`, and their match to the scheduler's records."""

import random
from collections.abc import Iterable

import pyarrow as pa

from laggard_aggregator.archive.schemas import TIME
from laggard_aggregator.jobs.join.cgroup_allocations import COLUMNS, NODE_COLUMNS, SeenJob, matched, seen_jobs
from laggard_aggregator.jobs.records.model import JobKey, JobRevision

T = 1_790_000_000
Row = tuple[str, str, float, int, float | None, int | None]


def table(rows: Iterable[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    kinds = (pa.string(), pa.string(), TIME, pa.int64(), pa.float64(), pa.int64())
    arrays = [
        pa.array([round(v * 1e9) for v in column], pa.int64()).cast(kind)
        if kind == TIME
        else pa.array(column, kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return pa.table(arrays, names=list(COLUMNS))


def ran(node: str, first: int, last: int) -> pa.Table:
    ticks = pa.array([(T + at) * 10**9 for at in range(first, last + 1)], pa.int64()).cast(TIME)
    return pa.table([pa.array([node] * (last + 1 - first)), ticks], names=list(NODE_COLUMNS))


def rows(
    job: str, first: int, last: int, folder: int = 1, since: int | None = None, node: str = "n1"
) -> list[Row]:
    return [
        (node, job, float(T + at), folder, None if since is None else float(T + since), 2001)
        for at in range(first, last + 1)
    ]


def seen(*times: tuple[float, float | None, bool], node: str = "n1", job: int = 7) -> list[SeenJob]:
    return [
        SeenJob(node, job, "", 2001, T + start, None if end is None else T + end, doubtful)
        for start, end, doubtful in times
    ]


def test_a_run() -> None:
    assert seen_jobs(table(rows("7", 5, 20, since=5)), ran("n1", 0, 60)) == seen((5, 20, False))


def test_a_job_that_runs_has_no_end() -> None:
    assert seen_jobs(table(rows("7", 5, 20, since=5)), ran("n1", 0, 20)) == seen((5, None, False))


def test_order_and_doubles_change_nothing() -> None:
    given = (
        rows("7", 5, 20, since=5) + rows("8", 2, 9, folder=2, since=2) + rows("7", 40, 50, folder=3, since=40)
    )
    expected = seen_jobs(table(given), ran("n1", 0, 60))
    assert [(run.raw_id, run.start - T, run.end and run.end - T) for run in expected] == [
        (8, 2, 9),
        (7, 5, 20),
        (7, 40, 50),
    ]
    for seed in range(5):
        shuffled = given + given[::3]
        random.Random(seed).shuffle(shuffled)
        assert seen_jobs(table(shuffled), ran("n1", 0, 60)) == expected


def test_a_job_older_than_the_agent_is_doubtful() -> None:
    assert seen_jobs(table(rows("7", 5, 20)), ran("n1", 5, 60)) == seen((5, 20, True))


def test_a_restart_of_the_agent_continues_a_run() -> None:
    given = rows("7", 5, 20, since=5) + rows("7", 30, 40)
    agent = pa.concat_tables([ran("n1", 0, 20), ran("n1", 30, 60)])
    assert seen_jobs(table(given), agent) == seen((5, 40, False))


def test_an_end_while_the_agent_was_down_is_doubtful() -> None:
    agent = pa.concat_tables([ran("n1", 0, 20), ran("n1", 300, 360)])
    assert seen_jobs(table(rows("7", 5, 20, since=5)), agent) == seen((5, 20, True))


def test_a_lost_batch_within_a_run_changes_nothing() -> None:
    given = rows("7", 5, 10, since=5) + rows("7", 30, 40, since=5)
    assert seen_jobs(table(given), ran("n1", 0, 60)) == seen((5, 40, False))


def test_a_folder_number_may_come_again_after_a_reboot() -> None:
    given = rows("7", 5, 20, since=5) + rows("7", 200, 210, since=200)
    assert seen_jobs(table(given), ran("n1", 0, 300)) == seen((5, 20, False), (200, 210, False))


def test_names() -> None:
    given = rows("node02/7", 5, 9, since=5) + rows("sDNN9KTRV0EG00", 5, 9, folder=2, since=5)
    found = seen_jobs(table(given), ran("n1", 0, 60))
    assert [(run.node, run.raw_id, run.sluid) for run in found] == [
        ("n1", 0, "sDNN9KTRV0EG00"),
        ("node02", 7, ""),
    ]


def test_nothing() -> None:
    assert seen_jobs(table([]), ran("n1", 0, 3)) == []


def job(raw_id: int, submit: int, start: int | None, end: int | None, sluid: str = "") -> JobRevision:
    return JobRevision(
        key=JobKey("c", raw_id, T + submit, sluid),
        job=str(raw_id),
        user="alice",
        account="physics",
        name="run",
        application="run",
        partition="batch",
        state="RUNNING" if end is None else "COMPLETED",
        source="sacct",
        revision_at=0.0,
        start=None if start is None else float(T + start),
        end=None if end is None else float(T + end),
    )


def allocated(
    runs: Iterable[SeenJob], *jobs: JobRevision
) -> tuple[list[tuple[int, str, float, float | None]], int]:
    found, unknown = matched(runs, "c", jobs)
    assert all(each.source == "cgroup" for each in found)
    return [
        (one.key.submit - T, one.node, one.start - T, None if one.end is None else one.end - T)
        for one in found
    ], len(unknown)


def test_a_requeue_keeps_the_id() -> None:
    runs = seen((5, 20, False), (60, 90, False))
    assert allocated(runs, job(7, 30, 59, 90), job(7, 1, 4, 20)) == (
        [(1, "n1", 5, 20), (30, "n1", 60, 90)],
        0,
    )


def test_a_zombie_belongs_to_the_run_that_it_began_with() -> None:
    """Processes of a dead node live until slurmd is back, while the job runs on another node again."""
    runs = [*seen((5, 90, False)), *seen((61, 100, False), node="n2")]
    assert allocated(runs, job(7, 1, 4, 40), job(7, 40, 60, 100)) == (
        [(1, "n1", 5, 90), (40, "n2", 61, 100)],
        0,
    )


def test_a_resize_divides_the_run_where_it_stays() -> None:
    """The new record has the start of the old one; on a dropped node processes end seconds after it."""
    runs = [*seen((5, 90, False)), *seen((5, 42, False), node="n2"), *seen((5, None, False), node="n3")]
    assert allocated(runs, job(7, 1, 4, 40), job(7, 40, 4, 90)) == (
        [(1, "n1", 5, 40), (40, "n1", 40, 90), (1, "n2", 5, 42), (1, "n3", 5, 40), (40, "n3", 40, None)],
        0,
    )


def test_without_a_record_a_run_is_unknown() -> None:
    runs = seen((5, 20, False))
    assert allocated(runs) == ([], 1)
    assert allocated(runs, job(8, 1, 4, 20)) == ([], 1)
    assert allocated(runs, job(7, 1, None, None)) == ([], 1)  # pending
    assert allocated(runs, job(7, 30, 40, 50)) == ([], 1)  # a later run


def test_clocks_of_nodes_differ() -> None:
    assert allocated(seen((5, 20, False)), job(7, 1, 9, 24)) == ([(1, "n1", 5, 20)], 0)


def test_by_sluid() -> None:
    run = SeenJob("n1", 0, "sA", None, T + 5.0, T + 20.0, doubtful=False)
    assert allocated([run], job(7, 1, 4, 20, sluid="sA"), job(9, 1, 4, 20, sluid="sB")) == (
        [(1, "n1", 5, 20)],
        0,
    )
