"""One recording: instances, target processes, the text of the trace, descriptors and extents of its files."""

import json
import os
import platform
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from laggard_aggregator.layers.record.file_devices import FileDevices
from laggard_aggregator.layers.record.open_files import OpenFiles
from laggard_aggregator.layers.record.pipe_reader import POLL_SECONDS, PipeReader
from laggard_aggregator.layers.record.target import EndingSignals, Target, ending_signals, target
from laggard_aggregator.layers.record.tracefs import TraceInstance, mounted, remove_abandoned
from laggard_common.errors import InputError, LaggardError, ServiceError

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
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    *("dup", "dup2", "dup3"),
)
CALL_EVENTS = tuple(f"syscalls/sys_{when}_{name}" for name in _CALLS for when in ("enter", "exit"))
BLOCK_EVENTS = tuple(
    f"block/block_{name}" for name in ("bio_queue", "bio_complete", "rq_issue", "rq_complete", "rq_requeue")
)
FILE_SYSTEM_EVENTS = (
    "iomap/iomap_dio_rw_begin",
    "iomap/iomap_dio_complete",
    *(f"ext4/ext4_{name}" for name in ("write_begin", "write_end", "da_write_begin", "da_write_end")),
)
_DEVICE = re.compile(rb": block_[a-z_]+: ([0-9]+,[0-9]+) ")
_DRAIN_SECONDS = 0.3
_FOLDER = ("tracefs.txt", "fiemap.txt", "meta.json")


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
    file_system: bool = False


@dataclass(slots=True)
class RecordOutcome:
    """Counts of a recording. `stopped`: it ended early because the output reached its limit."""

    lines: int = 0
    lost: int = 0
    stopped: bool = False
    exit_code: int | None = None
    files: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class OutputFolder:
    """Folder of a recording. Its files are made for the user alone, and never through a link."""

    def __init__(self, path: Path) -> None:
        with InputError.from_os_errors(str(path)):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if any(name in os.listdir(self._folder) for name in _FOLDER):  # noqa: PTH208 - of this descriptor
            os.close(self._folder)
            raise InputError(str(path), "already has a recording")
        self.path = path

    def create(self, name: str) -> BinaryIO:
        """A new file for writing and reading. Raises InputError where one of this name is there already."""
        with InputError.from_os_errors(str(self.path / name)):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.fdopen(os.open(name, flags, 0o600, dir_fd=self._folder), "w+b")

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        """Closes the folder."""
        os.close(self._folder)


def record(options: RecordOptions) -> RecordOutcome:
    """Records until the processes end, `seconds` have passed or a signal comes; writes the folder `output`.

    A command that runs longer is never ended; it is waited for when the recording is written. Raises
    ServiceError without root or tracefs, InputError for a command or folder that cannot be used.
    """
    with ExitStack() as stack:
        _check_root()
        folder = OutputFolder(options.output)
        stack.callback(folder.close)
        names = [f".{kind}.part" for kind in ("calls", "blocks")]
        parts = []
        for name in names:
            stack.callback(folder.remove, name)
            parts.append(stack.enter_context(folder.create(name)))
        ending = stack.enter_context(ending_signals())
        process = stack.enter_context(target(options.command, options.pids))
        session = _Session(options, process, parts, ending)
        done = "not recorded"
        try:
            problem = session.trace()
            process.pass_signals_on(ending)
            if problem:
                raise ServiceError(problem)
            with InputError.from_os_errors(str(options.output)):
                session.write(folder)
            done = "recorded"
        except LaggardError as exc:
            done = f"not recorded: {exc}"
            raise
        finally:
            process.pass_signals_on(ending)
            session.outcome.exit_code = process.wait(done)
    return session.outcome


def _check_root() -> None:
    """Raises ServiceError without root, before a folder is made."""
    if os.geteuid() != 0:
        raise ServiceError("recording reads kernel tracepoints, which needs root")


