"""The logs of one job: those of one number and user that follow each other in time.

Schedulers use numbers again: Slurm's wrap, a reinstalled one counts from 1, and without a scheduler Darshan
writes a process id. So a log that begins long after all earlier ones ended is of another job. Number 0 is no
number: each of its logs is a job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_PAUSE_US: Final = 7 * 86_400 * 1_000_000
"""Time without a log within one job, as long as sites let jobs run."""


@dataclass(frozen=True, slots=True)
class LogRun:
    """Number of the job, user, start and end of a log in microseconds since the epoch."""

    job_id: int
    uid: int
    start_us: int
    end_us: int


def jobs_of_logs(logs: Sequence[LogRun]) -> list[list[int]]:
    """Places of the logs of each job, in the order of the first of them."""
    jobs: list[list[int]] = []
    last: dict[tuple[int, int], tuple[list[int], int]] = {}
    for at in sorted(range(len(logs)), key=lambda place: (logs[place].start_us, place)):
        log = logs[at]
        key = (log.job_id, log.uid)
        before = last.get(key)
        if log.job_id == 0 or before is None or log.start_us > before[1] + MAX_PAUSE_US:
            jobs.append([at])
            last[key] = (jobs[-1], log.end_us)
        else:
            before[0].append(at)
            last[key] = (before[0], max(before[1], log.end_us))
    return sorted((sorted(places) for places in jobs), key=lambda places: places[0])
