"""A call that failed moved nothing, in every format that tells so."""

from pathlib import Path

import pytest

from tests.aggregator.layers.analysed import analysed
from tests.support.builders.kernel_text import KernelTrace


def test_negative_results_of_a_programs_stamps(tmp_path: Path) -> None:
    (tmp_path / "app.csv").write_text(
        "thread,op,file,offset,bytes,submit_ns,done_ns,ret\n"
        "1,read,a,0,100,1000,2000,100\n1,read,a,100,100,3000,4000,-5\n1,read,a,100,100,5000,6000,\n"
    )
    found = analysed(tmp_path / "app.csv").layer("application")
    assert (found["requests"], found["completed_bytes"]) == (2, 200)
    assert found["left_out"]["failed reads and writes"] == 1


def test_negative_bytes_of_a_callback(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "layer,event,request,time_us,file,offset,bytes,operation\n"
        "application,ADMIT,1,1,a,0,100,READ\napplication,CALLBACK,1,2,a,0,-5,READ\n"
        "application,ADMIT,2,3,a,100,100,READ\napplication,CALLBACK,2,4,a,100,,READ\n"
    )
    assert analysed(tmp_path / "t.csv").layer("application")["completed_bytes"] == 100


def test_errors_of_direct_io_and_short_copies(tmp_path: Path) -> None:
    built = KernelTrace()
    for at, result in ((0, "error 0 ret 4096"), (1000, "error -5 ret -5")):
        built.pread(at, at + 400, 3, 0)
        head = "dev 7:0 ino 0xd size 0x1000000"
        built.line(
            at + 5, f"iomap_dio_rw_begin: {head} offset 0x0 length 0x1000 done_before 0x0 flags DIRECT"
        )
        offset = "0x1000" if "error 0" in result else "0x0"
        built.line(at + 350, f"iomap_dio_complete: {head} offset {offset} flags DIRECT aio 0 {result}")
    built.line(5000, "ext4_da_write_begin: dev 7,0 ino 13 pos 8192 len 4096")
    built.line(5100, "ext4_da_write_end: dev 7,0 ino 13 pos 8192 len 4096 copied 1000")
    found = analysed(built.write(tmp_path / "run")).layer("fs")
    assert (found["requests"], found["completed_bytes"]) == (3, 4096 + 0 + 1000)


ENDS = {"tracefs": "[{}]", "with priorities": "none,0,0 [{}]"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_requests_that_the_device_fails(tmp_path: Path, end: str) -> None:
    built = KernelTrace()
    for at, error in enumerate((0, -5, -61, 0)):
        begin = at * 1000
        built.line(begin, f"block_rq_issue: 7,0 R 4096 () {at * 8} + 8 {end.format('app [-5]')}")
        built.line(begin + 500, f"block_rq_complete: 7,0 R () {at * 8} + 8 {end.format(error)}")
    found = analysed(built.write(tmp_path / "run"))
    device = found.layer("device")
    assert (device["requests"], device["completed_bytes"], device["unfinished"]) == (4, 8192, 0)
    assert "device 7,0: 2 requests failed: where they did, they moved nothing" in found.remarks


def test_the_parts_of_a_request_that_did_not_fail(tmp_path: Path) -> None:
    built = KernelTrace()
    built.line(0, "block_rq_issue: 7,0 R 8192 () 0 + 16 [app]")
    built.line(500, "block_rq_complete: 7,0 R () 0 + 4 [0]")
    built.line(600, "block_rq_complete: 7,0 R () 4 + 12 [-5]")
    assert analysed(built.write(tmp_path / "run")).layer("device")["completed_bytes"] == 2048


def test_bios_of_a_stacked_device_that_fail(tmp_path: Path) -> None:
    built = KernelTrace()
    for at, error in enumerate((0, -5, 0)):
        built.line(at * 1000, f"block_bio_queue: 253,0 W {at * 8} + 8 [app]")
        built.line(at * 1000 + 500, f"block_bio_complete: 253,0 W {at * 8} + 8 [{error}]")
    assert analysed(built.write(tmp_path / "run")).layer("block")["completed_bytes"] == 8192


def test_errors_of_blkparse_have_16_bits(tmp_path: Path) -> None:
    lines = []
    for at, end in enumerate(("[0]", "[65531]", "(    1234) [65531]", "(    1234) [0]")):
        head = "  8,0    3 {:8} {:5}.{:09}  697  {}   W {} + 8 {}\n"
        lines.append(head.format(2 * at, at, 0, "D", at * 8, "[app]"))
        lines.append(head.format(2 * at + 1, at, 5000, "C", at * 8, end))
    (tmp_path / "trace").write_text("".join(lines))
    assert analysed(tmp_path / "trace").layer("device")["completed_bytes"] == 8192
