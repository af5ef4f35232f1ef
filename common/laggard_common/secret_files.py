"""Permission check of files with passwords, keys and hashes."""

import stat
from pathlib import Path


def unfit(path: Path) -> str | None:
    """Reason why a secret must not be read from the file, as text; None if it may be."""
    try:
        mode = path.stat().st_mode
    except OSError as exc:
        return exc.strerror or str(exc)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        return "may be read or written by everyone, expected mode 0600 or 0640"
    return None
