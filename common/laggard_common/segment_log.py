"""Append-only files of checked records, for the agent's spool and the aggregator's ingest journal.

A segment is the 8 bytes `LAGGSEG1`, then records; a record is 9 bytes of header, little-endian, and a
payload.

    length   u32   bytes of payload
    crc32    u32   of the type byte followed by the payload
    type     u8    1-255, given its meaning by whoever writes the file
    payload  length bytes

A process that dies while appending leaves a torn last record. `recover` truncates it and changes nothing
before it. A record damaged by the disk is left out, and those after it are read: by its length, or, where
that has a flipped bit, by the length with which the checksum is right. The offsets of records show the gap.
Data after a record whose length is lost is ignored: a search would find records that a client put into a
payload.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from laggard_common.errors import SpoolError

MAGIC = b"LAGGSEG1"
HEADER = struct.Struct("<IIB")
MAX_RECORD_BYTES = 8 * 1024 * 1024
_MAX_DAMAGED = 64
"""Damaged records in a row after which the rest of a segment is given up."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `offset` is its start in the file and `end` the start of the next one."""

    type: int
    payload: bytes
    offset: int
    end: int


class SegmentWriter:
    """Appends to one segment.

    Once `append` returns or raises, a record is in the file completely or not at all.
    """

    def __init__(self, path: Path) -> None:
        """Opens the segment at `path` for appending, creating it if need be. Raises SpoolError.

        An existing file must have been through `recover`.
        """
        self.path = path
        with SpoolError.from_os_errors(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self.size_bytes = os.fstat(self._fd).st_size
            if self.size_bytes == 0:
                try:
                    self._write(MAGIC)
                except OSError:
                    self.close()
                    path.unlink(missing_ok=True)
                    raise

    def append(self, type_: int, payload: bytes) -> None:
        """Appends a record. Raises SpoolError and then leaves the file unchanged."""
        self.append_all([(type_, (payload,))])

    def append_all(self, records: Iterable[tuple[int, Sequence[bytes]]]) -> None:
        """Appends records, each a type and the pieces of its payload, with one write: all of them or none.

        Raises SpoolError and then leaves the file unchanged.
        """
        pieces: list[bytes] = []
        for type_, payload in records:
            length = sum(map(len, payload))
            if not 1 <= type_ <= 255 or length > MAX_RECORD_BYTES:
                raise ValueError(f"record of type {type_}, {length} bytes")
            crc = zlib.crc32(bytes((type_,)))
            for piece in payload:
                crc = zlib.crc32(piece, crc)
            pieces += (HEADER.pack(length, crc, type_), *payload)
        try:
            self._write(b"".join(pieces))
        except OSError as exc:
            raise SpoolError(str(self.path), exc.strerror or str(exc)) from exc

    def sync(self) -> None:
        """Syncs all appended records to the disk. Raises SpoolError."""
        try:
            os.fdatasync(self._fd)
        except OSError as exc:
            raise SpoolError(str(self.path), exc.strerror or str(exc)) from exc

    def close(self) -> None:
        """Closes the file; closing twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes += len(data)


def scan(path: Path) -> Iterator[Record]:
    """Yields the records of a segment in order, without damaged ones.

    Ends silently at the end of the file, at a torn record, or at a damaged one that does not say where it
    ends; yields nothing for a file that is not a segment. Raises SpoolError when the file is unreadable.
    """
    with SpoolError.from_os_errors(path), path.open("rb") as file:
        known = file.read(len(MAGIC)) == MAGIC
        record = _read(file.read, len(MAGIC))
        if record is None and known:
            record = _after_damage(file, len(MAGIC))
        while record is not None:
            yield record
            record = _read(file.read, record.end) or _after_damage(file, record.end)


def damaged_at_end(path: Path, at: int) -> list[int]:
    """Types of the records between `at`, after the last valid one, and the end of the file.

    Empty where the last of them is torn: cut short, or its size was on the disk before its data.
    """
    with SpoolError.from_os_errors(path), path.open("rb") as file:
        file.seek(at)
        data = file.read()
    types, at = [], 0
    while len(data) - at >= HEADER.size:
        length, _, kind = HEADER.unpack_from(data, at)
        types.append(kind)
        at += HEADER.size + length
    return types if at == len(data) and data[-1:] > b"\0" else []


def recover(path: Path) -> int:
    """Truncates invalid data at the end of a segment; returns the number of bytes removed.

    A file that is no segment is emptied. Raises SpoolError.
    """
    end = 0
    with SpoolError.from_os_errors(path):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                end = len(MAGIC)
        for record in scan(path):
            end = record.end
        torn = path.stat().st_size - end
        if torn:
            os.truncate(path, end)
    return torn


def files(directory: Path, suffix: str, prefix: str = "") -> list[Path]:
    """The files of a folder by the ends of their names, sorted; none where it is missing. Raises OSError.

    `Path.glob` finds nothing in a folder that may not be read, which would look like a new one.
    """
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return [directory / name for name in sorted(names) if name.endswith(suffix) and name.startswith(prefix)]


def sync_path(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk itself. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _after_damage(file: BinaryIO, at: int) -> Record | None:
    """The first valid record after the invalid one at `at`, or that one with another length; None without."""
    size = os.fstat(file.fileno()).st_size
    for _ in range(_MAX_DAMAGED):
        file.seek(at)
        header = file.read(HEADER.size)
        if len(header) < HEADER.size or not any(header):
            return None
        length = HEADER.unpack(header)[0]
        for bit in range(32):
            other = length ^ 1 << bit
            if at + HEADER.size + other > size:
                continue
            file.seek(at + HEADER.size)
            record = _checked(other.to_bytes(4, "little") + header[4:], file.read, at)
            if record is not None:
                return record
        at += HEADER.size + length
        if length > MAX_RECORD_BYTES or at >= size:
            return None
        file.seek(at)
        record = _read(file.read, at)
        if record is not None:
            return record
    return None


def _read(read: Callable[[int], bytes], at: int) -> Record | None:
    header = read(HEADER.size)
    return _checked(header, read, at) if len(header) == HEADER.size else None


def _checked(header: bytes, read: Callable[[int], bytes], at: int) -> Record | None:
    length, crc, type_ = HEADER.unpack(header)
    if not type_ or length > MAX_RECORD_BYTES:
        return None
    payload = read(length)
    if len(payload) < length or zlib.crc32(payload, zlib.crc32(header[8:])) != crc:
        return None
    return Record(type_, payload, at, at + HEADER.size + length)
