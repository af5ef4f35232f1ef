"""The daemon's polls of sacct: in a thread; a failure is one WARNING and a metric."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.files.kept_json import read_kept
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.sacct_poll import (
    SlurmCommands,
    check_rights,
    controller_start,
    poll_tables,
    state_path,
    user_name,
)
from laggard_aggregator.jobs.records.store import JobStore
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.status.background import JobPolls
from laggard_common.clock import Clock
from laggard_common.daemon.service import is_set_within
from laggard_common.errors import LaggardError

_log = logging.getLogger(__name__)

TOLD_SECONDS = 10.0
"""Time from the hook's document to the poll: the database has the job by then, and others come with it."""
BRIEF_REACH_SECONDS = 900.0
"""Time that a poll for a hook's document covers."""
_DAY = 86_400.0
_MOST_RESTARTS = 256


class PollTask:
    """Polls sacct for the jobs of `[jobs]`. `uid`: that of this process."""

    def __init__(
        self,
        settings: AggregatorSettings,
        clock: Clock,
        polls: JobPolls,
        uid: int | None = None,
    ) -> None:
        assert settings.archive is not None
        self._jobs = settings.jobs
        self._clock = clock
        self._polls = polls
        self._commands = SlurmCommands()
        self._uid = os.geteuid() if uid is None else uid
        self._report = ReadReport()
        self._store = JobStore(settings.archive.directory, settings.site, self._report)
        self._state = state_path(settings.state.directory if settings.state is not None else None)
        self._since: float | None = None
        self._restarts: list[float] = []

    async def run(self, stop: asyncio.Event, wake: asyncio.Event) -> None:
        """Polls every `poll_seconds` until `stop`, which ends a poll that runs.

        A hook of the scheduler sets `told`: then the jobs of the last minutes are polled soon after.
        """
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not stop.is_set():
            brief = loop.time() < due
            if not brief:
                due = loop.time() + self._jobs.poll_seconds
            wake.clear()
            polling = asyncio.ensure_future(asyncio.to_thread(self.attempt, brief=brief))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                self._commands.stop()
            stopping.cancel()
            await polling
            waiting = [asyncio.create_task(event.wait()) for event in (stop, wake)]
            left = max(due - loop.time(), 0.0)
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for waiter in waiting:
                waiter.cancel()
            if wake.is_set():
                await is_set_within(stop, TOLD_SECONDS)

    def attempt(self, *, brief: bool = False) -> bool:
        """One poll, a `brief` one of the last minutes; whether it succeeded."""
        now_ns = self._clock.wall_ns()
        try:
            self._poll(now_ns, brief=brief)
        except LaggardError as exc:
            self._store.discard()
            if self._polls.failure != str(exc):
                _log.warning("jobs: poll failed: %s", exc)
            self._polls.failure = str(exc)
            self._polls.failures += 1
            return False
        if self._polls.failure:
            _log.info("jobs: polling works again")
        self._polls.failure = ""
        self._polls.succeeded_at = now_ns / 1e9
        return True

    def _poll(self, now_ns: int, *, brief: bool) -> None:
        check_rights(self._commands, user_name(self._uid), self._uid)
        now = now_ns / 1e9
        last = min(self._last() or now, now)
        oldest = max(last - self._jobs.overlap_days * _DAY, 0.0)
        self._note_restart(oldest)
        since = max(oldest, now - BRIEF_REACH_SECONDS) if brief else oldest
        added, left_out = self._store.added, sum(self._report.broken.values())
        context = (self._jobs.cluster, self._report, self._restarts)
        for table in poll_tables(self._commands, since, now_ns, *context):
            self._store.add(table)
        self._store.flush(now_ns)
        self._polls.revisions += self._store.added - added
        self._polls.left_out += sum(self._report.broken.values()) - left_out
        if brief:
            return
        self._since = now
        if self._state is not None:
            with written(self._state) as file:
                json.dump({"polled_at": now, "controller_starts": self._restarts}, file)

    def _last(self) -> float | None:
        """Time of the last successful poll, also of an earlier process."""
        if self._since is None and self._state is not None:
            self._since, self._restarts = _read_state(self._state)
        return self._since

    def _note_restart(self, since: float) -> None:
        """Remembers when slurmctld was started, as far as ends after `since` are concerned."""
        start = controller_start(self._commands)
        known = {*self._restarts, *([] if start is None else [start])}
        self._restarts = sorted(restart for restart in known if restart >= since)[-_MOST_RESTARTS:]


def _read_state(path: Path) -> tuple[float | None, list[float]]:
    """Times of the last poll and of slurmctld's starts in a state file; none of one that is damaged.

    Raises ArchiveError where it cannot be read: without them, jobs that ended before would be left out.
    """
    return read_kept(path, _times_of, "records are polled from now on") or (None, [])


def _times_of(content: Any) -> tuple[float | None, list[float]]:
    times = [float(time) for time in (content["polled_at"], *content.get("controller_starts", []))]
    if not all(0 < time < 1e11 for time in times):
        raise ValueError("not the times of polls")
    return times[0], times[1:]
