"""The daemon's background task: rollups of the archive, the join of its jobs with its counters, their index.

It reads the archive in a thread of low priority, so that neither a sample nor a window waits for
it. An error never ends the aggregator: it is one WARNING and a metric, and the next pass tries again.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.darshan.log_pass import LogPass
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
from laggard_aggregator.jobs.join.path_pass import PathPass, read_forwarders
from laggard_aggregator.jobs.loads.load_days import LoadDays
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.jobs.rollups.series60 import PassStoppedError
from laggard_aggregator.jobs.traces.trace_pass import TracePass
from laggard_aggregator.jobs.verdict.findings_pass import FindingsPass
from laggard_aggregator.jobs.verdict.judge import RunReport
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.status.background import BackgroundWork
from laggard_common.clock import Clock
from laggard_common.errors import LaggardError

_log = logging.getLogger(__name__)

PASS_SECONDS = 30.0
NICE = 10
JOIN_SHARE = 0.05
"""Most of a core that joining and judging take each; pauses see to it, as one job can need days of data."""
ROLLUPS, JOBS, EARLY = "rollups of the archive", "join of jobs", "first join of jobs"
LOADS = "loads of components"
PATHS, INDEX, FINDINGS = "paths of nodes", "index of jobs", "verdicts on jobs"
MERGES, LOGS = "traces of jobs", "Darshan logs of jobs"


class BackgroundTask:
    """Keeps the results of the archive in `settings` up to date, those of `jobs` if enabled.

    `is_right`: whether the clock can be trusted. `judged` is given each verdict. `loads`: kept up to date
    with the rollups. Raises InputError for a file of forwarders that cannot be used.
    """

    def __init__(
        self,
        settings: ArchiveTable,
        jobs: JobsTable,
        site: str,
        work: BackgroundWork,
        *,
        clock: Clock,
        is_right: Callable[[], bool] = lambda: True,
        judged: Callable[[VisibleJob, RunReport], None] | None = None,
        loads: LoadDays | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._work = work
        self._is_right = is_right
        self._stopped = threading.Event()
        self._rolled_ns: int | None = None
        """When the last pass over the rollups began: hours that were due later are not part of them."""
        self._rest_until_ns: dict[str, int] = {}
        self._passes: dict[str, Callable[[], object]] = {}
        served_by = read_forwarders(jobs.forwarders) if jobs.forwarders is not None else {}
        if settings.rollups:
            self._rollups = RollupPass(settings.directory)
            self._passes[ROLLUPS] = self._roll
            if loads is not None:
                self._passes[LOADS] = lambda: loads.refresh(clock.wall_ns(), self._goes_on)
        if jobs.enabled:
            joining = JoinSettings(jobs.grace_seconds, jobs.jobid_format, served_by)
            self._join = JoinPass(settings.directory, site, joining)
            self._passes[JOBS] = partial(self._pace, JOBS, self._join_due)
            self._passes[EARLY] = partial(self._pace, EARLY, self._join_ended)
            paths = PathPass(settings.directory, site, served_by)
            self._passes[PATHS] = lambda: paths.run(clock.wall_ns())
            index = JobIndex(settings.directory)
            self._passes[INDEX] = lambda: index.refresh(self._goes_on)
            self._findings = FindingsPass(settings.directory, site, index, judged, served_by)
            if jobs.darshan_logs is not None:
                self._logs = LogPass(settings.directory, site, index, jobs.darshan_logs)
                self._passes[LOGS] = partial(self._pace, LOGS, self._judge_logs)
            self._passes[FINDINGS] = partial(self._pace, FINDINGS, self._judge_due)
            traces = TracePass(settings.directory, site, index)
            self._passes[MERGES] = partial(
                self._pace, MERGES, lambda: traces.run(clock.wall_ns(), self._goes_on)
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Makes a pass every PASS_SECONDS until `stop`, which ends a pass within a slice."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "background", initializer=_lower_priority) as thread:
            while not stop.is_set():
                ended = asyncio.ensure_future(loop.run_in_executor(thread, self.attempt))
                stopping = asyncio.create_task(stop.wait())
                either: set[asyncio.Future[Any]] = {ended, stopping}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    self._stopped.set()
                stopping.cancel()
                await ended
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), PASS_SECONDS)

    def attempt(self) -> bool:
        """One pass of each kind; whether all succeeded."""
        if not self._is_right() or not self._is_there():
            return True
        succeeded = [self._attempt(name, work) for name, work in self._passes.items()]
        return all(succeeded)

    def _is_there(self) -> bool:
        """Whether there is an archive; one that cannot be looked at is: its passes say why they fail."""
        try:
            return self._settings.directory.is_dir()
        except OSError:
            return True

    def _attempt(self, name: str, work: Callable[[], object]) -> bool:
        failed = self._work.failing
        try:
            work()
        except PassStoppedError:
            return True
        except Exception as exc:  # no file may end the aggregator
            if name not in failed:
                error = None if isinstance(exc, LaggardError) else exc
                _log.warning("%s: %s", name, exc, exc_info=error)
            failed[name] = str(exc) or type(exc).__name__
            self._work.failures += 1
            return False
        if failed.pop(name, None) is not None:
            _log.info("%s: succeeds again", name)
        return True

    def _roll(self) -> None:
        self._rolled_ns = self._clock.wall_ns()
        rolled = self._rollups.run(self._rolled_ns, self._settings.raw_days, self._goes_on)
        self._work.rolled_hours += rolled.hours
        self._work.rolled_rows += rolled.rows
        self._work.lag_seconds = rolled.lag_seconds

    def _pace(self, name: str, work: Callable[[], object]) -> None:
        """Does `work` unless it rests after the last time, so that it takes JOIN_SHARE of a core."""
        if self._clock.monotonic_ns() < self._rest_until_ns.get(name, 0):
            return
        before = time.thread_time()
        try:
            work()
        finally:
            pause = (time.thread_time() - before) / JOIN_SHARE
            self._rest_until_ns[name] = self._clock.monotonic_ns() + round(pause * 1e9)

    def _judge_due(self) -> None:
        now_ns = self._clock.wall_ns() if self._rolled_ns is None else self._rolled_ns
        self._work.judged_jobs += self._findings.run(now_ns, self._goes_on)

    def _judge_logs(self) -> None:
        self._findings.judge_again(self._logs.run(self._clock.wall_ns(), self._goes_on))

    def _join_due(self) -> None:
        joined = self._join.run(self._clock.wall_ns(), self._settings.raw_days, self._goes_on)
        self._work.joined_jobs += joined.jobs
        self._work.waiting_jobs = joined.waiting

    def _join_ended(self) -> None:
        joined = self._join.run_early(self._clock.wall_ns(), self._settings.raw_days, self._goes_on)
        self._work.joined_jobs += joined

    def _goes_on(self) -> bool:
        return not self._stopped.is_set()


def _lower_priority() -> None:
    """Lowers the priority of this thread alone."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
