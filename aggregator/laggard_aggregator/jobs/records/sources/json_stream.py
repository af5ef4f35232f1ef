"""The elements of an array at the top of JSON objects, one at a time, so that memory stays bounded.

Outputs of several queries may follow each other in one file (`>>`, `cat`): all are read.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from laggard_common.errors import InputError

MAX_VALUE_CHARS: Final = 64 << 20
_READ_BYTES: Final = 1 << 20
_ERROR_CHARS: Final = 200
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class JsonStream:
    """JSON objects that are read in parts. Raises InputError for text that is none.

    `failures`: the texts of the arrays `errors`, by which Slurm says that a query failed.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._ended = False
        self.failures: list[str] = []

    def elements(self, name: str, alone: str = "") -> Iterator[Any]:
        """Yields the elements of the array `name` of every object; other members are skipped.

        `alone`: a key by which an object without the array is an element itself.

        Raises InputError, with the reason, where there are none and the source says that it failed.
        """
        count = 0
        while not count or not self._is_over():
            for element in self._object(name, alone):
                count += 1
                yield element
            if not count and self._is_over():
                break
        if self.failures and not count:
            raise InputError("", f"the query failed: {self.failures[0]}")

    def _object(self, name: str, alone: str) -> Iterator[Any]:
        """Yields the elements of the array `name` of the next object, or the object."""
        self._expect("{")
        has_list = False
        members: dict[str, Any] = {}
        while self._next() != "}":
            key = self._value()
            self._expect(":")
            if key == name and self._next() == "[":
                has_list = True
                yield from self._array()
            else:
                value = self._value()
                if key == "errors":
                    self.failures += _failures(value)
                elif alone and not has_list:
                    members[str(key)] = value
            if self._next() == ",":
                self._at += 1
        self._at += 1
        if not has_list and alone in members:
            yield members
        elif not has_list and not self.failures:
            raise InputError("", f"JSON without an array of {name}")

    def _is_over(self) -> bool:
        """Whether nothing but white space follows."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text) or self._ended:
                return self._at >= len(self._text)
            self._fill(_READ_BYTES)

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
        if self._is_over():
            raise InputError("", "JSON that ends too early")
        return self._text[self._at]

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
        problem = "no JSON of jobs, or it ends too early" if self._ended else "no JSON of jobs"
        return InputError("", f"{problem}: at {shown!r}")


def _failures(value: Any) -> list[str]:
    """Texts of Slurm's `errors`: objects with a description, an error and the function that failed."""
    texts = []
    for entry in value if isinstance(value, list) else []:
        parts = [entry.get("description"), entry.get("error")] if isinstance(entry, dict) else [entry]
        reasons = dict.fromkeys(part for part in parts if isinstance(part, str) and part)
        texts.append(": ".join(reasons)[:_ERROR_CHARS] or "no reason given")
    return texts
