"""`laggard jobs compare` on files."""

import json
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main

HEADER = "run,application,nodes,phase,direction,duration_seconds,bytes\n"


def written(path: Path) -> Path:
    """Eight runs of two phases; the last one takes three times as long."""
    rows = []
    for i in range(8):
        slow = 3 if i == 7 else 1
        for phase in ("input", "checkpoint"):
            seconds = (100 + 7 * ((i * 5) % 4)) * slow
            rows.append(f"run{i},solver,64,{phase},write,{seconds},{10**11}\n")
    path.write_text(HEADER + "".join(rows))
    return path


def test_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "compare", str(written(tmp_path / "runs.csv")), "--json"]) == 0
    records = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [(r["run"], r["verdict"]) for r in records] == [
        *((f"run{i}", "too few runs") for i in range(5)),
        ("run5", "as usual"),
        ("run6", "as usual"),
        ("run7", "slow"),
    ]
    assert list(records[7]) == ["record", "run", "verdict", "factor", "score", "dbscan"]
    assert records[7]["factor"] == pytest.approx(3, rel=0.2)
    assert records[7]["dbscan"] == "outlier"
    assert records[0]["factor"] is None


def test_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "compare", str(written(tmp_path / "runs.csv"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[8].split()[:2] == ["run7", "slow"]
    assert lines[-1].startswith("too few runs: a run is judged by 5 or more")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run,application\na,b\n", "row 1, the header: no column 'phase'"),
        (HEADER, "no rows below the header"),
        (HEADER + "a,b,0,p,read,1,1\n", "column 'nodes': data row 1: expected a number above 0"),
        (HEADER + "a,b,1,p,read,,1\n", "column 'duration_seconds': data row 1: expected a number above 0"),
        (HEADER + "a,b,1,p,read,1,-5\n", "column 'bytes': data row 1: expected a number of 0 or more"),
        (HEADER + "a,b,1,p,read,long,5\n", "column 6: data row 1: invalid value 'long'"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main(["jobs", "compare", str(path)]) == 2
    assert capsys.readouterr().err == f"laggard jobs compare: {path}: {message}\n"
