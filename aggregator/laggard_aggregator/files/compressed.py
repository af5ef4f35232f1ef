"""Opens files that may be compressed; the first bytes decide, not the name."""

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from laggard_common.errors import InputError

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Watched(io.BufferedReader):
    """Reports the bytes read."""

    def __init__(self, file: io.FileIO, advance: Callable[[int], None]) -> None:
        super().__init__(file)
        self._advance = advance

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads as BufferedReader does."""
        data = super().read(size)
        self._advance(len(data))
        return data


@contextmanager
def open_input(path: Path, advance: Callable[[int], None] = lambda _: None) -> Iterator[BinaryIO]:
    """Opens `path` for reading, decompressed when it is gzip, xz or zstd.

    `advance` gets the number of bytes read from the file, each time. Raises InputError on opening and on
    every later read error: a missing or unreadable file, a directory, compressed data that is truncated or
    damaged.
    """
    try:
        with _Watched(io.FileIO(path), advance) as file:
            yield _decompressed(file, file.peek(len(_XZ))[: len(_XZ)])  # also of a pipe, which has no seek
    except IsADirectoryError as exc:
        raise InputError(str(path), "is a directory, expected a file") from exc
    except FileNotFoundError as exc:
        raise InputError(str(path), "no such file") from exc
    except EOFError as exc:
        raise InputError(str(path), "compressed data is cut short") from exc
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile) as exc:
        raise InputError(str(path), f"compressed data is damaged: {exc}") from exc
    except OSError as exc:
        if exc.errno is None and "Truncated" in str(exc):  # pyarrow's
            raise InputError(str(path), "compressed data is cut short") from exc
        problem = "cannot be read" if exc.errno else "compressed data is damaged"
        raise InputError(str(path), f"{problem}: {exc.strerror or exc}") from exc


def _decompressed(file: BinaryIO, magic: bytes) -> BinaryIO:
    if magic.startswith(_GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic.startswith(_XZ):
        return cast(BinaryIO, lzma.LZMAFile(file))
    if magic.startswith(_ZSTD):  # zstandard's own reader returns a truncated file as a short one
        return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))
    return file
