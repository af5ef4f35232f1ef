"""`laggard jobs import`: output, errors, files of any overlap, several processes at once."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.cli.main import main
from tests.support.job_records import FOLDER
from tests.support.processes import run_command, started

COMMAND = [sys.executable, "-m", "laggard_aggregator.cli.main", "jobs", "import"]


def test_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(tmp_path / "archive")
    path = str(FOLDER / "sacct.txt")
    assert main(["jobs", "import", "--sacct", path, "--archive", archive]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: 13 records, 13 new or changed, 2 steps left out\n"
    assert f"{path}: 1 row left out: no state of a job\n" in err
    assert f"{path}: line 16: fewer columns than the header: two|lines\n" in err
    assert f"{path}: 1 node list that cannot be used: its job has no nodes\n" in err
    assert main(["jobs", "import", "--sacct", path, "--archive", archive]) == 0
    assert capsys.readouterr()[0] == f"{path}: 13 records, 0 new or changed, 2 steps left out\n"


def test_all_formats_in_one_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "sacct.json.gz"
    packed.write_bytes(gzip.compress((FOLDER / "sacct-0.0.42.json").read_bytes()))
    inputs = {
        "--sacct": packed,
        "--jsonl": FOLDER / "jobs.jsonl",
        "--pbs": FOLDER / "accounting.pbs",
        "--flux": FOLDER / "flux.json",
    }
    options = [str(word) for pair in inputs.items() for word in pair]
    assert main(["jobs", "import", *options, "--cluster", "own", "--archive", str(tmp_path / "a")]) == 0
    assert len(capsys.readouterr()[0].splitlines()) == 4
    jobs = ArchiveReader(tmp_path / "a").table("jobs")
    assert {text.partition("/")[0] for text in jobs["job_key"].to_pylist()} == {"c1", "sunway", "own"}


@pytest.mark.parametrize("form", ["--sacct", "--jsonl", "--pbs"])
def test_a_file_that_is_cut_short_is_read_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    columns = (FOLDER / "sacct.txt").read_text().splitlines(keepends=True)[0]
    header = columns if form == "--sacct" else ""
    row = {
        "--sacct": "{n}|{n}|c|u|1|a|b|COMPLETED|1700000000||1700000010|1700000100|90|1|1|0:0|n{n}|x\n",
        "--jsonl": (
            '{{"job": "{n}", "submit": 1700000000, "state": "running", '
            '"start": 1700000018, "nodes": "n{n}"}}\n'
        ),
        "--pbs": "01/01/2026 01:00:00;E;{n}.s;user=u ctime=1 start=2 end=3 exec_host=n{n}/0\n",
    }[form]
    packed = gzip.compress((header + "".join(row.format(n=n) for n in range(1, 2001))).encode())
    path = tmp_path / "jobs.gz"
    path.write_bytes(packed[: len(packed) * 3 // 4])
    archive = str(tmp_path / "archive")
    assert main(["jobs", "import", form, str(path), "--cluster", "c", "--archive", archive]) == 0
    out, err = capsys.readouterr()
    assert 1000 < int(out.split()[1].replace(",", "")) < 1800
    assert err == f"{path}: 1 time: compressed data is cut short: read as far as it goes\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "expected an input: --sacct, --jsonl, --pbs, --flux"),
        (["--sacct", "/no/such"], "/no/such: no such file"),
        (["--sacct", __file__], "its first line is no header of sacct -P"),
        (["--flux", __file__], "no JSON of jobs"),
        (["--jsonl", os.devnull, "--timezone", "Mars"], "--timezone: Mars: no such time zone"),
        (["--jsonl", os.devnull, "--cluster", "a/b"], "--cluster: expected letters, digits"),
        (["--jsonl", os.devnull, "--site", "../x"], "--site: expected letters, digits"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["jobs", "import", *options, "--archive", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("laggard jobs import: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_pipe_is_read(tmp_path: Path) -> None:
    cat = shutil.which("cat")
    assert cat
    with started([cat, FOLDER / "sacct.txt"], stdout=subprocess.PIPE) as source:
        command = [*COMMAND, "--sacct", "/dev/stdin", "--archive", tmp_path]
        found = run_command(command, stdin=source.stdout, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "/dev/stdin: 13 records, 13 new or changed, 2 steps left out\n"


RECORD = '{"job": "7", "submit": 1700000000, "state": "COMPLETED", "start": 1700000010, "end": 1700003610}'
PBS = "01/01/2026 01:00:00;E;7.s;user=u ctime=1700000000 start=1700000010 exec_host=n1/0 end=1700003610"


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("--jsonl", f"[{RECORD}]", "a JSON array, expected one JSON object a line, as jq -c '.[]' prints it"),
        ("--jsonl", f"\n[\n{RECORD}\n]\n", "a JSON array"),
        (
            "--jsonl",
            RECORD.replace(", ", ",\n"),
            "no line is one of JSON Lines with jobs; line 1: no JSON: {",
        ),
        ("--jsonl", f"{PBS}\n", "no line is one of JSON Lines with jobs; line 1: no JSON: 01/01/2026"),
        (
            "--pbs",
            f"{RECORD}\n",
            "no line is one of a PBS accounting log; line 1: expected time;type;id;text",
        ),
    ],
)
def test_a_file_of_another_kind_is_an_error(
    form: str, text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs"
    path.write_text(text)
    assert main(["jobs", "import", form, str(path), "--archive", str(tmp_path / "archive")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"laggard jobs import: {path}: {problem}")
    assert err.count("\n") == 1


SACCT = "JobID|State|NodeList|Submit|Start|End\n{n}|COMPLETED|n1|1700000000|1700000010|1700003610\n"


@pytest.mark.parametrize(
    ("form", "text", "is_known"),
    [
        ("--sacct", SACCT.format(n=6) + SACCT.format(n=7), True),
        ("--sacct", (SACCT.format(n=6) + SACCT.format(n=7)).removesuffix("\n"), False),
        ("--sacct", (SACCT.format(n=6) + SACCT.format(n=7))[:-3], False),
        ("--pbs", f"{PBS.replace(';7.s', ';6.s')}\n{PBS}"[:-2], False),
        ("--jsonl", f"{RECORD.replace('7', '6', 1)}\n{RECORD}", True),  # its brace ends it
        ("--jsonl", f"{RECORD.replace('7', '6', 1)}\n{RECORD}"[:-2], False),
    ],
)
def test_a_last_line_that_may_be_cut_short_is_left_out(
    form: str, text: str, is_known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last number would be a time of 1970, or an end before the start."""
    path = tmp_path / "jobs"
    path.write_text(text)
    assert main(["jobs", "import", form, str(path), "--archive", str(tmp_path / "archive")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: {2 if is_known else 1} record")
    assert ("left out" in err) is not is_known
    jobs = ArchiveReader(tmp_path / "archive").table("jobs")
    assert set(jobs["end"].to_pylist()) == {1700003610.0}


def test_a_job_of_flux_that_was_asked_for_by_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`flux jobs --json ID` prints the job alone."""
    path = tmp_path / "flux.json"
    path.write_text(
        '{"id": 7, "t_submit": 1700000000.5, "t_run": 1700000010.0, "t_cleanup": 1700003610.0,\n'
        ' "state": "INACTIVE", "result": "COMPLETED", "nodelist": "n[1-2]", "annotations": {"user": {}}}\n'
    )
    assert main(["jobs", "import", "--flux", str(path), "--archive", str(tmp_path / "archive")]) == 0
    assert capsys.readouterr().out == f"{path}: 1 record, 1 new or changed\n"
    jobs = ArchiveReader(tmp_path / "archive").table("jobs")
    assert jobs["end"].to_pylist() == [1700003610.0]
    path.write_text('{"id": 7}\n')
    assert main(["jobs", "import", "--flux", str(path), "--archive", str(tmp_path / "archive")]) == 2
    assert "JSON without an array of jobs" in capsys.readouterr().err
