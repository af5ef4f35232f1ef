"""Laggard's own trace format: one record per line, blank-separated; docs/collectors/iotrace.md.

1763650000.123456789 cn-17 write 4121:17 1048576 65536 /scratch/out.dat
"""

import re
from collections.abc import Sequence

from laggard_common.trace_formats.line_reader import time_ns
from laggard_common.wire.trace_records import TraceRecord

_LINE = re.compile(
    r"([0-9.]{1,21})[ \t]+(\S{1,256})[ \t]+([a-z][a-z0-9_]{0,31})[ \t]+(\S{1,256})[ \t]+(-|[0-9]{1,19})"
    r"[ \t]+([0-9]{1,19})(?:[ \t]+(\S.*))?"
)


class TextParser:
    """A parser as the other formats have; it knows nothing of the lines before."""

    def parse(self, line: str) -> Sequence[TraceRecord]:
        """As the function of this name."""
        return parse(line)

    def remarks(self) -> Sequence[str]:
        """None."""
        return ()


def parse(line: str) -> Sequence[TraceRecord]:
    """The record of a line `time node operation descriptor offset size [path]`; none for a `#` comment.

    Raises ValueError if it is malformed.
    """
    if not line.strip() or line.startswith("#"):
        return ()
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(line)
    time, node, operation, descriptor, offset, size, path = match.groups()
    at = None if offset == "-" else int(offset)
    return (TraceRecord(node, operation, descriptor, at, int(size), time_ns(time), path or ""),)
