"""`laggard jobs top` over a small archive."""

import json
import sys
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from tests.support.builders.job_tables import job_row, summary_row, write_rows


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    jobs = [job_row(1, cpus=4), job_row(2, cpus=8, user="bob"), job_row(3, cpus=8, user="=x\x1b[31m")]
    write_rows(tmp_path, "jobs", jobs)
    write_rows(tmp_path, "job_summaries", [summary_row(jobs[1], read_bytes=3e8)])
    return tmp_path


def test_users_by_volume_then_name(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "top", "--archive", str(archive)]) == 0
    shown = capsys.readouterr()
    head, bob, hostile, alice = shown.out.splitlines()
    assert shown.err == "The counters of 2 jobs are unknown: volumes and operations are of the other jobs\n"
    assert head.split()[:2] == ["name", "jobs"]
    assert bob.split() == ["bob", "1", "1", "8", "300", "MB", "–", "–"]
    assert "\x1b" not in hostile
    assert alice.split()[0] == "alice"


def test_records_and_classes(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "top", "--archive", str(archive), "--by", "class", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["name"], each["jobs"]) for each in records][:2] == [("0-1K", 3), ("1K-10K", 0)]
    assert records[0]["mean_read_bytes"] == 3e8
    assert main(["jobs", "top", "--archive", str(archive), "--to", "2001-01-01"]) == 0
    assert capsys.readouterr().out == "No job matches.\n"


def test_a_list_that_is_cut_says_so_and_an_export_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [job_row(n, cpus=4, user=f"user{n}") for n in range(1, 22)]
    write_rows(tmp_path, "jobs", jobs)
    write_rows(tmp_path, "job_summaries", [summary_row(job, read_bytes=1.0) for job in jobs])
    command = ["jobs", "top", "--archive", str(tmp_path)]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert (len(shown.out.splitlines()), shown.err) == (
        1 + 20,
        "Only the 20 largest users: more with --limit\n",
    )
    assert main([*command, "--json"]) == 0
    shown = capsys.readouterr()
    assert (len(shown.out.splitlines()), shown.err) == (21, "")
    assert main([*command, "--limit", "21"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "--limit", "1", "--json"]) == 0
    shown = capsys.readouterr()
    assert (len(shown.out.splitlines()), shown.err) == (1, "Only the 1 largest user: more with --limit\n")


def test_a_missing_engine_is_one_line(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["jobs", "top", "--archive", str(archive)]) == 1
    assert (
        capsys.readouterr().err
        == "laggard jobs top: duckdb is not installed: it comes with the extra 'mining' (docs/install.md)\n"
    )
    assert main(["jobs", "top", "--archive", str(archive), "--master", "local"]) == 2
