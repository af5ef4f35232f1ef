"""Reading a dump that is rewritten in place every second: all of one dump, or nothing."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from laggard_agent.collectors.read_recorder import note_not_read, note_read
from laggard_common.errors import CollectError

MOST_DUMP_BYTES = 1024 * 1024  # a brick's is 45 kB
_GONE = (errno.ENOENT, errno.ESTALE)


@dataclass(frozen=True, slots=True)
class State:
    """What changes when a file is rewritten; `changed_ns` is since the epoch."""

    inode: int
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Text:
    """What a file said, and its state then."""

    data: bytes
    state: State


def read_text(path: Path, before: State | None) -> Text | None:
    """The file at `path`; None when it is as it was in `before`, is gone, or changed while it was read.

    Raises CollectError, also for a file that is longer than a dump can be, or is no regular file.
    """
    try:
        if before is not None and _state(path.stat()) == before:
            return None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise _refused(path, "not a regular file")
            if found.st_size > MOST_DUMP_BYTES:
                raise _refused(path, f"longer than {MOST_DUMP_BYTES} bytes")
            data = os.read(fd, found.st_size + 1)
            changed = len(data) != found.st_size or _state(os.fstat(fd)) != _state(found)
        finally:
            os.close(fd)
    except OSError as exc:
        if exc.errno in _GONE:
            return None
        raise _refused(path, exc.strerror or str(exc)) from exc
    if changed:
        return None
    note_read(path, data)
    return Text(data, _state(found))


def _refused(path: Path, reason: str) -> CollectError:
    note_not_read(path, reason)
    return CollectError(str(path), reason)


def _state(found: os.stat_result) -> State:
    return State(found.st_ino, found.st_size, found.st_mtime_ns)
