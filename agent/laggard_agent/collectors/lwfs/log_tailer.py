"""Follows a rotated log in bounded steps and yields every line once.

- Renamed and recreated: the old file is read to its end and for a while longer, for late writers.
- Copied and truncated, or truncated alone: detected by its length, or by changed bytes before the reached
  offset. Lines written between the last step and the truncation come from the copy, if one with those bytes
  lies beside the log.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from laggard_agent.collectors.interface import is_recorded, note_read, regular_file, unreadable
from laggard_common.errors import CollectError

MOST_STEP_BYTES = 4 * 1024 * 1024
FIRST_BYTES = 1024 * 1024
_DRAIN_NS = 10 * 1_000_000_000
_MOST_COPIES = 16
MOST_LINE_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_TAIL_BYTES = 512


class OpenLog:
    """A file that stays open across rename and deletion. `at`: offset read so far.

    `long_lines`: lines of more than 64 KiB, which are skipped without being stored.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.at = 0
        self.long_lines = 0
        self._tail = b""  # the bytes just before `at`
        self._rest = b""  # an incomplete last line
        self._skipping = False

    @classmethod
    def open(cls, path: Path) -> "OpenLog":
        """Opens `path`. Raises OSError, and CollectError for anything but a regular file."""
        with regular_file(path) as (fd, _):
            return cls(os.dup(fd))

    def close(self) -> bool:
        """Closes the file; True if an incomplete line was left."""
        with suppress(OSError):
            os.close(self._fd)
        return bool(self._rest)

    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def behind_bytes(self) -> int:
        """Bytes written and not yet read."""
        return max(0, os.fstat(self._fd).st_size - self.at)

    def skip_to_last(self, most_bytes: int) -> None:
        """Continues at the start of a line at most `most_bytes` before the end."""
        self.at = max(0, os.fstat(self._fd).st_size - most_bytes)
        self._skipping = self.at > 0

    def was_truncated(self) -> bool:
        """True when the bytes before `at` differ from those read there."""
        return os.fstat(self._fd).st_size < self.at or not self._has_tail(self)

    def goes_on_in(self, other: "OpenLog") -> bool:
        """Continues in `other` if it is a copy of this file; True if so."""
        if not self._tail or other.behind_bytes() + other.at < self.at or not self._has_tail(other):
            return False
        other.at, other._tail = self.at, self._tail
        other._rest, other._skipping = self._rest, self._skipping
        self._rest = b""
        return True

    def restart(self) -> bool:
        """Restarts at offset 0 after a truncation; True if an incomplete line was left."""
        torn = bool(self._rest)
        self.at, self._tail, self._rest, self._skipping = 0, b"", b"", False
        return torn

    def lines(self, most_bytes: int) -> tuple[list[bytes], int]:
        """Complete lines without newlines, and the bytes read: fewer than requested at the end.

        Raises OSError where nothing can be read.
        """
        lines: list[bytes] = []
        read = 0
        while read < most_bytes:
            try:
                data = os.pread(self._fd, min(_CHUNK_BYTES, most_bytes - read), self.at)
            except OSError:
                if read:
                    break
                raise
            if not data:
                break
            read += len(data)
            self.at += len(data)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            self._split(data, lines)
        return lines, read

    def _split(self, data: bytes, lines: list[bytes]) -> None:
        *whole, rest = data.split(b"\n")
        if whole:
            first = self._rest + whole[0]
            if not self._skipping:
                whole[0] = first
            else:
                del whole[0]
            self._rest, self._skipping = b"", False
            lines += whole
        self._rest = b"" if self._skipping else self._rest + rest
        if len(self._rest) > MOST_LINE_BYTES:
            self.long_lines += 1
            self._rest, self._skipping = b"", True

    def _has_tail(self, other: "OpenLog") -> bool:
        return os.pread(other._fd, len(self._tail), self.at - len(self._tail)) == self._tail


