"""Queries, statistics, jobs and the Python interface on both engines: equal rows, integers identical."""

import csv
import json
import os
import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.cli import mine_options
from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.darshan.engines import LogEngine, open_engine
from laggard_aggregator.jobs.darshan.intervals import busy_time
from laggard_aggregator.jobs.darshan.job_list import JobFilter, intervals_sql, job_list
from laggard_aggregator.jobs.darshan.miner import Mine, size_bytes
from laggard_aggregator.jobs.darshan.records import verdict_records
from laggard_aggregator.jobs.darshan.statistics import STATISTICS
from laggard_aggregator.jobs.darshan.store import MineStore
from laggard_aggregator.jobs.darshan.store_build import MineSources, build
from laggard_aggregator.jobs.darshan.stored_job import judge_stored
from laggard_aggregator.jobs.darshan.tables import DARSHAN_FILE, DARSHAN_JOB, WORD_COLUMNS
from laggard_common.errors import ConfigError, InputError
from tests.sql_intervals import busy_sql, sole_sql
from tests.support.builders import mine_store
from tests.support.darshan import skip_without_darshan
from tests.support.processes import run_command

skip_without_darshan()
pytest.importorskip("duckdb")
JOBS = 14
HAS_SPARK = find_spec("pyspark") is not None and shutil.which("java") is not None
UNION = ", ".join(f"bit_or({name}) as {name}" for name in WORD_COLUMNS)
COUNT = " + ".join(f"sum(cast(bit_count({name}) as bigint))" for name in WORD_COLUMNS)
INTERSECTION = ", ".join(f"bit_or(a.{name}) & bit_or(b.{name}) as {name}" for name in WORD_COLUMNS[:17])

