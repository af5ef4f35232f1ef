"""Reads a trace log as records, in lines of bounded length, and counts their outcomes."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Protocol

from laggard_common.wire.limits import MAX_NAME_CHARS, MAX_PATH_CHARS
from laggard_common.wire.trace_records import MAX_POSITION, TraceRecord

MAX_LINE_BYTES = 65_536

_TIME = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,9})[0-9]{0,9})?")


ParseLine = Callable[[str], Sequence[TraceRecord]]
"""The records of a line, often one or none. Raises ValueError for a line of another format."""


class LogParser(Protocol):
    """Parses the lines of one log in order."""

    def parse(self, line: str) -> Sequence[TraceRecord]:
        """As ParseLine."""
        ...

    def remarks(self) -> Sequence[str]:
        """Sentences about data that the log does not have."""
        ...


class TraceReader:
    """The records of a byte stream, and counts of its lines. Memory is constant.

    `lines`: lines read. `records`: records made. `not_understood`: lines of another format or too long.
    `torn`: 1 when the last line is incomplete: it may lack digits, so it is ignored.
    """

    def __init__(self, parse: ParseLine) -> None:
        self._parse = parse
        self.lines = 0
        self.records = 0
        self.not_understood = 0
        self.torn = 0

    def read(self, stream: BinaryIO) -> Iterator[TraceRecord]:
        """Yields the records until the stream ends."""
        while line := stream.readline(MAX_LINE_BYTES):
            self.lines += 1
            if not line.endswith(b"\n"):
                if not _skip_line(stream, line):
                    self.torn = 1
                    return
                self.not_understood += 1
                continue
            yield from self._records(line)

    def records_of(self, line: bytes) -> Sequence[TraceRecord]:
        """The records of one complete line."""
        self.lines += 1
        if len(line) < MAX_LINE_BYTES:
            return self._records(line)
        self.not_understood += 1
        return ()

    def _records(self, line: bytes) -> Sequence[TraceRecord]:
        try:
            records = self._parse(line.rstrip(b"\r\n").decode("utf-8", "backslashreplace"))
            _check(records)
        except ValueError:
            self.not_understood += 1
            return ()
        self.records += len(records)
        return records


def _skip_line(stream: BinaryIO, line: bytes) -> bool:
    """Skips to the end of a line that is too long; False when it has no end."""
    while line and not line.endswith(b"\n"):
        line = stream.readline(MAX_LINE_BYTES)
    return bool(line)


def time_ns(text: str) -> int:
    """Nanoseconds of a decimal number of seconds. Raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * 10**9 + int((match[2] or "0").ljust(9, "0"))


def number(text: str) -> int:
    """A number of at most 19 decimal digits. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ValueError(text)
    return int(text)


def _check(records: Sequence[TraceRecord]) -> None:
    """Raises ValueError for numbers and names that no file system has, or that do not fit a message."""
    for r in records:
        if not (
            0 <= r.size <= MAX_POSITION
            and 0 <= r.time_ns <= MAX_POSITION
            and (r.offset is None or 0 <= r.offset <= MAX_POSITION - r.size)
            and len(r.node) <= MAX_NAME_CHARS
            and len(r.descriptor) <= MAX_NAME_CHARS
            and len(r.path) <= MAX_PATH_CHARS
            and (r.node + r.descriptor + r.path).isprintable()
        ):
            raise ValueError(r)
