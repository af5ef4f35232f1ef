"""A trace log as records: lines of bounded length, read one at a time, and what became of each of them."""

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Protocol

from laggard_common.wire.limits import MAX_NAME_CHARS, MAX_PATH_CHARS
from laggard_common.wire.trace_records import MAX_POSITION, Record

MAX_LINE_BYTES = 65_536

_TIME = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,9})[0-9]{0,9})?")


class LineParser(Protocol):
    """Parses one format, line after line; keeps what later lines need, within bounds."""

    def parse(self, line: str) -> Sequence[Record] | None:
        """The records of this line, often one or none. None: the line is not of this format."""
        ...


class TraceReader:
    """The records of a stream of bytes, and counts of its lines. Memory does not grow with the stream.

    `lines`: read in all. `records`: made of them. `not_understood`: lines that are not of the format, too
    long ones included. `torn`: 1 when the last line has no end: it may lack digits, so it is left out.
    """

    def __init__(self, parser: LineParser) -> None:
        self._parser = parser
        self.lines = 0
        self.records = 0
        self.not_understood = 0
        self.torn = 0

    def read(self, stream: BinaryIO) -> Iterator[Record]:
        """Yields the records until the stream ends."""
        parse = self._parser.parse
        while line := stream.readline(MAX_LINE_BYTES):
            self.lines += 1
            if not line.endswith(b"\n"):
                if not _skip_line(stream, line):
                    self.torn = 1
                    return
                self.not_understood += 1
                continue
            records = parse(line.rstrip(b"\r\n").decode("utf-8", "backslashreplace"))
            if records is None:
                self.not_understood += 1
            else:
                self.records += len(records)
                yield from records


def _skip_line(stream: BinaryIO, line: bytes) -> bool:
    """Reads on to the end of a line that is too long; False when it has no end."""
    while line and not line.endswith(b"\n"):
        line = stream.readline(MAX_LINE_BYTES)
    return bool(line)


def time_ns(text: str) -> int | None:
    """Nanoseconds of a decimal number of seconds. None: it is not one."""
    found = _TIME.fullmatch(text)
    return None if found is None else int(found[1]) * 10**9 + int((found[2] or "0").ljust(9, "0"))


def is_possible(record: Record) -> bool:
    """Whether its numbers and names are such as a file system can have and a message can carry."""
    r = record
    return (
        0 <= r.size <= MAX_POSITION
        and 0 <= r.time_ns <= MAX_POSITION
        and (r.offset is None or 0 <= r.offset <= MAX_POSITION - r.size)
        and len(r.node) <= MAX_NAME_CHARS
        and len(r.descriptor) <= MAX_NAME_CHARS
        and len(r.path) <= MAX_PATH_CHARS
        and (r.node + r.descriptor + r.path).isprintable()
    )
