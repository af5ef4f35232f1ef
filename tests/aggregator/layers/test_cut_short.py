"""Traces that end in the middle of a line, and compressed ones that are cut short: read as far as they go."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.aggregator.layers.analysed import analysed

REQUESTS = 5000
FORMATS = {
    "neutral": (
        "n.csv",
        "layer,event,request,time_us,file,offset,bytes,operation\n",
        "application,ADMIT,{n},{t},a,{o},4096,READ\napplication,CALLBACK,{n},{t}.5,a,{o},4096,READ\n",
    ),
    "stamps": (
        "app.csv",
        "thread,op,file,offset,bytes,submit_ns,done_ns,ret\n",
        "1,read,a,{o},4096,{t}000,{t}500,4096\n",
    ),
    "DFTracer": (
        "a.pfw",
        "[\n",
        '{{"id":{n},"name":"pread","cat":"POSIX","pid":1,"tid":1,"ts":{t},"dur":9,"ph":"X",'
        '"args":{{"fname":"/a","ret":4096,"count":4096,"offset":{o}}}}}\n',
    ),
    "strace": ("s.txt", "", '1700000000.{n:06} pread64(3</a>, ""..., 4096, {o}) = 4096 <0.000001>\n'),
    "kernel": (
        "trace",
        "# tracer: nop\n",
        "a-1 (1) [000] ..... 10.{n:04}00: block_rq_issue: 7,0 R 4096 () {n}8 + 8 [a]\n"
        "a-1 (1) [000] ..... 10.{n:04}10: block_rq_complete: 7,0 R () {n}8 + 8 [0]\n",
    ),
    "blkparse": (
        "b.txt",
        "",
        "  8,0 3 1 1.{n:04}00000 9  D   R {n}8 + 8 [a]\n  8,0 3 2 1.{n:04}01000 0  C   R {n}8 + 8 [0]\n",
    ),
}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def text_of(form: str) -> bytes:
    _, head, row = FORMATS[form]
    return (head + "".join(row.format(n=n, t=1000 + n * 10, o=n * 4096) for n in range(REQUESTS))).encode()


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("form", FORMATS)
def test_compressed_traces_that_are_cut_short(tmp_path: Path, form: str, ending: str) -> None:
    packed = COMPRESS[ending](text_of(form))
    path = tmp_path / f"{FORMATS[form][0]}.{ending}"
    path.write_bytes(packed[: len(packed) * 9 // 10])
    found = analysed(path)
    (layer,) = [record for record in found.records if record["record"] == "layer"]
    assert REQUESTS / 4 < layer["requests"] < REQUESTS
    assert layer["completed_bytes"] == (layer["requests"] - layer["unfinished"]) * 4096
    assert f"{path.name}: compressed data is cut short: read as far as it goes" in found.remarks


@pytest.mark.parametrize("form", ["neutral", "stamps"])
def test_a_csv_that_ends_within_a_row(tmp_path: Path, form: str) -> None:
    text = text_of(form)
    path = tmp_path / FORMATS[form][0]
    path.write_bytes(text[: text.rindex(b",", 0, len(text) * 2 // 3)])
    found = analysed(path)
    assert "ends in the middle of a row, or without a line feed: left out" in found.remarks
    assert REQUESTS / 2 < found.records[1]["requests"] < REQUESTS * 3 / 4


@pytest.mark.parametrize("form", FORMATS)
def test_a_last_line_without_a_line_feed_may_lack_digits(tmp_path: Path, form: str) -> None:
    path = tmp_path / FORMATS[form][0]
    path.write_bytes(text_of(form).rstrip(b"\n"))
    found = analysed(path)
    (layer,) = [record for record in found.records if record["record"] == "layer"]
    assert layer["completed_bytes"] in {4096 * (REQUESTS - 1), 4096 * REQUESTS}
    assert REQUESTS - 1 <= layer["requests"] <= REQUESTS
    assert "left out" in found.remarks or "incomplete" in found.remarks
