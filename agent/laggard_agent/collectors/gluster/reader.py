"""Reads a dump that is rewritten in place every second: one complete dump, or nothing."""

import errno
import os
from pathlib import Path
from typing import NamedTuple

from laggard_agent.collectors.interface import note_read, refused, regular_file, unreadable

MOST_DUMP_BYTES = 1024 * 1024  # a brick's dump is 45 kB
_GONE = (errno.ENOENT, errno.ESTALE)


class FileState(NamedTuple):
    """File attributes that change with a rewrite; `changed_ns` is since the epoch."""

    inode: int
    size: int
    changed_ns: int


def read_rewritten(path: Path, before: FileState | None) -> tuple[bytes, FileState] | None:
    """Contents and state of `path`; None when unchanged since `before`, missing, or changed during the read.

    Raises CollectError, also for a file that is longer than a dump can be or is not a regular file.
    """
    try:
        if before is not None and _state(path.stat()) == before:
            return None
        with regular_file(path) as (fd, found):
            if found.st_size > MOST_DUMP_BYTES:
                raise refused(path, f"longer than {MOST_DUMP_BYTES} bytes")
            data = os.read(fd, found.st_size + 1)
            if len(data) != found.st_size or _state(os.fstat(fd)) != _state(found):
                return None
    except OSError as exc:
        if exc.errno in _GONE:
            return None
        raise unreadable(path, exc) from exc
    note_read(path, data)
    return data, _state(found)


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns)
