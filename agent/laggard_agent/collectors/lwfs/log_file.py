"""One open log file: reads lines in bounded steps and detects truncation."""

import os
import stat
from pathlib import Path

from laggard_common.errors import CollectError

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
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise CollectError(str(path), "not a regular file")
        return cls(fd)

    def close(self) -> bool:
        """Closes the file; True if an incomplete line was left."""
        os.close(self._fd)
        return bool(self._rest)

    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

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

        Raises OSError.
        """
        lines: list[bytes] = []
        read = 0
        while read < most_bytes:
            data = os.pread(self._fd, min(_CHUNK_BYTES, most_bytes - read), self.at)
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
