"""Job numbers that are used again: in a store, each job is its number and its time."""

from contextlib import closing
from pathlib import Path

import pytest

from laggard_aggregator.jobs.darshan.job_list import JobFilter, job_list
from laggard_aggregator.jobs.darshan.miner import Mine
from laggard_aggregator.jobs.darshan.store_build import MineSources, build
from laggard_aggregator.jobs.darshan.stored_job import judge_stored
from tests.support.builders.darshan_log import LogWriter
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
pytest.importorskip("duckdb")
MIB = 1 << 20
FIRST, DAY = 1_700_000_000, 86_400


def log(folder: Path, name: str, start: int, files: int, job: int = 4711) -> Path:
    written = LogWriter(job=job, start=start)
    for rank in range(files):
        path = f"/scratch/{name}.{rank}"
        written.posix(path, rank, "write", 1.0, 11.0, requests=64, bytes=64 * MIB)
        written.stripes(path, [rank], rank)
    return written.write(folder / f"{name}.darshan")


def opened(folder: Path, logs: list[Path], slurm: str = "") -> Mine:
    (folder / "sacct.txt").write_text(f"JobIDRaw|Start|End|NNodes|NodeList\n{slurm}")
    sources = MineSources(darshan=logs, slurm=[folder / "sacct.txt"] if slurm else [])
    build(folder / "store", sources, 1)
    return Mine(folder / "store")


@pytest.mark.parametrize("factors", [True, False])
@pytest.mark.parametrize(("pause_days", "jobs"), [(8, 2), (365, 2), (6, 1)])
def test_jobs_far_apart_are_two(tmp_path: Path, pause_days: int, jobs: int, *, factors: bool) -> None:
    logs = [
        *(log(tmp_path, "a", FIRST, 4), log(tmp_path, "b", FIRST + pause_days * DAY, 2)),
        *(log(tmp_path, "c", FIRST, 1, job=5), log(tmp_path, "d", FIRST + 200, 1, job=5)),
    ]
    with closing(opened(tmp_path, logs)) as mine:
        rows = job_list(mine.engine, JobFilter("write"), factors=factors).to_pylist()
        of_view = mine.load("job").rows()
    own = sorted(row["bytes"] // MIB for row in rows if row["job_id"] == 4711)
    assert own == ([128, 256] if jobs == 2 else [384])
    assert [row["bytes"] // MIB for row in rows if row["job_id"] == 5] == [128]
    assert sum(row["job_id"] == 4711 for row in of_view) == jobs
    if factors:
        assert sorted(row["osts"] for row in rows if row["job_id"] == 4711) == ([2, 4] if jobs == 2 else [4])


def test_number_0_is_no_number(tmp_path: Path) -> None:
    logs = [log(tmp_path, name, FIRST + at, 1, job=0) for at, name in enumerate("abc")]
    with closing(opened(tmp_path, logs)) as mine:
        assert len(job_list(mine.engine, JobFilter("write"))) == 3


def test_nodes_are_those_of_the_slurm_job_of_the_time(tmp_path: Path) -> None:
    slurm = (
        f"4711|{FIRST - 9 * DAY}|{FIRST - 8 * DAY}|8|n[1-8]\n"
        f"4711|{FIRST - 10}|{FIRST + 110}|2|n[1-2]\n"
        f"4711|{FIRST + 400 * DAY}|Unknown|16|n[1-16]\n"
    )
    logs = [log(tmp_path, "a", FIRST, 4), log(tmp_path, "b", FIRST + 200 * DAY, 4)]
    with closing(opened(tmp_path, logs, slurm)) as mine:
        rows = job_list(mine.engine, JobFilter("write")).to_pylist()
    assert {row["start_us"] // 10**6 - FIRST: row["node_count"] for row in rows} == {0: 2, 200 * DAY: None}


def test_nodes_of_a_number_that_two_clusters_have_are_unknown(tmp_path: Path) -> None:
    times = f"{FIRST - 10}|{FIRST + 110}"
    slurm = "".join(f"4711{step}|{times}|{nodes}|n[1-{nodes}]\n" for step in ("", ".0") for nodes in (2, 4))
    logs = [log(tmp_path, "a", FIRST, 4)]
    with closing(opened(tmp_path, logs, slurm)) as mine:
        (row,) = job_list(mine.engine, JobFilter("write")).to_pylist()
        found = judge_stored(mine.engine, 4711).extra
    assert row["node_count"] is None
    assert [each for each in found if each["record"] == "step"] == []


def test_nodes_are_those_of_the_run_with_the_most_time_in_common(tmp_path: Path) -> None:
    slurm = (
        f"4711|{FIRST - 900}|{FIRST - 2}|8|n[1-8]\n4711|{FIRST - 1}|{FIRST + 50}|4|n[1-4]\n"
        f"4711|{FIRST + 50}|{FIRST + 60}|2|n[1-2]\n"
    )
    with closing(opened(tmp_path, [log(tmp_path, "a", FIRST, 4)], slurm)) as mine:
        (row,) = job_list(mine.engine, JobFilter("write")).to_pylist()
    assert row["node_count"] == 4


def test_one_job_is_the_newest_of_its_number(tmp_path: Path) -> None:
    logs = [log(tmp_path, "a", FIRST, 4), log(tmp_path, "b", FIRST + 100 * DAY, 2)]
    with closing(opened(tmp_path, logs)) as mine:
        verdict = judge_stored(mine.engine, 4711)
    assert [direction.bytes // MIB for direction in verdict.directions] == [128]
    assert any("earlier job" in each.reason for each in verdict.not_judged)
