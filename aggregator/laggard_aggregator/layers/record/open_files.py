"""Descriptors of the recorded processes: the regular files that they stand for, and when."""

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

MAX_ROWS = 100_000
_STANDARD = 2
_POSITION_TRIES = 1000
_POSITION_NS = 100_000
"""Two readings further apart may be alike although the file was read once through between them."""
_LOOKS = 5
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/usr/", "/lib", "/etc/")


@dataclass(slots=True)
class SeenFile:
    """A path behind a descriptor, first and last seen at these monotonic ns.

    `position`: file position at `first_ns`, of files that were open before the recording, and of the standard
    descriptors, which come from other ones or from a shell. `looks`: further times and positions: one alone
    may be ahead of a call that has yet to return.
    """

    path: str
    first_ns: int
    last_ns: int
    position: int | None = None
    looks: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class OpenFiles:
    """Files by (process, descriptor), in the order in which they were seen. `full`: some were not kept."""

    seen: dict[tuple[int, int], list[SeenFile]] = field(default_factory=dict)
    full: bool = False
    _rows: int = 0
    _processes: dict[int, int] = field(default_factory=dict)

    def note(self, threads: Iterable[int], *, at_start: bool = False) -> None:
        """Adds the regular files that the processes of these threads have open now.

        Files of the system's libraries are no data.
        """
        for pid in {self._process_of(thread) for thread in threads}:
            with suppress(OSError):
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        self._note_link(pid, link, at_start=at_start)

    def _note_link(self, pid: int, link: Path, *, at_start: bool) -> None:
        first = time.monotonic_ns()
        path, fd = str(link.readlink()), int(link.name)
        if not path.startswith("/") or not _is_data(path, link):
            return
        known = self.seen.setdefault((pid, fd), [])
        if known and known[-1].path == path:
            known[-1].last_ns = time.monotonic_ns()
            return
        position: int | None = None
        looks: tuple[tuple[int, int], ...] = ()
        if at_start or fd <= _STANDARD:
            (first, position), *others = [_position(pid, fd) for _ in range(_LOOKS)]
            looks = tuple((at, position) for at, position in others if position is not None)
        if self._rows < MAX_ROWS:
            self._rows += 1
            known.append(SeenFile(path, first, time.monotonic_ns(), position, looks))
        else:
            self.full = True

    def _process_of(self, thread: int) -> int:
        """The process of a thread: the descriptors are the same."""
        process = self._processes.get(thread)
        if process is None:
            process = thread
            with suppress(OSError, ValueError, IndexError):
                status = Path(f"/proc/{thread}/status").read_text()
                process = int(status.split("\nTgid:", 1)[1].split(None, 1)[0])
            if len(self._processes) >= MAX_ROWS:
                self._processes.clear()
            self._processes[thread] = process
        return process

    def paths(self) -> list[str]:
        """All paths, in the order in which they were seen first."""
        return list(dict.fromkeys(row.path for rows in self.seen.values() for row in rows))

    def rows(self) -> list[list[object]]:
        """Rows of `meta.json`: process, descriptor, path, first and last time, position where known."""
        return [
            [pid, fd, row.path, row.first_ns, row.last_ns]
            + ([] if row.position is None else [row.position, [list(look) for look in row.looks]])
            for (pid, fd), known in sorted(self.seen.items())
            for row in known
        ]


def _is_data(path: str, link: Path) -> bool:
    if path.startswith(_SYSTEM) or path.endswith(" (deleted)"):
        return False
    return stat.S_ISREG(os.stat(link).st_mode)  # noqa: PTH116 - through the link of /proc


def _position(pid: int, fd: int) -> tuple[int, int | None]:
    """A monotonic time and the file position at it; None where it never stood still."""
    with suppress(OSError, ValueError, IndexError):
        info = os.open(f"/proc/{pid}/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _ in range(_POSITION_TRIES):
                first = time.monotonic_ns()
                before, after = os.pread(info, 64, 0), os.pread(info, 64, 0)
                last = time.monotonic_ns()
                if before == after and last - first < _POSITION_NS:
                    return (first + last) // 2, int(before.split(b"pos:", 1)[1].split(None, 1)[0])
        finally:
            os.close(info)
    return time.monotonic_ns(), None
