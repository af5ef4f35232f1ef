"""Dispatches incidents to the configured channels through one outbox.

Each channel has a `ChannelRoute`, which decides, and a `DeliveryWorker`, which sends. An error of one channel
or an unusable outbox does not end the aggregator: the task is restarted.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from laggard_aggregator.notify.channel import Channel
from laggard_aggregator.notify.incidents import AlarmTimelines, Incident, Limits, cleared, digest, due
from laggard_aggregator.notify.outbox import Outbox, QueuedMessage
from laggard_aggregator.notify.report import MAX_LISTED, Notification, report, resolutions
from laggard_aggregator.notify.worker import DeliveryWorker
from laggard_aggregator.status.view import ChannelView, Status
from laggard_common.clock import Clock
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

RESTART_SECONDS = 60.0
SAVE_SECONDS = 600.0
POLL_SECONDS = 1.0
KEEP_SECONDS = 7 * 86_400.0
"""How long a message with an outcome stays in the outbox."""
_HOUR_SECONDS = 3600.0
MAX_WAITING = 100
"""While this many messages wait none are written; incidents due meanwhile are reported in one digest."""


class Dispatcher:
    """The notifications of one site."""

    def __init__(
        self,
        channels: Sequence[Channel],
        site: str,
        page: str,
        directory: Path | None,
        *,
        clock: Clock,
        rng: random.Random,
        before: "Dispatcher | None" = None,
        further: Mapping[str, deque[QueuedMessage]] | None = None,
        is_right: Callable[[], bool] = lambda: True,
    ) -> None:
        """`page`: address of the site's pages. `directory`: of the state, None for an outbox in memory.

        `before`: the dispatcher of the previous configuration in the same process, whose memory is reused.
        `further`: messages beside incidents, by channel; other threads append to them. `is_right`: whether
        the clock can be trusted; until then no message is forgotten because of its age, and so sent again.
        """
        self.routes = [ChannelRoute(channel, site, page, clock, rng) for channel in channels]
        self._directory = directory
        self._in_memory: Outbox | None = before._in_memory if before is not None else None
        self._clock = clock
        self._further = further or {}
        self._is_right = is_right

    def channels(self) -> Mapping[str, ChannelView]:
        """The channels by name."""
        workers = {route.channel.name: route.worker for route in self.routes}
        return {
            name: ChannelView(dict(worker.counts), worker.waiting, worker.unavailable)
            for name, worker in workers.items()
        }

    async def run(self, view: Status) -> None:
        """Reports incidents until cancelled."""
        await _keep_running(partial(self._run, view))

    async def _run(self, view: Status) -> None:
        outbox, timelines = await asyncio.to_thread(self._open)
        works = {"outbox": partial(self._maintain, view, outbox, timelines)}
        for route in self.routes:
            name = route.channel.name
            works[f"{name} route"] = partial(route.run, view, outbox, timelines)
            works[f"{name} delivery"] = partial(route.worker.run, outbox)
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in works.items():
                    group.create_task(_keep_running(work), name=name)
        finally:
            try:
                await self._queue_further(outbox)
                await outbox.do(Outbox.save_timelines, timelines.state())
            except StateError as exc:
                _log.debug("not saved: %s", exc)
            if self._in_memory is None:
                await outbox.do(Outbox.close)

    def _open(self) -> tuple[Outbox, AlarmTimelines]:
        """Opens the outbox and restores from it. Raises StateError."""
        outbox = self._in_memory or Outbox(self._directory, self._clock.wall_ns() / 1e9)
        try:
            for route in self.routes:
                route.restore(outbox)
            timelines = AlarmTimelines(outbox.timelines())
        except StateError:
            outbox.close()
            raise
        if self._directory is None:
            self._in_memory = outbox
        return outbox, timelines

    async def _maintain(self, view: Status, outbox: Outbox, timelines: AlarmTimelines) -> None:
        """Saves timelines when alarms were raised or cleared and every SAVE_SECONDS; prunes then, too."""
        saved_at = float("-inf")
        while True:
            timelines.update(view)
            await self._queue_further(outbox)
            now = self._clock.monotonic_ns() / 1e9
            if timelines.unsaved or now - saved_at >= SAVE_SECONDS:
                saved_at = now
                await outbox.do(Outbox.save_timelines, timelines.state())
                if self._is_right():
                    await outbox.do(Outbox.prune, view.now - KEEP_SECONDS)
            await asyncio.sleep(POLL_SECONDS)

    async def _queue_further(self, outbox: Outbox) -> None:
        for route in self.routes:
            name = route.channel.name
            waiting = self._further.get(name, deque())
            while waiting:
                await outbox.do(Outbox.queue, name, waiting[0])
                waiting.popleft()
                route.worker.wake.set()


async def _keep_running(work: Callable[[], Awaitable[None]]) -> None:
    """Runs `work`, and runs it again RESTART_SECONDS after an error. Logs an unusable outbox once."""
    reason = ""
    while True:
        started_at = time.monotonic()
        try:
            await work()
        except StateError as exc:
            if str(exc) != reason or time.monotonic() - started_at > RESTART_SECONDS:
                _log.warning("notifications wait: %s", exc)
            reason = str(exc)
        except Exception:
            _log.exception("a program error delays notifications; restarting the task")
        await asyncio.sleep(RESTART_SECONDS)


class ChannelRoute:
    """Decides which incidents one channel reports, and when. `page`: address of the site's pages."""

    def __init__(self, channel: Channel, site: str, page: str, clock: Clock, rng: random.Random) -> None:
        self.channel = channel
        self.worker = DeliveryWorker(channel, clock, rng)
        self._settings = channel.settings
        self._site = site
        self._page = page
        self._clock = clock
        self._notified: dict[str, Incident] = {}  # by component
        self._gathering: dict[str, float] = {}  # when the first of those that are to be reported were found
        self._held_back = False

    def restore(self, outbox: Outbox) -> None:
        """Reads the open incidents. Raises StateError."""
        incidents = outbox.open_incidents(self.channel.name)
        self._notified = {incident.component: incident for incident in incidents}

    async def run(self, view: Status, outbox: Outbox, timelines: AlarmTimelines) -> None:
        """Reports incidents until cancelled. Raises StateError when the outbox cannot be written."""
        began_at = await outbox.do(attrgetter("began_at"))
        s = self._settings
        limits = Limits(s.after_seconds, s.least_severity, s.severe_severity, s.severe_after_seconds)
        while True:
            timelines.update(view)
            learning = abs(view.now - began_at) < s.learning_seconds  # a clock may be set back
            raised = due(view, self._notified.keys(), self._site, replace(limits, learning=learning))
            cleared_now = await self._newly_cleared(view, outbox)
            if self._is_gathered("raised", bool(raised)):
                await self._report_raised(raised, view, outbox, timelines)
            if self._is_gathered("cleared", bool(cleared_now)):
                await self._report_cleared(cleared_now, view, outbox)
            await asyncio.sleep(POLL_SECONDS)

    def _is_gathered(self, kind: str, some: bool) -> bool:
        """Whether there are `some`, and the first were found `gather_seconds` ago; then it restarts."""
        now = self._clock.monotonic_ns() / 1e9
        gathered = some and now - self._gathering.setdefault(kind, now) >= self._settings.gather_seconds
        if gathered or not some:
            self._gathering.pop(kind, None)
        return gathered

    async def _newly_cleared(self, view: Status, outbox: Outbox) -> list[Incident]:
        """The incidents to be reported as cleared, silenced or not: somebody's pager has them open.

        Where the channel reports none, they are closed.
        """
        ended = cleared(self._notified.values(), view.alarms())
        if self._settings.resolved:
            return ended
        if ended:
            await outbox.do(Outbox.close_incidents, self.channel.name, [incident.id for incident in ended])
            self._forget(ended)
        return []

    async def _report_raised(
        self, raised: list[Incident], view: Status, outbox: Outbox, timelines: AlarmTimelines
    ) -> None:
        for incidents in await self._divide(raised, view, outbox):
            located = await asyncio.to_thread(view.locating())
            listed = (report(i, view, timelines, self._page, located) for i in incidents[:MAX_LISTED])
            reports = tuple(shown for shown in listed if shown is not None)
            if not reports:
                continue
            is_single = len(incidents) == 1
            id_ = f"s.{incidents[0].id}" if is_single else f"d.{digest(*(i.id for i in incidents))}"
            opened = [replace(incident, message=id_) for incident in incidents]
            notification = Notification(
                id_, "straggler" if is_single else "digest", self._site, self._page, len(incidents), reports
            )
            await self._queue(notification, view, outbox, opened=opened)
            self._notified |= {incident.component: incident for incident in opened}

    async def _report_cleared(self, cleared_now: list[Incident], view: Status, outbox: Outbox) -> None:
        for incidents in await self._divide(cleared_now, view, outbox):
            ids = [incident.id for incident in incidents]
            notification = Notification(
                id=f"r.{digest(*ids)}",
                kind="resolved",
                site=self._site,
                page=self._page,
                count=len(incidents),
                reports=resolutions(incidents[:MAX_LISTED], view, self._page),
                resolves=tuple(dict.fromkeys(incident.message for incident in incidents)),
            )
            await self._queue(notification, view, outbox, closed=ids)
            self._forget(incidents)

    async def _queue(
        self,
        notification: Notification,
        view: Status,
        outbox: Outbox,
        *,
        opened: Sequence[Incident] = (),
        closed: Sequence[str] = (),
    ) -> None:
        rendered = await self.channel.render(notification)
        message = QueuedMessage(
            notification.id, view.now, self.channel.recipients, rendered, notification.resolves
        )
        await outbox.do(Outbox.queue, self.channel.name, message, opened, closed)
        self.worker.wake.set()
        _log.info("%s: %s queued: %s", self.channel.name, notification.id, notification.subject)

    async def _divide(self, incidents: list[Incident], view: Status, outbox: Outbox) -> list[list[Incident]]:
        """The incidents of each notification: one, or all when they are many; none while a limit is reached.

        Incidents held back by a limit are reported together later.
        """
        queued = await outbox.do(Outbox.queued_since, self.channel.name, view.now - _HOUR_SECONDS)
        room = self._settings.most_per_hour - queued
        if room <= 0 or self.worker.waiting >= MAX_WAITING:
            if not self._held_back:
                _log.warning(
                    "%s: limit reached (%d messages in the last hour, %d waiting); incidents are held back",
                    *(self.channel.name, queued, self.worker.waiting),
                )
            self._held_back = True
            return []
        together = self._held_back or len(incidents) > min(self._settings.digest_over, room)
        self._held_back = False
        return [incidents] if together else [[incident] for incident in incidents]

    def _forget(self, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            del self._notified[incident.component]
