"""What collectors read, told to a recorder while there is one: this is how `--dump` knows what to copy.

The recorder belongs to the thread that set it, so an agent that samples is never recorded by accident.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Recorder(Protocol):
    """Is told what is looked at. Raises nothing: it is called in the midst of reading."""

    def read(self, path: str, data: bytes) -> None:
        """A file was read, and said `data`."""
        ...

    def not_read(self, path: str, reason: str) -> None:
        """A file or folder is there and could not be read."""
        ...

    def named(self, path: str, *, is_folder: bool) -> None:
        """That it is there counted, not what is in it."""
        ...


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
    """While it lasts, `recorder` is told what this thread reads."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def is_recorded() -> bool:
    """Whether there is a recorder: what others read must then be read for it as well."""
    return _recorder.get() is not None


def note_read(path: object, data: bytes) -> None:
    """Tells the recorder, if there is one, what a file said."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.read(str(path), data)


def note_not_read(path: object, reason: str) -> None:
    """Tells the recorder, if there is one, why a file or folder could not be read."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.not_read(str(path), reason)


def note_name(path: object, *, is_folder: bool = False) -> None:
    """Tells the recorder, if there is one, of a file or folder whose name alone counts."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.named(str(path), is_folder=is_folder)
