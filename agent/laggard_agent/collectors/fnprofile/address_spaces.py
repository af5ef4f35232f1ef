"""The address spaces of processes: which program runs there, and which file is where.

Kept up by what the kernel tells (`records`); a process that was there before is read from /proc when it is
first sampled.
"""

import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from laggard_agent.collectors.fnprofile.procfiles import beginning_of, link_of
from laggard_agent.collectors.fnprofile.records import Change, Ended, Forked, Mapped, Named

_MOST_SPACES = 1 << 16
_MOST_MAPPINGS = 1 << 10  # of one process
_MOST_MAPS_BYTES = 4 << 20
_KTHREADD = 2
_LINE = re.compile(
    rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. ([0-9a-f]{1,16}) [0-9a-f]+:[0-9a-f]+ (\d{1,20})(?: +(.*))?$",
    re.M,
)
_DELETED = " (deleted)"
_NUMBER = re.compile(r"[-_]?\d+(?:[-_:]\d+)*$")


class Mapping(NamedTuple):
    """What of a file is at addresses `start` to `end`, from `offset` of the file on."""

    start: int
    end: int
    offset: int
    inode: int
    path: str


def parse_maps(data: bytes) -> list[Mapping]:
    """What may be executed, out of the text of /proc/PID/maps; lines of another shape are left out."""
    mappings = []
    for line in _LINE.finditer(data):
        start, end, offset = (int(number, 16) for number in line.groups()[:3])
        path = sys.intern(os.fsdecode(line[5] or b"").removesuffix(_DELETED))
        mappings.append(Mapping(start, end, offset, int(line[4]), path))
        if len(mappings) == _MOST_MAPPINGS:
            break
    return mappings


def program_of(path: str) -> str:
    """What a program is called: the last part of its path."""
    return path.removesuffix(_DELETED).rpartition("/")[2]


@lru_cache(1024)
def thread_kind(comm: str) -> str:
    """A kernel thread's name without numbers: `kworker/3:1H` is a kworker, `ll_ost_io00_003` a ll_ost_io."""
    kind, slash, _ = comm.partition("/")
    return kind if slash else _NUMBER.sub("", kind) or kind


class Space:
    """One address space, and what runs there."""

    def __init__(self, pid: int, parent: int = 0, *, known: bool = False) -> None:
        self.pid = pid
        self.comm = ""
        self.functions: dict[int, str] = {}  # by address; whoever resolves them keeps them here
        self._program = ""
        self._parent = parent
        self._known = known  # from the beginning: nothing to read
        self._fresh = known  # what is mapped first is the program
        self._mappings: list[Mapping] = []  # where they overlap the last one counts

    @property
    def program(self) -> str:
        """The name of the file that runs; of the kernel's own threads their kind."""
        return self._program or thread_kind(self.comm) or "?"

    def copy(self, pid: int) -> "Space":
        """The space of a child process."""
        child = Space(pid, self.pid, known=self._known)
        child.comm, child._program, child._fresh = self.comm, self._program, self._fresh
        child._mappings = self._mappings.copy()
        return child

    def add(self, mapping: Mapping) -> None:
        """Takes what was mapped; the first file of a new program is the program."""
        kept = [m for m in self._mappings if m.start < mapping.start or m.end > mapping.end]
        if len(kept) >= _MOST_MAPPINGS:
            self._known = False
            kept = []
        self._mappings = [*kept, mapping]
        self.functions.clear()
        if self._fresh and mapping.path.startswith("/"):
            self._program, self._fresh = program_of(mapping.path), False

    def find(self, address: int) -> Mapping | None:
        """What is mapped at an address."""
        found = (m for m in reversed(self._mappings) if m.start <= address < m.end)
        return next(found, None)

    def learn(self, procfs: Path) -> None:
        """Reads what is not known yet from /proc; of one that has ended, from its parent's."""
        if self._known:
            return
        self._known = True
        for pid in (self.pid, self._parent):
            comm = beginning_of(procfs / str(pid) / "comm", 256)
            if pid > 0 and comm:
                maps = beginning_of(procfs / str(pid) / "maps", _MOST_MAPS_BYTES)
                self._mappings = [*parse_maps(maps), *self._mappings]
                self._program = program_of(link_of(procfs / str(pid) / "exe"))
                self.comm = self.comm or os.fsdecode(comm).strip()
                return


class Spaces:
    """The spaces of all processes of this node, by the number of the process."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._spaces: dict[int, Space] = {}

    def __len__(self) -> int:
        return len(self._spaces)

    def of(self, pid: int) -> Space:
        """The space of a process, with its program."""
        space = self._spaces.get(pid)
        if space is None:
            space = self._put(Space(pid))
        space.learn(self._procfs)
        return space

    def apply(self, change: Change) -> None:
        """Takes what the kernel says of a process."""
        match change:
            case Mapped():
                self._known(change.pid).add(Mapping(*change[2:]))
            case Named(executed=True):
                self._put(Space(change.pid, known=True)).comm = change.name
            case Named():
                self._known(change.pid).comm = change.name
            case Forked(parent=parent) if parent == _KTHREADD or parent not in self._spaces:
                self._put(Space(change.pid, parent if parent != _KTHREADD else 0))
            case Forked():
                self._put(self._spaces[change.parent].copy(change.pid))
            case Ended():
                self._spaces.pop(change.pid, None)

    def forget(self) -> None:
        """After something was lost: everything is read again as it is needed."""
        self._spaces.clear()

    def _known(self, pid: int) -> Space:
        return self._spaces.get(pid) or self._put(Space(pid))

    def _put(self, space: Space) -> Space:
        if len(self._spaces) >= _MOST_SPACES:
            self._spaces.clear()
        self._spaces[space.pid] = space
        return space
