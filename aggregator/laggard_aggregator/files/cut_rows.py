"""A CSV up to its last line end: a row behind it, as of a full disk, may lack digits and is left out."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from laggard_common.errors import InputError

_LONGEST_ROW_BYTES = 16 << 20


class CutRow:
    """The whole rows of the file at `path`. Give `file` to pyarrow."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self.file = _WholeRows(path, file)

    def remarks(self) -> Iterator[str]:
        """A line about the row that was left out."""
        if self.file.rest:
            text = self.file.rest[:60].decode("utf-8", "ignore")
            ending = "ends in the middle of a row, or without a line feed: left out"
            yield f"{self._path}: {ending}: {text!r} (append one where it is whole)"


class _WholeRows:
    """A file of UTF-8 up to its last line end; `rest`: the bytes behind it. Its `read` raises InputError for
    other bytes than UTF-8: pyarrow finds them only in the columns that it converts, and not as an error in
    header and rows.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._size = 0
        self._ready = b""
        self.rest = b""

    @property
    def closed(self) -> bool:
        return self._file.closed

    def read(self, size: int = -1) -> bytes:
        while not self._ready:
            new = self._file.read(size - len(self.rest) if size > len(self.rest) else size)
            if not new:
                return b""
            self._check(new)
            end = max(new.rfind(b"\n"), new.rfind(b"\r")) + 1
            if end:
                self._ready, self.rest = self.rest + new[:end], new[end:]
            else:
                self.rest += new
                if len(self.rest) > _LONGEST_ROW_BYTES:
                    raise InputError(str(self._path), "has a row of over 16 MiB")
        if size < 0:
            data, self._ready = self._ready, b""
        else:
            data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _check(self, new: bytes) -> None:
        if not (new.isascii() and self._decoder.getstate()[0] == b""):
            try:
                self._decoder.decode(new)
            except UnicodeDecodeError as exc:
                raise InputError(str(self._path), f"invalid UTF8 near byte {self._size + exc.start}") from exc
        self._size += len(new)
