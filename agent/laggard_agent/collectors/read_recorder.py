"""Recording of the files that collectors read, from which `--dump` knows the files to copy.

A recorder is local to the thread that set it, so an agent that samples is never recorded by accident.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


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
    """Records a file or folder of which only the name is used, if this thread is recorded."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.named(str(path), is_folder=is_folder)
