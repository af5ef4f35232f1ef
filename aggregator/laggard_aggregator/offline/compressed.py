"""Opens files that may be compressed; the first bytes decide, not the name."""

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from laggard_common.errors import InputError

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"


@contextmanager
def open_input(path: Path) -> Iterator[BinaryIO]:
    """Opens `path` for reading, decompressed when it is gzip, xz or zstd.

    Raises InputError on opening and on every later read error: a missing or unreadable file, a directory,
    compressed data that is truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(6)
            file.seek(0)
            yield _decompressed(file, magic)
    except IsADirectoryError as exc:
        raise InputError(str(path), "is a directory, expected a file") from exc
    except FileNotFoundError as exc:
        raise InputError(str(path), "no such file") from exc
    except EOFError as exc:
        raise InputError(str(path), "compressed data is cut short") from exc
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as exc:
        raise InputError(str(path), f"compressed data is damaged: {exc}") from exc
    except OSError as exc:
        raise InputError(str(path), f"cannot be read: {exc.strerror or exc}") from exc


def _decompressed(file: BinaryIO, magic: bytes) -> BinaryIO:
    if magic.startswith(_GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic.startswith(_XZ):
        return cast(BinaryIO, lzma.LZMAFile(file))
    if magic.startswith(_ZSTD):
        return cast(BinaryIO, _WholeZstd(file))
    return file


class _WholeZstd(io.RawIOBase):
    """Zstd reader that detects truncation; zstandard's own reader returns a truncated file as a short one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._context = zstandard.ZstdDecompressor()
        self._frame = self._context.decompressobj()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._ready:
            data = self._frame.unused_data or self._file.read(1 << 17)
            if self._frame.eof:
                if not data:
                    return 0
                self._frame = self._context.decompressobj()
            elif not data:
                raise EOFError
            self._ready = self._frame.decompress(data)
        taken = self._ready[: len(view)]
        view[: len(taken)] = taken
        self._ready = self._ready[len(taken) :]
        return len(taken)
