"""Statistics by DuckDB and by Spark agree with each other and with plain loops, for every principal."""

import random
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.jobs.access.filter import GroupBy
from laggard_aggregator.jobs.access.principals import NOBODY, READ_PROJECT, READ_USER, Principal, Role
from laggard_aggregator.jobs.engines import SqlEngine
from laggard_aggregator.jobs.loads.statistics import CLASSES, JobStatistics, OrderBy
from laggard_aggregator.jobs.loads.statistics_engines import open_statistics
from laggard_common.errors import ConfigError
from tests import naive_job_statistics as naive
from tests.support.builders.job_tables import DAY, EPOCH, job_row, summary_row, write_rows

HOSTILE = "o'brien\\\" --"
HAS_SPARK = find_spec("pyspark") is not None and shutil.which("java") is not None
WHO = (
    Principal("root", Role.ADMIN),
    Principal("alice", Role.USER),
    Principal(HOSTILE, Role.USER),
    Principal("bob", Role.MANAGER, frozenset({"physics"})),
    Principal("token", Role.API, scopes=frozenset({READ_PROJECT + "chem", READ_USER + "carol"})),
    NOBODY,
)
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    jobs, summaries = [], []
    for raw_id in range(1, 300):
        start = EPOCH + chance.randrange(int(5 * DAY))
        row = job_row(
            raw_id,
            submit=int(start),
            start=start,
            end=chance.choice([None, start + chance.choice([60.0, 3600.0, 36_000.0])]),
            user=chance.choice(["alice", "bob", "carol", HOSTILE, ""]),
            account=chance.choice(["physics", "chem", ""]),
            application=chance.choice(["app", "wrf", HOSTILE]),
            cpus=chance.choice([None, 4, 400, 20_000, 200_000]),
        )
        jobs.append(row)
        if chance.random() < 0.3:
            jobs.append({**row, "revision_at": 1 + chance.randrange(3), "end": start + 7200, "user": "late"})
        for revision in range(chance.randrange(3)):
            amounts = {name: float(chance.randrange(10**9)) for name in naive.AMOUNTS}
            summaries.append(summary_row({**row, "revision_at": revision}, **amounts))
    keys = {(row["job_key"], row["revision_at"]): row for row in jobs}
    return list(keys.values()), summaries


@pytest.fixture(scope="module")
def archive(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("arch[iv]e")
    for kind, of in zip(("jobs", "job_summaries"), rows, strict=True):
        for at in range(3):
            write_rows(where, kind, of[at::3], day=EPOCH + at * DAY)
    return where


@pytest.fixture(scope="module")
def engine(archive: Path, request: pytest.FixtureRequest) -> Iterator[SqlEngine]:
    if request.param == "spark" and not HAS_SPARK:
        pytest.skip("needs pyspark and a Java runtime")
    with closing(open_statistics(archive, request.param)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("engine", "who"),
    [*(("duckdb", who) for who in WHO), ("spark", WHO[0]), ("spark", WHO[4])],
    indirect=["engine"],
)
def test_equals_plain_loops(engine: SqlEngine, rows: Rows, who: Principal) -> None:
    after, before = EPOCH + DAY, EPOCH + 4 * DAY
    statistics = JobStatistics(engine, after, before)
    jobs = naive.counted(who, *rows, after, before)
    for group, order in zip((*GroupBy, GroupBy.USER), (*OrderBy, OrderBy.METADATA), strict=True):
        found = statistics.top(who, group, order, 3)
        expected = naive.top(jobs, group, order, 3)
        assert [(row.name, row.jobs, row.non_trivial_jobs) for row in found] == [e[:3] for e in expected]
        assert [row.core_hours for row in found] == pytest.approx([e[3] for e in expected])
        assert [(row.read_bytes or 0.0) + (row.written_bytes or 0.0) for row in found] == pytest.approx(
            [e[4] for e in expected]
        )
    of_class = statistics.classes(who)
    assert [row.name for row in of_class] == list(CLASSES)
    for row, (count, much, mean) in zip(of_class, naive.classes(jobs), strict=True):
        assert (row.jobs, row.non_trivial_jobs) == (count, much)
        assert row.mean_read_bytes == (mean if mean is None else pytest.approx(mean))
    if who is NOBODY:
        assert jobs == []


def test_an_archive_without_summaries(tmp_path: Path) -> None:
    write_rows(tmp_path, "jobs", [job_row(1, cpus=4)])
    with closing(open_statistics(tmp_path)) as duck:
        (row,) = JobStatistics(duck).top(WHO[0], GroupBy.USER)
    assert (row.name, row.jobs, row.core_hours, row.read_bytes) == ("alice", 1, 4.0, None)
    assert row.jobs_without_counters == 1


def test_wrong_options_are_one_line(archive: Path) -> None:
    with pytest.raises(ConfigError, match="expected duckdb or spark"):
        open_statistics(archive, "sqlite")
    with pytest.raises(ConfigError, match="--engine spark"):
        open_statistics(archive, master="spark://there:7077")


def test_unknown_cpus_are_no_core_hours_of_zero(tmp_path: Path) -> None:
    jobs = [job_row(1, cpus=4), job_row(2, cpus=None), job_row(3, cpus=None, user="bob")]
    write_rows(tmp_path, "jobs", jobs)
    with closing(open_statistics(tmp_path)) as duck:
        statistics = JobStatistics(duck)
        rows = statistics.top(WHO[0], GroupBy.USER, OrderBy.CORE_HOURS)
        classes = statistics.classes(WHO[0])
        assert statistics.jobs_without_cores(WHO[0]) == 2
    assert [(row.name, row.core_hours, row.jobs_without_cores) for row in rows] == [
        ("alice", 4.0, 1),
        ("bob", None, 1),
    ]
    assert [row.jobs for row in classes] == [1, 0, 0, 0, 0]
