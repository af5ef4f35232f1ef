"""Extents of a file by the FIEMAP ioctl, printed as `filefrag -v` does."""

import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FS_IOC_FIEMAP = 0xC020660B
_SYNC = 1
_LAST = 1
_UNWRITTEN = 0x800
_NOT_PLACED = 0x2 | 0x4 | 0x200  # unknown, delayed allocation, inline
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")
_AT_ONCE = 512
_SECTOR = 512
MAX_EXTENTS = 1 << 20


class MappedExtent(NamedTuple):
    """Logical and physical byte, length in bytes, and whether it is unwritten."""

    logical: int
    physical: int
    length: int
    is_unwritten: bool


def extents(descriptor: int) -> Iterator[MappedExtent]:
    """Yields the extents; the file is synced first.

    Raises OSError where the file system has no FIEMAP.
    """
    start, count = 0, 0
    while count < MAX_EXTENTS:
        buffer = bytearray(_HEADER.size + _AT_ONCE * _EXTENT.size)
        _HEADER.pack_into(buffer, 0, start, 2**64 - 1 - start, _SYNC, 0, _AT_ONCE, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
        mapped = _HEADER.unpack_from(buffer)[3]
        for at in range(mapped):
            logical, physical, length, _, _, flags, *_ = _EXTENT.unpack_from(
                buffer, _HEADER.size + at * _EXTENT.size
            )
            count += 1
            if not flags & _NOT_PLACED:
                yield MappedExtent(logical, physical, length, bool(flags & _UNWRITTEN))
            start = logical + length
            if flags & _LAST:
                return
        if not mapped:
            return


def filefrag_lines(path: Path) -> tuple[list[str], os.stat_result | None]:
    """The lines of `filefrag -v` for a regular file, and its status; None for a path that is none any more.

    The path is that of a descriptor of some program: a FIFO or a link in its place is not followed. No
    extents where the file system has no FIEMAP.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return [], None
    try:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            return [], None
        try:
            mapped = list(extents(descriptor))
        except OSError:
            return [], known
        block = os.fstatvfs(descriptor).f_frsize or _SECTOR
        return list(_lines(path, known.st_size, block, mapped)), known
    finally:
        os.close(descriptor)


def _lines(path: Path, size: int, block: int, mapped: list[MappedExtent]) -> Iterator[str]:
    if any(part % block for extent in mapped for part in extent[:3]):
        block = _SECTOR
    blocks = -(-size // block)
    name = "".join(c if c.isprintable() else "?" for c in str(path))
    yield f"File size of {name} is {size} ({blocks} blocks of {block} bytes)\n"
    yield " ext:     logical_offset:        physical_offset: length:   expected: flags:\n"
    for number, (logical, physical, length, unwritten) in enumerate(mapped):
        first, place, count = logical // block, physical // block, length // block
        flags = "unwritten" if unwritten else ""
        yield (
            f"{number:4}: {first:8}..{first + count - 1:8}: {place:10}..{place + count - 1:10}: {count:6}:"
            f"             {flags}\n"
        )