@dataclass(slots=True)
class _Session:
    """A recording in progress. `parts`: files of the raw events of system calls and of the block layer."""

    options: RecordOptions
    process: Target
    parts: Sequence[BinaryIO]
    ending: EndingSignals
    seen: OpenFiles = field(default_factory=OpenFiles)
    outcome: RecordOutcome = field(default_factory=RecordOutcome)

    def trace(self) -> str:
        """Traces until the end of the recording; the instances are gone then.

        Returns why it failed, or nothing.
        """
        with ExitStack() as stack:
            root = stack.enter_context(mounted())
            remove_abandoned(root)
            instances = []
            for kind in ("calls", "blocks"):
                instance = TraceInstance(root, f"laggard-{os.getpid()}-{kind}")
                stack.callback(instance.remove)
                instance.create(self.options.buffer_kib)
                instances.append(instance)
            calls, blocks = instances
            if len(calls.enable(CALL_EVENTS)) < 2 or len(blocks.enable(BLOCK_EVENTS)) < 3:
                raise ServiceError("this kernel has no tracepoints of system calls or of the block layer")
            if self.options.file_system:
                calls.enable(FILE_SYSTEM_EVENTS)
            readers = []
            for instance, out in zip(instances, self.parts, strict=True):
                reader = PipeReader(instance, out, self.options.max_bytes // 2)
                stack.callback(reader.end)
                readers.append(reader)
            for instance in instances:  # before the readers end, whose pipes are empty only then
                stack.callback(instance.stop)
            calls.follow(self.process.threads)
            for reader in readers:
                reader.start()
            for instance in (blocks, calls):
                instance.write("tracing_on", "1")
            self.seen.note(self.process.threads(), at_start=self.process.child is None)
            self.process.start()
            self._wait(calls, readers)
            for instance in (calls, blocks):
                instance.write("tracing_on", "0")
            time.sleep(_DRAIN_SECONDS)
            for reader in readers:
                reader.end()
            self.outcome.lost = sum(instance.lost() for instance in instances)
            self.outcome.stopped = any(reader.full.is_set() for reader in readers)
            return next((reader.problem for reader in readers if reader.problem), "")

    def _wait(self, calls: TraceInstance, readers: Sequence[PipeReader]) -> None:
        """Waits for the end of the recording; notes the descriptors of the followed processes meanwhile."""
        end = None if self.options.seconds is None else time.monotonic() + self.options.seconds
        while not self.ending.came.wait(POLL_SECONDS):
            self.seen.note([*calls.followed(), *self.options.pids])
            if self.process.has_ended() or (end is not None and time.monotonic() >= end):
                return
            if any(reader.full.is_set() or reader.problem for reader in readers):
                return

    def write(self, folder: OutputFolder) -> None:
        """Writes trace, extents and description; of the block events those of the files' devices."""
        devices = FileDevices()
        given = [path.resolve() for path in self.options.files]
        with (
            folder.create("fiemap.txt") as raw,
            open(raw.fileno(), "w", encoding="utf-8", closefd=False) as out,
        ):
            devices.add_files([*map(Path, self.seen.paths()), *given], out)
        self.outcome.devices = devices.all()
        self.outcome.files = list(devices.file_devices)
        self.outcome.remarks = devices.remarks
        if self.seen.full:
            self.outcome.remarks.append("too many files were opened: some calls have no file")
        if not self.outcome.devices:
            self.outcome.remarks.append(
                "no file on a block device was seen: block and device are not recorded"
            )
        wanted = {device.encode() for device in (*self.outcome.devices, *devices.partitions)}
        with folder.create("tracefs.txt") as trace:
            trace.write(b"# tracer: nop\n")
            for part in self.parts:
                part.seek(0)
                for line in part:
                    device = _DEVICE.search(line)
                    if device is None or device[1] in wanted:
                        trace.write(line)
                        self.outcome.lines += 1
        description = {
            "descriptors": self.seen.rows(),
            "devices": self.outcome.devices,
            "lies_on": devices.lies_on,
            "partitions": {part: list(place) for part, place in devices.partitions.items()},
            "backing_files": devices.backing_files,
            "file_devices": devices.file_devices,
            "inodes": devices.inodes,
            "lost_events": self.outcome.lost,
            "output_full": self.outcome.stopped,
            "remarks": self.outcome.remarks,
            "clock": "CLOCK_MONOTONIC",
            "kernel": platform.release(),
            "node": platform.node(),
            "command": list(self.options.command),
            "pids": list(self.options.pids),
            "buffer_kib_per_cpu": self.options.buffer_kib,
        }
        with folder.create("meta.json") as out_meta:
            out_meta.write((json.dumps(description, indent=1) + "\n").encode())
