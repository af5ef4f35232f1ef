"""Closes and judges windows when they are due."""

import asyncio
import math
from collections.abc import Callable

from laggard_aggregator.control.requests import RequestHandler
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.log.group_commit import GroupCommit
from laggard_aggregator.runtime.results import Results
from laggard_common.clock import Clock
from laggard_common.daemon.service import is_set_within

DURABLE_SECONDS = 5.0
"""Longest time that a judgement waits for its close to be durable, so that a restart does not repeat it."""
POLL_SECONDS = 0.2
"""Interval of looking for new groups; a known deadline is met exactly."""


class WindowLoop:
    """Holds both of `locks` while a window is closed, and the first until it is judged.

    `results` gets the judgements once the close is durable in the `journal`. Overrides of `requests` expire
    before windows are closed.
    """

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        locks: tuple[asyncio.Lock, asyncio.Lock],
        results: Results,
        *,
        journal: GroupCommit | None,
        requests: RequestHandler | None,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._judging, self._order = locks
        self._results = results
        self._journal = journal
        self._requests = requests
        self._closing = False  # windows that are due

    async def run(self, stop: asyncio.Event, progress: Callable[[], None]) -> None:
        """Closes and judges windows until `stop`; calls `progress` in between."""
        seconds = 0.0
        while not await is_set_within(stop, seconds):
            progress()
            if self._requests is not None:
                await self._requests.expire()
            await self._close_due(stop, progress)
            seconds = min(self.free_seconds(), POLL_SECONDS)

    def free_seconds(self) -> float:
        """Time until the next window is to be closed."""
        if self._closing:
            return 0.0
        next_ns = self._machine.windows.next_due_ns()
        if next_ns is None:
            return math.inf
        return max((next_ns - self._clock.wall_ns()) / 1e9, 0.0)

    async def _close_due(self, stop: asyncio.Event, progress: Callable[[], None]) -> None:
        """Closes and judges the windows that are due; the current one is finished at `stop`."""
        machine, now_ns = self._machine, self._clock.wall_ns()
        due = machine.windows.due(now_ns)
        self._closing = bool(due)
        closes = machine.closes(due, now_ns)
        for window in due:
            if stop.is_set():
                return
            async with self._judging:
                async with self._order:
                    close = next(closes)
                    sealed = await asyncio.to_thread(machine.seal, close)
                judged = () if sealed is None else await asyncio.to_thread(machine.judge.evaluate, sealed)
            if self._journal is not None:
                await self._journal.wait_durable(close.lsn, DURABLE_SECONDS)
            self._results.judged(close, judged, sealed)
            if close.restart and self._requests is not None:
                self._results.cleared(machine.pop_cleared())
                await self._requests.changed()
            progress()
            self._results.lagged(max(self._clock.wall_ns() - window.due_ns, 0) / 1e9)
        self._closing = False
