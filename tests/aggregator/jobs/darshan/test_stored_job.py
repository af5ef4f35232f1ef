"""A job of a store, beside Laggard's own alarms and earlier runs of its application."""

import json
import shutil
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.archive import schemas as archive_schemas
from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.darshan.engines import open_engine
from laggard_aggregator.jobs.darshan.records import verdict_records
from laggard_aggregator.jobs.darshan.store import MineStore, Source, StoreWriter
from laggard_aggregator.jobs.darshan.store_build import MineSources, build
from laggard_aggregator.jobs.darshan.stored_job import judge_stored
from laggard_aggregator.jobs.darshan.tables import LMT
from tests.support.builders.darshan_log import LogWriter
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
pytest.importorskip("duckdb")
START = 1_750_000_000
MIB = 1 << 20


def run_of(folder: Path, job: int, seconds: float) -> None:
    log = LogWriter(job=job, processes=8, start=START + 1000 * job)
    for rank in range(8):
        log.posix(
            f"/scratch/{rank}",
            rank,
            "write",
            1.0,
            1.0 + seconds,
            requests=64,
            bytes=64 * MIB,
            CONSEC_WRITES=63,
        )
        log.stripes(f"/scratch/{rank}", [14 + rank], rank)
    log.write(folder / f"{job}.darshan")


def lmt_rows(system: str, first: int, amount: int) -> pa.Table:
    """OSTs 0 to 31 of a file system, 100 intervals of 5 s, each with `amount` bytes written."""
    rows = [
        {
            "file_system": system,
            "ost": f"{system}-OST{ost:04x}",
            "ost_index": ost,
            "start_us": (first + 5 * at) * 1_000_000,
            "end_us": (first + 5 * at + 5) * 1_000_000,
            "bytes_read": 0,
            "bytes_written": amount,
        }
        for ost in range(32)
        for at in range(100)
    ]
    return pa.Table.from_pylist(rows, schema=LMT)


def alarm(component: str, transition: str, at: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run": 0,
        "ordinal": int(at),
        "group": "osts",
        "metric": "write_time",
        "start": at,
        "end": at,
        "transition": transition,
        "component": component,
        "level": "component",
        "at": at,
        "since": at - 60,
        "severity": 9.5,
    }
    rest = dict.fromkeys(("score", "worst_severity", "observed", "reference"), 0.0)
    return row | rest | {"causes": []}


def archived(directory: Path, rows: list[dict[str, Any]]) -> Path:
    day = layout.day_of(START * 10**9)
    where = layout.folder(directory, "alarms", layout.OWN, day, "site")
    schema = archive_schemas.ALARMS
    rows_of_part = [pa.Table.from_pylist(rows, schema=schema)]
    layout.write_part(where, layout.stamp(START * 10**9), (1, 1), schema, rows_of_part)
    return directory


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "logs").mkdir()
    for job, seconds in enumerate([10.0, 10.5, 9.8, 10.2, 10.1, 9.9, 60.0], 1):
        run_of(folder / "logs", job, seconds)
    assert main(["mine", "init", "--darshan", str(folder / "logs"), "--store", str(folder / "store")]) == 0
    return folder / "store"


def records(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["mine", "job", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_slower_than_earlier_runs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [each for each in records(capsys, "7", "--store", str(store)) if each["record"] == "finding"]
    assert [each["kind"] for each in found] == ["history"]
    assert found[0]["factor"] == pytest.approx(6, rel=0.05)
    assert "6 earlier runs" in found[0]["text"]
    assert not [each for each in records(capsys, "6", "--store", str(store)) if each["record"] == "finding"]


@pytest.mark.skipif(
    find_spec("pyspark") is None or shutil.which("java") is None, reason="needs pyspark and a Java runtime"
)
def test_earlier_runs_are_compared_alike_by_both_engines(store: Path) -> None:
    with closing(open_engine(MineStore(store))) as duck:
        by_duck = list(verdict_records(judge_stored(duck, 7)))
    with closing(open_engine(MineStore(store), "spark")) as spark:
        by_spark = list(verdict_records(judge_stored(spark, 7)))
    assert by_duck == by_spark
    assert [each["kind"] for each in by_spark if each["record"] == "finding"] == ["history"]


def test_alarms_on_its_osts_at_that_time(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = START + 7000.0
    rows = [
        alarm("scratch-OST000e", "raised", begin - 500),
        alarm("scratch-OST000f", "raised", begin - 500),
        alarm("scratch-OST000f", "cleared", begin - 100),
        alarm("scratch-OST0010", "raised", begin + 50),
        alarm("scratch-OST0011", "raised", begin + 5000),
        alarm("scratch-OST00ff", "raised", begin - 500),
        alarm("oss-1/sda", "raised", begin - 500),
    ]
    archive = archived(tmp_path / "archive", rows)
    found = records(capsys, "7", "--store", str(store), "--archive", str(archive))
    named = [each["component"] for each in found if each["record"] == "alarm"]
    assert named == ["scratch-OST000e", "scratch-OST0010"]


@pytest.mark.parametrize(
    ("systems", "expected"),
    [(["scratch"], 1.0), (["snx11"], 1.0), (["scratch", "home"], 1.0), (["snx11", "home"], None)],
)
def test_osts_of_another_file_system_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], systems: list[str], expected: float | None
) -> None:
    """OST 14 of /scratch is the job's; another file system has the same numbers."""
    (tmp_path / "logs").mkdir()
    run_of(tmp_path / "logs", 1, 100.0)
    build(tmp_path / "store", MineSources(darshan=[tmp_path / "logs"]), 1)
    writer = StoreWriter(tmp_path / "store")
    for place, system in enumerate(systems):
        rows = lmt_rows(system, START + 1000, 64 * MIB // 20 * (10 if place else 1))
        writer.commit("lmt", [Source(f"/{system}", 1, 1)], {"lmt": [rows]})
    writer.close()
    begin = START + 1000.0
    rows_of_alarms = [alarm(f"{system}-OST000e", "raised", begin + 1) for system in systems]
    archive = archived(tmp_path / "archive", rows_of_alarms)
    found = records(capsys, "1", "--store", str(tmp_path / "store"), "--archive", str(archive))
    coverage = [each["coverage"] for each in found if each["record"] == "coverage"]
    named = [each["component"] for each in found if each["record"] == "alarm"]
    not_judged = {each["what"]: each["reason"] for each in found if each["record"] == "not_judged"}
    if expected is None:
        assert coverage == named == []
        assert "cannot be told apart" in not_judged["coverage"]
        assert "cannot be told apart" in not_judged["alarms"]
    else:
        assert coverage == [pytest.approx(expected, rel=0.05)]
        assert named == [f"{systems[0]}-OST000e"]
        assert not {"coverage", "alarms"} & set(not_judged)
