"""Effects of system calls on descriptors: changes of the descriptor table, and recorded operations.

A read or write without an explicit offset starts where the previous one on the same open file ended; `lseek`
sets that position and makes no record. The offset is unknown if the open was not traced, for files opened for
appending, and on pipes and terminals.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laggard_agent.tools.iotrace.descriptors import DescriptorTable, OpenFile

_FD = re.compile(r"([0-9]{1,10})(?:<(.*?)>)?(?:, |$)")
_PATH = re.compile(r'[^"]*"((?:[^"\\]|\\.)*)"(?:\.\.\.)?(.*)', re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,19}")
_BRACKETED = re.compile(r"\[([0-9]{1,19})")
_PAIR = re.compile(r"[^\[]*\[([0-9]{1,10})(?:<.*?>)?, ([0-9]{1,10})(?:<.*?>)?\]")


@dataclass(frozen=True, slots=True)
class Call:
    """A successful call: arguments, return value, and the rest of strace's line."""

    arguments: str
    result: int
    note: str


@dataclass(frozen=True, slots=True)
class Move:
    """One operation on one descriptor. `offset` and `size` as in `wire.trace_records.Record`."""

    operation: str
    fd: int
    offset: int | None
    size: int
    path: str


Change = Callable[[DescriptorTable, Call], Sequence[Move] | None]  # None: its arguments were not parsed


def _open(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    found = _PATH.match(call.arguments)
    if found is None:
        return None
    shown, flags = found.groups()
    path = _shown(call.note) or shown
    file = OpenFile(path if path.isprintable() else "", 0, append="O_APPEND" in flags)
    table.put(call.result, file, close_on_exec="O_CLOEXEC" in flags)
    return (Move("open", call.result, None, 0, file.path),)


def _close(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    fd = _fd(call.arguments)
    if fd is None:
        return None
    path = table.get(fd).path or _shown(call.arguments)
    table.drop(fd)
    return (Move("close", fd, None, 0, path),)


def _close_range(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    first, _, rest = call.arguments.partition(", ")
    last, _, flags = rest.partition(", ")
    low, high = _number(first), _number(last)
    if low is None or high is None:
        return None
    fds = [fd for fd in table.files if low <= fd <= high]
    if "CLOEXEC" in flags:
        table.close_on_exec.update(fds)
        return ()
    moves = [Move("close", fd, None, 0, table.files[fd].path) for fd in fds]
    for fd in fds:
        table.drop(fd)
    return moves


def _moving(operation: str) -> Change:
    """read, write and their vectored forms: at the open file's own position."""

    def change(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
        fd = _fd(call.arguments)
        return None if fd is None else (_at_position(table, fd, operation, call),)

    return change


def _placed(operation: str, after: int = 0) -> Change:
    """pread, pwrite and their vectored forms: the offset is the last argument but `after`."""

    def change(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
        fd = _fd(call.arguments)
        last = call.arguments.rsplit(", ", after + 1)
        if fd is None or len(last) != after + 2:
            return None
        if after and last[1] == "-1":
            return (_at_position(table, fd, operation, call),)
        offset = _number(last[1])
        if offset is None:
            return None
        file = table.get(fd)
        appended = operation == "write" and file.append  # Linux appends, whatever the offset
        return (_move(file, operation, fd, None if appended else offset, call),)

    return change


def _at_position(table: DescriptorTable, fd: int, operation: str, call: Call) -> Move:
    file = table.get(fd)
    if operation == "write" and file.append:
        file.position = None
    offset = file.position
    if offset is not None:
        file.position = offset + call.result
    return _move(file, operation, fd, offset, call)


def _move(file: OpenFile, operation: str, fd: int, offset: int | None, call: Call) -> Move:
    return Move(operation, fd, offset, call.result, file.path or _shown(call.arguments))


def _lseek(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    return _seek(table, call, call.result)


def _llseek(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    found = _BRACKETED.search(call.arguments)
    return None if found is None else _seek(table, call, int(found[1]))


def _seek(table: DescriptorTable, call: Call, position: int) -> Sequence[Move] | None:
    fd = _fd(call.arguments)
    if fd is None:
        return None
    table.get(fd).position = position
    return ()


def _dup(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    fd = _fd(call.arguments)
    if fd is None:
        return None
    if call.result != fd:
        table.put(call.result, table.get(fd), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _fcntl(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    fd = _fd(call.arguments)
    if fd is None:
        return None
    if "F_DUPFD" in call.arguments:
        table.put(call.result, table.get(fd), close_on_exec="F_DUPFD_CLOEXEC" in call.arguments)
    elif "F_SETFD" in call.arguments:
        (table.close_on_exec.add if "FD_CLOEXEC" in call.arguments else table.close_on_exec.discard)(fd)
    elif "F_SETFL" in call.arguments:
        table.get(fd).append = "O_APPEND" in call.arguments
    return ()


def _pipe(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    found = _PAIR.match(call.arguments)
    if found is None:
        return None
    for fd in found.groups():
        table.put(int(fd), OpenFile(), close_on_exec="O_CLOEXEC" in call.arguments)
    return ()


def _new_stream(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    table.put(call.result, OpenFile(), close_on_exec="CLOEXEC" in call.arguments)
    return ()


def _copy(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    """copy_file_range and splice: `in, offset or NULL, out, offset or NULL, length, flags`."""
    parts = call.arguments.split(", ")
    if len(parts) != 6:
        return None
    return _both(table, call, source=(parts[0], parts[1]), target=(parts[2], parts[3]))


def _sendfile(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    parts = call.arguments.split(", ")
    if len(parts) != 4:
        return None
    return _both(table, call, source=(parts[1], parts[2]), target=(parts[0], "NULL"))


def _both(
    table: DescriptorTable, call: Call, *, source: tuple[str, str], target: tuple[str, str]
) -> Sequence[Move] | None:
    moves = []
    for operation, (where, at) in (("read", source), ("write", target)):
        fd, placed = _fd(where), _BRACKETED.match(at)
        if fd is None or (placed is None and at != "NULL"):
            return None
        own = Call(where, call.result, call.note)
        if placed is None:
            moves.append(_at_position(table, fd, operation, own))
        else:
            moves.append(_move(table.get(fd), operation, fd, int(placed[1]), own))
    return moves


def _truncate(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
    fd, length = _fd(call.arguments), _number(call.arguments.rpartition(", ")[2])
    if fd is None or length is None:
        return None
    return (Move("truncate", fd, length, 0, table.get(fd).path or _shown(call.arguments)),)


def _about(operation: str, *, moves_bytes: bool = False) -> Change:
    """Calls on a descriptor without a file position; calls on a path alone make no record."""

    def change(table: DescriptorTable, call: Call) -> Sequence[Move] | None:
        fd = _fd(call.arguments)
        if fd is None:
            return () if call.arguments.startswith(("AT_FDCWD", '"')) else None
        if (
            operation == "stat"
            and ", " in call.arguments
            and '"' in call.arguments
            and ', ""' not in call.arguments
        ):
            return ()
        file = table.get(fd)
        size = call.result if moves_bytes else 0
        return (Move(operation, fd, None, size, file.path or _shown(call.arguments)),)

    return change


def _exec(table: DescriptorTable, _call: Call) -> Sequence[Move]:
    table.exec()
    return ()


def _fd(arguments: str) -> int | None:
    found = _FD.match(arguments)
    return None if found is None else int(found[1])


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


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
