"""The daemon's background task: rollups of the archive.

It reads what is in the archive, in a thread of low priority, so that neither a sample nor a window waits for
it. An error never ends the aggregator: it is one WARNING and a metric, and the next pass tries again.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from laggard_aggregator.jobs.rollup_pass import Rolled, RollupPass
from laggard_aggregator.jobs.series60 import PassStoppedError
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_aggregator.status.background import BackgroundWork
from laggard_common.clock import Clock

_log = logging.getLogger(__name__)

PASS_SECONDS = 60.0
NICE = 10


class BackgroundTask:
    """Keeps the results of the archive in `settings` up to date. `is_right`: whether the clock can be
    trusted."""

    def __init__(
        self,
        settings: ArchiveTable,
        clock: Clock,
        work: BackgroundWork,
        is_right: Callable[[], bool] = lambda: True,
    ) -> None:
        self._directory: Path = settings.directory
        self._raw_days = settings.raw_days
        self._clock = clock
        self._work = work
        self._is_right = is_right
        self._rollups = RollupPass(settings.directory)
        self._stopped = threading.Event()

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
        """One pass; whether it succeeded."""
        if not self._is_right() or not self._directory.is_dir():
            return True
        try:
            self._count(self._rollups.run(self._clock.wall_ns(), self._raw_days, self._goes_on))
        except PassStoppedError:
            return True
        except Exception as exc:
            if not self._work.failure:
                _log.warning("rollups of the archive: %s", exc)
            self._work.failure = str(exc) or type(exc).__name__
            self._work.failures += 1
            return False
        if self._work.failure:
            _log.info("rollups of the archive go on")
        self._work.failure = ""
        return True

    def _count(self, rolled: Rolled) -> None:
        self._work.rolled_hours += rolled.hours
        self._work.rolled_rows += rolled.rows
        self._work.lag_seconds = rolled.lag_seconds

    def _goes_on(self) -> bool:
        return not self._stopped.is_set()


def _lower_priority() -> None:
    """Lowers the priority of this thread alone."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
