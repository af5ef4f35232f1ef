"""Reads a dump that is rewritten in place every second: one complete dump, or nothing."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from laggard_agent.collectors.interface import note_not_read, note_read
from laggard_common.errors import CollectError

MOST_DUMP_BYTES = 1024 * 1024  # a brick's dump is 45 kB
_GONE = (errno.ENOENT, errno.ESTALE)


@dataclass(frozen=True, slots=True)
class FileState:
    """File attributes that change with a rewrite; `changed_ns` is since the epoch."""

    inode: int
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Text:
    """Contents of a file and its state at that time."""

    data: bytes
    state: FileState


def read_text(path: Path, before: FileState | None) -> Text | None:
    """Reads `path`; None when it is unchanged since `before`, is missing, or changed during the read.

    Raises CollectError, also for a file that is longer than a dump can be or is not a regular file.
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


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns)
