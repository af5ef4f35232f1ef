"""What a process and its children use: the scheduler's count of CPU time, and resident memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KIB = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `resident` is VmRSS; `proportional` (PSS) shares out pages that several processes map."""

    resident: int
    proportional: int


def cpu_ns(pid: int) -> int:
    """Nanoseconds on a CPU of all threads of the process and its children, user and system together.

    /proc/PID/stat counts in ticks of 10 ms, which is too coarse for work of a millisecond a second.
    """
    return sum(int((task / "schedstat").read_text().split()[0]) for task in _tasks(pid))


def memory(pid: int) -> Memory:
    """The memory of the process and its children."""
    resident = proportional = 0
    for process in (pid, *_children(pid)):
        resident += _kib(Path(f"/proc/{process}/status"), "VmRSS:") * KIB
        proportional += _kib(Path(f"/proc/{process}/smaps_rollup"), "Pss:") * KIB
    return Memory(resident, proportional)


def _tasks(pid: int) -> Iterator[Path]:
    for process in (pid, *_children(pid)):
        yield from Path(f"/proc/{process}/task").iterdir()


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _children(child)


def _kib(path: Path, key: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(key))
