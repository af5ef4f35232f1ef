"""A call that failed moved nothing, in every format that tells so."""

from pathlib import Path

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
