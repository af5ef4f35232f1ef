"""Effects of system calls on descriptors: changes of the descriptor table, and recorded operations.

A read or write without an explicit offset starts where the previous one on the same open file ended; `lseek`
sets that position and makes no record. The offset is unknown if the open was not traced, for files opened for
appending, and on pipes and terminals.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from laggard_common.trace_formats.descriptors import DescriptorTable, OpenFile
from laggard_common.trace_formats.line_reader import number
from laggard_common.wire.trace_records import TraceRecord

_FD = re.compile(r"([0-9]{1,10})(?:<(.*?)>(?:\(deleted\))?)?(?:, |$)")
_PATH = re.compile(r'[^"]*"((?:[^"\\]|\\.)*)"(?:\.\.\.)?(.*)', re.DOTALL)
_NUMBER = re.compile(r"0x([0-9a-f]{1,8})\b")
_BITS = {
    "O_APPEND": 0x400,
    "O_CLOEXEC": 0x80000,
    "FD_CLOEXEC": 0x1,
    "CLOSE_RANGE_CLOEXEC": 0x4,
    "RWF_APPEND": 0x10,
    "CLONE_FILES": 0x400,
    "CLONE_VFORK": 0x4000,
}
_COMMANDS = {"0": "F_DUPFD", "0x2": "F_SETFD", "0x4": "F_SETFL", "0x406": "F_DUPFD_CLOEXEC"}
"""Linux's numbers of flags and of commands of fcntl, which `strace -X raw` prints."""
_BRACKETED = re.compile(r"\[([0-9]{1,19})")
_PAIR = re.compile(r"[^\[]*\[([0-9]{1,10})(?:<.*?>)?, ([0-9]{1,10})(?:<.*?>)?\]")


@dataclass(frozen=True, slots=True)
class Call:
    """A successful call: arguments, return value, the rest of strace's line, times of its records."""

    arguments: str
    result: int
    note: str
    node: str
    time_ns: int
    end_ns: int | None = None
    thread: int = -1

    @property
    def fd(self) -> int:
        """The first argument, a descriptor. Raises ValueError if it is none."""
        return int(_matched(_FD, self.arguments)[1])

    @property
    def shown_path(self) -> str:
        """The path that `-y` wrote after the first argument, empty without one."""
        return _shown(self.arguments)

    def record(
        self,
        owner: int,
        operation: str,
        fd: int,
        path: str,
        *,
        offset: int | None = None,
        size: int = 0,
        asked: int | None = None,
    ) -> TraceRecord:
        """The record of an operation on `fd` of the process `owner`."""
        return TraceRecord(
            self.node,
            operation,
            f"{owner}:{fd}",
            offset,
            size,
            self.time_ns,
            path,
            asked,
            self.end_ns,
            self.thread,
        )


Change = Callable[[DescriptorTable, Call], Sequence[TraceRecord]]
"""Applies a call to the table. Raises ValueError when its arguments cannot be parsed."""


