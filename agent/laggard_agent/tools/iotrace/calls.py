"""Effects of system calls on descriptors: changes of the descriptor table, and recorded operations.

A read or write without an explicit offset starts where the previous one on the same open file ended; `lseek`
sets that position and makes no record. The offset is unknown if the open was not traced, for files opened for
appending, and on pipes and terminals.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laggard_agent.tools.iotrace.descriptors import DescriptorTable, OpenFile
from laggard_agent.tools.iotrace.reader import number

_FD = re.compile(r"([0-9]{1,10})(?:<(.*?)>)?(?:, |$)")
_PATH = re.compile(r'[^"]*"((?:[^"\\]|\\.)*)"(?:\.\.\.)?(.*)', re.DOTALL)
_BRACKETED = re.compile(r"\[([0-9]{1,19})")
_PAIR = re.compile(r"[^\[]*\[([0-9]{1,10})(?:<.*?>)?, ([0-9]{1,10})(?:<.*?>)?\]")


@dataclass(frozen=True, slots=True)
class Call:
    """A successful call: arguments, return value, and the rest of strace's line."""

    arguments: str
    result: int
    note: str

    @property
    def fd(self) -> int:
        """The first argument, a descriptor. Raises ValueError if it is none."""
        return int(_matched(_FD, self.arguments)[1])


@dataclass(frozen=True, slots=True)
class Move:
    """One operation on one descriptor. `offset` and `size` as in `wire.trace_records.TraceRecord`."""

    operation: str
    fd: int
    offset: int | None
    size: int
    path: str


Change = Callable[[DescriptorTable, Call], Sequence[Move]]
"""Applies a call to the table. Raises ValueError when its arguments cannot be parsed."""


def _open(table: DescriptorTable, call: Call) -> Sequence[Move]:
    shown, flags = _matched(_PATH, call.arguments).groups()
    path = _shown(call.note) or shown
    file = OpenFile(path if path.isprintable() else "", 0, append="O_APPEND" in flags)
    table.put(call.result, file, close_on_exec="O_CLOEXEC" in flags)
    return (Move("open", call.result, None, 0, file.path),)


def _close(table: DescriptorTable, call: Call) -> Sequence[Move]:
    moves = _move(table, call, "close")
    table.drop(call.fd)
    return moves


def _close_range(table: DescriptorTable, call: Call) -> Sequence[Move]:
    first, last, *flags = call.arguments.split(", ", 2)
    low, high = number(first), number(last)
    fds = [fd for fd in table.files if low <= fd <= high]
    if "CLOEXEC" in "".join(flags):
        table.close_on_exec.update(fds)
        return ()
    moves = [Move("close", fd, None, 0, table.files[fd].path) for fd in fds]
    for fd in fds:
        table.drop(fd)
    return moves


def _move(
    table: DescriptorTable, call: Call, operation: str, offset: int | None = None, size: int = 0
) -> Sequence[Move]:
    path = table.get(call.fd).path or _shown(call.arguments)
    return (Move(operation, call.fd, offset, size, path),)


def _moving(operation: str) -> Change:
    """read, write and their vectored forms: at the open file's own position."""

    def change(table: DescriptorTable, call: Call) -> Sequence[Move]:
        file = table.get(call.fd)
        if operation == "write" and file.append:
            file.position = None
        offset = file.position
        if offset is not None:
            file.position = offset + call.result
        return _move(table, call, operation, offset, call.result)

    return change


def _placed(operation: str, after: int = 0) -> Change:
    """pread, pwrite and their vectored forms: the offset is the last argument but `after`."""

    def change(table: DescriptorTable, call: Call) -> Sequence[Move]:
        _, place, *rest = call.arguments.rsplit(", ", after + 1)
        if len(rest) != after:
            raise ValueError(call.arguments)
        if after and place == "-1":
            return _moving(operation)(table, call)
        offset = number(place)
        appended = operation == "write" and table.get(call.fd).append  # Linux appends, whatever the offset
        return _move(table, call, operation, None if appended else offset, call.result)

    return change


def _lseek(table: DescriptorTable, call: Call) -> Sequence[Move]:
    table.get(call.fd).position = call.result
    return ()


def _llseek(table: DescriptorTable, call: Call) -> Sequence[Move]:
    found = _BRACKETED.search(call.arguments)
    if found is None:
        raise ValueError(call.arguments)
    table.get(call.fd).position = int(found[1])
    return ()


