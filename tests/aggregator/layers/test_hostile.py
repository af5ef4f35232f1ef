"""Recordings of an attacker, or damaged ones: one line of error or figures, no traceback, bounded memory."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.layers import matching
from laggard_aggregator.layers.columns import READ, RequestColumns
from tests.aggregator.layers.analysed import analysed
from tests.support.builders.layer_traces import HEADER, TraceBuilder

LONG = "9" * 5000
NASTY = "\x1b[31mred\u202e\"'</style><script>alert(1)</script>"


def problem_of(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs the command over one file; it either works or says one line."""
    code = main(["layers", str(path), "-o", str(path.parent / "out")])
    said = capsys.readouterr().err
    assert code in (0, 2)
    assert len(said.splitlines()) == (1 if code else 0)
    return said


@pytest.mark.parametrize(
    "content",
    [
        f"x-1 [000] 1.000000: block_rq_issue: {LONG},{LONG} R 1 () {LONG} + {LONG} none [a]\n",
        f"x-{LONG} [000] {LONG}.000000: sys_pread64(fd: {LONG}, count: {LONG}, pos: {LONG})\n",
        f'1 {LONG}.000001 pread64(3</a>, "", {LONG}, {LONG}) = {LONG} <{LONG}.000001>\n',
        f"  8,0 3 1 0.000000000 697 Q R {LONG} + {LONG} [k]\n",
        f"Brick: a\nCumulative Stats:\n 1.0 {LONG} us 1 us 1 us {LONG} READ\n",
        '[\n{"id":1,"name":"read","cat":"P","pid":1,"tid":1,"ts":1,"dur":99999999999999999,'
        '"ph":"X","args":{}}\n',
        f"{HEADER}\na,ADMIT,1,1,f,{2**63 - 5},{2**62},READ\na,CALLBACK,1,2,f,{2**63 - 5},{2**62},READ\n",
        f"{HEADER}\na,ADMIT,1,{2**62},f,0,5,READ\na,CALLBACK,1,{2**63 - 1},f,0,5,READ\n",
        f"op,file,offset,bytes,submit_ns,done_ns\nread,f,{2**63 - 5},{2**63 - 5},-{2**63 - 1},{2**63 - 1}\n",
        "op,file,offset,bytes,submit_ns,done_ns\nread,f,-7,-7,5,1\nread,f,1,1,,\n",
        f"Filesystem type is: ef53\nFile size of f is {'9' * 19} (1 blocks of 999999999 bytes)\n"
        f"   0: 0..1: {'9' * 18}..{'9' * 18}: {'9' * 18}:\n",
        f'{{"descriptors": [[{LONG}, 1]], "devices": [], "lost_events": {LONG}}}',
        '{"descriptors": ' + "[" * 3000,
        '{"descriptors": [[1, 2, 3, 4, 5, 6, 7]], "stack": [[]], "lies_on": {"7,0": 3}, '
        '"partitions": {"7,0": [1]}}',
    ],
)
def test_numbers_beyond_all_bounds(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert "Traceback" not in problem_of(path, capsys)


def test_a_parquet_whose_texts_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = pa.array([1, 2], pa.int64())
    columns = dict.fromkeys(HEADER.split(","), numbers.dictionary_encode())
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({**columns, "request": numbers, "time_us": numbers}), path)
    problem_of(path, capsys)


def test_a_cut_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder()
    for at in range(2000):
        built.request("device", at, at * 10.0, at * 10.0 + 5, offset=at * 4096)
    table = pa.table(
        {name: [row.split(",")[at] for row in built.rows] for at, name in enumerate(HEADER.split(","))}
    )
    path = tmp_path / "events.parquet"
    pq.write_table(table, path)
    raw = bytearray(path.read_bytes())
    raw[100:400] = b"\xff" * 300
    path.write_bytes(bytes(raw))
    problem_of(path, capsys)


def test_requests_that_cannot_be_are_counted(tmp_path: Path) -> None:
    rows = [HEADER]
    for at in range(10):
        offset = 2**62 if at == 3 else at * 4096
        rows += [
            f"a,{event},{at},{at * 10 + n},f,{offset},4096,READ"
            for n, event in enumerate(("ADMIT", "CALLBACK"))
        ]
    path = tmp_path / "events.csv"
    path.write_text("\n".join(rows) + "\n")
    found = analysed(path)
    assert found.layer("a")["requests"] == 9
    assert found.layer("a")["left_out"]["impossible times or ranges"] == 1


def nested_ranges(count: int) -> RequestColumns:
    """Ranges each inside the one before: cut at all bounds they are count * count cells."""
    begin = np.arange(count)
    return RequestColumns.of(
        count,
        admit=begin * 10,
        callback=begin * 10 + 5,
        start=begin,
        size=2 * count - 2 * begin,
        operation=np.full(count, READ),
        space=np.zeros(count),
    )


def test_ranges_that_overlap_without_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_MOST_LOWER_CELLS", 10_000)
    few, many = nested_ranges(50), nested_ranges(500)
    assert matching.match_by_address(few, few).refused == ""
    refused = matching.match_by_address(few, many)
    assert "overlaps" in refused.refused


def test_hundred_thousand_nested_ranges_need_no_memory() -> None:
    assert matching.match_by_address(nested_ranges(50), nested_ranges(100_000)).refused


def test_names_are_shown_without_their_effects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    built = TraceBuilder()
    name = NASTY.replace(",", "").replace('"', '""')
    for at in range(10):
        built.request(f'"{name}"', at, at * 10.0, at * 10.0 + 5, offset=at * 4096, file=f'"{name}"')
        built.request("device", at, at * 10.0 + 1, at * 10.0 + 4, offset=at * 4096, file=f'"{name}"')
    built.write(folder / "events.csv")
    (folder / "meta.json").write_text(json.dumps({"descriptors": [], "remarks": [NASTY], "node": NASTY}))
    assert main(["layers", str(folder), "--html", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert main(["layers", str(folder), "--json"]) == 0
    records = capsys.readouterr().out
    for text in (shown, records, page):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>" not in page
    assert page.count("</style>") == 1
    for line in records.splitlines():
        json.loads(line)


def test_a_bomb_of_a_few_kilobytes_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b"0" * (1 << 20))
    assert main(["layers", str(path)]) == 2
    assert "not a trace format that Laggard knows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("layer,event,request,time_us,file,file\na,ADMIT,1,2,x,y\n", "several columns file"),
        ("op,offset,bytes,submit_ns,done_ns,bytes\nread,0,1,2,3,4\n", "several columns bytes"),
        ("thread,offset,bytes,submit_ns,done_ns\n1,0,1,2,3\n", "lacks the columns op"),
    ],
)
def test_columns_that_are_missing_or_there_twice(
    tmp_path: Path, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.csv").write_text(text)
    assert main(["layers", str(tmp_path / "app.csv")]) == 2
    assert reason in capsys.readouterr().err
