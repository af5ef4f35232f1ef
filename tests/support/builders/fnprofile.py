"""Records of perf events, laid out as perf_event_open(2) says, and a /proc of made-up processes."""

import struct
import time
from collections.abc import Callable
from pathlib import Path

from laggard_agent.collectors.fnprofile.symbolizer import Kernel, Resolver
from tests.support.clock import FakeClock

KERNEL_MODE, USER_MODE = 1, 2


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    """A record of any kind; `body` is filled up to whole words."""
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def sample(pid: int, address: int, time: int = 0, mode: int = USER_MODE, tid: int | None = None) -> bytes:
    """A sample of ours."""
    return record(9, struct.pack("<QIIQ", address, pid, pid if tid is None else tid, time), mode)


def _named(kind: int, body: bytes, text: str, pid: int, time: int, misc: int) -> bytes:
    name = text.encode() + b"\0"
    name += bytes(-len(name) % 8)
    return record(kind, body + name + struct.pack("<IIQ", pid, pid, time), misc)


def mmap2(pid: int, start: int, size: int, offset: int, path: str, inode: int = 0, time: int = 0) -> bytes:
    """A file was mapped."""
    body = struct.pack("<IIQQQIIQQII", pid, pid, start, size, offset, 8, 1, inode, 0, 5, 2)
    return _named(10, body, path, pid, time, 2)


def comm(pid: int, name: str, time: int = 0, *, executed: bool = False, tid: int | None = None) -> bytes:
    """A thread was named, or another program began."""
    body = struct.pack("<II", pid, pid if tid is None else tid)
    return _named(3, body, name, pid, time, 1 << 13 if executed else 0)


def _task(kind: int, pid: int, parent: int, tid: int, time: int) -> bytes:
    return record(
        kind, struct.pack("<IIIIQ", pid, parent, tid, parent, time) + struct.pack("<IIQ", pid, tid, time)
    )


def fork(pid: int, parent: int, time: int = 0, tid: int | None = None) -> bytes:
    """A process or (pid and parent alike) a thread began."""
    return _task(7, pid, parent, pid if tid is None else tid, time)


def ended(pid: int, time: int = 0, tid: int | None = None) -> bytes:
    """A thread ended; the process with its first one."""
    return _task(4, pid, 1, pid if tid is None else tid, time)


def lost(count: int) -> bytes:
    """There was no room."""
    return record(2, struct.pack("<QQIIQ", 1, count, 0, 0, 0))


def process(procfs: Path, pid: int, comm: str, exe: str = "", maps: str = "") -> None:
    """A process in /proc; without `exe` one of the kernel's threads."""
    folder = procfs / str(pid)
    (folder / "root").mkdir(parents=True)
    (folder / "comm").write_text(comm + "\n")
    (folder / "maps").write_text(maps)
    if exe:
        (folder / "exe").symlink_to(exe)


def resolver(
    procfs: Path, clock: FakeClock | None = None, cpu_ns: Callable[[], int] = time.thread_time_ns
) -> Resolver:
    """One that has looked at what is in `procfs`."""
    monotonic_ns = (clock or FakeClock()).monotonic_ns
    made = Resolver(procfs, Kernel(procfs, monotonic_ns), monotonic_ns, cpu_ns)
    made.refresh()
    return made
