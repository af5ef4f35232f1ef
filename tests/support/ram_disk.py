"""Temporary files of the tests on a RAM disk with LAGGARD_TEST_RAM_DISK=1: tests of files wait for the disk.

ext4, for one, writes a file to the disk when it is closed after it was truncated, and fsync always waits.
The Makefile asks for it, but not for tests that need root: those record the I/O of a disk.
"""

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import psutil

WANTED: Final = "LAGGARD_TEST_RAM_DISK"
FOLDER: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 4 * 2**30
"""Free in the RAM disk; all parts of `make test` side by side take less than half of it."""
AVAILABLE_BYTES: Final = 8 * 2**30
"""Memory that the machine can spare."""


def use_ram_disk(environment: MutableMapping[str, str], folder: Path = FOLDER) -> None:
    """Makes `folder` the place of temporary files if it is wanted and fit, and TMPDIR names no other."""
    if environment.get(WANTED) == "1" and "TMPDIR" not in environment and is_fit(folder):
        environment["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # pytest has asked for it already


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
