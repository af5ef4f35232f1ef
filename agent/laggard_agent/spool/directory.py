"""The spool's directory: one agent each, held by a lock on a file in it, and the space that is left."""

import os
from pathlib import Path
from typing import IO

from laggard_common.daemon import file_lock
from laggard_common.errors import SpoolError


def take_lock(directory: Path) -> IO[bytes]:
    """The lock on `directory`, which is made if need be; closing it gives it up.

    Raises ServiceError when another agent has it, SpoolError when the directory cannot be used.
    """
    try:
        return file_lock.take_lock(directory, "the spool is in use by another agent")
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc


def free_bytes(directory: Path) -> int:
    """What this process may still write on the file system of `directory`. Raises SpoolError."""
    try:
        found = os.statvfs(directory)
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc
    return found.f_bavail * found.f_frsize
