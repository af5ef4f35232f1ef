"""Who has which file open, and where in it: descriptor tables of processes, as system calls change them."""

from collections import OrderedDict
from dataclasses import dataclass

MAX_PROCESSES = 2048
MAX_DESCRIPTORS = 512  # of one process; what was opened first is forgotten first


@dataclass(slots=True)
class OpenFile:
    """An open file description: what processes and descriptors share after fork and dup.

    `position`: where the next read or write begins; None: not known, or there is no such thing (pipes).
    `append`: each write goes to the end of the file, wherever that is.
    """

    path: str = ""
    position: int | None = None
    append: bool = False


class Table:
    """The descriptors of one process, shared by its threads. `name`: the process id that names it."""

    def __init__(self, name: int, files: dict[int, OpenFile] | None = None, on_exec: set[int] | None = None):
        self.name = name
        self.files = files or {}
        self.close_on_exec = on_exec or set()

    def get(self, fd: int) -> OpenFile:
        """What `fd` stands for; a file at an unknown place when its opening was not seen."""
        return self.files.get(fd) or self.put(fd, OpenFile())

    def put(self, fd: int, file: OpenFile, *, close_on_exec: bool = False) -> OpenFile:
        """Lets `fd` stand for `file` from now on."""
        self.drop(fd)
        if len(self.files) >= MAX_DESCRIPTORS:
            self.drop(next(iter(self.files)))
        self.files[fd] = file
        if close_on_exec:
            self.close_on_exec.add(fd)
        return file

    def drop(self, fd: int) -> None:
        """Forgets `fd`: closed, or never seen."""
        self.files.pop(fd, None)
        self.close_on_exec.discard(fd)

    def exec(self) -> None:
        """Drops what does not survive the execution of another program."""
        for fd in list(self.close_on_exec):
            self.drop(fd)


class Processes:
    """The tables of all processes of a trace.

    A child whose `clone` is in the trace begins with its parent's descriptors: shared where it is a thread,
    a copy of the same open files otherwise. A child may appear before its parent's call has returned; it is
    then taken for the child of the only call under way. Any other newcomer begins with no known descriptor.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[int, Table] = OrderedDict()  # the one seen longest ago first
        self._cloning: dict[int, bool] = {}  # parents whose clone is under way; whether the table is shared
        self._unnamed_parent: Table | None = None

    def table(self, pid: int) -> Table:
        """The table of this process or thread."""
        table = self._tables.get(pid)
        if table is None:
            return self._newcomer(pid)
        self._tables.move_to_end(pid)
        return table

    def clone_begins(self, pid: int, *, shared: bool) -> None:
        """A clone of `pid` did not return yet: its child may come first."""
        if pid in self._tables:
            self._cloning[pid] = shared

    def cloned(self, pid: int, child: int, *, shared: bool) -> None:
        """`pid` has made `child`."""
        table = self.table(pid)
        self._cloning.pop(pid, None)
        if child not in self._tables:
            self._put(child, _inherited(table, child, shared=shared))
        if pid == 0:
            self._unnamed_parent = table

    def clone_failed(self, pid: int) -> None:
        """The clone of `pid` made no child."""
        self._cloning.pop(pid, None)

    def gone(self, pid: int) -> None:
        """`pid` has ended."""
        self._tables.pop(pid, None)
        self._cloning.pop(pid, None)

    def _newcomer(self, pid: int) -> Table:
        if len(self._cloning) == 1:
            parent, shared = self._cloning.popitem()
            return self._put(pid, _inherited(self.table(parent), pid, shared=shared))
        if self._unnamed_parent is not None:  # strace names processes only once there are two
            table, self._unnamed_parent = self._unnamed_parent, None
            return self._put(pid, table)
        return self._put(pid, Table(pid))

    def _put(self, pid: int, table: Table) -> Table:
        if len(self._tables) >= MAX_PROCESSES:
            self.gone(next(iter(self._tables)))
        self._tables[pid] = table
        return table


def _inherited(parent: Table, child: int, *, shared: bool) -> Table:
    return parent if shared else Table(child, dict(parent.files), set(parent.close_on_exec))
