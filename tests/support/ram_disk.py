"""Temporary files of the tests lie on a RAM disk where there is one: tests of files mostly wait for the disk.

ext4, for one, writes a file to the disk when it is closed after it was truncated, and fsync always waits.
`TMPDIR=/var/tmp make test` runs the same tests on a disk.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import psutil

FOLDER: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 4 * 2**30
"""Free in the RAM disk; all parts of `make test` side by side take less than half of it."""
AVAILABLE_BYTES: Final = 8 * 2**30
"""Memory that the machine can spare."""


def use_ram_disk(environment: MutableMapping[str, str], folder: Path = FOLDER) -> None:
    """Makes `folder` the place of temporary files if it is fit for them and TMPDIR names no other."""
    if "TMPDIR" not in environment and is_fit(folder):
        environment["TMPDIR"] = str(folder)


def is_fit(folder: Path) -> bool:
    """Whether programs can be written to and run from the folder, and it and the memory have room."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return (
        os.access(folder, os.W_OK | os.X_OK)
        and not disk.f_flag & os.ST_NOEXEC
        and disk.f_bavail * disk.f_frsize >= NEEDED_BYTES
        and psutil.virtual_memory().available >= AVAILABLE_BYTES
    )
