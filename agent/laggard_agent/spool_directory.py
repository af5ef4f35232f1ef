"""The spool's directory: one agent each, held by a lock on a file in it, and the space that is left."""

import fcntl
import os
from pathlib import Path
from typing import IO

from laggard_common.errors import ServiceError, SpoolError


def take_lock(directory: Path) -> IO[bytes]:
    """The lock on `directory`, which is made if need be; closing it gives it up.

    Raises ServiceError when another agent has it, SpoolError when the directory cannot be used.
    """
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = (directory / "lock").open("ab")
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        lock.close()
        raise ServiceError(f"{directory}: the spool is in use by another agent") from exc
    except OSError as exc:  # a file system without locks
        lock.close()
        raise SpoolError(str(directory), f"cannot be locked: {exc.strerror or exc}") from exc
    return lock


def free_bytes(directory: Path) -> int:
    """What this process may still write on the file system of `directory`. Raises SpoolError."""
    try:
        found = os.statvfs(directory)
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc
    return found.f_bavail * found.f_frsize
