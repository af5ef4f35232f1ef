"""The way of messages: out of the inbox into the core, and on to the archive; then the broker hears of it."""

import asyncio
from collections.abc import Callable

from laggard_aggregator.archive.write_queue import ArchiveFeed
from laggard_aggregator.engine.machine import Core
from laggard_aggregator.engine.recovery import Keeper
from laggard_aggregator.ingest.ingest_queue import Inbox
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.ingest.offheap_queue import Received
from laggard_common.daemon.service import is_set_within

RELEASE_SECONDS = 0.2
"""How long the broker keeps a message for us at most: it has a limited number of them under way."""
MOST_CATCH_UP = 12
"""After a restart windows wait at most so many times `catch_up_seconds` for the inbox to empty."""
LOOK_SECONDS = 0.2
"""How often is looked meanwhile whether it is empty."""


class Inflow:
    """Brings messages from `inbox` into `core`, while it holds `order`.

    `archive` is offered every batch. Where there is none, and nothing is `journaled`, a batch is safe as soon
    as it is taken.
    """

    def __init__(
        self,
        inbox: Inbox,
        subscriber: Subscriber,
        core: Core,
        order: asyncio.Lock,
        *,
        archive: ArchiveFeed | None,
        journaled: bool,
    ) -> None:
        self._inbox = inbox
        self._subscriber = subscriber
        self._core = core
        self._order = order
        self._archive = archive
        self._journaled = journaled
        self._taken = 0  # messages that the broker still keeps
        self._some_taken = asyncio.Event()

    async def run(self, moved: Callable[[], None]) -> None:
        """Brings messages from the inbox into the core, a burst at a time; calls `moved` after each."""
        while True:
            await self._inbox.some()
            async with self._order:
                self._take(self._inbox.burst())
                self._bring(self._inbox.behind())
            moved()
            await asyncio.sleep(0)

    async def release(self, keeper: Keeper) -> None:
        """Tells the broker what it need not keep, once it is in the journal, or has waited for that."""
        while True:
            await self._some_taken.wait()
            self._some_taken.clear()
            messages, self._taken = self._taken, 0
            await keeper.commits.settled(self._core.ordinals.last, RELEASE_SECONDS)
            self._subscriber.done(messages)

    async def caught_up(self, stop: asyncio.Event, seconds: float, moved: Callable[[], None]) -> None:
        """Waits for what the broker kept: until the inbox is empty `seconds` after there is a connection."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + MOST_CATCH_UP * seconds
        connected: float | None = None
        while loop.time() < latest and not await is_set_within(stop, min(seconds, LOOK_SECONDS)):
            moved()
            if not self._subscriber.connected:
                connected = None
            elif connected is None:
                connected = loop.time()
            elif loop.time() >= connected + seconds and not len(self._inbox):
                return

    def drain(self) -> None:
        """Takes in what is left, when nobody else does any more."""
        while burst := self._inbox.burst():
            self._take(burst)

    def done(self) -> None:
        """Tells the broker that everything taken is in the journal."""
        self._subscriber.done(self._taken)

    def _take(self, burst: list[Received]) -> None:
        """Takes in what the broker keeps until it is in the journal."""
        self._taken += len(burst)
        self._some_taken.set()
        self._bring(burst)

    def _bring(self, messages: list[Received]) -> None:
        for taken in self._core.receive_all(messages):
            if self._archive is not None:
                if not self._archive.offer(taken):
                    self._core.give_back(taken)
            elif not self._journaled:
                self._core.intake.acks.safe(taken.ordinal)
