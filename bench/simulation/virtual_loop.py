"""An event loop whose time is virtual: it jumps to the next timer when nothing else is to be done.

Threads do not exist in it. A job of an executor runs at once, and its result arrives after the time that the
host's disk needs, so that other tasks run in between as they do beside a thread.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from bench.simulation.processes import Killed, current

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_SECONDS = 1000.0
STEP_SECONDS = 1e-6
"""Time that a pass of the loop takes, so that waiting in small steps comes to an end."""


class StuckError(Exception):
    """Nothing is left that could ever happen."""


class _Selector(selectors.SelectSelector):
    """Lets time pass where another selector waits. It never looks at a file."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_SECONDS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Moves the time by `timeout`, at least by STEP_SECONDS; no file is ever ready."""
        if timeout is None:
            raise StuckError("no task can go on")
        self.now += max(timeout, STEP_SECONDS)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs simulated processes (`processes.Process`); each task belongs to the process that created it."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.set_task_factory(_task_of_process)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Any,  # noqa: ARG002 - there is none
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> "asyncio.Future[T]":
        """Runs `func` now. Its result arrives when the disk of the process is done."""
        future: asyncio.Future[T] = self.create_future()
        process = current()
        try:
            result = func(*args)
        except Killed:
            if not process.alive:
                future.cancel()  # what ends with the process waits for nothing
            return future
        except Exception as exc:
            failure = exc
            self.call_later(
                process.host.disk.seconds(),
                lambda: None if future.done() else future.set_exception(failure),
            )
        else:
            self.call_later(
                process.host.disk.seconds(), lambda: None if future.done() else future.set_result(result)
            )
        return future


def _task_of_process(
    loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None
) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    process = current(context)
    process.tasks[task] = None
    task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task
