"""Files as they are at a tick, kept as bytes, to be understood later.

An interpreter that wakes once a second finds its caches cold, and each line of code that it runs costs
many times what it costs in a loop. So a tick only reads; the captures of a batch are interpreted in one go.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from laggard_agent.collectors.host import self_usage
from laggard_agent.collectors.interface import MAX_FILE_BYTES, Now, Reading, read_file
from laggard_common.errors import CollectError

_CHUNK_BYTES = 16 * 1024  # the kernel gives a page at a time of most of these files


class Captured(NamedTuple):
    """What one file said at `at_ns`, nanoseconds since the epoch, or why it could not be read."""

    at_ns: int
    data: bytes
    error: CollectError | None

    def text(self) -> bytes:
        """What the file said. Raises CollectError when it could not be read."""
        if self.error is not None:
            raise self.error
        return self.data


class Capture(NamedTuple):
    """The files of one collector at one tick, in its order.

    `can_wait`: nothing failed, came or went, so that what is outside the files is as it was at the last tick.
    `cpu_ns`: CPU time of this process, where that is measured.
    """

    files: Sequence[Captured]
    size_bytes: int
    can_wait: bool
    cpu_ns: int = 0


@runtime_checkable
class Capturing(Protocol):
    """A collector that may be read in two parts: at the tick its files, later what they mean."""

    name: str
    captures: "Captures | None"  # None: it must be read as a whole

    def interpret(self, capture: Capture) -> Iterator[Reading]:
        """As `Collector.read`, from captures in the order in which they were taken."""
        ...


class Captures:
    """Captures files of /proc. `now` gives the time that readings carry.

    `lines`: how many each file had at the last tick; None before the first, and when one could not be read.
    """

    def __init__(self, paths: Sequence[Path], now: Now, *, measures_cpu: bool = False) -> None:
        self.files = tuple(File(path) for path in paths)
        self.measures_cpu = measures_cpu
        self.lines: list[int] | None = None
        self._now = now

    def take(self) -> Capture:
        """All files as they are now; raises nothing for what cannot be read.

        Runs on cold caches, as does what it calls: every line counts.
        """
        files = []
        lines: list[int] | None = []
        size_bytes = 0
        for file in self.files:
            at = self._now()
            try:
                data = file.read()
            except CollectError as exc:
                files.append(Captured(at, b"", exc))
                lines = None
            else:
                files.append(Captured(at, data, None))
                size_bytes += len(data)
                if lines is not None:
                    lines.append(data.count(b"\n"))
        cpu_ns = self_usage.cpu_ns() if self.measures_cpu else 0
        # A device came or went: whoever asks what it is must ask while it is there.
        can_wait = lines is not None and lines == self.lines
        self.lines = lines
        return Capture(files, size_bytes, can_wait, cpu_ns)


class File:
    """A file that is read again and again, and kept open where the kernel makes it up at each reading.

    Such a file has no size, and is made anew when it is read from its beginning
    (Documentation/filesystems/seq_file.rst). Any other may be replaced, and so is opened each time. A
    recorder is told of a file when it is opened. `fd` is that of the open file, else negative.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.path_bytes = os.fsencode(path)
        self.fd = -1
        self._may_stay_open = True

    def read(self) -> bytes:
        """All bytes. Raises CollectError."""
        fd = self.fd
        if fd >= 0:
            try:
                data = os.pread(fd, _CHUNK_BYTES, 0)
                more = os.pread(fd, _CHUNK_BYTES, len(data))
                return self._read_on(data, more) if more else data
            except OSError:
                self._close()  # of a kernel module or a FUSE server that ended; it may have a successor
        data = read_file(self._path)
        if data and self._may_stay_open:
            self._keep_open()
        return data

    def _read_on(self, *chunks: bytes) -> bytes:
        """All of a file that begins with `chunks`."""
        found = list(chunks)
        size = sum(map(len, found))
        while chunk := os.pread(self.fd, _CHUNK_BYTES, size):
            found.append(chunk)
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                return read_file(self._path)  # which says what is wrong
        return b"".join(found)

    def _keep_open(self) -> None:
        try:
            found = self._path.stat()
            self._may_stay_open = stat.S_ISREG(found.st_mode) and not found.st_size
            if self._may_stay_open:
                self.fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # gone since it was read

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self._close()
