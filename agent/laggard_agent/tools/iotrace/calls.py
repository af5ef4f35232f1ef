"""Effects of system calls on descriptors: changes of the descriptor table, and recorded operations.

A read or write without an explicit offset starts where the previous one on the same open file ended; `lseek`
sets that position and makes no record. The offset is unknown if the open was not traced, for files opened for
appending, and on pipes and terminals.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from laggard_agent.tools.iotrace.descriptors import DescriptorTable, OpenFile
from laggard_agent.tools.iotrace.reader import number
from laggard_common.wire.trace_records import TraceRecord

_FD = re.compile(r"([0-9]{1,10})(?:<(.*?)>)?(?:, |$)")
_PATH = re.compile(r'[^"]*"((?:[^"\\]|\\.)*)"(?:\.\.\.)?(.*)', re.DOTALL)
_BRACKETED = re.compile(r"\[([0-9]{1,19})")
_PAIR = re.compile(r"[^\[]*\[([0-9]{1,10})(?:<.*?>)?, ([0-9]{1,10})(?:<.*?>)?\]")


@dataclass(frozen=True, slots=True)
class Call:
    """A successful call: arguments, return value, the rest of strace's line, node and time of its records."""

    arguments: str
    result: int
    note: str
    node: str
    time_ns: int

    @property
    def fd(self) -> int:
        """The first argument, a descriptor. Raises ValueError if it is none."""
        return int(_matched(_FD, self.arguments)[1])

    def record(
        self, owner: int, operation: str, fd: int, path: str, *, offset: int | None = None, size: int = 0
    ) -> TraceRecord:
        """The record of an operation on `fd` of the process `owner`."""
        return TraceRecord(self.node, operation, f"{owner}:{fd}", offset, size, self.time_ns, path)


Change = Callable[[DescriptorTable, Call], Sequence[TraceRecord]]
"""Applies a call to the table. Raises ValueError when its arguments cannot be parsed."""


