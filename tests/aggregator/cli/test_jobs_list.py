"""`laggard jobs` and `laggard job`: lists, one job, formats, hostile names, mistakes in one line."""

import csv
import io
import json
import time
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.status.text_table import wrapped
from tests.aggregator.jobs.job_archives import job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.job_tables import EPOCH, job_row, node_rows, summary_row, write_rows

HOSTILE = "=cmd()\x1b[31m\u202e\n"


def archive(folder: Path) -> Path:
    """Three jobs of alice and one of bob, whose name is hostile."""
    jobs = [job_row(raw_id, submit=int(EPOCH) + raw_id) for raw_id in (1, 2, 3)]
    jobs.append(job_row(4, user="bob", name=HOSTILE, application=HOSTILE, end=None, state="RUNNING"))
    write_rows(folder, "job_nodes", [row for job in jobs for row in node_rows(job, ["cn-1", "cn-2"])])
    write_rows(folder, "jobs", jobs)
    write_rows(
        folder,
        "job_summaries",
        [
            summary_row(
                jobs[0], read_bytes=2e9, written_bytes=1e9, coverage=1.0, amplification=3.0, shared=False
            )
        ],
    )
    return folder


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(list(words)) == 0
    return capsys.readouterr().out.splitlines()


def test_a_list_is_newest_first_and_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "jobs", "--archive", str(archive(tmp_path)))
    assert [line.split()[0] for line in found] == ["job", "4", "3", "2", "1"]
    assert all(character.isprintable() for line in found for character in line)
    assert "2 GB" in found[-1]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["--user", "alice"], ["3", "2", "1"]),
        (["--user", "' or 1=1 --"], []),
        (["--state", "running"], ["4"]),
        (["--finding", "amplification"], ["1"]),
        (["--node", "cn-2", "--limit", "2"], ["4", "3"]),
        (["--node", "cn-9"], []),
        (["--from", "2125-01-01"], ["4"]),
        (["--to", "2001-01-01T00:00"], []),
    ],
)
def test_filters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], jobs: list[str]
) -> None:
    found = lines(capsys, "jobs", "--archive", str(archive(tmp_path)), "--json", *words)
    assert [json.loads(line)["job"] for line in found] == jobs


def test_csv_has_no_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--archive", str(archive(tmp_path)), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["job"] for row in rows] == ["4", "3", "2", "1"]
    assert rows[0]["name"].startswith("'=cmd()")
    assert rows[0]["name"].isprintable()
    assert rows[-1]["read_bytes"] == "2000000000.0"


def test_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(archive(tmp_path))
    text = "\n".join(lines(capsys, "job", "1", "--archive", where))
    assert "alice" in text
    assert "read 2 GB, written 1 GB" in text
    assert "counters or traces cover 100% of its time" in text
    (record,) = map(json.loads, lines(capsys, "job", "1", "--archive", where, "--json"))
    assert record["nodes"] == ["cn-1", "cn-2"]
    assert (record["summary"]["read_bytes"], record["coverage"], record["shared"]) == (2e9, 1.0, False)
    assert (record["verdict"], record["findings"]) == ("not judged", [])
    assert "Not joined" in "\n".join(lines(capsys, "job", "4", "--archive", where))


