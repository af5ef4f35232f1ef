"""Closes and judges due windows, and hands the results to status, archive and log."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from laggard_aggregator.alarms.alarms import AlarmEvent, AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.control.requests import RequestHandler
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.log.entries import LogSequence, WindowClose
from laggard_aggregator.log.journal import GroupCommit
from laggard_aggregator.status.view import Status
from laggard_common.clock import Clock

_log = logging.getLogger(__name__)

DURABLE_SECONDS = 5.0
"""Longest time that a judgement waits for its close to be durable, so that a restart does not repeat it."""
POLL_SECONDS = 0.2
"""Interval of looking for new groups; a known deadline is met exactly."""
CatchUp = Callable[[asyncio.Event, Callable[[], None]], Awaitable[None]]
"""Waits for stored messages of the broker until done or stopped; calls its second argument in between."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of the machine go to `status`, to the `archive` if there is one, and to the log."""

    status: Status
    archive: WriteQueue | None
    sequence: LogSequence

    def judged(self, close: WindowClose, judgements: tuple[Judgement, ...], window: Window | None) -> None:
        """Publishes the judgements of a window; in the archive they follow their close directly."""
        self.status.judged(judgements, window)
        if self.archive is not None:
            self.archive.put(close)
            for judgement in judgements:
                self.archive.put(judgement)
        self._log_events(transition for judgement in judgements for transition in judgement.transitions)

    def cleared(self, events: list[AlarmEvent]) -> None:
        """Publishes alarms that were cleared by something other than a window."""
        self.status.alarms_changed(events)
        if self.archive is not None and events:
            self.archive.put(AlarmsCleared(self.sequence.last, tuple(events)))
        self._log_events(events)

    def _log_events(self, events: Iterable[AlarmEvent]) -> None:
        for event in events:
            alarm = event.alarm
            name = self.status.shown(alarm.component)
            if event.kind == "raised":
                _log.warning(
                    "alarm raised: component=%s group=%s metric=%s: %s",
                    name,
                    alarm.group,
                    alarm.metric,
                    alarm.evidence,
                )
            else:
                _log.info("alarm cleared: component=%s group=%s", name, alarm.group)


@dataclass(slots=True)
class WindowLoop:
    """Holds both of `locks` while a window is closed, and the first until it is judged.

    `results` gets the judgements once the close is durable in the `journal`. Overrides of `requests` expire
    before windows are closed.
    """

    machine: Machine
    clock: Clock
    locks: tuple[asyncio.Lock, asyncio.Lock]
    results: Results
    journal: GroupCommit | None
    requests: RequestHandler | None
    iterations: int = 0  # for the watchdog
    _closing: bool = False  # windows that are due

    async def run(self, stop: asyncio.Event, catch_up: CatchUp | None = None) -> None:
        """Closes and judges windows until `stop`, after `catch_up`."""
        if catch_up is not None:
            await catch_up(stop, self.progress)
        while not stop.is_set():
            self.iterations += 1
            if self.requests is not None and self.machine.overrides.decisions:
                await self.requests.expire()
            await self._close_due(stop)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(self.free_seconds(), POLL_SECONDS))

    def progress(self) -> None:
        """Counts an iteration spent waiting for the broker's messages."""
        self.iterations += 1

    def free_seconds(self) -> float:
        """Time until the next window is to be closed."""
        if self._closing:
            return 0.0
        next_ns = self.machine.windows.next_due_ns()
        if next_ns is None:
            return math.inf
        return max((next_ns - self.clock.wall_ns()) / 1e9, 0.0)

    async def _close_due(self, stop: asyncio.Event) -> None:
        """Closes and judges the windows that are due; the current one is finished at `stop`."""
        machine, now_ns = self.machine, self.clock.wall_ns()
        due = machine.windows.due(now_ns)
        self._closing = bool(due)
        closes = machine.closes(due, now_ns)
        for _, _, deadline_ns in due:
            if stop.is_set():
                return
            judging, order = self.locks
            async with judging:
                async with order:
                    close = next(closes)
                    sealed = await asyncio.to_thread(machine.seal, close)
                judged = () if sealed is None else await asyncio.to_thread(machine.judge.evaluate, sealed)
            if self.journal is not None:
                await self.journal.wait_durable(close.lsn, DURABLE_SECONDS)
            self.results.judged(close, judged, sealed)
            if close.restart and self.requests is not None:
                self.results.cleared(machine.pop_cleared())
                await self.requests.changed()
            self.iterations += 1
            self.results.status.lagged(max(self.clock.wall_ns() - deadline_ns, 0) / 1e9)
        self._closing = False