QUERIES = {
    "count": "select count(*) as n, sum(bytes_written) as w from darshan_file",
    "group by all": "select module, rank, count(*) as n from darshan_file group by all order by module nulls last, rank nulls last",
    "filter": "select job_id, count(*) filter (where reads > 0) as r from darshan_file group by job_id order by job_id nulls last",
    "qualify": "select job_id, name, bytes_written from darshan_file qualify row_number() over (partition by job_id order by bytes_written desc nulls last, name nulls last) = 1 order by job_id nulls last",
    "named window": "select job_id, file_id, sum(writes) over w as s from darshan_file window w as (partition by job_id order by file_id nulls last, rank nulls last, log nulls last rows between unbounded preceding and current row) order by job_id nulls last, file_id nulls last, rank nulls last, log nulls last",
    "lag": "select log, start_us - lag(start_us) over (order by start_us nulls last) as gap from darshan_job order by start_us nulls last",
    "percentile": "select percentile_cont(0.5) within group (order by bytes_written) as p from darshan_file where writes > 0",
    "recursive": "with recursive n as (select 1 as i union all select i + 1 from n where i < 5) select sum(i) as s from n",
    "bitmap union": f"select job_id, {UNION} from darshan_file group by job_id order by job_id nulls last",
    "bitmap count": f"select job_id, {COUNT} as osts from (select job_id, {UNION} from darshan_file group by job_id) t group by job_id order by job_id nulls last",
    "bitmap intersection": f"select {INTERSECTION} from darshan_file a, darshan_file b where a.job_id = 2 and b.job_id = 3",
    "long": "select ost, count(distinct job_id) as jobs from job_ost group by ost order by ost nulls last",
    "join": "select s.job_id, s.node_count, j.bytes_written from slurm_job s join job j on j.job_id = s.job_id order by s.job_id nulls last",
    "left join": "select j.job_id, s.node_count from job j left join slurm_job s on s.job_id = j.job_id order by j.job_id nulls last",
    "steps": "select job_id, step, end_us - start_us as length from slurm_step order by job_id nulls last, step nulls last",
    "lmt": "select ost_index, count(*) as n, sum(bytes_written) as w from lmt group by ost_index order by ost_index nulls last",
    "nullif": "select job_id, bytes_read / nullif(cast(bytes_written as double), 0e0) as ratio from job order by job_id nulls last",
    "case": "select case when processes > 1000 then 'large' else 'small' end as size, count(*) as n from job group by all order by size nulls last",
    "having": "select application, sum(writes) as w from job group by application having sum(writes) > 1 order by application nulls last",
    "exists": "select count(*) as n from darshan_job d where exists (select 1 from slurm_job s where s.job_id = d.job_id)",
    "union": "select 'r' as d, sum(reads) as n from job union all select 'w', sum(writes) from job order by d nulls last",
    "null order": "select name, stripe_count from darshan_file order by stripe_count desc nulls last, name nulls last limit 9",
    "busy write": busy_sql("write"),
    "busy read": busy_sql("read"),
    "sole write": sole_sql("write"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    mine_store.logs(folder / "logs", JOBS)
    sources = MineSources(
        darshan=[folder / "logs"],
        slurm=[mine_store.sacct(folder / "sacct.txt", JOBS)],
        lmt=[mine_store.lmt(folder / "lmt.sqlite3")],
        slurm_zone="America/New_York",
        lmt_zone="UTC",
    )
    build(folder / "store", sources, 2)
    return folder / "store"


@pytest.fixture(scope="module")
def duck(store: Path) -> Iterator[LogEngine]:
    engine = open_engine(MineStore(store))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def spark(store: Path) -> Iterator[LogEngine]:
    if not HAS_SPARK:
        pytest.skip("needs pyspark and a Java runtime")
    engine = open_engine(MineStore(store), "spark")
    yield engine
    engine.close()


def rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert list(a) == list(b)
        for name, value in a.items():
            if isinstance(value, float) or isinstance(b[name], float):
                assert {type(value), type(b[name])} <= {float, Decimal}, name
                assert float(b[name]) == pytest.approx(value, rel=1e-12), name
            else:
                assert (b[name], type(b[name])) == (value, type(value)), name


@pytest.mark.parametrize("name", QUERIES)
def test_queries_are_answered_alike(duck: LogEngine, spark: LogEngine, name: str) -> None:
    found = rows(duck.query(QUERIES[name]))
    assert found
    same(found, rows(spark.query(QUERIES[name])))


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_are_answered_alike(duck: LogEngine, spark: LogEngine, name: str) -> None:
    found = rows(STATISTICS[name].rows(duck))
    assert found
    same(found, rows(STATISTICS[name].rows(spark)))


@pytest.mark.parametrize("direction", ["read", "write"])
@pytest.mark.parametrize("factors", [False, True])
def test_jobs_are_listed_alike(duck: LogEngine, spark: LogEngine, direction: str, factors: bool) -> None:
    wanted = JobFilter(direction, high=size_bytes("100GiB/s"))
    found = rows(job_list(duck, wanted, factors=factors))
    assert found
    same(found, rows(job_list(spark, wanted, factors=factors)))


def test_critical_paths_are_identical(duck: LogEngine, spark: LogEngine) -> None:
    keys = [("job_id", "ascending"), ("start_us", "ascending")]
    found = duck.critical(intervals_sql("write")).sort_by(keys)
    assert found.equals(spark.critical(intervals_sql("write")).sort_by(keys))


@pytest.mark.parametrize("direction", ["read", "write"])
def test_sql_and_kernel_find_the_same_busy_time(duck: LogEngine, direction: str) -> None:
    by_sql = {row["job_id"]: int(row["busy_us"]) for row in rows(duck.query(busy_sql(direction)))}
    by_kernel: dict[int, int] = {}
    for row in rows(duck.critical(intervals_sql(direction))):
        by_kernel[row["job_id"]] = by_kernel.get(row["job_id"], 0) + row["end_us"] - row["start_us"]
    assert by_sql == by_kernel
    assert len(by_sql) > 5


def test_sole_times_by_sql_and_by_the_sweep(duck: LogEngine) -> None:
    found = rows(duck.query(sole_sql("write")))
    intervals = duck.query(intervals_sql("write"))
    jobs, starts, ends = (intervals[name].to_numpy() for name in ("job_id", "start_us", "end_us"))
    files, ranks = (intervals[name].to_numpy() for name in ("file_id", "rank"))
    for row in found:
        own = jobs == row["job_id"]
        of = (files == row["file_id"]) & (ranks == row["rank"])
        rest = own & ~of
        alone = busy_time(starts[own], ends[own]) - busy_time(starts[rest], ends[rest])
        assert alone == row["sole_us"]
    assert np.unique(jobs).size > 5


@pytest.mark.parametrize("name", ["duck", "spark"])
def test_osts_in_bitmaps_and_long(request: pytest.FixtureRequest, name: str) -> None:
    engine: LogEngine = request.getfixturevalue(name)
    long: dict[int, set[int]] = {}
    for row in rows(engine.query("select distinct job_id, ost from job_ost")):
        long.setdefault(row["job_id"], set()).add(row["ost"])
    by_bitmap = {}
    for row in rows(engine.query(QUERIES["bitmap union"])):
        words = [(row[word] or 0) & (1 << 64) - 1 for word in WORD_COLUMNS]
        by_bitmap[row["job_id"]] = {
            64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1
        }
    assert by_bitmap == long
    assert set().union(*long.values()) == set(mine_store.OSTS)
    (first,) = rows(engine.query(f"select {UNION} from darshan_file where name = '/scratch/job13/out.0'"))
    assert {name: value for name, value in first.items() if value} == {"ost_word_03": -1 << 63}  # OST 255
    (last,) = rows(engine.query(f"select {UNION} from darshan_file where name = '/scratch/job4/out.0'"))
    assert {name: value for name, value in last.items() if value} == {"ost_word_15": 1 << 40}  # OST 1000
    found = {row["job_id"]: row["osts"] for row in rows(engine.query(QUERIES["bitmap count"]))}
    assert found == {job: len(osts) for job, osts in long.items()}


@pytest.mark.parametrize("direction", ["read", "write"])
def test_factors_of_the_list_are_those_of_the_verdict(duck: LogEngine, direction: str) -> None:
    """Two implementations of Eq. 2: SQL over the store, numpy over one job."""
    listed = rows(job_list(duck, JobFilter(direction)))
    assert len(listed) > 5
    for row in listed:
        verdict = judge_stored(duck, row["job_id"])
        (found,) = (each for each in verdict.directions if each.accesses.direction == direction)
        assert (row["bytes"], row["busy_us"]) == (found.bytes, found.accesses.busy_us)
        assert (row["files"], row["critical_files"]) == (
            found.accesses.timed.size,
            found.accesses.path.place.size,
        )
        assert row["mib_per_second"] == pytest.approx(found.mib_per_second)
        assert row["top_share"] == pytest.approx(found.top_share)
        for name, value in found.factors.record().items():
            assert row[name] == (value if value is None else pytest.approx(value)), (row["job_id"], name)


def test_verdicts_on_stored_jobs_are_alike(duck: LogEngine, spark: LogEngine) -> None:
    for job in (1, 5, 7):
        assert list(verdict_records(judge_stored(duck, job))) == list(
            verdict_records(judge_stored(spark, job))
        )


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counted")
    mine_store.counted_logs(folder / "logs")
    build(folder / "store", MineSources(darshan=[folder / "logs"]), 2)
    return folder / "store"


def curve() -> list[dict[str, Any]]:
    """Of the shares 0, 0, 0.5, 0.5, 0.5, 1, 1."""
    at = {20: 0.1, 25: 0.25, 30: 0.4, 70: 0.6, 75: 0.75, 80: 0.9}
    shares = {each: 0.0 if each < 20 else 0.5 if each < 70 else 1.0 for each in range(0, 101, 5)} | at
    return [{"percent_of_jobs": each, "sequential_share": share, "jobs": 7} for each, share in shares.items()]


def numbered(names: str, *values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(names.split(), row, strict=True)) for row in values]


BY_HAND = {
    "applications": numbered(
        "application jobs bytes_read bytes_written read_share written_share",
        ("c", 2, 1300, 400, 1.0, 400 / 2825),
        ("b", 2, 0, 1425, 0.0, 1425 / 2825),
        ("a", 2, 0, 700, 0.0, 700 / 2825),
        ("d", 2, 0, 300, 0.0, 300 / 2825),
    ),
    "sequential": curve(),
    "read-ratio": numbered("bin jobs read_only", (0, 6, 0), (50, 1, 0), (99, 1, 1)),
    "sharing": numbered(
        "pattern jobs share least_ratio largest_ratio",
        ("N-1", 5, 5 / 6, 0.8, 9000.0),  # job 6: all processes share each of 20 files
        ("N-N", 1, 1 / 6, 1.0, 1.0),
    ),
    "middleware": numbered(
        "size_class jobs posix mpiio_independent mpiio_collective neither",
        ("One", 1, 1, 0, 0, 0),
        ("Small", 5, 3, 1, 0, 1),
        ("Medium", 1, 1, 0, 0, 0),
        ("Large", 1, 0, 0, 1, 0),
    ),
    "striping": numbered(
        "widest_stripe_count lustre_jobs custom_jobs custom_share", (1, 1, 0, 0.0), (2, 1, 1, 0.5)
    ),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_counted_by_hand(counted: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["mine", "stats", name, "--store", str(counted), "--json"]) == 0
    same(BY_HAND[name], [json.loads(line) for line in capsys.readouterr().out.splitlines()])


def test_the_command_offers_every_statistic() -> None:
    assert set(mine_options.STATISTICS) == set(STATISTICS)


def test_sums_beyond_64_bits(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select sum(file_id) as wide, sum(writes) as narrow from darshan_file"
    assert main(["mine", "query", sql, "--store", str(store), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found["wide"], int)
    assert found["wide"] < -(1 << 64)
    assert isinstance(found["narrow"], int)
    assert main(["mine", "query", "select 0.5 as half;", "--store", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"half": 0.5}


TWICE = "select * from darshan_file f join darshan_job j on f.log = j.log order by j.job_id nulls last, f.file_id nulls last, f.log nulls last"


@pytest.mark.parametrize("name", ["duck", "spark"])
def test_columns_of_one_name(request: pytest.FixtureRequest, name: str) -> None:
    engine: LogEngine = request.getfixturevalue(name)
    found = engine.query(TWICE)
    assert len(set(found.column_names)) == found.num_columns == len(DARSHAN_FILE) + len(DARSHAN_JOB)
    assert found["log"].to_pylist() == found["log_1"].to_pylist()
    sums = engine.query("select sum(writes) as s, sum(reads) as s from darshan_file")
    apart = engine.query("select sum(writes) as s, sum(reads) as s_1 from darshan_file")
    same(rows(sums), rows(apart))


def test_columns_of_one_name_in_all_formats(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {}
    for shape in ("", "--csv", "--json"):
        capsys.readouterr()
        assert main(["mine", "query", TWICE, "--store", str(store), *filter(None, [shape])]) == 0
        lines[shape] = capsys.readouterr().out.splitlines()
    cells = list(csv.DictReader(lines["--csv"]))
    records = [json.loads(line) for line in lines["--json"]]
    assert len(lines[""]) - 1 == len(cells) == len(records) > 0
    assert lines[""][0].split() == list(cells[0]) == list(records[0])
    for row, record in zip(cells, records, strict=True):
        assert row["job_id_1"] == str(record["job_id_1"]) == str(record["job_id"])
        assert row["application"] == record["application"]


def test_the_python_interface(store: Path) -> None:
    with Mine(store) as mine:
        jobs = mine.load("darshan_job")
        assert jobs.project("job_id", "bytes_written").filter("bytes_written < 1GB").rows()
        binned = jobs.bin("workload", lambda written: int(written // 10**9), "bytes_written").rows()
        assert all(row["workload"] == row["bytes_written"] // 10**9 for row in binned)
        osts = {
            row["job_id"]: row["value"]
            for row in mine.load("job_ost").group("job_id", lambda each: len({row["ost"] for row in each}))
        }
        assert osts == {
            row["job_id"]: row["n"] for row in mine.load("job_ost").group("job_id", n="count(distinct ost)")
        }
        assert jobs.percentile("bytes_written", [0, 50, 100])[0][0] == 0
        joined = jobs.join(mine.load("slurm"), "job_id").project("job_id", "node_count", "bytes_read").rows()
        assert {row["node_count"] for row in joined} == {2}
        factors = jobs.filter("bytes_written > 1GB").extract_perf_factors("0", "100GB", "write").rows()
        assert factors
        assert {"small", "nonconsecutive", "osts", "processes_per_ost"} <= set(factors[0])
        assert len(jobs.map(lambda row: {"n": row["job_id"] + 1}).rows()) == len(jobs.rows())
        with pytest.raises(ConfigError):
            mine.load("users")


@pytest.mark.parametrize(
    "sql",
    [
        "drop view job",
        "select 1; select 2",
        "copy job to '/tmp/x.csv'",
        "select * from read_csv('/etc/passwd')",
        "select nothing from job",
        "attach 'x.db'",
        "set memory_limit = '1TB'",
    ],
)
def test_queries_only_read_the_store(store: Path, capsys: pytest.CaptureFixture[str], sql: str) -> None:
    assert main(["mine", "query", sql, "--store", str(store)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "sql",
    [
        "drop view job",
        "select 1; select 2",
        "insert overwrite directory '/tmp/laggard-x' using csv select 1",
        "create table t (i int)",
        "set spark.sql.ansi.enabled = false",
        "cache table job",
        "show tables",
        "select nothing from job",
    ],
)
def test_queries_of_spark_only_read_the_store(spark: LogEngine, sql: str) -> None:
    with pytest.raises(InputError, match="query"):
        spark.query(sql)
    assert not Path("/tmp/laggard-x").exists()


@pytest.mark.skipif(not HAS_SPARK, reason="needs pyspark and a Java runtime")
def test_the_command_on_spark(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process of its own: an engine that ends takes the session of its process with it."""
    sql = "select job_id, count(*) as n from darshan_file group by job_id order by job_id nulls last;"
    of_store = ["--store", str(store), "--json"]
    assert main(["mine", "query", sql, *of_store]) == 0
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "mine", "query", sql, *of_store]
    done = run_command([*command, "--engine", "spark"])
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        json.loads(line) for line in capsys.readouterr().out.splitlines()
    ]


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")
def test_a_java_runtime_that_does_not_start_is_said(store: Path) -> None:
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "mine", "query", "select 1 as one"]
    command += ["--store", str(store), "--engine", "spark"]
    done = run_command(command, check=False, env={**os.environ, "JAVA_HOME": "/nowhere"})
    assert done.returncode == 1
    assert "Spark does not start" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_with_its_step_and_its_coverage(
    store: Path, duck: LogEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mine", "job", "1", "--store", str(store), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"step": "1.0", "nodes": 2}.items() <= next(
        each for each in found if each["record"] == "step"
    ).items()
    (coverage,) = (each for each in found if each["record"] == "coverage" and each["direction"] == "write")
    assert coverage["of"] == "OSTs"
    verdict = judge_stored(duck, 1)
    accesses = next(each.accesses for each in verdict.directions if each.accesses.direction == "write")
    low, high = int(accesses.start[accesses.timed].min()), int(accesses.end[accesses.timed].max())
    used = {row["ost"] for row in verdict.tables.osts.to_pylist()} & {0, 63, 64, 255}
    low = max(low, (mine_store.START + 4000) * 1_000_000)  # the job's first log is older than LMT's data
    seconds = (high - low) / 1e6  # each of LMT's OSTs wrote 64 MiB in 5 s
    assert coverage["lmt_bytes"] == pytest.approx(len(used) * 64 * mine_store.MIB * seconds / 5, rel=1e-6)
    assert coverage["coverage"] == pytest.approx(coverage["job_bytes"] / coverage["lmt_bytes"], rel=1e-5)
    assert main(["mine", "job", "1", "--store", str(store)]) == 0
    assert "Slurm: step 1.0, 2 nodes" in capsys.readouterr().out


def test_a_job_of_two_logs_is_one_job(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine", "job", "5", "--store", str(store)]) == 0
    assert "2 logs" in capsys.readouterr().out


def test_a_job_that_is_not_there(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine", "job", "999", "--store", str(store)]) == 2
    assert "no Darshan log" in capsys.readouterr().err


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
@pytest.mark.parametrize(
    "verb", [["jobs", "--factors"], ["stats", "sharing"], ["query", "select * from darshan_file"]]
)
def test_output_formats(
    store: Path, capsys: pytest.CaptureFixture[str], verb: list[str], form: list[str]
) -> None:
    assert main(["mine", *verb, "--store", str(store), *form]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    if form == ["--json"]:
        assert all(json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("1GB", 10**9), ("1GiB/s", 1 << 30), ("1.5MB", 1.5e6), ("7", 7)]
)
def test_sizes(text: str, value: float) -> None:
    assert size_bytes(text) == value


@pytest.mark.parametrize("text", ["", "x", "-1", "1XB", "nan", "inf"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ConfigError):
        size_bytes(text)


def test_errors_name_the_query(duck: LogEngine) -> None:
    with pytest.raises(InputError, match="query"):
        duck.query("select 1 +")