def _open(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    shown, rest = _matched(_PATH, call.arguments).groups()
    flags = rest.removeprefix(", ").partition(", ")[0]
    path = _shown(call.note) or shown
    file = OpenFile(path if path.isprintable() else "", 0, append=has_flag(flags, "O_APPEND"))
    table.put(call.result, file, close_on_exec=has_flag(flags, "O_CLOEXEC"))
    return (call.record(table.name, "open", call.result, file.path),)


def _close(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    moves = _move(table, call, "close")
    table.drop(call.fd)
    return moves


def _close_range(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    first, last, *flags = call.arguments.split(", ", 2)
    low, high = number(first), number(last)
    fds = [fd for fd in table.files if low <= fd <= high]
    if has_flag("".join(flags), "CLOSE_RANGE_CLOEXEC"):
        table.close_on_exec.update(fds)
        return ()
    moves = [call.record(table.name, "close", fd, table.files[fd].path) for fd in fds]
    for fd in fds:
        table.drop(fd)
    return moves


def _move(
    table: DescriptorTable,
    call: Call,
    operation: str,
    offset: int | None = None,
    size: int = 0,
    *,
    asked: int | None = None,
) -> Sequence[TraceRecord]:
    path = table.get(call.fd).path or call.shown_path
    return (call.record(table.name, operation, call.fd, path, offset=offset, size=size, asked=asked),)


def _moving(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """read and write: at the open file's own position. The last argument is the number of bytes."""
    return _advance(operation, table, call, asked=_count(call.arguments.rpartition(", ")[2]))


def _moving_buffers(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """readv and writev: the last argument is a number of buffers."""
    return _advance(operation, table, call)


def _advance(
    operation: str, table: DescriptorTable, call: Call, *, asked: int | None = None, appends: bool = False
) -> Sequence[TraceRecord]:
    file = table.get(call.fd)
    if appends or (operation == "write" and file.append):
        file.position = None
    offset = file.position
    if offset is not None:
        file.seek(offset + call.result)
    return _move(table, call, operation, offset, call.result, asked=asked)


def _placed(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """pread and pwrite: the last two arguments are the number of bytes and the offset."""
    _, count, place = call.arguments.rsplit(", ", 2)
    return _move_at(operation, table, call, number(place), asked=_count(count))


def _placed_buffers(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """preadv and pwritev: the last argument is the offset."""
    return _move_at(operation, table, call, number(call.arguments.rpartition(", ")[2]))


def _flagged(operation: str, table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    """preadv2 and pwritev2: the last two arguments are the offset, -1 for the file's own, and flags."""
    _, place, flags = call.arguments.rsplit(", ", 2)
    appends = operation == "write" and has_flag(flags, "RWF_APPEND")
    if place == "-1":
        return _advance(operation, table, call, appends=appends)
    return _move_at(operation, table, call, number(place), appends=appends)


def _move_at(
    operation: str,
    table: DescriptorTable,
    call: Call,
    offset: int,
    *,
    asked: int | None = None,
    appends: bool = False,
) -> Sequence[TraceRecord]:
    # Linux appends to a file that was opened for it, whatever the offset
    appends = appends or (operation == "write" and table.get(call.fd).append)
    return _move(table, call, operation, None if appends else offset, call.result, asked=asked)


def _count(text: str) -> int | None:
    """Bytes that a call asked for, None for a number that is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def _lseek(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    table.get(call.fd).seek(call.result)
    return ()


def _llseek(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    match = _BRACKETED.search(call.arguments)
    if match is None:
        raise ValueError(call.arguments)
    table.get(call.fd).seek(int(match[1]))
    return ()


def _dup(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    if call.result != call.fd:
        table.put(call.result, table.get(call.fd), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _fcntl(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    fd = call.fd
    command, _, flags = call.arguments[_matched(_FD, call.arguments).end() :].partition(", ")
    command = _COMMANDS.get(command.partition(" ")[0], command)  # `0x2 /* F_SETFD */` of -X verbose
    if command.startswith("F_DUPFD"):
        table.put(call.result, table.get(fd), close_on_exec=command.startswith("F_DUPFD_CLOEXEC"))
    elif command.startswith("F_SETFD"):
        (table.close_on_exec.add if has_flag(flags, "FD_CLOEXEC") else table.close_on_exec.discard)(fd)
    elif command.startswith("F_SETFL"):
        table.get(fd).append = has_flag(flags, "O_APPEND")
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
    source, from_, target, to, length, _ = call.arguments.split(", ")
    return _both(table, call, (source, from_), (target, to), _count(length))


def _sendfile(table: DescriptorTable, call: Call) -> Sequence[TraceRecord]:
    target, source, from_, length = call.arguments.split(", ")
    return _both(table, call, (source, from_), (target, "NULL"), _count(length))


def _both(
    table: DescriptorTable,
    call: Call,
    source: tuple[str, str],
    target: tuple[str, str],
    asked: int | None,
) -> Sequence[TraceRecord]:
    moves: list[TraceRecord] = []
    for operation, (where, at) in (("read", source), ("write", target)):
        own = replace(call, arguments=where)
        if at == "NULL":
            moves += _advance(operation, table, own, asked=asked)
        else:
            moves += _move_at(operation, table, own, int(_matched(_BRACKETED, at)[1]), asked=asked)
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


def has_flag(flags: str, name: str) -> bool:
    """Whether `flags`, in words or as a number, have the one of this name."""
    number = _NUMBER.match(flags.removeprefix("{flags="))
    return name in flags or (number is not None and bool(int(number[1], 16) & _BITS[name]))


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    """The match at the start of `text`. Raises ValueError without one."""
    match = pattern.match(text)
    if match is None:
        raise ValueError(text)
    return match


def _shown(text: str) -> str:
    """The path that `-y` wrote after the first descriptor of `text`, empty without one."""
    match = re.match(r"[0-9]{0,10}<(/[^<>]*)", text)
    return match[1] if match is not None and match[1].isprintable() else ""


MOVING = {
    **dict.fromkeys(("read", "pread", "pread64", "readv", "preadv", "preadv2"), "read"),
    **dict.fromkeys(("write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev2"), "write"),
}
CLONES = frozenset({"clone", "clone3", "fork", "vfork"})
HIDING = frozenset({"io_uring_enter", "io_submit"})
"""Calls that move data of files without a word of how much."""

CALLS: dict[str, Change] = {
    **dict.fromkeys(("open", "openat", "openat2", "creat"), _open),
    "close": _close,
    "close_range": _close_range,
    "read": partial(_moving, "read"),
    "write": partial(_moving, "write"),
    "readv": partial(_moving_buffers, "read"),
    "writev": partial(_moving_buffers, "write"),
    **dict.fromkeys(("pread", "pread64"), partial(_placed, "read")),
    **dict.fromkeys(("pwrite", "pwrite64"), partial(_placed, "write")),
    "preadv": partial(_placed_buffers, "read"),
    "pwritev": partial(_placed_buffers, "write"),
    "preadv2": partial(_flagged, "read"),
    "pwritev2": partial(_flagged, "write"),
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
