"""Recorded live on loop devices, as root: faults are named, their cured twins are silent."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from tests.aggregator.layers.analysed import Analysed, analysed
from tests.aggregator.layers.loop_file_system import BLKIO, LoopFileSystem, run
from tests.support.kernel_tracing import can_trace
from tests.support.processes import started

SOURCE = Path(__file__).parents[2] / "fixtures" / "layers" / "app.c"
FILE_BYTES = 64 << 20
ZRAM = Path("/sys/class/zram-control")
NEEDED = ("gcc", "losetup", "mkfs.ext4", "mount", "blockdev")

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not can_trace(), reason="needs root, tracefs and the tracepoints of system calls"),
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]


@pytest.fixture(name="app", scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("app") / "app"
    run("gcc", "-O1", "-pthread", "-o", built, SOURCE)
    return built


@pytest.fixture(name="disk", scope="module")
def loop_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopFileSystem]:
    folder = tmp_path_factory.mktemp("disk")
    try:
        disk = LoopFileSystem(folder / "image", folder / "mounted", 384)
    except AssertionError as exc:  # of run_command
        pytest.skip(f"no loop device: {exc}")
    try:
        data(disk.folder)
        yield disk
    finally:
        disk.close()


def data(folder: Path) -> Path:
    path = folder / "data.bin"
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20) * (FILE_BYTES >> 20))
        os.fsync(file.fileno())
    return path


def recorded(folder: Path, *command: str | Path) -> Analysed:
    """Records the command and analyses the recording."""
    assert main(["layers", "record", "-o", str(folder), "--", *map(str, command)]) == 0
    found = analysed(folder)
    assert found.records[0]["lost_events"] == 0, found.remarks
    return found


def assert_matched(found: Analysed, *, direct: bool = True) -> None:
    assert found.layer("application")["unmatched_ratio"] <= 0.01
    calls = found.layer("syscall")
    assert calls["unmatched_ratio"] <= 0.01
    if direct:
        blocks = next(r for r in found.records if r["record"] == "boundary" and r["above"] == "system call")
        assert blocks["nested"] >= 0.99


@pytest.mark.alone
def test_aio_serialises_and_threads_do_not(app: Path, disk: LoopFileSystem, tmp_path: Path) -> None:
    out = tmp_path / "aio"
    aio = recorded(out, app, "aio", disk.folder / "data.bin", out / "app.csv", "8", "800")
    assert aio.layer("application")["mean_concurrency_busy"] >= 7.5
    assert aio.layer("syscall")["max_concurrency"] == 1
    assert aio.findings == [("serialisation", "between library and system call")]
    assert_matched(aio)
    out = tmp_path / "threads"
    threads = recorded(out, app, "thr", disk.folder / "data.bin", out / "app.csv", "8", "800")
    assert threads.findings == []
    assert threads.layer("syscall")["mean_concurrency_busy"] > 4
    assert_matched(threads)


@pytest.mark.alone
def test_readers_interleave_until_they_read_ahead(app: Path, disk: LoopFileSystem, tmp_path: Path) -> None:
    found = {}
    for name, readers, read_ahead in (("eight", 8, 128), ("one", 1, 128), ("cured", 8, 4096)):
        disk.uncached()
        run("blockdev", "--setra", str(read_ahead), disk.device)
        out = tmp_path / name
        found[name] = recorded(
            out, app, "seq", disk.folder / "data.bin", out / "app.csv", str(readers), "800"
        )
        assert_matched(found[name], direct=False)
    # one worker of the kernel may serve the loop device's requests one after the other, which is named too
    of_loop = ("serialisation", "device")
    assert [each for each in found["eight"].findings if each != of_loop] == [("interleaving", "application")]
    assert found["one"].findings == []
    assert found["cured"].findings == []
    device = f"7,{disk.number.partition(':')[2]}"
    runs = {name: each.layer("device", device)["mean_run_bytes"] for name, each in found.items()}
    assert runs["eight"] * 2 < min(runs["one"], runs["cured"])


@pytest.mark.alone
def test_a_client_that_waits_leaves_the_server_idle(app: Path, disk: LoopFileSystem, tmp_path: Path) -> None:
    waiting, buffering = (
        recorded(out, app, "sock", disk.folder / f"served{buffers}.bin", out, str(buffers), "1000")
        for buffers, out in ((0, tmp_path / "waiting"), (1, tmp_path / "buffering"))
    )
    assert waiting.findings == [("idle", "between application and server")]
    assert waiting.layer("server")["requests"] == 1000
    assert buffering.findings == []
    assert buffering.layer("server")["requests"] == 32


@pytest.mark.skipif(
    not (BLKIO / "blkio.throttle.read_bps_device").exists(), reason="no blkio controller (v1)"
)
@pytest.mark.alone
@pytest.mark.parametrize(
    ("throttled", "candidate"),
    [("upper", "between system call and block"), ("lower", "device"), (None, None)],
)
def test_a_throttled_device(
    app: Path, disk: LoopFileSystem, tmp_path: Path, throttled: str | None, candidate: str | None
) -> None:
    stacked = LoopFileSystem(disk.folder / f"inner-{throttled}", tmp_path / "upper", 96)
    group = BLKIO / f"laggard-test-{os.getpid()}"
    try:
        path = data(stacked.folder)
        stacked.uncached()
        command: list[str | Path] = [app, "thr", path, tmp_path / "run" / "app.csv", "4", "200"]
        if throttled == "upper":
            group.mkdir()
            (group / "blkio.throttle.read_bps_device").write_text(f"{stacked.number} 8388608")
            command = ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
        elif throttled == "lower":
            (BLKIO / "blkio.throttle.read_bps_device").write_text(f"{disk.number} 8388608")
        try:
            found = recorded(tmp_path / "run", *command)
        finally:
            if throttled == "lower":
                (BLKIO / "blkio.throttle.read_bps_device").write_text(f"{disk.number} 0")
    finally:
        stacked.close()
        if group.exists():
            group.rmdir()
    assert found.findings == ([("slow", candidate)] if candidate else [])
    assert_matched(found)


READS = """
import os, sys, time
fds = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
print("ready", flush=True)
while True:
    for fd in fds:
        os.pread(fd, 4096, 8192)
    time.sleep(0.001)
