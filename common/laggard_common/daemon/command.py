"""Runs a command to its exit code; errors and a failing standard output are one line."""

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from laggard_common.errors import LaggardError
from laggard_common.visible import visible

FAILED = 1
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE


class _EndedError(BaseException):
    """SIGTERM or SIGHUP, `number`, reached the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _OutputError(LaggardError):
    """Standard output is full or closed; without a text where the reader of a pipe is gone."""

    def __init__(self, error: OSError) -> None:
        closed = error.errno == errno.EPIPE
        super().__init__("" if closed else f"standard output: {error.strerror}")
        self.exit_code = PIPE_CLOSED if closed else FAILED


class _Output(io.FileIO):
    """Standard output. After its first failure, an _OutputError, it is silent."""

    failed = False

    def write(self, data: Any, /) -> int:
        """Writes, after a failure to nowhere."""
        try:
            return len(data) if self.failed else super().write(data)
        except OSError as exc:
            self.failed = True
            raise _OutputError(exc) from exc


def guarded(name: str, run: Callable[[], int]) -> int:
    """The exit code of `run`, with its errors on stderr, each line below the command's `name`.

    1: standard output is full or closed; 141, without a word: the reader of the pipe is gone, as with `head`;
    130: Ctrl-C. SIGTERM and SIGHUP end the process after the clean-up of `run`.
    """
    try:
        with _ending_signals(), _checked_output():
            return _exit_code(name, run)
    except _EndedError as ended:
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    return FAILED


def _exit_code(name: str, run: Callable[[], int]) -> int:
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()  # here, where an error is one line; also after the help text
    except LaggardError as exc:
        return _reported(name, exc)
    except BaseExceptionGroup as group:
        errors, others = group.split(LaggardError)
        if errors is None or others is not None:
            raise
        return max(_reported(name, exc) for exc in _leaves(errors))
    except KeyboardInterrupt:
        return INTERRUPTED


def _reported(name: str, exc: LaggardError) -> int:
    for line in str(exc).splitlines():
        print(f"{name}: {visible(line)}", file=sys.stderr)
    return exc.exit_code


def _leaves(group: BaseExceptionGroup[LaggardError]) -> Iterator[LaggardError]:
    for exc in group.exceptions:
        if isinstance(exc, BaseExceptionGroup):
            yield from _leaves(exc)
        else:
            yield exc


@contextmanager
def _checked_output() -> Iterator[None]:
    """Standard output whose failures are found, and both standard streams open.

    Otherwise the next file that is opened becomes the one that is closed; writing to it fails then.
    """
    if sys.stderr is None:
        sys.stderr = os.fdopen(_opened_as(2, os.O_WRONLY), "w")
    before = sys.stdout
    if before is None:
        before = os.fdopen(_opened_as(1, os.O_RDONLY), "w")
    elif before is not sys.__stdout__ or not isinstance(before, io.TextIOWrapper):
        yield
        return
    before.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(before.fileno(), "w", closefd=False)),
        before.encoding,
        "backslashreplace",
        line_buffering=before.line_buffering,
    )
    try:
        yield
    finally:
        sys.stdout = before


def _opened_as(number: int, mode: int) -> int:
    descriptor = os.open(os.devnull, mode)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    return number


@contextmanager
def _ending_signals() -> Iterator[None]:
    """Raises _EndedError where SIGTERM and SIGHUP would end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise _EndedError(number)

    ending = (signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, end) for n in ending if signal.getsignal(n) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
