"""Dispatches incidents to the configured channels through one outbox.

Each channel has a `ChannelRoute`, which decides, and a `DeliveryWorker`, which sends. An error of one channel
or an unusable outbox does not end the aggregator: the task is restarted.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from laggard_aggregator.notify.channel import Channel
from laggard_aggregator.notify.outbox import Outbox
from laggard_aggregator.notify.route import ChannelRoute
from laggard_aggregator.notify.timelines import AlarmTimelines
from laggard_aggregator.status.view import ChannelView, Status
from laggard_common.clock import Clock
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

RESTART_SECONDS = 60.0
SAVE_SECONDS = 600.0
POLL_SECONDS = 1.0
KEEP_SECONDS = 7 * 86_400.0
"""How long a message with an outcome stays in the outbox."""


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
    ) -> None:
        """`page`: address of the site's pages. `directory`: of the state, None for an outbox in memory.

        `before`: the dispatcher of the previous configuration in the same process, whose memory is reused.
        """
        self.routes = [ChannelRoute(channel, site, page, clock, rng) for channel in channels]
        self._directory = directory
        self._in_memory: Outbox | None = before._in_memory if before is not None else None
        self._clock = clock

    @property
    def status(self) -> Mapping[str, ChannelView]:
        """The channels by name."""
        workers = {route.channel.name: route.worker for route in self.routes}
        return {name: ChannelView(dict(each.counts), each.waiting) for name, each in workers.items()}

    async def run(self, view: Status) -> None:
        """Reports incidents until cancelled."""
        await _restarted(partial(self._run, view))

    async def _run(self, view: Status) -> None:
        outbox, timelines = await asyncio.to_thread(self._open)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_restarted(partial(self._maintain, view, outbox, timelines)), name="outbox")
                for route in self.routes:
                    name = route.channel.name
                    reporting = partial(route.run, view, outbox, timelines)
                    group.create_task(_restarted(reporting), name=f"{name} route")
                    group.create_task(_restarted(partial(route.worker.run, outbox)), name=f"{name} delivery")
        finally:
            try:
                await outbox.do(Outbox.save_timelines, timelines.state())
            except StateError as exc:
                _log.debug("timelines not saved: %s", exc)
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
            now = self._clock.monotonic_ns() / 1e9
            if timelines.unsaved or now - saved_at >= SAVE_SECONDS:
                saved_at = now
                await outbox.do(Outbox.save_timelines, timelines.state())
                await outbox.do(Outbox.prune, view.now - KEEP_SECONDS)
            await asyncio.sleep(POLL_SECONDS)


async def _restarted(work: Callable[[], Awaitable[None]]) -> None:
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
            _log.exception("notifications are delayed by a program error; the task is restarted")
        await asyncio.sleep(RESTART_SECONDS)
