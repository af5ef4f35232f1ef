"""The daemon's polls of sacct: in a thread; a failure is one WARNING and a metric."""

import asyncio
import json
import logging
import os
from contextlib import suppress
from pathlib import Path

from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.jobs.job_store import JobStore
from laggard_aggregator.jobs.metadata.report import ReadReport
from laggard_aggregator.jobs.metadata.sacct_poll import (
    Commands,
    SlurmCommands,
    check_rights,
    poll_tables,
    state_path,
    user_name,
)
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.status.background import JobPolls
from laggard_common.clock import Clock
from laggard_common.errors import LaggardError

_log = logging.getLogger(__name__)

_DAY = 86_400.0


class PollTask:
    """Polls sacct for the jobs of `[jobs]`. `commands`: Slurm's programs; `uid`: that of this process."""

    def __init__(
        self,
        settings: AggregatorSettings,
        clock: Clock,
        polls: JobPolls,
        commands: Commands | None = None,
        uid: int | None = None,
    ) -> None:
        assert settings.archive is not None
        self._jobs = settings.jobs
        self._clock = clock
        self._polls = polls
        self._commands = commands if commands is not None else SlurmCommands()
        self._uid = os.geteuid() if uid is None else uid
        self._report = ReadReport()
        self._store = JobStore(settings.archive.directory, settings.site, self._report)
        self._state = state_path(settings.state.directory if settings.state is not None else None)
        self._since: float | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Polls every `poll_seconds` until `stop`, which ends a poll that runs."""
        while not stop.is_set():
            polling = asyncio.ensure_future(asyncio.to_thread(self.attempt))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and isinstance(self._commands, SlurmCommands):
                self._commands.stop()
            stopping.cancel()
            await polling
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._jobs.poll_seconds)

    def attempt(self) -> bool:
        """One poll; whether it succeeded."""
        now_ns = self._clock.wall_ns()
        try:
            self._poll(now_ns)
        except LaggardError as exc:
            self._store.discard()
            if self._polls.failure != str(exc):
                _log.warning("jobs: poll failed: %s", exc)
            self._polls.failure = str(exc)
            self._polls.failures += 1
            return False
        if self._polls.failure:
            _log.info("jobs: polls go on")
        self._polls.failure = ""
        self._polls.succeeded_at = now_ns / 1e9
        return True

    def _poll(self, now_ns: int) -> None:
        check_rights(self._commands, user_name(self._uid), self._uid)
        now = now_ns / 1e9
        last = min(self._last() or now, now)
        since = max(last - self._jobs.overlap_days * _DAY, 0.0)
        added, left_out = self._store.added, sum(self._report.broken.values())
        for table in poll_tables(self._commands, since, now_ns, self._jobs.cluster, self._report):
            self._store.add(table)
        self._store.flush(now_ns)
        self._polls.revisions += self._store.added - added
        self._polls.left_out += sum(self._report.broken.values()) - left_out
        self._since = now
        if self._state is not None:
            with written(self._state) as file:
                json.dump({"polled_at": now}, file)

    def _last(self) -> float | None:
        """Time of the last successful poll, also of an earlier process."""
        if self._since is None and self._state is not None:
            self._since = _read_time(self._state)
        return self._since


def _read_time(path: Path) -> float | None:
    """The time in a state file; None for one that is missing or damaged, as at the first start."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["polled_at"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(found) if isinstance(found, int | float) and 0 < found < 1e11 else None
