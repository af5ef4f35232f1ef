"""The spool's directory: its lock, held by one agent, and its free space."""

import os
from pathlib import Path
from typing import IO

from laggard_common.daemon import file_lock
from laggard_common.errors import SpoolError


def take_lock(directory: Path) -> IO[bytes]:
    """Locks `directory`, which is created if needed; closing the lock releases it.

    Raises ServiceError when another agent holds it, SpoolError when the directory is unusable.
    """
    try:
        return file_lock.take_lock(directory, "the spool is in use by another agent")
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc


def free_bytes(directory: Path) -> int:
    """Bytes this process may still write on the file system of `directory`. Raises SpoolError."""
    try:
        found = os.statvfs(directory)
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc
    return found.f_bavail * found.f_frsize