def _open(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    shown, flags = _matched(_PATH, call.arguments).groups()
    path = _shown(call.note) or shown
    file = OpenFile(path if path.isprintable() else "", 0, append="O_APPEND" in flags)
    table.put(call.result, file, close_on_exec="O_CLOEXEC" in flags)
    return (call.record(table.name, "open", call.result, file.path),)


def _close(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    moves = _move(table, call, "close")
    table.drop(call.fd)
    return moves


def _close_range(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    first, last, *flags = call.arguments.split(", ", 2)
    low, high = number(first), number(last)
    fds = [fd for fd in table.files if low <= fd <= high]
    if "CLOEXEC" in "".join(flags):
        table.close_on_exec.update(fds)
        return ()
    moves = [call.record(table.name, "close", fd, table.files[fd].path) for fd in fds]
    for fd in fds:
        table.drop(fd)
    return moves


def _move(
    table: DescriptorTable, call: Call, operation: str, offset: int | None = None, size: int = 0
) -> Sequence[TraceRecord]:
    path = table.get(call.fd).path or _shown(call.arguments)
    return (call.record(table.name, operation, call.fd, path, offset=offset, size=size),)


def _moving(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """read, write and their vectored forms: at the open file's own position."""
    file = table.get(call.fd)
    if operation == "write" and file.append:
        file.position = None
    offset = file.position
    if offset is not None:
        file.position = offset + call.result
    return _move(table, call, operation, offset, call.result)


def _placed(operation: str, after: int, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """pread, pwrite and their vectored forms: the offset is the last argument but `after`."""
    _, place, *rest = call.arguments.rsplit(", ", after + 1)
    if len(rest) != after:
        raise ValueError(call.arguments)
    if after and place == "-1":
        return _moving(operation, table, call)
    offset = number(place)
    appended = operation == "write" and table.get(call.fd).append  # Linux appends, whatever the offset
    return _move(table, call, operation, None if appended else offset, call.result)


def _lseek(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    table.get(call.fd).position = call.result
    return ()


def _llseek(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    found = _BRACKETED.search(call.arguments)
    if found is None:
        raise ValueError(call.arguments)
    table.get(call.fd).position = int(found[1])
    return ()


def _dup(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    if call.result != call.fd:
        table.put(call.result, table.get(call.fd), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _fcntl(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    fd = call.fd
    if "F_DUPFD" in call.arguments:
        table.put(call.result, table.get(fd), close_on_exec="F_DUPFD_CLOEXEC" in call.arguments)
    elif "F_SETFD" in call.arguments:
        (table.close_on_exec.add if "FD_CLOEXEC" in call.arguments else table.close_on_exec.discard)(fd)
    elif "F_SETFL" in call.arguments:
        table.get(fd).append = "O_APPEND" in call.arguments
    return ()


def _pipe(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    for fd in _matched(_PAIR, call.arguments).groups():
        table.put(int(fd), OpenFile(), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _new_stream(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    table.put(call.result, OpenFile(), close_on_exec="CLOEXEC" in call.arguments)
    return ()


def _copy(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """copy_file_range and splice: `in, offset or NULL, out, offset or NULL, length, flags`."""
    source, from_, target, to, _, _ = call.arguments.split(", ")
    return _both(table, call, (source, from_), (target, to))


def _sendfile(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    target, source, from_, _ = call.arguments.split(", ")
    return _both(table, call, (source, from_), (target, "NULL"))


def _both(
    table: DescriptorTable, call: Call, source: tuple[str, str], target: tuple[str, str]
) -> Sequence[TraceRecord]:
    moves: list[TraceRecord] = []
    for operation, (where, at) in (("read", source), ("write", target)):
        own = replace(call, arguments=where)
        if at == "NULL":
            moves += _moving(operation, table, own)
        else:
            moves += _move(table, own, operation, int(_matched(_BRACKETED, at)[1]), call.result)
    return moves


def _truncate(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    return _move(table, call, "truncate", number(call.arguments.rpartition(", ")[2]))


def _about(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """Calls on a descriptor without a file position; calls on a path alone make no record."""
    arguments = call.arguments
    at_path = operation == "stat" and '"' in arguments and ', ""' not in arguments and ", " in arguments
    if at_path or arguments.startswith(("AT_FDCWD", '"')):
        return ()
    return _move(table, call, operation, size=call.result if operation == "readdir" else 0)


def _exec(table: DescriptorTable, _call: Call) -> Sequence[TraceRecord]:
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
    **dict.fromkeys(("read", "readv"), partial(_moving, "read")),
    **dict.fromkeys(("write", "writev"), partial(_moving, "write")),
    **dict.fromkeys(("pread", "pread64", "preadv"), partial(_placed, "read", 0)),
    **dict.fromkeys(("pwrite", "pwrite64", "pwritev"), partial(_placed, "write", 0)),
    "preadv2": partial(_placed, "read", 1),
    "pwritev2": partial(_placed, "write", 1),
    "lseek": _lseek,
    "_llseek": _llseek,
    **dict.fromkeys(("dup", "dup2", "dup3"), _dup),
    **dict.fromkeys(("fcntl", "fcntl64"), _fcntl),
    **dict.fromkeys(("pipe", "pipe2", "socketpair"), _pipe),
    **dict.fromkeys(("socket", "accept", "accept4", "eventfd2", "memfd_create"), _new_stream),
    **dict.fromkeys(("copy_file_range", "splice"), _copy),
    **dict.fromkeys(("sendfile", "sendfile64"), _sendfile),
    **dict.fromkeys(("ftruncate", "ftruncate64"), _truncate),
    **dict.fromkeys(("fsync", "fdatasync"), partial(_about, "fsync")),
    **dict.fromkeys(("fstat", "fstat64", "newfstatat", "fstatat64", "statx"), partial(_about, "stat")),
    **dict.fromkeys(("getdents", "getdents64"), partial(_about, "readdir")),
    **dict.fromkeys(("execve", "execveat"), _exec),
}
