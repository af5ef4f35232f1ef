"""Address spaces of processes: the program, and the file mapped at each address.

Updated from the kernel's records (`records`); a process that existed before is read from /proc when it is
first sampled.
"""

import os
import re
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from laggard_agent.collectors.fnprofile.records import Change, Ended, Forked, Mapped, Renamed

_MOST_SPACES = 1 << 16
_CHUNK_BYTES = 1 << 16
_MOST_MAPPINGS = 1 << 10  # of one process
_MOST_MAPS_BYTES = 4 << 20
_KTHREADD = 2
_LINE = re.compile(
    rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. ([0-9a-f]{1,16}) [0-9a-f]+:[0-9a-f]+ (\d{1,20})(?: +(.*))?$",
    re.M,
)
_DELETED = " (deleted)"
_NUMBER = re.compile(r"[-_]?\d+(?:[-_:]\d+)*$")


def beginning_of(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file, up to a read error, as a process may end in between.

    They are not recorded: `--dump` copies no confidential addresses.
    """
    data = bytearray()
    with suppress(OSError), path.open("rb", buffering=0) as file:
        while chunk := file.read(min(most_bytes - len(data), _CHUNK_BYTES)):
            data += chunk
    return bytes(data)


class Mapping(NamedTuple):
    """A file mapped at addresses `start` to `end`, from `offset` of the file."""

    start: int
    end: int
    offset: int
    inode: int
    path: str


def parse_maps(data: bytes) -> list[Mapping]:
    """Parses the executable mappings in /proc/PID/maps; malformed lines are ignored."""
    mappings = []
    for line in _LINE.finditer(data):
        start, end, offset = (int(number, 16) for number in line.groups()[:3])
        path = sys.intern(os.fsdecode(line[5] or b"").removesuffix(_DELETED))
        mappings.append(Mapping(start, end, offset, int(line[4]), path))
        if len(mappings) == _MOST_MAPPINGS:
            break
    return mappings


def program_of(path: str) -> str:
    """Name of a program: the last part of its path."""
    return path.removesuffix(_DELETED).rpartition("/")[2]


@lru_cache(1024)
def thread_kind(comm: str) -> str:
    """Kernel thread name without numbers: `kworker/3:1H` is a kworker, `ll_ost_io00_003` a ll_ost_io."""
    kind, slash, _ = comm.partition("/")
    return kind if slash else _NUMBER.sub("", kind) or kind


class Space:
    """One address space and its program."""

    def __init__(self, pid: int, parent: int = 0, *, known: bool = False) -> None:
        self.pid = pid
        self.comm = ""
        self.functions: dict[int, str] = {}  # by address; filled by the symbolizer
        self._program = ""
        self._parent = parent
        self._known = known  # known from its start: nothing to read
        self._fresh = known  # the first mapping is the program
        self._mappings: list[Mapping] = []  # the last of overlapping mappings counts

    @property
    def program(self) -> str:
        """Name of the running file; for kernel threads their kind."""
        return self._program or thread_kind(self.comm) or "?"

    def copy(self, pid: int) -> "Space":
        """The space of a child process."""
        child = Space(pid, self.pid, known=self._known)
        child.comm, child._program, child._fresh = self.comm, self._program, self._fresh
        child._mappings = self._mappings.copy()
        return child

    def add(self, mapping: Mapping) -> None:
        """Adds a mapping; the first file of a new program is the program."""
        kept = [m for m in self._mappings if m.start < mapping.start or m.end > mapping.end]
        if len(kept) >= _MOST_MAPPINGS:
            self._known = False
            kept = []
        self._mappings = [*kept, mapping]
        self.functions.clear()
        if self._fresh and mapping.path.startswith("/"):
            self._program, self._fresh = program_of(mapping.path), False

    def find(self, address: int) -> Mapping | None:
        """The mapping at an address."""
        mappings = (m for m in reversed(self._mappings) if m.start <= address < m.end)
        return next(mappings, None)

    def learn(self, procfs: Path) -> None:
        """Reads unknown mappings from /proc; for an ended process, from its parent's."""
        if self._known:
            return
        self._known = True
        for pid in (self.pid, self._parent):
            comm = beginning_of(procfs / str(pid) / "comm", 256)
            if pid > 0 and comm:
                maps = beginning_of(procfs / str(pid) / "maps", _MOST_MAPS_BYTES)
                self._mappings = [*parse_maps(maps), *self._mappings]
                with suppress(OSError):
                    self._program = program_of(str((procfs / str(pid) / "exe").readlink()))
                self.comm = self.comm or os.fsdecode(comm).strip()
                return


class Spaces:
    """The address spaces of all processes of this node, by pid."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._spaces: dict[int, Space] = {}

    def __len__(self) -> int:
        return len(self._spaces)

    def of(self, pid: int) -> Space:
        """The address space of a process."""
        space = self._spaces.get(pid)
        if space is None:
            space = self._put(Space(pid))
        space.learn(self._procfs)
        return space

    def apply(self, change: Change) -> None:
        """Applies a change of a process reported by the kernel."""
        match change:
            case Mapped():
                self._known(change.pid).add(Mapping(*change[2:]))
            case Renamed(executed=True):
                self._put(Space(change.pid, known=True)).comm = change.name
            case Renamed():
                self._known(change.pid).comm = change.name
            case Forked(parent=parent) if parent == _KTHREADD or parent not in self._spaces:
                self._put(Space(change.pid, parent if parent != _KTHREADD else 0))
            case Forked():
                self._put(self._spaces[change.parent].copy(change.pid))
            case Ended():
                self._spaces.pop(change.pid, None)

    def forget(self) -> None:
        """Forgets all spaces after lost records; they are read again on demand."""
        self._spaces.clear()

    def _known(self, pid: int) -> Space:
        return self._spaces.get(pid) or self._put(Space(pid))

    def _put(self, space: Space) -> Space:
        if len(self._spaces) >= _MOST_SPACES:
            self._spaces.clear()
        self._spaces[space.pid] = space
        return space
