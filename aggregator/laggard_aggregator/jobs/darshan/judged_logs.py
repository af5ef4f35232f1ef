"""Verdicts on logs without a store: each is converted by a child process, those of one job judged together.

The children start before this process imports its own libraries, so that both load at the same time.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from laggard_aggregator.jobs.darshan.readers import (
    MEMORY_BYTES,
    SECONDS_A_LOG,
    ReadTask,
    log_key,
    reader_pool,
)
from laggard_common.errors import InputError

if TYPE_CHECKING:
    from laggard_aggregator.jobs.darshan.verdict import JobVerdict

MAX_READERS = 4


def judged_logs(
    paths: Sequence[Path],
    readers: int = 1,
    memory_bytes: int = MEMORY_BYTES,
    seconds: float = SECONDS_A_LOG,
) -> "Iterator[JobVerdict | InputError]":
    """Yields the verdict of each job of the logs, and an error for each log that cannot be read.

    `memory_bytes`, `seconds`: what reading a log may take.
    """
    with ExitStack() as opened:
        directory = Path(opened.enter_context(TemporaryDirectory(prefix="laggard-mine-")))
        pool = opened.enter_context(reader_pool(min(readers, len(paths), MAX_READERS), memory_bytes, seconds))
        tasks: list[ReadTask | InputError] = []
        for number, path in enumerate(paths):
            target = directory / str(number)
            target.mkdir()
            try:
                with InputError.from_os_errors(path):
                    status = path.stat()
            except InputError as exc:
                tasks.append(exc)
                continue
            key = log_key(str(path), status.st_size, status.st_mtime_ns)
            tasks.append(ReadTask(path.absolute(), key, target))
        results = pool.convert([task for task in tasks if isinstance(task, ReadTask)])
        from laggard_aggregator.jobs.darshan.convert import log_of, opened_job
        from laggard_aggregator.jobs.darshan.log_runs import jobs_of_logs
        from laggard_aggregator.jobs.darshan.verdict import judge

        directories: list[Path] = []
        for path, outcome in zip(paths, tasks, strict=True):
            if isinstance(outcome, InputError):
                yield outcome
                continue
            task, problem = next(results)
            if problem is not None:
                yield InputError(str(path), problem.text.removeprefix(f"{task.path}: "))
                continue
            directories.append(task.directory)
        for several in jobs_of_logs([log_of(directory) for directory in directories]):
            yield judge(opened_job([directories[at] for at in several]))
