"""Calls of `os` that change or sync files, as simulated processes find them.

They pass to the true ones, and to the disk of the calling process, which counts, refuses and remembers them.
"""

import errno
import io
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.simulation.processes import Killed, current, is_simulated

_NAMES = (
    "write",
    "fsync",
    "fdatasync",
    "replace",
    "rename",
    "unlink",
    "truncate",
    "ftruncate",
    "mkdir",
    "link",
)


_READING = ("scandir", "stat", "open")
"""Further calls that an `Injector` sees. `open` is that of pathlib too."""


class ShortWrite(OSError):  # noqa: N818 - the program sees no error
    """A `write` takes half of its bytes, and no error is raised."""


Injector = Callable[[str], OSError | None]
"""The error with which a call of this name, by a simulated process, fails now; None where it does not."""

injector: list[Injector] = []
"""The one in force, if any: of `bench.io_faults`."""


def _inject(name: str) -> None:
    if injector and is_simulated() and (error := injector[0](name)) is not None:
        raise error


def _failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            _inject(name)
        except ShortWrite:
            fd, data = arguments
            return real(fd, memoryview(data)[: max(len(data) // 2, 1)])
        return real(*arguments, **named)

    return call


def check_room(path: str) -> None:
    """Raises OSError where the disk of the running process is full."""
    if current().host.disk.refuses(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@contextmanager
def interposed() -> Iterator[None]:
    """Calls of `os` by simulated processes go to their disks while the block runs."""
    real = {name: getattr(os, name) for name in _NAMES}
    made = _Calls(real)
    for name in _NAMES:
        setattr(os, name, _failing(name, getattr(made, name)) if injector else getattr(made, name))
    real_open, real_mmap = io.open, mmap.mmap
    if injector:
        real |= {name: getattr(os, name) for name in _READING}
        for name in _READING:
            setattr(os, name, _failing(name, real[name]))
        io.open = _failing("open", real_open)
        mmap.mmap = _failing("mmap", real_mmap)  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        io.open = real_open
        mmap.mmap = real_mmap  # type: ignore[misc]
        for name, function in real.items():
            setattr(os, name, function)


class _Calls:
    """The calls of `os` as a simulated process finds them; others get the real ones."""

    def __init__(self, real: dict[str, Callable[..., Any]]) -> None:
        self._real = real

    def write(self, fd: int, data: Any) -> int:
        """Writes all, a part where the process is killed or the disk is full, or nothing."""
        write: Callable[[int, Any], int] = self._real["write"]
        if not is_simulated():
            return write(fd, data)
        process = current()
        disk = process.host.disk
        if process.operation():
            write(fd, memoryview(data)[: disk.rng.randint(0, len(data))])
            raise Killed
        if disk.full and disk.refuses(_path_of(fd)):
            if len(data) > 1 and disk.rng.random() < 0.3:
                return write(fd, memoryview(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        disk.operations += 1
        return write(fd, data)

    def fsync(self, fd: int) -> None:
        """Makes what the descriptor stands for safe."""
        if not is_simulated():
            self._real["fsync"](fd)
            return
        process = current()
        killed = process.operation()
        if killed and process.host.disk.rng.random() < 0.5:
            raise Killed
        path = _path_of(fd)
        disk = process.host.disk
        if disk.owns(path) or path == str(disk.folder):
            disk.operations += 1
            disk.synced(path)
        if killed:
            raise Killed

    fdatasync = fsync

    def replace(self, path: Any, to: Any) -> None:
        """Renames a file."""
        self._changing("replace", path, to, then="moved")

    def rename(self, path: Any, to: Any) -> None:
        """Renames a file."""
        self._changing("rename", path, to, then="moved")

    def link(self, path: Any, to: Any) -> None:
        """Gives a file a further name."""
        self._changing("link", path, to, then="linked")

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        """Removes a name."""
        if dir_fd is not None:
            self._real["unlink"](path, dir_fd=dir_fd)
            return
        self._changing("unlink", path, then="removed")

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        """Makes a folder."""
        if is_simulated():
            check_room(str(path))
        self._changing("mkdir", path, mode)

    def truncate(self, path: Any, length: int) -> None:
        """Shortens a file."""
        self._changing("truncate", path, length)

    def ftruncate(self, fd: int, length: int) -> None:
        """Shortens an open file."""
        self._changing("ftruncate", fd, length)

    def _changing(self, name: str, *arguments: Any, then: str = "") -> None:
        if not is_simulated():
            self._real[name](*arguments)
            return
        process = current()
        killed = process.operation()
        if killed and process.host.disk.rng.random() < 0.5:
            raise Killed
        self._real[name](*arguments)
        process.host.disk.operations += 1
        if then:
            getattr(process.host.disk, then)(*map(str, arguments))
        if killed:
            raise Killed


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
