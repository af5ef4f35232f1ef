"""Child processes that read Darshan logs, each with a limit of memory and time; a crash costs one log."""

import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from laggard_common import __version__ as laggard_version
from laggard_common.errors import MissingPackageError, ServiceError

MEMORY_BYTES = 2 << 30
SECONDS_A_LOG = 600.0
_CRASHES = {
    -number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
}
"""Exit codes of a reader that a log can cause; others come from the machine or the installation."""


def reader_version() -> str:
    """Versions of Laggard and of the darshan package: other ones may read a log that these cannot."""
    try:
        darshan = version("darshan")
    except PackageNotFoundError:
        darshan = "none"
    return f"laggard {laggard_version}, darshan {darshan}"


def log_key(path: str, size: int, mtime_ns: int) -> int:
    """Number of a log by path, size and time of modification: a log that changed is another one."""
    return int.from_bytes(
        blake2b(os.fsencode(path) + f"\0{size}\0{mtime_ns}".encode(), digest_size=8).digest(), signed=True
    )


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A log to convert into `directory`."""

    path: Path
    log: int
    directory: Path


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """A log that was not converted, as one line. `is_of_log`: the next run would find the same."""

    text: str
    is_of_log: bool


class LogReader:
    """One child process, started on first use and again after it died."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS_A_LOG) -> None:
        self._memory_bytes, self._seconds = memory_bytes, seconds
        self._child: subprocess.Popen[bytes] | None = None

    def convert(self, task: ReadTask) -> ReadProblem | None:
        """Converts a log; returns its problem, None when there was none. Raises ServiceError."""
        child = self._child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        request = {"path": str(task.path), "log": task.log, "directory": str(task.directory)}
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            answer = self._answer(child)
        except BrokenPipeError:
            answer = b""
        if answer is None:
            child.kill()
            self.close()
            return ReadProblem(f"{task.path}: not read within {self._seconds:.0f} s", is_of_log=False)
        if not answer.endswith(b"\n"):
            code = self.close()
            if code in _CRASHES:
                return ReadProblem(f"{task.path}: damaged: the reader of logs crashed", is_of_log=True)
            ended = "was killed" if code < 0 else f"ended with code {code}"
            return ReadProblem(f"{task.path}: not read: the reader of logs {ended}", is_of_log=False)
        problem = json.loads(answer)
        if problem["error"] is None:
            return None
        if problem["of"] == "installation":
            raise ServiceError(problem["error"])
        return ReadProblem(problem["error"], is_of_log=problem["of"] == "log")

    def kill(self) -> None:
        """Kills the child; a conversion that another thread waits for ends at once."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> int:
        """Ends the child; returns its exit code, negative for a signal."""
        child, self._child = self._child, None
        if child is None:
            return 0
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(BrokenPipeError):
            child.stdin.close()
        code = child.wait()
        child.stdout.close()
        return code

    def _start(self) -> subprocess.Popen[bytes]:
        if find_spec("darshan") is None:
            raise MissingPackageError("darshan", "mining")
        command = [sys.executable, "-m", "laggard_aggregator.jobs.darshan.worker", str(self._memory_bytes)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )

    def _answer(self, child: subprocess.Popen[bytes]) -> bytes | None:
        """The answer line; None after the limit of time; incomplete when the child died."""
        assert child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            if not selector.select(self._seconds):
                return None
        return child.stdout.readline()


class ReaderPool:
    """`size` readers, each used by one thread."""

    def __init__(self, size: int, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS_A_LOG) -> None:
        self._memory_bytes, self._size, self._seconds = memory_bytes, size, seconds
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="log-reader")
        self._own = threading.local()
        self._readers: list[LogReader] = []

    def convert(self, tasks: Iterable[ReadTask]) -> Iterator[tuple[ReadTask, ReadProblem | None]]:
        """An iterator over each task with its problem, None for none, in the order of `tasks`.

        The first logs are read at once, then two for each reader ahead: converted tables wait on disk.
        """
        following = iter(tasks)
        waiting: deque[tuple[ReadTask, Future[ReadProblem | None]]] = deque()

        def submit(several: int) -> None:
            for task in itertools.islice(following, several):
                waiting.append((task, self._threads.submit(self._convert, task)))

        def results() -> Iterator[tuple[ReadTask, ReadProblem | None]]:
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
                submit(1)

        submit(2 * self._size)
        return results()

    def close(self) -> None:
        """Ends threads and children; logs not begun are left."""
        self._threads.shutdown(cancel_futures=True)
        for reader in self._readers:
            reader.close()

    def kill(self) -> None:
        """Kills the children, so that `close` waits for no log."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for reader in list(self._readers):
            reader.kill()

    def _convert(self, task: ReadTask) -> ReadProblem | None:
        reader: LogReader | None = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._own.reader = LogReader(self._memory_bytes, self._seconds)
            self._readers.append(reader)
        return reader.convert(task)


@contextmanager
def reader_pool(
    size: int, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS_A_LOG
) -> Iterator[ReaderPool]:
    """A pool that ends with the block; after an error without waiting for the logs that are being read."""
    pool = ReaderPool(size, memory_bytes, seconds)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.close()
