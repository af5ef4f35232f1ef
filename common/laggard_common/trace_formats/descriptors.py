"""Descriptor tables of processes, with open files and positions, updated by system calls."""

from collections import OrderedDict
from dataclasses import dataclass

MAX_PROCESSES = 2048
MAX_DESCRIPTORS = 512  # of one process; the oldest are forgotten first


@dataclass(slots=True)
class OpenFile:
    """An open file description, shared after fork and dup.

    `position`: start of the next read or write; None if unknown or not applicable (pipes).
    `append`: each write goes to the end of the file, wherever that is. `shared`: a process that the trace
    does not have may move the position, which is therefore unknown.
    """

    path: str = ""
    position: int | None = None
    append: bool = False
    shared: bool = False

    def seek(self, position: int) -> None:
        """Sets the position, if the trace has all that move it."""
        self.position = None if self.shared else position

    def share(self) -> None:
        """Notes that the trace does not have all that move the position."""
        self.position, self.shared = None, True


class DescriptorTable:
    """The descriptors of one process, shared by its threads. `name`: its process id."""

    def __init__(self, name: int, files: dict[int, OpenFile] | None = None, on_exec: set[int] | None = None):
        self.name = name
        self.files = files or {}
        self.close_on_exec = on_exec or set()
        self._is_shared = False

    def get(self, fd: int) -> OpenFile:
        """The file of `fd`; one at an unknown position if the open was not traced."""
        return self.files.get(fd) or self.put(fd, OpenFile())

    def put(self, fd: int, file: OpenFile, *, close_on_exec: bool = False) -> OpenFile:
        """Sets the file of `fd`."""
        self.drop(fd)
        if len(self.files) >= MAX_DESCRIPTORS:
            self.drop(next(iter(self.files)))
        if self._is_shared:
            file.share()
        self.files[fd] = file
        if close_on_exec:
            self.close_on_exec.add(fd)
        return file

    def drop(self, fd: int) -> None:
        """Forgets `fd`, if known."""
        self.files.pop(fd, None)
        self.close_on_exec.discard(fd)

    def share(self) -> None:
        """Notes a thread that the trace does not have: it may move the position of any file."""
        self._is_shared = True
        for file in self.files.values():
            file.share()

    def exec(self) -> None:
        """Drops descriptors closed on exec."""
        for fd in list(self.close_on_exec):
            self.drop(fd)


class ProcessTables:
    """The tables of all processes of a trace.

    A child whose `clone` is in the trace starts with its parent's descriptors: shared for a thread, otherwise
    a copy of the same open files. A child may appear before its parent's call has returned; it is then
    assigned to the only pending call. Any other new process starts without known descriptors.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[int, DescriptorTable] = OrderedDict()  # least recently seen first
        self._cloning: dict[int, bool] = {}  # parents with a pending clone; True if the table is shared
        self._unnamed_parent: DescriptorTable | None = None

    def table(self, pid: int) -> DescriptorTable:
        """The table of this process or thread."""
        table = self._tables.get(pid)
        if table is None:
            return self._newcomer(pid)
        self._tables.move_to_end(pid)
        return table

    def has(self, pid: int) -> bool:
        """Whether a line was of this process or thread."""
        return pid in self._tables

    def clone_begins(self, pid: int, *, shared: bool) -> None:
        """Notes a pending clone of `pid`: its child may appear first."""
        if pid in self._tables:
            self._cloning[pid] = shared

    def cloned(self, pid: int, child: int, *, shared: bool) -> None:
        """Notes the new process `child` of `pid`."""
        table = self.table(pid)
        self._cloning.pop(pid, None)
        if child not in self._tables:
            self._put(child, _inherited(table, child, shared=shared))
        if pid == 0:
            self._unnamed_parent = table

    def clone_failed(self, pid: int) -> None:
        """Notes the failed clone of `pid`."""
        self._cloning.pop(pid, None)

    def gone(self, pid: int) -> None:
        """Forgets the ended process `pid`."""
        self._tables.pop(pid, None)
        self._cloning.pop(pid, None)

    def _newcomer(self, pid: int) -> DescriptorTable:
        if len(self._cloning) == 1:
            parent, shared = self._cloning.popitem()
            return self._put(pid, _inherited(self.table(parent), pid, shared=shared))
        if self._unnamed_parent is not None:  # strace prints process ids only once there are two
            table, self._unnamed_parent = self._unnamed_parent, None
            return self._put(pid, table)
        return self._put(pid, DescriptorTable(pid))

    def _put(self, pid: int, table: DescriptorTable) -> DescriptorTable:
        if len(self._tables) >= MAX_PROCESSES:
            self.gone(next(iter(self._tables)))
        self._tables[pid] = table
        return table


def _inherited(parent: DescriptorTable, child: int, *, shared: bool) -> DescriptorTable:
    return parent if shared else DescriptorTable(child, dict(parent.files), set(parent.close_on_exec))