def _dup(table: DescriptorTable, call: Call) -> Sequence[Move]:
    if call.result != call.fd:
        table.put(call.result, table.get(call.fd), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _fcntl(table: DescriptorTable, call: Call) -> Sequence[Move]:
    fd = call.fd
    if "F_DUPFD" in call.arguments:
        table.put(call.result, table.get(fd), close_on_exec="F_DUPFD_CLOEXEC" in call.arguments)
    elif "F_SETFD" in call.arguments:
        (table.close_on_exec.add if "FD_CLOEXEC" in call.arguments else table.close_on_exec.discard)(fd)
    elif "F_SETFL" in call.arguments:
        table.get(fd).append = "O_APPEND" in call.arguments
    return ()


def _pipe(table: DescriptorTable, call: Call) -> Sequence[Move]:
    for fd in _matched(_PAIR, call.arguments).groups():
        table.put(int(fd), OpenFile(), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _new_stream(table: DescriptorTable, call: Call) -> Sequence[Move]:
    table.put(call.result, OpenFile(), close_on_exec="CLOEXEC" in call.arguments)
    return ()


def _copy(table: DescriptorTable, call: Call) -> Sequence[Move]:
    """copy_file_range and splice: `in, offset or NULL, out, offset or NULL, length, flags`."""
    source, from_, target, to, _, _ = call.arguments.split(", ")
    return _both(table, call, (source, from_), (target, to))


def _sendfile(table: DescriptorTable, call: Call) -> Sequence[Move]:
    target, source, from_, _ = call.arguments.split(", ")
    return _both(table, call, (source, from_), (target, "NULL"))


def _both(
    table: DescriptorTable, call: Call, source: tuple[str, str], target: tuple[str, str]
) -> Sequence[Move]:
    moves: list[Move] = []
    for operation, (where, at) in (("read", source), ("write", target)):
        own = Call(where, call.result, call.note)
        if at == "NULL":
            moves += _moving(operation)(table, own)
        else:
            moves += _move(table, own, operation, int(_matched(_BRACKETED, at)[1]), call.result)
    return moves


def _truncate(table: DescriptorTable, call: Call) -> Sequence[Move]:
    return _move(table, call, "truncate", number(call.arguments.rpartition(", ")[2]))


def _about(operation: str, *, moves_bytes: bool = False) -> Change:
    """Calls on a descriptor without a file position; calls on a path alone make no record."""

    def change(table: DescriptorTable, call: Call) -> Sequence[Move]:
        arguments = call.arguments
        at_path = operation == "stat" and '"' in arguments and ', ""' not in arguments and ", " in arguments
        if at_path or arguments.startswith(("AT_FDCWD", '"')):
            return ()
        return _move(table, call, operation, size=call.result if moves_bytes else 0)

    return change


def _exec(table: DescriptorTable, _call: Call) -> Sequence[Move]:
    table.exec()
    return ()


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    """The match at the start of `text`. Raises ValueError without one."""
    found = pattern.match(text)
    if found is None:
        raise ValueError(text)
    return found


def _shown(text: str) -> str:
    """The path that `-y` wrote after the first descriptor of `text`, empty without one."""
    found = re.match(r"[0-9]{0,10}<(/.*?)>", text)
    return found[1] if found is not None and found[1].isprintable() else ""


CLONES = frozenset({"clone", "clone3", "fork", "vfork"})

CALLS: dict[str, Change] = {
    **dict.fromkeys(("open", "openat", "openat2", "creat"), _open),
    "close": _close,
    "close_range": _close_range,
    **dict.fromkeys(("read", "readv"), _moving("read")),
    **dict.fromkeys(("write", "writev"), _moving("write")),
    **dict.fromkeys(("pread", "pread64", "preadv"), _placed("read")),
    **dict.fromkeys(("pwrite", "pwrite64", "pwritev"), _placed("write")),
    "preadv2": _placed("read", after=1),
    "pwritev2": _placed("write", after=1),
    "lseek": _lseek,
    "_llseek": _llseek,
    **dict.fromkeys(("dup", "dup2", "dup3"), _dup),
    **dict.fromkeys(("fcntl", "fcntl64"), _fcntl),
    **dict.fromkeys(("pipe", "pipe2", "socketpair"), _pipe),
    **dict.fromkeys(("socket", "accept", "accept4", "eventfd2", "memfd_create"), _new_stream),
    **dict.fromkeys(("copy_file_range", "splice"), _copy),
    **dict.fromkeys(("sendfile", "sendfile64"), _sendfile),
    **dict.fromkeys(("ftruncate", "ftruncate64"), _truncate),
    **dict.fromkeys(("fsync", "fdatasync"), _about("fsync")),
    **dict.fromkeys(("fstat", "fstat64", "newfstatat", "fstatat64", "statx"), _about("stat")),
    **dict.fromkeys(("getdents", "getdents64"), _about("readdir", moves_bytes=True)),
    **dict.fromkeys(("execve", "execveat"), _exec),
}