"""


def test_processes_that_run_already(tmp_path: Path) -> None:
    files = [tmp_path / name / "out.dat" for name in ("rank0", "rank1")]
    for path in files:
        path.parent.mkdir()
        path.write_bytes(os.urandom(1 << 20))
    with contextlib.ExitStack() as stack:
        pids = []
        for path in files:
            program = started([sys.executable, "-c", READS, path], stdout=subprocess.PIPE)
            process = stack.enter_context(program)
            assert process.stdout is not None
            process.stdout.readline()
            pids += ["--pid", str(process.pid)]
        out = tmp_path / "run"
        assert main(["layers", "record", "-o", str(out), *pids, "--seconds", "0.5"]) == 0
    calls = analysed(out).layer("syscall")
    assert calls["requests"] > 20
    assert calls["bytes"] == calls["requests"] * 4096
    assert calls["streams"] == 2
    known = json.loads((out / "meta.json").read_text())
    assert {row[2] for row in known["descriptors"]} == {str(path) for path in files}


def test_a_command_that_cannot_be_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", "record", "-o", str(tmp_path / "a")]) == 2
    assert main(["layers", "record", "-o", str(tmp_path / "b"), "--pid", "4194303"]) == 2
    assert "no such process" in capsys.readouterr().err


@pytest.fixture(name="zram")
def zram_file_system(tmp_path: Path) -> Iterator[Path]:
    """ext4 on a device that makes no requests, as dm and md make none."""
    try:
        number = (ZRAM / "hot_add").read_text().strip()
    except OSError as exc:
        pytest.skip(f"no zram device: {exc.strerror}")
    device, folder = Path(f"/dev/zram{number}"), tmp_path / "mounted"
    folder.mkdir()
    try:
        (Path("/sys/block") / device.name / "disksize").write_text("64M")
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        run("mount", device, folder)
        try:
            yield folder
        finally:
            run("umount", folder)
    finally:
        (Path("/sys/block") / device.name / "reset").write_text("1")
        (ZRAM / "hot_remove").write_text(number)


def test_a_device_without_requests(tmp_path: Path, zram: Path) -> None:
    path = zram / "data"
    path.write_bytes(os.urandom(16 << 20))
    run("sync", path)
    code = (
        "import os,sys,mmap,time\nfd=os.open(sys.argv[1],os.O_RDONLY|os.O_DIRECT)\nroom=mmap.mmap(-1,65536)\n"
        "for at in range(256): os.preadv(fd,[room],at*65536)\n"
        "time.sleep(3)\n"  # a name is known of files that are open when the recorder reads /proc
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(path)]
    out = ["-o", str(tmp_path / "run"), "--file", str(path)]
    assert main(["layers", "record", *out, "--", *command]) == 0
    found = analysed(tmp_path / "run")
    (block,) = (r for r in found.records if r["record"] == "layer" and r["bytes"] == 16 << 20 and r["device"])
    assert (block["layer"], block["requests"], block["unfinished"]) == ("block", 256, 0)
    assert 0 < block["mean_residence_us"] < found.layer("syscall")["mean_residence_us"]
    boundary = found.boundary("system call", f"block {block['device']}")
    assert (boundary["matched_by"], boundary["nested"]) == ("address", 1.0)
    assert found.findings == []
    assert found.records[0]["lost_events"] == 0
