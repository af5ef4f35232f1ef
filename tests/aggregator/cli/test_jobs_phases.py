"""`laggard jobs phases` on files."""

import gzip
import json
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main


def written(path: Path, header: str = "time,read_bytes,written_bytes,metadata_ops") -> Path:
    """A job of ten minutes that writes twice and opens many files once; two rows are missing."""
    lines = [header]
    for i in range(600):
        if i in (130, 131):
            continue
        wrote = 500_000_000 if 100 <= i < 150 or 400 <= i < 450 else 0
        lines.append(f"{1_763_650_000 + i},0,{wrote},{900 if 300 <= i < 320 else 0}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "phases", str(written(tmp_path / "job.csv")), "--json"]) == 0
    records = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert records == [
        {
            "record": "phase",
            "direction": direction,
            "start": 1_763_650_000 + start,
            "end": 1_763_650_000 + end,
            "amount": amount,
            "unknown_seconds": unknown,
            "busy_seconds": end - start - unknown,
        }
        for direction, start, end, amount, unknown in (
            ("write", 99.5, 149.5, 48 * 500_000_000, 2.0),
            ("write", 399.5, 449.5, 50 * 500_000_000, 0.0),
            ("metadata", 299.5, 319.5, 18_000, 0.0),
        )
    ]


def test_a_table_of_compressed_input_with_other_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.csv.gz"
    path.write_bytes(gzip.compress(written(tmp_path / "job.csv", "ts,r,w,m").read_bytes()))
    options = ["--time-column", "ts", "--write-column", "w"]
    assert main(["jobs", "phases", str(path), *options, "--method", "dwt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["phase", "start", "duration", "amount", "rate", "unknown"]
    assert [line.split()[0] for line in lines[1:]] == ["write", "write"]


def test_no_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "idle.csv"
    path.write_text("time,read_bytes\n" + "".join(f"{i},0\n" for i in range(50)))
    assert main(["jobs", "phases", str(path)]) == 0
    assert capsys.readouterr().out == "no phases\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not the CSV expected: Empty CSV file"),
        ("time\n1\n2\n", "row 1, the header: none of the columns read_bytes, written_bytes, metadata_ops"),
        ("when,read_bytes\n1,2\n", "row 1, the header: no column 'time'"),
        ("time,read_bytes\n", "no rows below the header"),
        ("time,read_bytes\n1,5\n", "column 'read_bytes': fewer than two rows"),
        (
            "time,read_bytes\nnow,5\n",
            "time column: data row 1: expected epoch seconds or ISO 8601, got 'now'",
        ),
        ("time,read_bytes,read_bytes\n1,5,6\n", "row 1, the header: more than one column 'read_bytes'"),
        ("time,read_bytes\n1,much\n", "column 2: data row 1: invalid value 'much'"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main(["jobs", "phases", str(path)]) == 2
    assert capsys.readouterr().err == f"laggard jobs phases: {path}: {message}\n"


def test_without_a_verb_an_archive_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["jobs"])
    assert "--archive" in capsys.readouterr().err
