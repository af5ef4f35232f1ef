"""One traced process: the counts of its table over the samples, and whether it still runs.

The file is read, never mapped: truncation of a mapped file would kill the reader (SIGBUS).
"""

import os
import re
from dataclasses import dataclass, field
from operator import add, sub
from pathlib import Path

from laggard_agent.collectors.fntrace import shm_layout
from laggard_agent.collectors.fntrace.shm_layout import Module, Slot, TableHead
from laggard_agent.collectors.interface import (
    ABSENT,
    is_recorded,
    note_not_read,
    note_read,
    read_file,
    regular_file,
    unreadable,
)
from laggard_common.errors import CollectError

MOST_COUNT_BYTES = 8 * 1024 * 1024  # in use, of one process
MOST_HELD_BYTES = 64 * 1024 * 1024  # of all processes: any user's file may claim to be full
_MOST_DUMP_BYTES = 16 * 1024 * 1024
_START = 22 - 3  # index among the fields after the name, the first of which is field 3 (man 5 proc)
_MOST_STAT_BYTES = 4096
_NAMESPACE = re.compile(r"pid:\[(\d{1,20})\]", re.ASCII)
_MOST_RISE = 2**60  # of one counter between samples; no process counts faster


@dataclass(slots=True)
class CallTable:
    """Counts of one process over all its threads, including ended ones.

    `sums[2 * i]` are the calls of function i, `sums[2 * i + 1]` its ticks; they never decrease. `names`:
    names of the functions resolved so far. `owner`: owner of the file.
    """

    path: Path
    head: TableHead | None = None
    modules: list[Module] = field(default_factory=list)
    functions: list[tuple[int, int]] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    owner: int = -1
    inode: int = 0
    _raw: list[bytes] = field(default_factory=list)

    @property
    def held_bytes(self) -> int:
        """Approximate memory in use."""
        return self.head.held_bytes if self.head is not None else 0

    def read(self, room_bytes: int = MOST_HELD_BYTES) -> bool:
        """Reads the table; False when it is missing. Raises CollectError for an invalid table.

        `room_bytes`: memory available for it.
        """
        try:
            with regular_file(self.path, os.O_NOFOLLOW) as (fd, status):
                self._read(fd, status, room_bytes)
        except OSError as exc:
            if exc.errno in ABSENT:
                return False
            raise unreadable(self.path, exc) from exc
        return True

    def _read(self, fd: int, status: os.stat_result, room_bytes: int) -> None:
        head = shm_layout.parse_head(os.pread(fd, shm_layout.HEAD_BYTES, 0), str(self.path))
        if head is None:
            return
        if status.st_size < head.file_bytes:
            raise CollectError(str(self.path), f"{status.st_size} bytes, expected {head.file_bytes}")
        if head.count_bytes > MOST_COUNT_BYTES:
            raise CollectError(str(self.path), f"more than {MOST_COUNT_BYTES} bytes of counts")
        if head.held_bytes > room_bytes:
            raise CollectError(str(self.path), f"all tables together take more than {MOST_HELD_BYTES} bytes")
        if is_recorded():
            self._record(fd, head)
        if self.head is not None and not _goes_on(self.head, status.st_ino, head, self.inode):
            raise CollectError(str(self.path), "another process's table under the same name")
        self.head, self.owner, self.inode = head, status.st_uid, status.st_ino
        self._read_names(fd, head)
        self._read_counts(fd, head)

    def _record(self, fd: int, head: TableHead) -> None:
        if head.file_bytes > _MOST_DUMP_BYTES:
            note_not_read(self.path, f"longer than {_MOST_DUMP_BYTES} bytes")
        else:
            note_read(self.path, os.pread(fd, head.file_bytes, 0))

    def _read_names(self, fd: int, head: TableHead) -> None:
        if more := head.modules - len(self.modules):
            at = shm_layout.HEADER_BYTES + len(self.modules) * shm_layout.MODULE_BYTES
            self.modules += shm_layout.parse_modules(os.pread(fd, more * shm_layout.MODULE_BYTES, at))
        if more := head.functions - len(self.functions):
            at = head.functions_at + len(self.functions) * shm_layout.FUNCTION_BYTES
            self.functions += shm_layout.parse_functions(os.pread(fd, more * shm_layout.FUNCTION_BYTES, at))
        self.sums += [0] * (2 * len(self.functions) - len(self.sums))

    def _read_counts(self, fd: int, head: TableHead) -> None:
        size = shm_layout.SLOT_HEAD_BYTES + len(self.functions) * shm_layout.COUNTER_BYTES
        for i in range(head.slots):
            data = os.pread(fd, size, head.slots_at + i * head.slot_stride)
            if i == len(self._raw):
                self._raw.append(bytes(shm_layout.SLOT_HEAD_BYTES))
                self.slots.append(Slot())
            if data == self._raw[i] or len(data) < size:
                continue
            self.slots[i] = Slot(*shm_layout.SLOT.unpack_from(data))
            self._add(self._raw[i].ljust(size, b"\0"), data)
            self._raw[i] = data

    def _add(self, before: bytes, after: bytes) -> None:
        """Adds the increases of a slot's counters."""
        counters = slice(shm_layout.SLOT_HEAD_BYTES, None)
        old, new = (memoryview(data)[counters].cast("Q") for data in (before, after))
        rises = list(map(sub, new, old))
        if rises and (min(rises) < 0 or max(rises) > _MOST_RISE):
            rises = [rise if 0 <= rise <= _MOST_RISE else 0 for rise in rises]
        self.sums = list(map(add, self.sums, rises))


def _goes_on(before: TableHead, inode: int, after: TableHead, inode_before: int) -> bool:
    """True when it is the same process's table and has not shrunk."""
    shrunk = (
        before.modules > after.modules or before.functions > after.functions or before.slots > after.slots
    )
    return inode == inode_before and before.identity == after.identity and not shrunk


class Processes:
    """Processes of this agent's PID namespace, below `procfs`."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._namespace: int | None = None

    def is_ours(self, pid_namespace: int) -> bool:
        """True when pids of that namespace are valid here; a container's are not."""
        if self._namespace is None:
            try:
                link = str((self._procfs / "self/ns/pid").readlink())
            except OSError:
                return False  # a copy of another host's tree
            match = _NAMESPACE.fullmatch(link)
            self._namespace = int(match[1]) if match else 0
        return pid_namespace == self._namespace

    def has_ended(self, pid: int, start_ticks: int) -> bool:
        """True when the process that started then has certainly ended.

        False when /proc hides it (`hidepid`).
        """
        try:
            stat = read_file(self._procfs / str(pid) / "stat", _MOST_STAT_BYTES)
        except CollectError as exc:
            cause = exc.__cause__
            return isinstance(cause, OSError) and cause.errno in ABSENT and not _is_there(pid)
        fields = stat.rpartition(b")")[2].split()
        return len(fields) > _START and fields[_START].isdigit() and int(fields[_START]) != start_ticks


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
