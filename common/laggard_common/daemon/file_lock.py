"""A directory that only one process may use, held by a lock on a file in it."""

import fcntl
from pathlib import Path
from typing import IO

from laggard_common.errors import ServiceError


def take_lock(directory: Path, in_use: str) -> IO[bytes]:
    """The lock on `directory`, which is made if need be; closing it gives it up.

    Raises ServiceError, with `in_use` as its text, when another process has it, OSError when the directory
    cannot be used or locked.
    """
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    lock = (directory / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        lock.close()
        raise ServiceError(f"{directory}: {in_use}") from exc
    except OSError:  # a file system without locks
        lock.close()
        raise
    return lock
