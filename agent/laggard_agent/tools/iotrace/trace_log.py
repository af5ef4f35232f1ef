"""One trace log that grows: its complete lines as records, from a remembered position on.

A parser's state (open descriptors, the file and rank of a DXT dump) follows from all lines before. After a
restart of the agent the log is therefore parsed from its start, and records are returned from the remembered
position on.
"""

import os
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from laggard_agent.tools.iotrace.command import FORMATS, format_of
from laggard_agent.tools.iotrace.marks import TAIL_BYTES, FileId, Mark
from laggard_common.trace_formats.line_reader import MAX_LINE_BYTES, TraceReader
from laggard_common.wire.trace_records import TraceRecord

_DXT_JOB = re.compile(rb"# jobid: ([0-9]{1,19})\s*")
_CGROUP_JOB = re.compile(r"/job_([1-9][0-9]{0,9})(?:/|$)", re.MULTILINE)
_ENVIRONMENT_JOB = re.compile(rb"(?:^|\0)SLURM_JOB_ID=([1-9][0-9]{0,9})(?:\0|$)")


class LogLine(NamedTuple):
    """The records of a line, the position of its `end`, and `tail`, the checksum of the bytes before that."""

    records: Sequence[TraceRecord]
    end: int
    tail: int


class TraceLog:
    """The log at `path`, open as `fd`. `mark`: the end of the records that were sent.

    `job`: that of the path, which precedes all others; empty for none. `format_name`: one of FORMATS, or
    `auto`.
    """

    def __init__(
        self, path: Path, fd: int, mark: Mark, *, job: str, format_name: str, node: str, procfs: Path
    ) -> None:
        self.path = path
        self.ready_at = mark.at
        """End of the last part that became a document, now or before the agent started."""
        self.job = job or mark.job
        self.due_ns = 0
        self.turn = 0
        """When the log last used up the bytes of a read; the latest one is read last."""
        self.is_leaving = False
        """Whether the path is gone or is another file now."""
        self.is_at_end = False
        """Whether the last read found no more complete lines."""
        self.position = 0
        """The end of the last line that was parsed."""
        self.reader: TraceReader | None = None
        self._path_job = job
        self._fd = fd
        self._format_name = format_name
        self._node = node
        self._procfs = procfs
        self._known = mark.at
        self._last = replace(mark, at=0, tail=0)
        self._skipping = False
        self._asked = False

    @property
    def name(self) -> str:
        """The log's name on its node: a rename keeps it, a truncation makes another one."""
        return f"{self._last.path}@{self._last.since_ns}"

    @property
    def file(self) -> FileId:
        """Device and inode."""
        return self._last.file

    def behind_bytes(self) -> int:
        """Bytes that were not read. Raises OSError."""
        return max(0, os.fstat(self._fd).st_size - self.position)

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):  # of a network file system; nothing was written
            os.close(self._fd)

    def was_truncated(self) -> bool:
        """Whether the bytes before the position are gone, or others. Raises OSError."""
        return not self._last.follows(self._fd)

    def restart(self, now_ns: int) -> Mark:
        """Continues at the start of the file after a truncation, as another log; returns its mark."""
        self.job = self._path_job
        self._last = Mark(*self.file, since_ns=now_ns, job=self.job, path=str(self.path))
        self._known = self.ready_at = self.position = 0
        self.reader = None
        self._skipping = False
        return self._last

    def rename(self, path: Path, job: str) -> None:
        """Continues at another path, with the job of that if it has one."""
        self.path, self.is_leaving = path, False
        self._path_job = job
        self.job = job or self.job

    def mark_at(self, position: int, tail: int) -> Mark:
        """The mark of the end of a line."""
        return replace(self._last, at=position, tail=tail, job=self.job)

    def read(self, most_bytes: int) -> list[LogLine]:
        """The complete lines within the next `most_bytes`, at least MAX_LINE_BYTES. Raises OSError.

        None of those that were sent before the agent started. After an OSError the position is the same.
        """
        before = min(self.position, TAIL_BYTES)
        data = memoryview(os.pread(self._fd, before + most_bytes, self.position - before))
        *lines, rest = bytes(data[before:]).split(b"\n")
        self._asked = False
        read = []
        end = before
        for text in lines:
            end += len(text) + 1
            if self._skipping:
                self._skipping = False
                continue
            records = self._parse(text + b"\n")
            position = self.position + end - before
            if position > self._known:
                read.append(LogLine(records, position, _checksum(data, end)))
        if not lines and len(rest) >= MAX_LINE_BYTES:
            end += len(rest)
            self._skipping = True
        if end > before:
            self.position += end - before
            self._last = self.mark_at(self.position, _checksum(data, end))
        return read

    def _parse(self, line: bytes) -> Sequence[TraceRecord]:
        if self.reader is None:
            name = self._format_name if self._format_name != "auto" else format_of(line)
            self.reader = TraceReader(FORMATS[name](self._node).parse)
        records = self.reader.records_of(line)
        if not self.job and (header := _DXT_JOB.match(line)):
            self.job = header[1].decode()
        elif not self.job and records and not self._asked:
            self._asked = True
            self.job = job_of_process(self._procfs, records[0])
        return records


def job_of_process(procfs: Path, record: TraceRecord) -> str:
    """The Slurm job of the process in a descriptor, by its control group or environment; empty if unknown."""
    process, colon, _ = record.descriptor.partition(":")
    if not colon or not process.isdecimal() or len(process) > 10:
        return ""
    folder = procfs / process
    with suppress(OSError):
        if match := _CGROUP_JOB.search((folder / "cgroup").read_text("utf-8", "replace")):
            return match[1]
        if there := _ENVIRONMENT_JOB.search((folder / "environ").read_bytes()):
            return there[1].decode()
    return ""


def _checksum(data: memoryview, end: int) -> int:
    """Checksum of the last bytes before `end`, as Mark has it."""
    return zlib.crc32(data[max(end - TAIL_BYTES, 0) : end])
