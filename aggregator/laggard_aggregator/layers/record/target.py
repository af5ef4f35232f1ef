"""The recorded program: started stopped, never ended by the recorder, and waited for."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from laggard_common.errors import InputError


class Target:
    """The command, if there is one, or processes that run already."""

    def __init__(self, pids: Sequence[int], child: "subprocess.Popen[bytes] | None" = None) -> None:
        self.pids = tuple(pids)
        self.child = child
        self.started = child is None

    def threads(self) -> list[int]:
        """All threads of the processes."""
        if self.child is not None:
            return [self.child.pid]
        threads = []
        for pid in self.pids:
            with suppress(OSError):
                threads += [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        return threads

    def start(self) -> None:
        """Lets the command run."""
        self.started = True
        if self.child is not None:
            self.child.send_signal(signal.SIGCONT)

    def has_ended(self) -> bool:
        """True when the command, or all processes, have ended."""
        if self.child is not None:
            return self.child.poll() is not None
        return not any(Path(f"/proc/{pid}").exists() for pid in self.pids)

    def pass_signals_on(self, ending: "EndingSignals") -> None:
        """Passes signals on to the command from now on, and those that came already."""
        if self.child is not None and self.started:
            ending.pass_on_to(self.child)

    def wait(self, done: str) -> int | None:
        """The exit code of the command when it has ended by itself; None without one that runs.

        `done`: outcome of the recording, for the user who waits.
        """
        if self.child is None or not self.started:
            return None
        if self.child.poll() is None:
            print(f"laggard layers record: {done}; waiting for the program to end", file=sys.stderr)
        return self.child.wait()


class EndingSignals:
    """SIGINT, SIGTERM and SIGHUP while recording: the first ends the recording, all but a first SIGINT go to
    the command, too. A terminal sends SIGINT to both by itself.
    """

    def __init__(self) -> None:
        self.came = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handler of the signals."""
        del frame
        passed_on = number != signal.SIGINT or self.came.is_set()
        self.came.set()
        if passed_on and self._child is not None:
            self._child.send_signal(number)
        elif passed_on:
            self._waiting.append(number)

    def pass_on_to(self, child: "subprocess.Popen[bytes]") -> None:
        """Sends the command the signals that came, and all that come."""
        self._child = child
        for number in self._waiting:
            child.send_signal(number)
        self._waiting.clear()


@contextmanager
def ending_signals() -> Iterator[EndingSignals]:
    """Handles SIGINT, SIGTERM and SIGHUP in the body; SIGHUP not below `nohup`."""
    ending = EndingSignals()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, ending.handle) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def target(command: Sequence[str], pids: Sequence[int]) -> Iterator[Target]:
    """The command, stopped before its first instruction, or the processes. Raises InputError for none.

    A command that was not started is killed at the end; one that was runs on, also after an error.
    """
    if not command:
        for pid in pids:
            if not Path(f"/proc/{pid}").exists():
                raise InputError(str(pid), "no such process")
        yield Target(pids)
        return
    child = subprocess.Popen(["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *command])
    stopped = Target((), child)
    try:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield stopped
    finally:
        if not stopped.started:
            child.kill()
            child.wait()
