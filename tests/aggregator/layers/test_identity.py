"""Files of one base name, descriptors that are used again, devices beside and on each other, two machines."""

import json
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.layers.file_names import same_files
from tests.aggregator.layers.analysed import analysed
from tests.support.builders.kernel_text import KernelTrace

COUNT = 20
SIZE = 65536
NS = 1_000_000_000


def test_names_are_compared_whole_before_their_ends() -> None:
    both = {"/s/rank0/out", "/s/rank1/out"}
    assert same_files(both, both).matches == {each: each for each in both}
    assert same_files(["out", "log"], [*both, "/var/log"]).matches == {"log": "/var/log"}
    assert same_files(["out"], both).ambiguous == ["out"]
    assert same_files(["rank1/out"], both).matches == {"rank1/out": "/s/rank1/out"}
    moved = same_files(["/container/data"], ["/host/data"])
    assert (moved.matches, moved.guessed) == (
        {"/container/data": "/host/data"},
        [("/container/data", "/host/data")],
    )
    assert same_files(["/a/x", "/b/x"], ["x"]).matches == {}


def two_ranks() -> KernelTrace:
    """Two processes that read a file each, of one base name, in order and in turns."""
    built = KernelTrace()
    built.meta = {
        "descriptors": [[10, 3, "/s/rank0/out.dat"], [11, 3, "/s/rank1/out.dat"]],
        "clock": "CLOCK_MONOTONIC",
        "lies_on": {},
        "file_devices": {"/s/rank0/out.dat": "7,0", "/s/rank1/out.dat": "7,0"},
    }
    built.extent("/s/rank0/out.dat", 1 << 26)
    built.extent("/s/rank1/out.dat", 1 << 27)
    for at in range(COUNT):
        for rank in (0, 1):
            begin = at * 1000 + rank * 400
            built.pread(begin, begin + 300, 3, at * SIZE, pid=10 + rank)
            built.device(begin + 10, begin + 290, "7,0", (1 << (26 + rank)) + at * SIZE)
    return built


def test_two_files_of_one_base_name(tmp_path: Path) -> None:
    found = analysed(two_ranks().write(tmp_path / "run"))
    calls = found.layer("syscall")
    assert (calls["requests"], calls["streams"], calls["unmatched_ratio"]) == (2 * COUNT, 2, 0.0)
    assert found.boundary("system call", "block")["nested"] == 1.0
    assert found.layer("device")["unexplained_ratio"] == 0.0


def test_stamps_with_base_names_get_the_paths_of_their_descriptors(tmp_path: Path) -> None:
    folder = two_ranks().write(tmp_path / "run")
    rows = ["thread,op,file,offset,bytes,submit_ns,done_ns,fd"]
    for at in range(COUNT):
        for rank in (0, 1):
            begin = 1000 * NS + (at * 1000 + rank * 400 - 5) * 1000
            rows.append(f"{10 + rank},read,out.dat,{at * SIZE},{SIZE},{begin},{begin + 310_000},3")
    (folder / "app.csv").write_text("\n".join(rows) + "\n")
    found = analysed(folder)
    assert found.layer("application")["streams"] == 2
    assert found.boundary("application", "system call")["nested"] == 1.0
    assert found.boundary("system call", "block")["nested"] == 1.0


