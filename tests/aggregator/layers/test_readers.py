"""Each format by a literal; damaged, empty and hostile files."""

import gzip
import lzma
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from tests.aggregator.layers.analysed import analysed

STRACE = """\
7 1000.000000 openat(AT_FDCWD, "/d/in", O_RDONLY) = 3</d/in> <0.000009>
7 1000.001000 pread64(3</d/in>, "\\0"..., 4096, 8192) = 4096 <0.000400>
7 1000.002000 read(3</d/in>, "\\0"..., 4096) = 4096 <0.000100>
8 1000.002500 read(3</d/in>,  <unfinished ...>
7 1000.003000 read(3</d/in>, "\\0"..., 4096) = 100 <0.000100>
8 1000.004500 <... read resumed>"\\0"..., 512) = 512 <0.002000>
7 1000.005000 write(1</dev/pts/0>, "x", 1) = -1 EBADF (Bad file descriptor) <0.000010>
7 1000.006000 +++ exited with 0 +++
"""
BLKPARSE = """\
  8,0    3        1     0.000000000   697  Q   R 223490 + 8 [kjournald]
  8,0    3        2     0.000001000   697  G   R 223490 + 8 [kjournald]
  8,0    3        3     0.000010000   697  D   R 223490 + 8 [kjournald]
  8,0    3        4     0.000510000     0  C   R 223490 + 8 [0]
"""
PERF = """\
kworker/0:1H-kb 88/88 [000] 5.000001: block:block_rq_issue: 7,0 FF 0 () 0 + 0 0x0,0,0 [kworker/0:1H]
my app-1 10/11 [001] 5.000010000: syscalls:sys_enter_pread64: fd: 0x3, buf: 0x55, count: 0x1000, pos: 0x2000
     my app-1  10/11 [001] 5.000020000: block:block_bio_queue: 7,0 RS 16 + 8 [my app-1]
     my app-1  10/11 [001] 5.000030000: block:block_rq_issue: 7,0 RS 4096 () 16 + 8 0x2,0,4 [my app-1]
      swapper   0/0  [001] 5.000040000: block:block_rq_complete: 7,0 RS () 16 + 4 0x2,0,4 [0]
      swapper   0/0  [001] 5.000050000: block:block_rq_complete: 7,0 RS () 20 + 4 0x2,0,4 [0]
     my app-1  10/11 [001] 5.000060000: syscalls:sys_exit_pread64: 0x1000
my app-1 10/11 [001] 5.000070000: syscalls:sys_enter_pread64: fd: 0x3, buf: 0x55, count: 0x1000, pos: 0x0
     my app-1  10/11 [001] 5.000080000: syscalls:sys_exit_pread64: 0xfffffffffffffffb
"""
TRACEFS = """\
# tracer: nop
#
# entries-in-buffer/entries-written: 3/10   #P:2
#
           <idle>-0     (-------) [001] d.h2.     5.000050: block_rq_complete: 7,0 RS () 16 + 8 none,0,0 [0]
    app-11     (     10) [001] .....     5.000060: sys_pread64(fd: a, buf: 0x55, count: 0x1000, pos: 0x2000)
             app-11     (     10) [001] .....     5.000090: sys_pread64 -> 0x1000
"""
DFTRACER = """\
[
{"id":1,"name":"HH","cat":"dftracer","pid":1,"tid":1,"ph":"M","args":{"name":"h","value":1}}
{"id":2,"name":"get","cat":"reader","pid":1,"tid":1,"ts":1000,"dur":90,"ph":"X","args":{"level":1}}
{"id":3,"name":"pread","cat":"POSIX","pid":1,"tid":1,"ts":1010,"dur":50,"ph":"X","args":{"ret":8,"count":16,"offset":4}}
]"""


def test_strace(tmp_path: Path) -> None:
    path = tmp_path / "app.strace"
    path.write_text(STRACE)
    found = analysed(path)
    calls = found.layer("syscall")
    assert (calls["requests"], calls["bytes"], calls["short"], calls["max_concurrency"]) == (4, 12800, 1, 2)
    assert calls["completed_bytes"] == 4096 + 4096 + 100 + 512
    assert calls["busy_seconds"] == pytest.approx(0.0025)
    assert calls["runs"] == 2  # 8192; 0 and on; the other process did not open the file
    assert "1 reads and writes have no known file position" in found.remarks