class Follower:
    """Lines of the log at `path`. `exists`: at the latest step.

    A log that exists when the agent starts is read from at most 1 MiB before its end, and `are_old` is true
    for the lines of that step; later logs are read from their start. Totals since the start: `rotations`,
    `truncations`, `torn_lines` (never completed), `long_lines` (more than 64 KiB). `failure`: the first error
    of the latest step, which kept it from no other file.
    """

    def __init__(self, path: Path, monotonic_ns: Callable[[], int]) -> None:
        self._path = path
        self._monotonic_ns = monotonic_ns
        self._current: OpenLog | None = None
        self._leaving: list[tuple[OpenLog, int]] = []  # older files, and the time until which they are read
        self._began = False
        self.rotations = self.truncations = self.torn_lines = self.long_lines = 0
        self.exists = False
        self.are_old = False
        self.failure: CollectError | None = None

    def lines(self) -> list[bytes]:
        """Complete lines since the previous step, at most 4 MiB per step.

        An unreadable log is the `failure`; no line of it is lost.
        """
        self.are_old = False
        self.failure = None
        lines: list[bytes] = []
        with self._noting():
            self._look()
            if self._current is not None and self._current.was_truncated():
                self._restart(self._current)
        budget = self._read_leaving(lines)
        if self._current is not None:
            leaving = len(lines)
            with self._noting():
                self._of(self._current, budget, lines)
            if is_recorded():
                note_read(self._path, b"".join(line + b"\n" for line in lines[leaving:]))
        return lines

    def behind_bytes(self) -> int | None:
        """Bytes written and not yet read, over all open files; None where one does not tell."""
        logs = [log for log, _ in self._leaving] + ([self._current] if self._current else [])
        try:
            return sum(log.behind_bytes() for log in logs)
        except OSError:
            return None

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Makes an error the `failure`, unless there is one."""
        try:
            yield
        except OSError as exc:
            self.failure = self.failure or unreadable(self._path, exc)
        except CollectError as exc:
            self.failure = self.failure or exc

    def _look(self) -> None:
        """Checks for a new file at the path."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self.exists = False
            self._began = True
            return
        if self._current is None or self._current.identity() != (status.st_dev, status.st_ino):
            fresh = OpenLog.open(self._path)
            if self._current is not None:
                self.rotations += 1
                self._leaving.append((self._current, self._monotonic_ns() + _DRAIN_NS))
            elif not self._began:
                fresh.skip_to_last(FIRST_BYTES)
                self.are_old = True
            self._current = fresh
        self.exists = self._began = True

    def _restart(self, log: OpenLog) -> None:
        self.truncations += 1
        copy = self._copy_of(log)
        if copy is not None:
            self._leaving.append((copy, 0))
        self.torn_lines += log.restart()

    def _copy_of(self, log: OpenLog) -> OpenLog | None:
        """The newest file beside the log that starts with the part read so far."""
        beside = (
            p for p in self._path.parent.glob("*") if p.name.startswith(self._path.name) and p != self._path
        )
        newest = sorted(((_written_ns(p), p) for p in beside if _is_file(p)), reverse=True)
        for _, path in newest[:_MOST_COPIES]:
            try:
                copy = OpenLog.open(path)
            except (OSError, CollectError):
                continue
            if log.goes_on_in(copy):
                return copy
            copy.close()
        return None

    def _read_leaving(self, lines: list[bytes]) -> int:
        """Adds the lines of the older files to `lines`; the bytes that the step has left."""
        budget = MOST_STEP_BYTES
        now_ns = self._monotonic_ns()
        staying = []
        for log, until_ns in self._leaving:
            with self._noting():
                budget -= self._of(log, budget, lines)
            if budget > 0 and now_ns >= until_ns:
                self.torn_lines += log.close()
            else:
                staying.append((log, until_ns))
        self._leaving = staying
        return budget

    def _of(self, log: OpenLog, budget: int, lines: list[bytes]) -> int:
        before = log.long_lines
        some, read = log.lines(budget)
        lines += some
        self.long_lines += log.long_lines - before
        return read


def _written_ns(path: Path) -> int:
    """Modification time of a file; 0 if it has vanished."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_file(path: Path) -> bool:
    """Whether a regular file is there; False where that cannot be seen."""
    try:
        return path.is_file()
    except OSError:
        return False
