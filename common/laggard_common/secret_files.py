"""Permission check of files with passwords, keys and hashes."""

import errno
import os
import stat
from pathlib import Path

from laggard_common.errors import MissingFile


def problem(key: str, path: Path, reason: str) -> str:
    """A problem of a configuration with the file `path`; a MissingFile when it is not there."""
    text = f"{key}: {path}: {reason}"
    return MissingFile(text) if reason.endswith(os.strerror(errno.ENOENT)) else text


def below(name: str, problem: str) -> str:
    """The problem with the name of a table before its key; a MissingFile stays one."""
    return type(problem)(f"{name}.{problem}")


def unfit(path: Path) -> str | None:
    """Reason why a secret must not be read from the file, as text; None if it may be."""
    try:
        mode = path.stat().st_mode
    except OSError as exc:
        return exc.strerror or str(exc)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        return "may be read or written by everyone, expected mode 0600 or 0640"
    return None