def test_the_sentence_alone_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_row(7)
    own = {"job_key": job["job_key"], "revision_at": 1, "joined_at": 1, "rank": 0}
    told = "Writing took 2 times;\n\x1b[31m OST0001 was slow"
    write_rows(tmp_path, "jobs", [job])
    write_rows(tmp_path, "job_findings", [own | {"verdict": "slow", "sentence": told}])
    assert main(["job", "7", "--archive", str(tmp_path), "--sentence"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Writing took 2 times;")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["job", "17\x1b_3"], "has no job 17"),
        (["jobs", "--from", "yesterday"], "--from: expected a time"),
        (["jobs", "--finding", "magic"], "finding: expected one of"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    assert main([*words, "--archive", str(archive(tmp_path))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert line.isprintable()


def test_an_archive_without_jobs_and_a_folder_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "--archive", str(tmp_path / "none")]) == 2
    write_rows(tmp_path, "job_nodes", node_rows(job_row(1), ["cn-1"]))
    assert "laggard jobs import" in lines(capsys, "jobs", "--archive", str(tmp_path))[0]


def test_an_index_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = archive(tmp_path / "archive")
    found = lines(capsys, "jobs", "--archive", str(where), "--index", str(tmp_path / "jobs.sqlite"), "--json")
    assert len(found) == 4
    assert not (where / "index").exists()


def many(folder: Path) -> str:
    write_rows(folder, "jobs", [job_row(raw_id, submit=int(EPOCH) + raw_id) for raw_id in range(1, 61)])
    return str(folder)


@pytest.mark.parametrize(
    ("words", "count", "is_cut"),
    [
        *(
            (["--json"], 60, False),
            (["--json", "--limit", "60"], 60, False),
            (["--json", "--limit", "7"], 7, True),
        ),
        *(
            (["--csv"], 61, False),
            (["--csv", "--limit", "7"], 8, True),
            ([], 51, True),
            (["--limit", "60"], 61, False),
        ),
    ],
)
def test_exports_are_whole_and_a_cut_list_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], count: int, *, is_cut: bool
) -> None:
    assert main(["jobs", "--archive", many(tmp_path), *words]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == count
    assert ("--limit" in printed.err) is is_cut


def test_a_long_line_is_broken_between_words_on_a_terminal_alone() -> None:
    line = "  its I/O took 2.4 times what its volume makes expected; filer-3:/export was slow"
    assert wrapped(line, None) == [line]
    broken = wrapped(line, 40)
    assert broken[0] == "  its I/O took 2.4 times what its volume"
    assert all(len(each) <= 40 for each in broken)
    assert all(each.startswith("    ") for each in broken[1:])
    assert " ".join(" ".join(broken).split()) == line.strip()


@pytest.mark.parametrize("options", [[], ["--jobid-format", "%j"]])
def test_job_stats_of_a_running_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Three minutes at 1 MiB a second, by a target's entry of the job, up to now."""
    begun = int(time.time()) - 300
    job = job_row(7, submit=begun, start=begun, end=None, state="RUNNING")
    write_rows(tmp_path, "job_nodes", node_rows(job, ["cn-1"]), begun, "site")
    write_rows(tmp_path, "jobs", [job], begun, "site")
    ticks = (1000 * (begun + at) for at in range(0, 190, 10))
    moved = [
        NaiveReading(tick, tick, {"read_bytes_sum": 10 * at * 2**20, "write_bytes_sum": 0})
        for at, tick in enumerate(ticks)
    ]
    received_ns = begun * 10**9
    entry = job_batch("oss", "fs-OST0001:7", moved, lsn=1, received_ns=received_ns, source="lustre_job_ost")
    write_parts(tmp_path, [[entry]], received_ns)
    (record,) = map(json.loads, lines(capsys, "job", "7", "--archive", str(tmp_path), "--json", *options))
    assert record["volumes"]["server_read_bytes"] == (180 * 2**20 if options else None)


def test_a_format_without_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["job", "7", "--archive", ".", "--jobid-format", "%e"])
    assert "expected %j once" in capsys.readouterr().err


def test_a_job_of_which_only_the_number_is_known_has_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_row(7, user="", name="", application="", submit=int(EPOCH))
    job["job"] = ""
    write_rows(tmp_path, "jobs", [job])
    listed = lines(capsys, "jobs", "--archive", str(tmp_path))
    assert listed[-1].split()[:3] == ["7", "-", "-"]
    assert lines(capsys, "job", "7", "--archive", str(tmp_path))[0] == "Job 7: no name, COMPLETED"
