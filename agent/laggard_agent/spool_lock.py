"""One agent a spool directory, held by a lock on a file in it."""

import fcntl
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
    except OSError as exc:
        lock.close()
        raise ServiceError(f"{directory}: the spool is in use by another agent") from exc
    return lock
