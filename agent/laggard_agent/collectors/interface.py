"""The collector interface, reading and checking of kernel files, and recording of the files that are read.

From a recording `--dump` knows the files to copy. A recorder is local to the thread that set it, so an agent
that samples is never recorded by accident.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field

Now = Callable[[], int]  # nanoseconds since the epoch on the agent's timeline

ABSENT = (errno.ENOENT, errno.ENOTDIR)

MAX_FILE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_SEQ_FILE_BYTES = 8 * 1024  # a read of /proc gives a page, with few exceptions
_CACHED_NAMES = 4096


@dataclass(frozen=True, slots=True)
class Reading:
    """One table read at one moment: `rows[i]` belongs to `components[i]`, its values to `fields`.

    A value is None where the component lacks the field. An unchanged row is the same object as in the reading
    before, and so is `components` while it stays the same: later stages compare by identity.
    """

    source: str
    fields: tuple[Field, ...]
    read_at_ns: int
    components: tuple[Component, ...]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Roots:
    """The trees that collectors read. `sysfs` None: /proc is foreign, so nothing of this host filters it.

    `lctl_dump`: a saved output of `lctl get_param` that stands for Lustre's trees.
    """

    procfs: Path = Path("/proc")
    sysfs: Path | None = Path("/sys")
    debugfs: Path | None = Path("/sys/kernel/debug")
    lctl_dump: Path | None = None

    @property
    def own(self) -> bool:
        """Whether /proc is this host's, whose kernel may be asked."""
        return self.procfs == Path("/proc")


@dataclass(frozen=True, slots=True)
class Context:
    """Surroundings of a collector. `now`: time that readings carry; `monotonic_ns`: for intervals."""

    roots: Roots
    now: Now
    monotonic_ns: Callable[[], int]


class Collector(Protocol):
    """Reads one source, on a thread of its own."""

    name: str

    def read(self) -> Iterator[Reading]:
        """The readings of the source now. Raises CollectError after yielding all that could be read."""
        ...


def read_file(path: Path | str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """All bytes of a file of /proc or /sys. Raises CollectError, also for a file longer than `max_bytes`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = _read_all(lambda _: os.read(fd, _CHUNK_BYTES), path, max_bytes)
        finally:
            os.close(fd)
    except OSError as exc:
        raise unreadable(path, exc) from exc
    note_read(path, data)
    return data


def unreadable(path: Path | str, exc: OSError) -> CollectError:
    """The error for a file or folder, recorded unless it is missing."""
    reason = exc.strerror or str(exc)
    return CollectError(str(path), reason) if exc.errno in ABSENT else refused(path, reason)


def refused(path: Path | str, reason: str) -> CollectError:
    """The error for a file or folder that exists and was not read, recorded."""
    note_not_read(path, reason)
    return CollectError(str(path), reason)


@contextmanager
def regular_file(path: Path, flags: int = 0) -> Iterator[tuple[int, os.stat_result]]:
    """An open file that any user may have put there. Raises OSError; CollectError for an irregular one."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise refused(path, "not a regular file")
        yield fd, status
    finally:
        os.close(fd)


class KernelFile:
    """A file of /proc that stays open between reads, which saves a tenth of an agent's CPU time.

    The kernel generates such a file at each read from its start and reports no size
    (Documentation/filesystems/seq_file.rst). Any other file may be replaced and is opened at each read. Only
    the first read is recorded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def read(self) -> bytes:
        """All bytes. Raises CollectError."""
        if self._fd >= 0:
            try:
                return _read_all(self._chunk, self.path, MAX_FILE_BYTES)
            except OSError:
                self._close()  # its module or FUSE server ended and may have a successor
        data = read_file(self.path)
        with suppress(OSError):  # gone since
            if data and not self.path.stat().st_size:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return data

    def _chunk(self, at: int) -> bytes:
        return os.pread(self._fd, _SEQ_FILE_BYTES, at)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self._close()


def _read_all(chunk_at: Callable[[int], bytes], path: Path | str, max_bytes: int) -> bytes:
    chunks = []
    size = 0
    while chunk := chunk_at(size):
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise refused(path, f"longer than {max_bytes} bytes")
    return b"".join(chunks)


class Recorder(Protocol):
    """Receives each access to a file or folder. Its methods raise nothing, as they run within a read."""

    def read(self, path: str, data: bytes) -> None:
        """A file was read; `data`: its content."""
        ...

    def not_read(self, path: str, reason: str) -> None:
        """A file or folder exists and could not be read."""
        ...

    def named(self, path: str, *, is_folder: bool) -> None:
        """The existence of a file or folder was used, not its content."""
        ...


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
    """Context in which `recorder` receives the accesses of this thread."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def is_recorded() -> bool:
    """Whether this thread is recorded: files that a library reads must then be read for the recorder too."""
    return _recorder.get() is not None


def note_read(path: object, data: bytes) -> None:
    """Records the content of a file, if this thread is recorded."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.read(str(path), data)


def note_not_read(path: object, reason: str) -> None:
    """Records why a file or folder could not be read, if this thread is recorded."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.not_read(str(path), reason)


def note_name(path: object, *, is_folder: bool = False) -> None:
    """Records a file or folder whose name alone is used, if this thread is recorded."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.named(str(path), is_folder=is_folder)


def printable(text: str) -> str:
    """The text with a question mark for each unprintable character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def attribute(path: str) -> str:
    """A file of sysfs with single blanks; empty when it is absent, unreadable or unprintable."""
    try:
        text = " ".join(read_file(path).decode("ascii", "replace").split())
    except CollectError:
        return ""
    return text[:MAX_NAME_CHARS] if text.isprintable() else ""


def choice(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool | None]:
    """The operator's choice of a name by regular expressions on whole names.

    True for an included one, False for an excluded or, with any `include`, not included one, otherwise None.
    Each pattern is compiled by itself and may have its own flags and groups.
    """
    wanted, unwanted = (tuple(map(re.compile, patterns)) for patterns in (include, exclude))

    @lru_cache(_CACHED_NAMES)
    def chosen(name: str) -> bool | None:
        if any(pattern.fullmatch(name) for pattern in unwanted):
            return False
        return any(pattern.fullmatch(name) for pattern in wanted) if wanted else None

    return chosen
