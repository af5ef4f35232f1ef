"""One recording: instances, target processes, the text of the trace, descriptors and extents of its files."""

import json
import os
import platform
import re
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from laggard_aggregator.layers.record import fiemap
from laggard_aggregator.layers.record.tracefs import TraceInstance, mounted
from laggard_common.errors import InputError, ServiceError

_CALLS = (
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "lseek",
    "fsync",
    "fdatasync",
)
CALL_EVENTS = tuple(f"syscalls/sys_{when}_{name}" for name in _CALLS for when in ("enter", "exit"))
BLOCK_EVENTS = tuple(f"block/block_{name}" for name in ("bio_queue", "rq_issue", "rq_complete", "rq_requeue"))
_DEVICE = re.compile(r": block_[a-z_]+: ([0-9]+,[0-9]+) ")
_POLL_SECONDS = 0.01
_DRAIN_SECONDS = 0.3
_MAX_FILES = 64
_STANDARD = 2


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of a recording. `pids` or `command` is empty. `seconds`: None until the end of the
    processes.
    """

    output: Path
    pids: tuple[int, ...] = ()
    command: tuple[str, ...] = ()
    seconds: float | None = None
    buffer_kib: int = 8192
    max_bytes: int = 1 << 30
    files: tuple[Path, ...] = ()


@dataclass(slots=True)
class RecordOutcome:
    """Counts of a recording. `stopped`: it ended early because the output reached its limit."""

    lines: int = 0
    lost: int = 0
    stopped: bool = False
    exit_code: int | None = None
    files: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """Descriptors of regular files: (process, descriptor) -> path."""

    descriptors: dict[tuple[int, int], str] = field(default_factory=dict)


class _PipeReader(threading.Thread):
    """Copies an instance's `trace_pipe` into a file, up to a limit of bytes."""

    def __init__(self, instance: TraceInstance, out: TextIO, limit: int) -> None:
        super().__init__(name=f"trace of {instance.path.name}", daemon=True)
        self._pipe = os.open(instance.path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._out = out
        self._left = limit
        self.full = threading.Event()
        self.ending = threading.Event()

    def run(self) -> None:
        """Reads until told to end and the pipe is empty."""
        try:
            while True:
                try:
                    block = os.read(self._pipe, 1 << 20)
                except BlockingIOError:
                    block = b""
                if not block:
                    if self.ending.is_set():
                        return
                    time.sleep(_POLL_SECONDS)
                    continue
                if self._left > 0:
                    self._out.buffer.write(block)
                    self._left -= len(block)
                else:
                    self.full.set()
        finally:
            self.close()

    def close(self) -> None:
        """Closes the pipe; an instance with an open pipe cannot be removed."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def record(options: RecordOptions, told: Callable[[str], None] = lambda _: None) -> RecordOutcome:
    """Records until the processes end, `seconds` have passed or a signal comes; writes the folder `output`.

    Raises ServiceError without root or tracefs, InputError for a command or folder that cannot be used.
    """
    _make_folder(options.output)
    outcome = RecordOutcome()
    seen = _Seen()
    with ExitStack() as stack:
        root = stack.enter_context(mounted())
        instances = [_instance(root, kind, options, stack) for kind in ("calls", "blocks")]
        calls, blocks = instances
        if len(calls.enable(CALL_EVENTS)) < 2 or len(blocks.enable(BLOCK_EVENTS)) < 3:
            raise ServiceError("this kernel has no tracepoints of system calls or of the block layer")
        parts = [options.output / f".{kind}.part" for kind in ("calls", "blocks")]
        outs = [stack.enter_context(part.open("w", encoding="utf-8", errors="replace")) for part in parts]
        readers = [
            _PipeReader(instance, out, options.max_bytes // 2)
            for instance, out in zip(instances, outs, strict=True)
        ]
        for reader in readers:
            stack.callback(_end, reader)
        child = stack.enter_context(_target(options))
        calls.follow(_threads(options.pids) if child is None else [child.pid])
        for reader in readers:
            reader.start()
        for instance in (blocks, calls):
            instance.write("tracing_on", "1")
        told("recording")
        if child is not None:
            child.send_signal(signal.SIGCONT)
        _wait(options, child, calls, readers, seen)
        for instance in (calls, blocks):
            instance.write("tracing_on", "0")
        time.sleep(_DRAIN_SECONDS)
        for reader in readers:
            _end(reader)
        outcome.lost = sum(instance.lost() for instance in instances)
        outcome.stopped = any(reader.full.is_set() for reader in readers)
        outcome.exit_code = None if child is None else child.poll()
    _write(options, outcome, seen, parts)
    return outcome


def _end(reader: _PipeReader) -> None:
    reader.ending.set()
    if reader.is_alive():
        reader.join()
    reader.close()


def _make_folder(path: Path) -> None:
    with InputError.from_os_errors(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()) and any((path / name).exists() for name in ("tracefs.txt", "meta.json")):
            raise InputError(str(path), "already has a recording")


def _instance(root: Path, kind: str, options: RecordOptions, stack: ExitStack) -> TraceInstance:
    instance = TraceInstance(root, f"laggard-{os.getpid()}-{kind}", options.buffer_kib)
    stack.callback(instance.remove)
    return instance


@contextmanager
def _target(options: RecordOptions) -> Iterator[subprocess.Popen[bytes] | None]:
    """The command, stopped before its first instruction; None with processes that run already."""
    if not options.command:
        for pid in options.pids:
            if not Path(f"/proc/{pid}").exists():
                raise InputError(str(pid), "no such process")
        yield None
        return
    child = subprocess.Popen(["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *options.command])
    try:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGCONT)
            child.terminate()
            child.wait()


def _threads(pids: Sequence[int]) -> list[int]:
    found = []
    for pid in pids:
        with suppress(OSError):
            found += [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return found


def _wait(
    options: RecordOptions,
    child: "subprocess.Popen[bytes] | None",
    calls: TraceInstance,
    readers: Sequence[_PipeReader],
    seen: _Seen,
) -> None:
    """Waits for the end, and notes the descriptors of the followed processes meanwhile."""
    end = None if options.seconds is None else time.monotonic() + options.seconds
    stop = threading.Event()
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not stop.wait(_POLL_SECONDS):
            _note_descriptors(calls, options, seen)
            if child is not None and child.poll() is not None:
                return
            if child is None and not any(Path(f"/proc/{pid}").exists() for pid in options.pids):
                return
            if end is not None and time.monotonic() >= end:
                return
            if any(reader.full.is_set() for reader in readers):
                return
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _note_descriptors(calls: TraceInstance, options: RecordOptions, seen: _Seen) -> None:
    """Adds the regular files that the followed processes have open; those of the system's libraries are
    no data.
    """
    for pid in {*calls.followed(), *options.pids}:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    path = str(link.readlink())
                    if int(link.name) > _STANDARD and path.startswith("/") and _is_data(path, link):
                        seen.descriptors[pid, int(link.name)] = path


def _is_data(path: str, link: Path) -> bool:
    if path.startswith(("/proc/", "/sys/", "/dev/", "/usr/", "/lib", "/etc/")) or path.endswith(" (deleted)"):
        return False
    return stat.S_ISREG(link.stat().st_mode)


def _write(options: RecordOptions, outcome: RecordOutcome, seen: _Seen, parts: Sequence[Path]) -> None:
    """Writes trace, extents and description; of the block events those of the files' devices."""
    paths = [*map(Path, dict.fromkeys(seen.descriptors.values())), *options.files][:_MAX_FILES]
    devices = _map_files(options.output, paths, outcome)
    trace = options.output / "tracefs.txt"
    with InputError.from_os_errors(str(trace)), trace.open("w", encoding="utf-8") as out:
        out.write("# tracer: nop\n")
        for part in parts:
            with part.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    found = _DEVICE.search(line)
                    if found is None or not devices or found[1] in devices:
                        out.write(line)
                        outcome.lines += 1
            part.unlink()
    outcome.devices = devices
    description = {
        "descriptors": [[pid, fd, path] for (pid, fd), path in sorted(seen.descriptors.items())],
        "devices": devices,
        "stack": devices,
        "lost_events": outcome.lost,
        "clock": "CLOCK_MONOTONIC",
        "kernel": platform.release(),
        "node": platform.node(),
        "command": list(options.command),
        "pids": list(options.pids),
        "buffer_kib_per_cpu": options.buffer_kib,
        "output_full": outcome.stopped,
    }
    (options.output / "meta.json").write_text(json.dumps(description, indent=1) + "\n")


def _map_files(output: Path, paths: Sequence[Path], outcome: RecordOutcome) -> list[str]:
    """Writes `fiemap.txt` of the files and of those behind loop devices; returns the devices, the upper
    ones first.
    """
    devices: list[str] = []
    waiting = list(paths)
    with (output / "fiemap.txt").open("w", encoding="utf-8") as out:
        out.write("Filesystem type is: unknown\n")
        while waiting:
            path = waiting.pop(0)
            try:
                number = path.stat().st_dev
                lines = list(fiemap.filefrag_lines(path))
            except OSError:
                continue
            out.writelines(lines)
            outcome.files.append(str(path))
            device = f"{os.major(number)},{os.minor(number)}"
            if device not in devices:
                devices.append(device)
                backing = Path(f"/sys/dev/block/{device.replace(',', ':')}/loop/backing_file")
                with suppress(OSError):
                    waiting.append(Path(backing.read_text().rstrip("\n")))
    return devices
