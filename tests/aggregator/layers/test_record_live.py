"""The recorder as root: it never ends the program, leaves nothing in tracefs, and its files are private."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.layers.readers.open_recording import open_recording
from laggard_aggregator.layers.record import target
from laggard_aggregator.layers.record.pipe_reader import PipeReader
from laggard_aggregator.layers.record.tracefs import TraceInstance, mounted, remove_abandoned
from laggard_common.errors import LaggardError, ServiceError
from tests.aggregator.layers.analysed import analysed
from tests.support.kernel_tracing import can_trace
from tests.support.processes import started

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not can_trace(), reason="needs root, tracefs and the tracepoints of system calls"),
]
READS = (
    "import os,sys\nfd=os.open(sys.argv[1],os.O_RDONLY)\nfor at in range({}): os.pread(fd,4096,at%64*4096)\n"
)
LONG_ENOUGH = 20


def instances(pid: int | None = None) -> list[str]:
    """Instances of a recorder, of this process by default; tracefs is one for all who record."""
    prefix = f"laggard-{pid or os.getpid()}-"
    with mounted() as root:
        return [each.name for each in (root / "instances").iterdir() if each.name.startswith(prefix)]


def data(folder: Path) -> Path:
    path = folder / "data"
    path.write_bytes(os.urandom(1 << 20))
    return path


def python(code: str, *words: Path | str) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]


def recorder(*words: Path | str) -> "contextlib.AbstractContextManager[subprocess.Popen[Any]]":
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "layers", "record", *words]
    return started(command, stderr=subprocess.PIPE, text=True)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + LONG_ENOUGH
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_program_outlives_its_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = tmp_path / "done"
    code = "import sys,time,pathlib\ntime.sleep(1)\npathlib.Path(sys.argv[1]).write_text('x')\nsys.exit(3)\n"
    out = ["-o", str(tmp_path / "run"), "--seconds", "0.2"]
    assert (
        main(["layers", "record", *out, "--", *python(code, done)]) == 1
    )  # for any code of the program's own
    assert done.read_text() == "x"
    assert "waiting for the program to end" in capsys.readouterr().err
    assert instances() == []


def test_a_full_trace_ends_the_recording_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = tmp_path / "done"
    code = READS.format(60_000) + "open(sys.argv[2],'w').write('x')\n"
    out = ["-o", str(tmp_path / "run"), "--max-mib", "1"]
    assert main(["layers", "record", *out, "--", *python(code, data(tmp_path), done)]) == 0
    assert done.read_text() == "x"
    assert "the recording ended at 1 MiB" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "meta.json").read_text())["output_full"] is True
    assert "reached its largest size" in analysed(tmp_path / "run").remarks


def test_events_that_do_not_fit_are_counted_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "run"), "--buffer-kib", "4"]
    assert main(["layers", "record", *out, "--", *python(READS.format(200_000), data(tmp_path))]) == 0
    assert "events were lost: raise --buffer-kib" in capsys.readouterr().err
    found = analysed(tmp_path / "run")
    assert found.records[0]["lost_events"] > 0
    assert "the recorder lost" in found.remarks


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as in a terminal: below nohup it is ignored, and processes inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_no_instance(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    done = tmp_path / "done"
    code = (
        "import sys,time\nopen(sys.argv[1],'w').write('x')\ntime.sleep(float(sys.argv[3]))\n"
        "open(sys.argv[2],'w').write('x')\n"
    )
    ends_program = number != signal.SIGINT  # which a terminal sends to both
    seconds = "60" if ends_program else "2"
    with recorder("-o", tmp_path / "run", "--", *python(code, ready, done, seconds)) as process:
        until(lambda: ready.exists() and ready.read_text())
        assert instances(process.pid)
        process.send_signal(number)
        process.communicate(timeout=LONG_ENOUGH)
    assert instances(process.pid) == []
    assert process.returncode == (1 if ends_program else 0)
    assert done.exists() != ends_program
    assert (tmp_path / "run" / "meta.json").exists()


def test_an_error_during_a_recording_ends_it_whatever_the_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited = []

    class Watched(target.Target):
        def wait(self, done: str) -> int | None:
            assert self.child is not None
            waited.append(self.child.poll() is None and instances() == [])
            return super().wait(done)

    code = (
        "import os,sys,time\nfd=os.open(sys.argv[1],os.O_RDONLY)\nend=time.monotonic()+float(sys.argv[2])\n"
        "while time.monotonic()<end:\n    for at in range(100): os.pread(fd,512,0)\n"
    )
    looks = 0

    def followed(self: TraceInstance) -> list[int]:
        nonlocal looks
        looks += 1
        if looks > 50:
            raise ServiceError("the instance was removed by another")
        return []

    def copied(self: PipeReader) -> bool:
        time.sleep(0.002)  # events come faster than they are copied
        return plain(self)

    plain = PipeReader._copied
    monkeypatch.setattr(TraceInstance, "followed", followed)
    monkeypatch.setattr(PipeReader, "_copied", copied)
    monkeypatch.setattr(target, "Target", Watched)
    out = ["-o", str(tmp_path / "run"), "--buffer-kib", "4"]
    assert main(["layers", "record", *out, "--", *python(code, data(tmp_path), "8")]) == 1
    said = capsys.readouterr().err
    assert "not recorded: " in said
    assert "removed by another; waiting for the program to end" in said
    assert waited == [True]


def test_a_recording_is_written_while_the_program_runs_on(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = (
        "import os,sys,time\n"
        "for _ in range(600):\n"
        "    if os.path.exists(sys.argv[1]): break\n"
        "    time.sleep(0.02)\n"
        "open(sys.argv[2],'w').write(str(os.path.exists(sys.argv[1])))\n"
    )
    out = tmp_path / "run"
    words = ["layers", "record", "-o", str(out), "--seconds", "0.2", "--"]
    assert main([*words, *python(code, out / "meta.json", seen)]) == 0
    assert seen.read_text() == "True"


def test_a_command_that_fails_leaves_no_instance(tmp_path: Path) -> None:
    assert main(["layers", "record", "-o", str(tmp_path / "run"), "--", "/bin/false"]) == 1
    assert main(["layers", "record", "-o", str(tmp_path / "b"), "--", "/nonexistent"]) == 1
    assert instances() == []
    assert not list(tmp_path.glob("*/.*"))


def test_a_trace_that_cannot_be_written_ends_it_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: PipeReader) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PipeReader, "_copied", full)
    done = tmp_path / "done"
    code = "import sys\nopen(sys.argv[1],'w').write('x')\n"
    assert main(["layers", "record", "-o", str(tmp_path / "run"), "--", *python(code, done)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert done.read_text() == "x"
    assert instances() == []
    assert list((tmp_path / "run").iterdir()) == []


def test_an_instance_of_another_program_is_not_removed(tmp_path: Path) -> None:
    with mounted() as root:
        other = TraceInstance(root, f"laggard-{os.getpid()}-test")
        other.create(64)
        try:
            mine = TraceInstance(root, other.path.name)
            with pytest.raises(LaggardError):
                mine.create(64)
            mine.remove()
            remove_abandoned(root)  # this process lives
            assert other.path.is_dir()
        finally:
            other.remove()
        assert not other.path.is_dir()


def test_instances_of_killed_recorders_are_removed() -> None:
    with started(["/bin/true"]) as ended:
        ended.wait(LONG_ENOUGH)
    with mounted() as root:
        left = root / "instances" / f"laggard-{ended.pid}-calls"
        left.mkdir()
        remove_abandoned(root)
        assert not left.exists()


def test_an_instance_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with mounted() as root:
        instance = TraceInstance(root, f"laggard-{os.getpid()}-test")
        instance.create(64)
        instance.enable(["syscalls/sys_enter_read"])
        with (instance.path / "trace_pipe").open("rb"):
            instance.remove()
            assert (instance.path / "events" / "syscalls" / "sys_enter_read" / "enable").read_text() == "0\n"
        assert "is left, with its events off" in capsys.readouterr().err
        instance.path.rmdir()


def test_files_are_private_and_never_written_through_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / ".calls.part").symlink_to(victim)
    assert main(["layers", "record", "-o", str(trap), "--", "/bin/true"]) == 2
    assert victim.read_text() == "precious"
    out = tmp_path / "run"
    assert main(["layers", "record", "-o", str(out), "--", *python(READS.format(10), data(tmp_path))]) == 0
    assert {each.name: oct(each.stat().st_mode & 0o777) for each in out.iterdir()} == dict.fromkeys(
        ("tracefs.txt", "fiemap.txt", "meta.json"), "0o600"
    )
    capsys.readouterr()


def test_positions_of_a_program_that_reads_already(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(4 << 20))
    code = (
        "import os,sys\nfd=os.open(sys.argv[1],os.O_RDONLY)\nprint('x',flush=True)\n"
        "while True:\n    if not os.read(fd,65536): os.lseek(fd,0,0)\n"
    )
    with started(python(code, path), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        out = tmp_path / "run"
        words = ["-o", str(out), "--pid", str(process.pid), "--seconds", "0.5"]
        words += ["--buffer-kib", "65536"]  # for all events: a lost call moves all positions after it
        assert main(["layers", "record", *words]) == 0
    recording = open_recording([out])
    assert recording.lost_events == 0
    (calls,) = (each.requests for each in recording.layers if each.name == "syscall")
    at_the_end = (calls.done == 0) & (calls.start >= 0)
    assert at_the_end.any()
    assert set(calls.start[at_the_end].tolist()) == {path.stat().st_size}


def test_files_opened_one_after_another_on_one_descriptor(tmp_path: Path) -> None:
    files = []
    for folder in ("rank0", "rank1"):
        path = tmp_path / folder / "out.dat"
        path.parent.mkdir()
        path.write_bytes(os.urandom(1 << 20))
        files.append(path)
    code = (
        "import os,sys,time\n"
        "for path in sys.argv[1:]:\n"
        "    fd=os.open(path,os.O_RDONLY)\n"
        "    for at in range(64):\n"
        "        os.read(fd,16384); time.sleep(0.004)\n"
        "    os.close(fd)\n"
    )
    out = tmp_path / "run"
    assert main(["layers", "record", "-o", str(out), "--", *python(code, *files)]) == 0
    calls = analysed(out).layer("syscall")  # also of files that Python itself reads
    whole = dict(calls["run_bytes"])[1 << 20]
    assert round(whole * calls["runs"]) == 2
    assert calls["requests"] >= 128
    known = json.loads((out / "meta.json").read_text())
    assert {str(path) for path in files} <= {row[2] for row in known["descriptors"]}


COPYING = "import os,time\nwhile part := os.read(0,16384):\n    os.write(1,part); time.sleep(0.004)\n"


@pytest.mark.parametrize("how", ["dd", "shell"])
def test_standard_descriptors_are_files(tmp_path: Path, how: str) -> None:
    """`dd` copies its files onto descriptors 0 and 1; a shell opens them for the program."""
    source, copy, out = data(tmp_path), tmp_path / "copy", tmp_path / "run"
    command = ["dd", f"if={source}", f"of={copy}", "bs=16k", "oflag=dsync", "conv=fsync", "status=none"]
    if how == "shell":
        program = f"{sys.executable} -c '{COPYING}'"
        command = ["sh", "-c", f"{program} < {source} > {copy}"]
    assert main(["layers", "record", "-o", str(out), "--", *command]) == 0
    assert copy.read_bytes() == source.read_bytes()
    seen = {(row[1], row[2]) for row in json.loads((out / "meta.json").read_text())["descriptors"]}
    assert {(0, str(source)), (1, str(copy))} <= seen
    recording = open_recording([out])
    (calls,) = (each.requests for each in recording.layers if each.name == "syscall")
    for fd in (0, 1):
        mine = (calls.fd == fd) & (calls.done == 16_384)
        assert sorted(calls.start[mine].tolist()) == list(range(0, 1 << 20, 16_384)), fd
