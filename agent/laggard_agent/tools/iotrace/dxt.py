"""Parses Darshan's extended trace as printed by `darshan-dxt-parser`: writes and reads by file and rank.

    # start_time: 1510270010
    # DXT, file_id: 16457598720760448348, file_name: /tmp/test/testFile
    # DXT, rank: 0, hostname: cn-17
     X_POSIX       0  write        0               0         1048576      0.0029      0.0032

Written after Darshan's darshan-util/darshan-dxt-parser.c and darshan-dxt-logutils.c.
"""

import re
from collections.abc import Sequence

from laggard_agent.tools.iotrace.reader import is_possible, time_ns
from laggard_common.wire.trace_records import TraceRecord

_FILE = re.compile(r"# DXT, file_id: ([0-9]{1,20}), file_name: (.*)")
_RANK = re.compile(r"# DXT, rank: (-?[0-9]{1,10}), hostname: (\S{1,256})")
_START = re.compile(r"# start_time: ([0-9.]{1,21})")
_LAYERS = {"X_POSIX": "posix", "X_MPIIO": "mpiio"}


class DxtParser:
    """Times are the job's start from the header plus the segment's own; without a header the start is 0.

    A descriptor is `layer:rank:file_id`, which separates MPI-IO from the POSIX calls below it.
    """

    def __init__(self) -> None:
        self._start_ns = 0
        self._file_id = ""
        self._path = ""
        self._rank = ""
        self._node = ""

    def parse(self, line: str) -> Sequence[TraceRecord] | None:
        """The record of a segment; none for Darshan's other lines; None for a line of another format."""
        if line.startswith("#") or not line.strip():
            return () if self._header(line) else None
        parts = line.split(maxsplit=8)
        if len(parts) < 8 or not self._node or parts[1] != self._rank:
            return None
        layer, _, operation, _, offset, length, start = parts[:7]
        since_start_ns = time_ns(start)
        if layer not in _LAYERS or operation not in {"read", "write"} or since_start_ns is None:
            return None
        size = _number(length)
        at = None if offset in {"N/A", "-1"} else _number(offset)
        if size is None or (at is None and offset not in {"N/A", "-1"}):
            return None
        descriptor = f"{_LAYERS[layer]}:{self._rank}:{self._file_id}"
        record = TraceRecord(
            self._node, operation, descriptor, at, size, self._start_ns + since_start_ns, self._path
        )
        return (record,) if is_possible(record) else None

    def _header(self, line: str) -> bool:
        """Parses a header comment for the segments below it; False if it is malformed."""
        if found := _FILE.fullmatch(line):
            self._file_id, self._path, self._node = found[1], found[2], ""
        elif found := _RANK.fullmatch(line):
            self._rank, self._node = found[1], found[2]
        elif found := _START.fullmatch(line):
            start_ns = time_ns(found[1])
            if start_ns is None:
                return False
            self._start_ns = start_ns
        else:
            return not line.startswith(("# DXT, file_id", "# DXT, rank", "# start_time:"))
        return True


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None
