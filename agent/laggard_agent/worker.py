"""A daemon thread of its own for whatever may block: a read that never returns must not keep the agent alive.

The pool of asyncio joins its threads at exit, so one stalled disk would outlive SIGTERM.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker:
    """Runs jobs one after another on one thread, and hands their results to the event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job[object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, job: Callable[[], T]) -> T:
        """What `job` returned or raised on the thread. Cancelling does not stop a job that runs."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(job, future))  # type: ignore[arg-type]
        return await future

    def end(self) -> None:
        """Lets the thread end after the jobs that it has; does not wait for it."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            finish = job.run()
            try:
                self._loop.call_soon_threadsafe(finish)
            except RuntimeError:  # the loop was closed: nobody waits any more
                return


class _Job(Generic[T]):
    def __init__(self, job: Callable[[], T], future: "asyncio.Future[T]") -> None:
        self._job = job
        self._future = future

    def run(self) -> Callable[[], None]:
        """Runs the job here; what is returned must be called in the loop."""
        try:
            result = self._job()
        except BaseException as exc:
            failure = exc
            return lambda: None if self._future.done() else self._future.set_exception(failure)
        return lambda: None if self._future.done() else self._future.set_result(result)
