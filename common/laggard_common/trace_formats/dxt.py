"""Parses Darshan's extended trace as printed by `darshan-dxt-parser`: writes and reads by file and rank.

    # start_time: 1510270010
    # DXT, file_id: 16457598720760448348, file_name: /tmp/test/testFile
    # DXT, rank: 0, hostname: cn-17
     X_POSIX       0  write        0               0         1048576      0.0029      0.0032

Written after Darshan's darshan-util/darshan-dxt-parser.c and darshan-dxt-logutils.c.
"""

import re
from collections.abc import Sequence

from laggard_common.trace_formats.line_reader import number, time_ns
from laggard_common.wire.trace_records import TraceRecord

_FILE = re.compile(r"# DXT, file_id: ([0-9]{1,20}), file_name: (.*)")
_RANK = re.compile(r"# DXT, rank: (-?[0-9]{1,10}), hostname: (\S{1,256})")
_START = re.compile(r"# start_time: ([0-9.]{1,21})")
_INCOMPLETE = re.compile(r"# \*(?:WARNING|ERROR)\*: The (\S{1,64}) module contains incomplete data")
_FIRST = re.compile(rb"# (?:darshan log version|DXT,|\*{3})| *X_(?:POSIX|MPIIO) ")
_LAYERS = {"X_POSIX": "posix", "X_MPIIO": "mpiio"}


def is_dxt(first: bytes) -> bool:
    """Whether a text that begins so is of `darshan-dxt-parser`."""
    return _FIRST.match(first.lstrip()) is not None


class DxtParser:
    """Times are the job's start from the header plus the segment's own; without a header the start is 0.

    A text may hold the dumps of several logs, each with its header.

    A descriptor is `layer:rank:file_id`, which separates MPI-IO from the POSIX calls below it.
    """

    def __init__(self) -> None:
        self._start_ns: int | None = None
        self._file_id = ""
        self._path = ""
        self._rank = ""
        self._node = ""
        self._is_begun = False
        self.dumps = 0
        """Dumps with segments."""
        self.without_start = 0
        """Of these, dumps whose header has no time of the job's start."""
        self._incomplete: set[str] = set()

    def parse(self, line: str) -> Sequence[TraceRecord]:
        """The record of a segment; none for Darshan's other lines. Raises ValueError for another format."""
        if line.startswith("#") or not line.strip():
            self._header(line)
            return ()
        layer, rank, operation, _, offset, length, start, end, *_ = line.split(maxsplit=8)
        if layer not in _LAYERS or operation not in {"read", "write"} or not self._node or rank != self._rank:
            raise ValueError(line)
        if not self._is_begun:
            self._is_begun = True
            self.dumps += 1
            self.without_start += self._start_ns is None
        start_ns = self._start_ns or 0
        return (
            TraceRecord(
                self._node,
                operation,
                f"{_LAYERS[layer]}:{rank}:{self._file_id}",
                None if offset in {"N/A", "-1"} else number(offset),
                number(length),
                start_ns + time_ns(start),
                self._path,
                number(length),
                start_ns + time_ns(end),
                int(rank),
            ),
        )

    def remarks(self) -> Sequence[str]:
        """A sentence about modules that lack records."""
        if not self._incomplete:
            return ()
        names = ", ".join(sorted(self._incomplete))
        return (
            f"Darshan ran out of memory for {names}: requests and files are missing (DARSHAN_MODMEM sets "
            "more)",
        )

    def _header(self, line: str) -> None:
        """Parses a header comment for the segments below it."""
        if match := _FILE.fullmatch(line):
            self._file_id, self._path, self._node = match[1], match[2], ""
        elif match := _RANK.fullmatch(line):
            self._rank, self._node = match[1], match[2]
        elif match := _START.fullmatch(line):
            self._start_ns = time_ns(match[1])
        elif match := _INCOMPLETE.match(line):
            self._incomplete.add(match[1])
        elif line.startswith("# darshan log version"):
            self._start_ns, self._is_begun = None, False
            self._file_id = self._path = self._rank = self._node = ""
        elif line.startswith(("# DXT, file_id", "# DXT, rank", "# start_time:")):
            raise ValueError(line)
