"""Known answers of a store over all logs beside the project (shared/data); skipped without them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.main import main
from tests.support.darshan import skip_without_darshan
from tests.support.shared_data import shared

skip_without_darshan()
pytest.importorskip("duckdb")
pytestmark = pytest.mark.shared_data
Run = Callable[..., list[dict[str, Any]]]
CSV = "slurm/tokio_abc/edison-summaries_2017-02-14-2018-02-15.csv.gz"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("known") / "store"
    options = ["--darshan", str(shared("darshan")), "--slurm", str(shared("slurm/sample.slurm.json"))]
    options += ["--lmt", str(shared(CSV)), "--timezone", "America/Los_Angeles", "--store", str(path)]
    assert main(["mine", "init", *options]) == 0
    return path


@pytest.fixture
def run(store: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def records(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["mine", *arguments, "--store", str(store), "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return records


def test_the_jobs_of_section_3_f(run: Run) -> None:
    found = run("jobs", "--write", "--below", "1GiB/s", "--min-procs", "1000")
    assert {row["job_id"] for row in found} == {6265799, 66089597}
    assert {row["job_id"] for row in run("jobs", "--write", "--below", "1GB/s", "--min-procs", "1001")} == {
        6265799,
        66089597,
    }


def test_a_job_with_its_step_and_its_share_of_the_traffic(run: Run) -> None:
    found = run("job", "4478544")
    (step,) = (each for each in found if each["record"] == "step")
    assert (step["step"], step["nodes"], step["ranks_per_node"]) == ("4478544.6", 128, 16)
    (coverage,) = (each for each in found if each["record"] == "coverage" and each["direction"] == "write")
    assert coverage["lmt_bytes"] / 2**30 == pytest.approx(2168.09, abs=0.01)
    assert coverage["job_bytes"] / 2**30 == pytest.approx(2048, abs=0.01)
    assert coverage["coverage"] == pytest.approx(0.945, abs=0.0005)


def test_verdicts_of_store_and_log_are_one(run: Run) -> None:
    found = run("job", "6265799")
    (finding,) = (each for each in found if each["record"] == "finding")
    assert (finding["kind"], finding["component"]) == ("ost", "OST14")


def test_the_rates_of_osts_in_sql(run: Run) -> None:
    """OST 14 and the next one, by time per byte of the files on them."""
    sql = (
        "select o.ost, count(*) as files, median(f.write_time_us) / 1e6 as seconds, "
        "sum(f.bytes_written) / 1048576e0 / (sum(f.write_time_us) / 1e6) as rate "
        "from darshan_file f join job_ost o on o.log = f.log and o.file_id = f.file_id "
        "where f.job_id = 6265799 and f.module = 'POSIX' and f.writes > 0 group by o.ost order by rate"
    )
    slow, following, *others = run("query", sql)
    assert (slow["ost"], slow["files"]) == (14, 85)
    assert slow["rate"] == pytest.approx(0.4685, abs=0.00005)
    assert slow["seconds"] == pytest.approx(509.6, abs=0.05)
    assert following["rate"] == pytest.approx(18.83, abs=0.005)
    assert len(others) == 22


def test_two_benchmarks_read_one_ost(run: Run) -> None:
    """The same reads in order and out of order, ten times slower: the OST is not the difference."""
    sql = (
        "select f.job_id, o.ost, f.reads, f.bytes_read from darshan_file f join job_ost o "
        "on o.log = f.log and o.file_id = f.file_id where f.job_id in (66186300, 66186433) "
        "and f.module = 'POSIX' and f.reads > 0 order by f.job_id"
    )
    found = [(row["job_id"], row["ost"], row["reads"], row["bytes_read"]) for row in run("query", sql)]
    assert found == [(job, 112, 262_144, 256 << 20) for job in (66186300, 66186433)]


def test_the_second_time_nothing_is_read(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    options = ["--darshan", str(shared("darshan")), "--slurm", str(shared("slurm/sample.slurm.json"))]
    options += [
        "--lmt",
        str(shared(CSV)),
        "--timezone",
        "America/Los_Angeles",
        "--store",
        str(store),
        "--json",
    ]
    assert main(["mine", "init", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["read"] == 0
    assert sum("2.x" in line for line in found["skipped"]) == 2


@pytest.mark.parametrize(
    "name", ["applications", "sequential", "read-ratio", "sharing", "middleware", "striping"]
)
def test_every_statistic_has_rows(run: Run, name: str) -> None:
    assert run("stats", name)
