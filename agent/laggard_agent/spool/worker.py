"""One daemon thread for blocking jobs.

asyncio joins the threads of its pool at exit, so a stalled disk would outlive SIGTERM.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")

Job = Callable[[], object]

_log = logging.getLogger(__name__)

_WAKE_AT_PIGGYBACKED = 64
_MAX_PIGGYBACKED = 4096


class Worker:
    """Runs jobs in order on one thread. `failed` receives the exception of a job that nobody awaits."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._piggybacked: deque[Job] = deque(maxlen=_MAX_PIGGYBACKED)
        self._woken = False
        self._left_out = False
        self.failed = failed
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of jobs that have not started."""
        return self._jobs.qsize()

    @property
    def busy_seconds(self) -> float:
        """Seconds since the running job began, 0 without one."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended, after `end`."""
        return not self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Queues `job`, from any thread."""
        self._jobs.put(job)

    def piggyback(self, job: Job) -> None:
        """Runs `job` before the next submitted one; wakes the thread only when many such jobs wait.

        Of those that wait while a job hangs, the oldest beyond _MAX_PIGGYBACKED are left out.
        """
        waiting = len(self._piggybacked)
        self._piggybacked.append(job)
        if waiting == _MAX_PIGGYBACKED and not self._left_out:
            self._left_out = True
            _log.warning("%s: does not answer: acknowledgements are left out, batches sent again", self._name)
        if waiting >= _WAKE_AT_PIGGYBACKED and not self._woken:
            self._woken = True
            self._jobs.put(lambda: None)

    async def call(self, job: Callable[[], T]) -> T:
        """Runs `job` on the thread and returns its result. Cancellation does not stop a running job."""
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = job()
            except BaseException as exc:
                failure = exc
                self.run_on_loop(lambda: None if future.done() else future.set_exception(failure))
            else:
                self.run_on_loop(lambda: None if future.done() else future.set_result(result))

        self._jobs.put(run)
        return await future

    def wait_for(self, function: Callable[[A], T], argument: A) -> T:
        """Result of `function` on the thread, for another thread; never returns after `end`."""
        result: SimpleQueue[T] = SimpleQueue()
        self.submit(lambda: result.put(function(argument)))
        return result.get()

    def run_on_loop(self, callback: Callable[[], object]) -> None:
        """Runs `callback` on the event loop, from any thread; a closed loop drops it."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return

    def end(self) -> None:
        """Ends the thread after the queued jobs; does not wait for it."""
        self._jobs.put(None)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._busy_since = time.monotonic()
                self._woken = False
                while self._piggybacked:
                    self._piggybacked.popleft()()
                self._left_out = False
                job()
                self._busy_since = None
        except BaseException as exc:
            self.failed(exc)
