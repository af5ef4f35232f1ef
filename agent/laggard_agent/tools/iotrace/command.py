"""`laggard-agent --fold FILE`: folds a trace log, one JSON object per line."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import TextIO

from laggard_agent.tools import seconds
from laggard_agent.tools.iotrace import text
from laggard_agent.tools.iotrace.fold import fold
from laggard_common.errors import InputError
from laggard_common.trace_formats.dxt import DxtParser, is_dxt
from laggard_common.trace_formats.line_reader import LogParser, TraceReader
from laggard_common.trace_formats.strace import StraceParser, is_strace, time_fault
from laggard_common.wire.trace_records import Folded, TraceRecord

FORMATS: dict[str, Callable[[str], LogParser]] = {
    "laggard": lambda _node: text.TextParser(),
    "strace": StraceParser,
    "dxt": lambda _node: DxtParser(),
}

_NO_TEXT = {
    b"\x1f\x8b": "is compressed: zcat FILE | laggard-agent --fold -",
    b"\xfd7zX": "is compressed: xzcat FILE | laggard-agent --fold -",
    b"\x28\xb5\x2f\xfd": "is compressed: zstdcat FILE | laggard-agent --fold -",
    b"\xff\xfe": "is text in UTF-16, as PowerShell writes it: iconv -f UTF-16 -t UTF-8",
}
"""By their first bytes, files that people have in place of a log, with a remedy."""
_OF_STRACE = (b"strace: ", b"Process ")


def fold_file(path: str, format_name: str, node: str, out: TextIO) -> str:
    """Prints each folded record of the file (`-`: standard input) as a line; returns a summary.

    `format_name`: one of `FORMATS`, or `auto`. `node`: the name of records whose format names no node. Raises
    InputError when the file is unreadable, or none of its lines has the format.
    """
    with _opened(path) as stream:
        first = stream.peek(4096)[:4096]
        if problem := next((text for magic, text in _NO_TEXT.items() if first.startswith(magic)), None):
            raise InputError(path, problem)
        if format_name == "auto":
            format_name = detect(stream)
        if format_name == "strace" and (fault := time_fault(first)):
            raise InputError(path, fault)
        parser = FORMATS[format_name](node)
        reader = TraceReader(parser.parse)
        folded = 0
        for record in fold(_records(reader, stream, path)):
            out.write(_line(record))
            folded += 1
    if reader.not_understood and not reader.records:
        raise InputError(
            path, f"{reader.not_understood} lines, none of them a record in format {format_name}"
        )
    return "; ".join((_summary(reader, folded, format_name), *parser.remarks()))


def _opened(path: str) -> AbstractContextManager[BufferedReader]:
    if path == "-":
        return nullcontext(open(sys.stdin.fileno(), "rb", closefd=False))
    with InputError.from_os_errors(path):
        return Path(path).open("rb")


def _records(reader: TraceReader, stream: BufferedReader, path: str) -> Iterator[TraceRecord]:
    """Yields the records of the file. Raises InputError on a read error."""
    with InputError.from_os_errors(path):
        yield from reader.read(stream)


def detect(stream: BufferedReader) -> str:
    """The format of the first line; `laggard` if it matches no other."""
    return format_of(stream.peek(4096)[:4096])


def format_of(start: bytes) -> str:
    """The format of a log that starts so; `laggard` if it matches no other."""
    first = start.lstrip()
    if is_dxt(first):
        return "dxt"
    return "strace" if first.startswith(_OF_STRACE) or is_strace(first) else "laggard"


def _line(record: Folded) -> str:
    r = record
    head = {"node": r.node, "operation": r.operation, "descriptor": r.descriptor, "path": r.path}
    rest = {"offset": r.offset, "size": r.size, "count": r.count}
    times = f'"first": {seconds(r.first_ns)}, "last": {seconds(r.last_ns)}'
    return f"{json.dumps(head | rest)[:-1]}, {times}}}\n"


def _summary(reader: TraceReader, folded: int, format_name: str) -> str:
    summary = f"format {format_name}: {reader.lines} lines, {reader.records} records"
    if folded:
        summary += f", folded into {folded} ({reader.records / folded:.1f} to 1)"
    if reader.not_understood:
        summary += f"; {reader.not_understood} lines not understood"
    if reader.torn:
        summary += "; the last line has no end and was left out"
    return summary
