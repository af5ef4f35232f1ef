"""File system tracepoints: direct I/O and buffered writes as a layer between system call and block."""

from pathlib import Path

from tests.aggregator.layers.analysed import analysed
from tests.support.builders.kernel_text import KernelTrace

COUNT = 20
SIZE = 65536


def direct_reads() -> KernelTrace:
    built = KernelTrace()
    built.extent("/d/a", 1 << 26)
    for at in range(COUNT):
        begin, offset = at * 1000, at * SIZE
        built.pread(begin, begin + 400, 3, offset)
        built.line(
            begin + 5,
            f"iomap_dio_rw_begin: dev 7:0 ino 0xd size 0x1000000 offset 0x{offset:x} length 0x10000 "
            "done_before 0x0 flags DIRECT dio_flags  aio 0",
        )
        built.device(begin + 10, begin + 300, "7,0", (1 << 26) + offset)
        built.line(
            begin + 350,
            f"iomap_dio_complete: dev 7:0 ino 0xd size 0x1000000 offset 0x{offset + SIZE:x} flags DIRECT "
            "aio 0 error 0 ret 65536",
        )
    built.line(
        COUNT * 1000, "iomap_dio_rw_begin: dev 7:0 ino 0x63 size 0x1 offset 0x0 length 0x1 flags DIRECT"
    )
    built.meta = {
        "descriptors": [[10, 3, "/d/a"]],
        "lies_on": {},
        "file_devices": {"/d/a": "7,0"},
        "inodes": {"/d/a": [1792, 13]},
    }
    return built


def test_direct_io_is_a_layer(tmp_path: Path) -> None:
    found = analysed(direct_reads().write(tmp_path / "run"))
    layer = found.layer("fs")
    assert (layer["requests"], layer["bytes"], layer["unfinished"]) == (COUNT, COUNT * SIZE, 0)
    assert layer["left_out"]["requests on other files"] == 1
    assert layer["mean_residence_us"] == 345.0
    assert found.boundary("system call", "fs")["nested"] == 1.0
    assert found.boundary("fs", "block")["nested"] == 1.0
    assert found.layer("syscall")["admit_issue_us"] == 5.0


def test_buffered_writes_are_pieces_of_a_call(tmp_path: Path) -> None:
    built = KernelTrace()
    for at in range(COUNT):
        begin, offset = at * 1000, at * SIZE
        built.line(begin, f"sys_pwrite64(fd: 3, buf: 7f00, count: 10000, pos: {offset:x})")
        for part in range(4):
            place = offset + part * 16384
            kind = "da_write" if part % 2 else "write"
            built.line(begin + 10 + part * 50, f"ext4_{kind}_begin: dev 7,0 ino 13 pos {place} len 16384")
            built.line(
                begin + 40 + part * 50, f"ext4_{kind}_end: dev 7,0 ino 13 pos {place} len 16384 copied 16384"
            )
        built.line(begin + 300, "sys_pwrite64 -> 0x10000")
    built.meta = {"descriptors": [[10, 3, "/d/a"]], "lies_on": {}, "inodes": {"/d/a": [1792, 13]}}
    found = analysed(built.write(tmp_path / "run"))
    assert found.layer("fs")["requests"] == 4 * COUNT
    assert found.layer("fs")["max_concurrency"] == 1
    boundary = found.boundary("system call", "fs")
    assert (boundary["nested"], boundary["unexplained"]) == (1.0, 0)
