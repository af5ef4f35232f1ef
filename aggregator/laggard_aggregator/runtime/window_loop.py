"""The closing of windows when they are due."""

import asyncio
import math
from collections.abc import Callable

from laggard_aggregator.control.requests import Desk
from laggard_aggregator.engine.machine import Core
from laggard_aggregator.engine.recovery import Keeper
from laggard_aggregator.runtime.results import Announcer
from laggard_common.clock import Clock
from laggard_common.daemon.service import is_set_within

SETTLE_SECONDS = 5.0
"""How long a judgement waits at most for its close to be journaled, so that it is not found twice."""
WINDOWS_SECONDS = 0.2
"""How often groups that are new are looked for; a deadline that is known is met when it comes."""


class WindowCloser:
    """Closes and judges windows. Holds both of `locked` while one is closed, the first until it is judged.

    `announcer` hands on what was found, once the close is in the journal of `keeper`. Decisions of `desk`
    lapse before windows are closed.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        locked: tuple[asyncio.Lock, asyncio.Lock],
        announcer: Announcer,
        *,
        keeper: Keeper | None,
        desk: Desk | None,
    ) -> None:
        self._core = core
        self._clock = clock
        self._judging, self._order = locked
        self._announcer = announcer
        self._keeper = keeper
        self._desk = desk
        self._closing = False  # windows that are due

    async def run(self, stop: asyncio.Event, moved: Callable[[], None]) -> None:
        """Closes and judges every window when it is due; what is under way at the end is done first."""
        seconds = 0.0
        while not await is_set_within(stop, seconds):
            moved()
            if self._desk is not None:
                await self._desk.lapse()
            now_ns = self._clock.wall_ns()
            pipeline = self._core.pipeline
            due = pipeline.due(now_ns)
            self._closing = bool(due)
            to_close = self._core.closes(due, now_ns)
            for window in due:
                if stop.is_set():
                    return
                async with self._judging:
                    async with self._order:
                        close = next(to_close)
                        sealed = await asyncio.to_thread(self._core.seal, close)
                    judged = () if sealed is None else await asyncio.to_thread(pipeline.judge, sealed)
                if self._keeper is not None:
                    await self._keeper.commits.settled(close.ordinal, SETTLE_SECONDS)
                self._announcer.judged(close, judged, sealed)
                if close.afresh and self._desk is not None:
                    self._announcer.ended(pipeline.ended())
                    await self._desk.changed()
                moved()
                self._announcer.lagged(max(self._clock.wall_ns() - window.due_ns, 0) / 1e9)
            self._closing = False
            seconds = min(self.free_seconds(), WINDOWS_SECONDS)

    def free_seconds(self) -> float:
        """How long until a window is to be closed."""
        if self._closing:
            return 0.0
        next_ns = self._core.pipeline.windows.next_due_ns()
        if next_ns is None:
            return math.inf
        return max((next_ns - self._clock.wall_ns()) / 1e9, 0.0)
