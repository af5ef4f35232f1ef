"""Opens files that may be compressed; the first bytes decide, not the name."""

import codecs
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard

from laggard_common.errors import InputError

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_OTHERS = {
    b"BZh": "bzip2",
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\x04\x22\x4d\x18": "lz4",
}
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_GZIP_WINDOW = 31
_STEP_BYTES = 4096
"""Compressed bytes read at a time; they expand to 128 MiB at most."""
_MOST_HELD_BYTES = 1 << 20
_IS_CUT = "compressed data is cut short"


class _CompressedStream(Protocol):
    """One stream of compressed data."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


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


class _Decompressed(io.RawIOBase):
    """The data of compressed streams, one after another, perhaps with zeros between them.

    `cut` is told when the last one has no end; None: then reading raises EOFError.
    """

    def __init__(
        self, file: BinaryIO, begin: Callable[[], _CompressedStream], cut: Callable[[str], None] | None
    ) -> None:
        super().__init__()
        self._pieces = _whole_lines(_pieces(file, begin), cut)
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills `buffer` with the data at hand; 0 at their end."""
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        count = min(len(buffer), len(self._piece))
        buffer[:count], self._piece = self._piece[:count], self._piece[count:]
        return count


def _whole_lines(pieces: Iterator[bytes], cut: Callable[[str], None] | None) -> Iterator[bytes]:
    """The data of `pieces`; where an EOFError ends them, without the line that it cuts."""
    held, is_first = b"", True
    try:
        for piece in pieces:
            end = piece.rfind(b"\n") + 1 or (len(piece) if len(held) > _MOST_HELD_BYTES else 0)
            if end:
                yield held + piece[:end]
                is_first = False
            held = piece[end:] if end else held + piece
    except EOFError:
        if cut is None or (is_first and not held):
            raise
        cut(f"{_IS_CUT}: read as far as it goes")
        if not is_first:
            return
    yield held


def _pieces(file: BinaryIO, begin: Callable[[], _CompressedStream]) -> Iterator[bytes]:
    """The data of all streams. Raises EOFError where the last one has no end."""
    data = file.read(_STEP_BYTES)
    while data:
        decoder = begin()
        while not decoder.eof:
            if not data:
                raise EOFError
            yield decoder.decompress(data)
            data = b"" if decoder.eof else file.read(_STEP_BYTES)
        data = decoder.unused_data or file.read(_STEP_BYTES)
        while data and not (data := data.lstrip(b"\0")):
            data = file.read(_STEP_BYTES)


@contextmanager
def open_input(
    path: Path,
    advance: Callable[[int], None] = lambda _: None,
    cut: Callable[[str], None] | None = None,
) -> Iterator[BinaryIO]:
    """Opens `path` for reading, decompressed when it is gzip, xz or zstd, behind a mark of UTF-8.

    `advance` gets the number of bytes read from the file, each time. Compressed data that is cut short is
    read as far as its last whole line, and `cut` gets a sentence that says so; without `cut`, and where
    nothing can be read, it is an error.
    Raises InputError on opening and on every later read error: a missing or unreadable file, a directory,
    compressed data that is damaged, text in UTF-16.
    """
    try:
        with _Watched(io.FileIO(path), advance) as file:
            magic = file.peek(len(_XZ))[: len(_XZ)]  # also of a pipe, which has no seek
            other = next((name for start, name in _OTHERS.items() if magic.startswith(start)), None)
            if other is not None:
                raise InputError(str(path), f"is {other}: unpack it (gzip, xz and zstd are read as they are)")
            begin = next((begin for start, begin in _DECODERS.items() if magic.startswith(start)), None)
            data = file if begin is None else io.BufferedReader(_Decompressed(file, begin, cut))
            _skip_mark(path, data)
            yield data
    except IsADirectoryError as exc:
        raise InputError(str(path), "is a directory, expected a file") from exc
    except FileNotFoundError as exc:
        raise InputError(str(path), "no such file") from exc
    except EOFError as exc:
        raise InputError(str(path), _IS_CUT) from exc
    except (lzma.LZMAError, zlib.error, zstandard.ZstdError) as exc:
        raise InputError(str(path), f"compressed data is damaged: {exc}") from exc
    except OSError as exc:
        raise InputError(str(path), f"cannot be read: {exc.strerror or exc}") from exc


def _skip_mark(path: Path, data: "io.BufferedReader[Any]") -> None:
    """Skips the mark of UTF-8, which editors put before a text. Raises InputError for that of UTF-16."""
    first = data.peek(len(codecs.BOM_UTF8))
    if first.startswith(codecs.BOM_UTF8):
        data.read(len(codecs.BOM_UTF8))
    elif first.startswith(_UTF_16):
        raise InputError(str(path), "is text in UTF-16, as PowerShell writes it: iconv -f UTF-16 -t UTF-8")


_DECODERS: dict[bytes, Callable[[], _CompressedStream]] = {
    _GZIP: lambda: cast(_CompressedStream, zlib.decompressobj(_GZIP_WINDOW)),
    _XZ: lambda: cast(_CompressedStream, lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    _ZSTD: lambda: cast(_CompressedStream, zstandard.ZstdDecompressor().decompressobj()),
}
