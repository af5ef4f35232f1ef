"""The last row of a CSV that ends in the middle of it, as of a full disk: left out, with a line."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow.csv

from laggard_common.errors import InputError


class CutRow:
    """The rows of the file at `path` that have fewer columns than the header: only a cut one may.

    Give `file` to pyarrow, `skip` as its handler, and call `check` with the number of good rows at the end.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self.file = _CheckedText(path, file)
        self._first: pyarrow.csv.InvalidRow | None = None

    def skip(self, row: pyarrow.csv.InvalidRow) -> Literal["skip", "error"]:
        """Skips the first row that lacks columns; any other is an error."""
        if self._first is not None or row.actual_columns > row.expected_columns:
            return "error"
        self._first = row
        return "skip"

    def check(self, rows: int) -> None:
        """Raises InputError when the row that lacks columns was not cut off after `rows` good ones."""
        row = self._first
        if row is None or (self.file.end != b"\n" and row.number == rows + 2):  # the header is row 1
            return
        problem = f"Expected {row.expected_columns} columns, got {row.actual_columns}: {row.text[:60]}"
        raise InputError(str(self._path), f"data row {(row.number or rows + 2) - 1}: {problem}")

    def remarks(self) -> Iterator[str]:
        """A line about the row that was left out."""
        if self._first is not None:
            yield f"{self._path}: ends in the middle of a row, which is left out: {self._first.text[:60]!r}"


class _CheckedText:
    """A file of UTF-8 that remembers the last byte that was read. Its `read` raises InputError for others.

    pyarrow finds other bytes only in the columns that it converts, and not as an error in header and rows.
    The beginning of a character with which a cut file ends is left out.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._waiting = b""
        self._size = 0
        self.end = b""

    @property
    def closed(self) -> bool:
        return self._file.closed

    def read(self, size: int = -1) -> bytes:
        data = b""
        while not data:  # but for characters that are not whole yet
            new = self._file.read(size - len(self._waiting) if size > len(self._waiting) else size)
            if not new:
                return b""
            data = self._whole_characters(new)
        self.end = data[-1:]
        self._size += len(data)
        return data

    def _whole_characters(self, new: bytes) -> bytes:
        """What waits and `new`, without the beginning of a character at the end, which waits."""
        if not self._waiting and new.isascii():
            return new
        data = self._waiting + new
        try:
            self._decoder.decode(new)
        except UnicodeDecodeError as exc:
            raise InputError(str(self._path), f"invalid UTF8 near byte {self._size + exc.start}") from exc
        self._waiting = self._decoder.getstate()[0]
        return data[: len(data) - len(self._waiting)]
