"""A daemon thread of its own for whatever may block: a write that never returns must not hold up the end.

The pool of asyncio joins its threads at exit, so one stalled disk would outlive SIGTERM.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

Job = Callable[[], object]

_MOST_DEFERRED = 64


class Worker:
    """Runs jobs one after another on one thread. `failed` gets what a job raised that nobody waits for."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._deferred: deque[Job] = deque()
        self._failed = failed
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs have not begun."""
        return self._jobs.qsize()

    def post(self, job: Job) -> None:
        """Has `job` run, from any thread."""
        self._jobs.put(job)

    def defer(self, job: Job) -> None:
        """Has `job` run ahead of whatever comes next, and wakes the thread for it only when many wait."""
        self._deferred.append(job)
        if len(self._deferred) > _MOST_DEFERRED:
            self._jobs.put(_nothing)

    async def call(self, job: Callable[[], T]) -> T:
        """What `job` returned or raised on the thread. Cancelling does not stop a job that runs."""
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = job()
            except BaseException as exc:
                failure = exc
                self.tell(lambda: None if future.done() else future.set_exception(failure))
            else:
                self.tell(lambda: None if future.done() else future.set_result(result))

        self._jobs.put(run)
        return await future

    def tell(self, callback: Callable[[], object]) -> None:
        """Has the event loop call this, from any thread; nothing when it was closed and nobody waits."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return

    def end(self) -> None:
        """Lets the thread end after the jobs that it has; does not wait for it."""
        self._jobs.put(None)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                while self._deferred:
                    self._deferred.popleft()()
                job()
        except BaseException as exc:
            self._failed(exc)


def _nothing() -> None:
    """Wakes the thread."""