def test_a_client_without_the_servers_descriptor_has_the_same_file(tmp_path: Path) -> None:
    folder = two_ranks().write(tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    meta["descriptors"] = [[10, 3, "/s/rank0/out.dat"]]
    (folder / "meta.json").write_text(json.dumps(meta))
    for name, fd, early in (("app", 9, 8), ("server", 3, 4)):
        rows = ["thread,op,file,offset,bytes,submit_ns,done_ns,fd"]
        for at in range(COUNT):
            begin = 1000 * NS + (at * 1000 - early) * 1000
            rows.append(f"10,read,out.dat,{at * SIZE},{SIZE},{begin},{begin + 310_000 + early * 1000},{fd}")
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    found = analysed(folder)
    assert found.boundary("application", "server")["nested"] == 1.0
    assert found.boundary("server", "system call")["nested"] == 1.0


def test_an_ambiguous_name_is_matched_with_no_file_and_said(tmp_path: Path) -> None:
    built = two_ranks()
    built.meta["descriptors"] = [[10, 3, "out.dat"], [11, 3, "out.dat"]]
    found = analysed(built.write(tmp_path / "run"))
    assert "out.dat may be any of several files" in found.remarks
    assert found.boundary("system call", "block")["matched_by"] == "thread"


def test_a_descriptor_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    built = KernelTrace()
    base = 1000 * NS
    rows = []
    for number, path in enumerate(("/d/a", "/d/b")):
        start = number * 1_000_000
        built.opened(start, 3)
        for at in range(COUNT):
            built.read(start + 100 + at * 10_000, start + 400 + at * 10_000, 3)
        built.closed(start + 500_000, 3)
        rows.append([10, 3, path, base + (start + 10_000) * 1000, base + (start + 400_000) * 1000])
    built.opened(1_600_000, 3)  # a file that was open too briefly to be seen
    built.read(1_600_010, 1_600_020, 3)
    built.closed(1_600_030, 3)
    built.meta = {"descriptors": rows, "lies_on": {}}
    found = analysed(built.write(tmp_path / "run"))
    calls = found.layer("syscall")
    assert (calls["requests"], calls["streams"], calls["runs"]) == (2 * COUNT, 2, 2)
    assert calls["mean_run_bytes"] == COUNT * SIZE
    assert "1 calls on descriptors whose file is not known were left out" in found.remarks


def test_a_file_that_was_open_before_is_read_from_its_position(tmp_path: Path) -> None:
    built = KernelTrace()
    for at in range(COUNT):
        built.read(100 + at * 1000, 400 + at * 1000, 3)
        built.device(110 + at * 1000, 390 + at * 1000, "7,0", (1 << 26) + (7 + at) * SIZE)
    seen = 1000 * NS
    built.meta = {
        "descriptors": [[10, 3, "/d/a", seen, seen + NS, 7 * SIZE]],
        "lies_on": {},
        "file_devices": {"/d/a": "7,0"},
    }
    built.extent("/d/a", 1 << 26)
    boundary = analysed(built.write(tmp_path / "run")).boundary("system call", "block")
    assert (boundary["matched_by"], boundary["nested"]) == ("address", 1.0)


@pytest.mark.parametrize(("noted", "returned"), [(250, 0), (5_250, 5)])
def test_a_read_in_flight_while_its_position_was_noted(tmp_path: Path, noted: int, returned: int) -> None:
    built = KernelTrace()  # a read that has begun moves the position when it returns
    for at in range(COUNT):
        built.read(100 + at * 1000, 400 + at * 1000, 3)
        built.device(110 + at * 1000, 390 + at * 1000, "7,0", (1 << 26) + (7 + at) * SIZE)
    built.meta = {
        "descriptors": [[10, 3, "/d/a", 1000 * NS + noted * 1000, 1001 * NS, (7 + returned) * SIZE]],
        "lies_on": {},
        "file_devices": {"/d/a": "7,0"},
    }
    built.extent("/d/a", 1 << 26)
    boundary = analysed(built.write(tmp_path / "run")).boundary("system call", "block")
    assert (boundary["matched_by"], boundary["nested"]) == ("address", 1.0)


def test_a_position_ahead_of_a_call_that_has_yet_to_return(tmp_path: Path) -> None:
    """The first look came between the kernel's move of the position and the return; two others did not."""
    built = KernelTrace()
    for at in range(COUNT):
        built.read(100 + at * 1000, 400 + at * 1000, 3)
        built.device(110 + at * 1000, 390 + at * 1000, "7,0", (1 << 26) + (7 + at) * SIZE)
    noted = 1000 * NS + 399 * 1000
    looks = [[noted + 300_000, 8 * SIZE], [noted + 1_300_000, 9 * SIZE]]
    built.meta = {
        "descriptors": [[10, 3, "/d/a", noted, noted + NS, 8 * SIZE, looks], [10, 4, "/d/b", 1, 2, 0, "x"]],
        "lies_on": {},
        "file_devices": {"/d/a": "7,0"},
    }
    built.extent("/d/a", 1 << 26)
    boundary = analysed(built.write(tmp_path / "run")).boundary("system call", "block")
    assert (boundary["matched_by"], boundary["nested"]) == ("address", 1.0)


def two_devices(*, stacked: bool, described: bool) -> KernelTrace:
    """Reads of two files: on two devices beside each other, or on one that lies on the other."""
    built = KernelTrace()
    files = {"/a/data": "7,0"} if stacked else {"/a/data": "7,0", "/b/log": "7,1"}
    for fd, path in enumerate(files, start=3):
        built.extent(path, 1 << (23 + fd))
    if stacked:
        built.extent("/b/image", 1 << 28, size=1 << 27)
    for at in range(COUNT):
        for fd, device in enumerate(files.values(), start=3):
            begin = at * 2000 + fd * 500
            place = (1 << (23 + fd)) + at * SIZE
            built.pread(begin, begin + 400, fd, at * SIZE)
            built.device(begin + 10, begin + 390, device, place)
            if stacked:
                built.device(begin + 30, begin + 370, "7,1", (1 << 28) + place)
    if described:
        built.meta = {
            "descriptors": [[10, fd, path] for fd, path in enumerate(files, start=3)],
            "lies_on": {"7,0": "7,1"} if stacked else {},
            "file_devices": {**files, **({"/b/image": "7,1"} if stacked else {})},
            "backing_files": {"7,0": "/b/image"} if stacked else {},
        }
    return built


@pytest.mark.parametrize("described", [True, False])
def test_devices_beside_each_other(tmp_path: Path, described: bool) -> None:
    found = analysed(two_devices(stacked=False, described=described).write(tmp_path / "run"))
    boundaries = {(r["above"], r["below"]) for r in found.records if r["record"] == "boundary"}
    assert ("device 7,0", "block 7,1") not in boundaries
    assert {("system call", "block 7,0"), ("system call", "block 7,1")} <= boundaries
    assert found.findings == []
    if described:
        assert found.layer("syscall")["unmatched_ratio"] == 0.0
        assert [found.boundary("system call", f"block 7,{n}")["nested"] for n in (0, 1)] == [1.0, 1.0]
    else:
        assert "taken for independent ones" in found.remarks


@pytest.mark.parametrize("described", [True, False])
def test_a_device_on_another_one(tmp_path: Path, described: bool) -> None:
    found = analysed(two_devices(stacked=True, described=described).write(tmp_path / "run"))
    assert found.boundary("device 7,0", "block 7,1")["nested"] == 1.0
    boundaries = {(r["above"], r["below"]) for r in found.records if r["record"] == "boundary"}
    assert ("system call", "block 7,1") not in boundaries


def test_bios_of_a_partition_are_the_disks(tmp_path: Path) -> None:
    built = KernelTrace()
    start = 1 << 20
    built.extent("/d/a", 1 << 26)
    for at in range(COUNT):
        built.pread(at * 1000, at * 1000 + 400, 3, at * SIZE)
        place = start + (1 << 26) + at * SIZE  # the sector of the disk
        built.bio(at * 1000 + 10, "8,1", place)
        built.issued(at * 1000 + 20, "8,0", place)
        built.completed(at * 1000 + 300, "8,0", place)
    built.meta = {
        "descriptors": [[10, 3, "/d/a"]],
        "lies_on": {},
        "file_devices": {"/d/a": "8,1"},
        "partitions": {"8,1": ["8,0", start]},
    }
    found = analysed(built.write(tmp_path / "run"))
    assert found.boundary("system call", "block 8,0")["nested"] == 1.0
    assert found.boundary("block 8,0", "device 8,0")["nested"] == 1.0


@pytest.mark.parametrize("upper", ["7,0", "253,0"])
def test_a_device_on_a_partition_lies_on_its_disk(tmp_path: Path, upper: str) -> None:
    built = KernelTrace()
    start = 1 << 20
    image = "/images/image" if upper == "7,0" else None
    built.extent("/d/a", 1 << 26)
    if image:
        built.extent(image, 1 << 28, size=1 << 27)
    below = start + ((1 << 28) if image else 0)
    for at in range(COUNT):
        begin = at * 20_000
        built.pread(begin, begin + 10_000, 3, at * SIZE)
        place = (1 << 26) + at * SIZE
        built.device(begin + 10, begin + 9_990, upper, place)
        built.bio(begin + 8_000, "8,1", below + place)
        built.issued(begin + 8_010, "8,0", below + place)
        built.completed(begin + 8_500, "8,0", below + place)
    built.meta = {
        "descriptors": [[10, 3, "/d/a"]],
        "lies_on": {upper: "8,1"},
        "file_devices": {"/d/a": upper, **({image: "8,1"} if image else {})},
        "backing_files": {upper: image} if image else {},
        "partitions": {"8,1": ["8,0", start]},
    }
    found = analysed(built.write(tmp_path / "run"))
    assert found.boundary(f"device {upper}", "block 8,0")["nested"] == 1.0
    boundaries = {(r["above"], r["below"]) for r in found.records if r["record"] == "boundary"}
    assert ("system call", "block 8,0") not in boundaries
    assert found.findings == [("slow", "device")]


def mapped(*, completions: bool) -> KernelTrace:
    """Reads of a file on a mapped device, whose bios make no requests; it holds each for 4 ms."""
    built = KernelTrace()
    built.extent("/d/a", 1 << 26)
    for at in range(COUNT):
        begin = at * 20_000
        place = (1 << 26) + at * SIZE
        built.pread(begin, begin + 5_000, 3, at * SIZE)
        built.bio(begin + 10, "253,0", place)
        built.device(begin + 4_010, begin + 4_900, "8,0", (1 << 30) + place)
        if completions:
            built.bio_done(begin + 4_950, "253,0", place)
    built.meta = {
        "descriptors": [[10, 3, "/d/a"]],
        "lies_on": {"253,0": "8,0"},
        "file_devices": {"/d/a": "253,0"},
    }
    return built


def test_bios_of_a_mapped_device_end_with_their_completions(tmp_path: Path) -> None:
    found = analysed(mapped(completions=True).write(tmp_path / "run"))
    block = found.layer("block", "253,0")
    assert (block["unfinished"], block["max_concurrency"], found.records[0]["lost_events"]) == (0, 1, 0)
    assert block["mean_residence_us"] == pytest.approx(4_940)
    assert found.boundary("system call", "block 253,0")["nested"] == 1.0
    assert found.boundary("block 253,0", "block 8,0")["nested"] == 1.0
    assert found.findings == [("slow", "device")]


def test_a_device_without_completions_ends_the_search_and_is_said(tmp_path: Path) -> None:
    found = analysed(mapped(completions=False).write(tmp_path / "run"))
    assert "device 253,0: its 20 bios have no completions" in found.remarks
    assert {r["device"] for r in found.records if r["record"] == "layer"} == {None, "8,0"}
    assert found.findings == []
    assert found.records[0]["lost_events"] == 0


def test_recordings_of_two_nodes_are_no_one_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [two_ranks().write(tmp_path / name) for name in ("node-a", "node-b")]
    assert main(["layers", *map(str, folders)]) == 2
    assert "analyse one recording at a time" in capsys.readouterr().err


def stamps(path: Path, first_ns: int, *, count: int = COUNT, step: int = SIZE) -> Path:
    rows = ["op,file,offset,bytes,submit_ns,done_ns"]
    rows += [
        f"read,data,{at * step},{SIZE},{first_ns + at * 1_000_000},{first_ns + at * 1_000_000 + 100_000}"
        for at in range(count)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(rows) + "\n")
    return path


def test_stamps_of_two_machines_are_compared(tmp_path: Path) -> None:
    client = stamps(tmp_path / "client" / "app.csv", 50 * NS)
    rows = client.read_text().splitlines()
    server = tmp_path / "server" / "server.csv"
    server.parent.mkdir()
    moved = [rows[0]]
    for row in rows[1:]:
        *head, begin, end = row.split(",")
        moved.append(",".join([*head, str(int(begin) + 3 * NS + 10_000), str(int(end) + 3 * NS - 10_000)]))
    server.write_text("\n".join(moved) + "\n")
    found = analysed(client, server)
    boundary = found.boundary("application", "server")
    assert boundary["clock_offset_seconds"] == pytest.approx(-3.0, abs=1e-4)
    assert boundary["nested"] == 1.0
    assert found.records[0]["span_seconds"] == pytest.approx((COUNT - 1) * 1e-3 + 1e-4)


def test_clocks_that_cannot_be_compared_are_said(tmp_path: Path) -> None:
    client = stamps(tmp_path / "a" / "app.csv", 50 * NS, step=0)  # one offset again and again
    server = stamps(tmp_path / "b" / "server.csv", 49 * NS, step=0)
    found = analysed(client, server)
    assert "clocks of application and server were not compared" in found.remarks
