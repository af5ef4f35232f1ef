"""Output files that are whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from laggard_common.errors import ArchiveError, InputError
from laggard_common.segment_log import sync_path


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """A text file that takes the place of `path` when the body ends without an error, and never otherwise.

    Raises InputError when it cannot be written, as the user named the path. Devices and pipes are
    written in place.
    """
    with InputError.from_os_errors(path):
        is_device = path.exists() and not path.is_file() and not path.is_dir()
    if is_device:
        with InputError.from_os_errors(path), path.open("w", encoding="utf-8") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.is_dir():
            raise InputError(str(path), "is a directory, expected a file to write")
        with temporary.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as exc:
        raise InputError(str(path), f"cannot be written: {exc.strerror or exc}") from exc
    finally:
        with suppress(OSError):
            temporary.unlink()


def replace_durably(path: Path, content: bytes) -> None:
    """Puts `content` in the place of a file; it is on the disk when this returns. Raises ArchiveError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_path(path.parent)
    except OSError as exc:
        raise ArchiveError(str(path), exc.strerror or str(exc)) from exc
    finally:
        with suppress(OSError):
            temporary.unlink()
