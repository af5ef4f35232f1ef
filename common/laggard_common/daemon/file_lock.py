"""Exclusive use of a directory, by a lock on a file in it."""

import fcntl
from pathlib import Path
from typing import IO

from laggard_common.errors import ServiceError


def take_lock(directory: Path, in_use: str) -> IO[bytes]:
    """Locks `directory`, which is created if needed; closing the lock releases it.

    Raises ServiceError with the text `in_use` when another process holds it, OSError when the directory
    cannot be used or locked.
    """
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    lock = (directory / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        lock.close()
        if isinstance(exc, BlockingIOError):
            raise ServiceError(f"{directory}: {in_use}") from exc
        raise  # a file system without locks
    return lock