def test_blkparse(tmp_path: Path) -> None:
    path = tmp_path / "trace.blkparse"
    path.write_text(BLKPARSE)
    found = analysed(path)
    block = found.layer("block", "8,0")
    assert (block["requests"], block["bytes"]) == (1, 4096)
    assert (block["admit_issue_us"], block["issue_complt_us"]) == (10.0, 500.0)
    assert found.layer("device")["mean_residence_us"] == 500.0


def test_perf_with_names_flushes_parts_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "perf.txt"
    path.write_text(PERF)
    found = analysed(path)
    calls = found.layer("syscall")
    assert (calls["requests"], calls["left_out"]) == (1, {"other calls": 1})
    device = found.layer("device")
    assert (device["requests"], device["left_out"]) == (1, {"flushes": 1})
    assert device["mean_residence_us"] == pytest.approx(20)
    assert found.layer("block")["mean_residence_us"] == pytest.approx(30)
    assert found.boundary("system call", "block")["matched_by"] == "thread"
    assert found.boundary("system call", "block")["nested"] == 1.0


def test_tracefs_counts_what_the_recorder_lost(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(TRACEFS)
    found = analysed(path)
    assert found.layer("syscall")["requests"] == 1
    assert found.records[0]["lost_events"] == 7  # the completion is of a request issued before
    assert "lost 7 events" in found.remarks


def test_dftracer(tmp_path: Path) -> None:
    path = tmp_path / "trace.pfw.gz"
    path.write_bytes(gzip.compress(DFTRACER.encode()))
    found = analysed(path)
    assert (found.layer("POSIX")["bytes"], found.layer("POSIX")["short"]) == (16, 1)
    assert found.boundary("reader", "POSIX")["nested"] == 1.0
    assert found.layer("reader")["admit_issue_us"] == 10.0


def test_darshan_dxt() -> None:
    found = analysed(Path(__file__).parents[2] / "fixtures" / "iotrace" / "job.dxt.txt")
    assert (found.layer("mpiio")["requests"], found.layer("posix")["requests"]) == (2, 7)
    assert found.layer("posix")["bytes"] == 7 << 20


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a trace format that Laggard knows: it is empty; laggard layers --help lists"),
        (b"\0\xff\xfe" * 100, "not a trace format that Laggard knows: it is binary"),
        (b"hello\tthere\nworld\n", "not a trace format that Laggard knows: it begins with 'hello there'"),
        (b"# darshan log version: 3.41\n", "has no line of DXT: darshan-dxt-parser prints them"),
        (b"BZh91AY&SY", "is bzip2: unpack it"),
        (b"PAR1 but not really", "is no trace of events"),
        (b"layer,event,request,time_us\n", "has no requests"),
        (b"layer,event,request,time_us\na,ADMIT,x\n", "Row #2: Expected 4 columns, got 3"),
        (b'{"descriptors": [', "is no JSON"),
        (b'{"descriptors": [[1, 2]]}', "has no requests"),
        (lzma.compress(PERF.encode())[:20], "compressed data is cut short"),
        (b"submit_ns,offset,bytes\n1,x,3\n", "is no CSV of requests"),
    ],
    ids=[
        "empty",
        "bytes",
        "text",
        "parsed",
        "bzip2",
        "parquet",
        "no rows",
        "columns",
        "json",
        "description",
        "xz",
        "csv",
    ],
)
def test_files_that_are_no_traces(
    tmp_path: Path, content: bytes, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert main(["layers", str(path)]) == 2
    printed = capsys.readouterr()
    assert problem in printed.err
    assert len(printed.err.splitlines()) == 1


def test_cut_and_hostile_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "perf.txt"
    noise = (
        "\x1b[31m app 1/1 [000] 99999999999999999999.1: syscalls:sys_enter_read: fd: 0x" + "f" * 400 + "\n"
    )
    path.write_bytes(noise.encode() + PERF.encode() + b"\xff\xfe broken \n" + PERF.encode()[:150])
    assert analysed(path).layer("device")["requests"] == 1


def test_missing_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", str(tmp_path / "none")]) == 2
    assert main(["layers", str(tmp_path)]) == 2
    (tmp_path / "x").write_text(PERF)
    assert main(["layers", str(tmp_path / "x"), "--healthy", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 3
