"""Files that `--dump` does not copy, as their addresses are confidential."""

import os
from pathlib import Path


def beginning_of(path: Path | str, most_bytes: int) -> bytes:
    """The first bytes of a file, fewer at its end; none when it is unreadable or missing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    chunks: list[bytes] = []
    try:
        while most_bytes > 0 and (chunk := os.read(fd, min(most_bytes, 1 << 16))):
            chunks.append(chunk)
            most_bytes -= len(chunk)
    except OSError:
        pass  # the process ended during the read
    finally:
        os.close(fd)
    return b"".join(chunks)


def link_of(path: Path | str) -> str:
    """Target of a link; empty when it is unreadable or missing."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
