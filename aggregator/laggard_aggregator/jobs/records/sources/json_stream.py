"""The elements of an array at the top of a JSON object, one at a time, so that memory stays bounded."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from laggard_common.errors import InputError

MAX_VALUE_CHARS: Final = 64 << 20
_READ_BYTES: Final = 1 << 20
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class JsonStream:
    """A JSON object that is read in parts. Raises InputError for text that is none."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._ended = False

    def elements(self, name: str) -> Iterator[Any]:
        """Yields the elements of the array `name`; other members are skipped."""
        self._expect("{")
        found = False
        while self._next() != "}":
            key = self._value()
            self._expect(":")
            if key == name and self._next() == "[":
                found = True
                yield from self._array()
            else:
                self._value()
            if self._next() == ",":
                self._at += 1
        if not found:
            raise InputError("", f"JSON without an array of {name}")

    def _array(self) -> Iterator[Any]:
        self._expect("[")
        while self._next() != "]":
            yield self._value()
            if self._next() == ",":
                self._at += 1
            elif self._next() != "]":
                raise self._error()
        self._at += 1

    def _next(self) -> str:
        """The next character that is no white space; it is not consumed."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                raise InputError("", "JSON that ends too early")
            self._fill(_READ_BYTES)

    def _expect(self, char: str) -> None:
        if self._next() != char:
            raise self._error()
        self._at += 1

    def _value(self) -> Any:
        self._next()
        more = _READ_BYTES
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._at)
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            except RecursionError:
                raise InputError("", "JSON that is nested too deeply") from None
            except ValueError:
                if self._ended or len(self._text) - self._at > MAX_VALUE_CHARS:
                    raise self._error() from None
            self._fill(more)
            more *= 2

    def _fill(self, count: int) -> None:
        block = self._file.read(count)
        self._ended = not block
        self._text = self._text[self._at :] + self._decoder.decode(block, final=self._ended)
        self._at = 0

    def _error(self) -> InputError:
        shown = self._text[self._at : self._at + 40]
        return InputError("", f"no JSON of jobs: at {shown!r}")
