"""Files that only this collector reads, and that `--dump` does not copy: addresses are the host's secret."""

import os
from pathlib import Path


def beginning_of(path: Path | str, most_bytes: int) -> bytes:
    """The first bytes of a file, fewer where it ends; nothing when it cannot be read or has gone."""
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
        pass  # a process ended while it was read
    finally:
        os.close(fd)
    return b"".join(chunks)


def link_of(path: Path | str) -> str:
    """Where a link points to; empty when it cannot be read or has gone."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
