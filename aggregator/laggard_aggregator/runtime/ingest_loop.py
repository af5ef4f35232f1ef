"""Moves messages from the ingest queue into the machine and their batches to the archive."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.log.journal import GroupCommit
from laggard_common.daemon.service import is_set_within

RELEASE_SECONDS = 0.2
"""Longest time without a PUBACK to the broker: it limits the messages in flight."""
MAX_CATCH_UP = 12
"""After a restart windows wait at most this many times `catch_up_seconds` for the queue to empty."""
POLL_SECONDS = 0.2
"""Interval of checking meanwhile whether it is empty."""


@dataclass(slots=True)
class IngestLoop:
    """Admits messages while it holds `order`.

    With an `archive`, its queue has room for a batch before the batch is accepted. Without an archive and a
    `journal`, a batch is durable at once.
    """

    queue: IngestQueue
    subscriber: Subscriber
    machine: Machine
    order: asyncio.Lock
    archive: WriteQueue | None
    journal: GroupCommit | None
    iterations: int = 0  # for the watchdog
    _unreleased: int = 0  # messages that the broker still keeps
    _has_unreleased: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Admits messages burst by burst until cancelled."""
        while True:
            await self.queue.wait()
            async with self.order:
                self._admit_live(self.queue.take_live())
                self._admit(self.queue.take_deferred())
            self.iterations += 1
            await asyncio.sleep(0)

    async def release(self, journal: GroupCommit) -> None:
        """Acknowledges messages to the broker once they are durable, or RELEASE_SECONDS have passed."""
        while True:
            await self._has_unreleased.wait()
            self._has_unreleased.clear()
            messages, self._unreleased = self._unreleased, 0
            await journal.wait_durable(self.machine.sequence.last, RELEASE_SECONDS)
            self.subscriber.done(messages)

    async def caught_up(self, seconds: float, stop: asyncio.Event, progress: Callable[[], None]) -> None:
        """Waits until the queue is empty `seconds` after the connection to the broker, or `stop` is set."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + MAX_CATCH_UP * seconds
        connected: float | None = None
        while loop.time() < latest and not await is_set_within(stop, min(seconds, POLL_SECONDS)):
            progress()
            if not self.subscriber.connected:
                connected = None
            elif connected is None:
                connected = loop.time()
            elif loop.time() >= connected + seconds and not len(self.queue):
                return

    async def drain(self) -> None:
        """Admits what is left after `run` was cancelled, and waits until it is durable."""
        while messages := self.queue.take_live():
            self._admit_live(messages)
        if self.journal is not None:
            await self.journal.commit()
            self.subscriber.done(self._unreleased)

    def _admit_live(self, messages: list[Message]) -> None:
        """Admits messages that the broker keeps until they are durable."""
        self._unreleased += len(messages)
        self._has_unreleased.set()
        self._admit(messages)

    def _admit(self, messages: list[Message]) -> None:
        room = None if self.archive is None else self.archive.room()
        for batch in self.machine.receive(messages, room):
            if self.archive is not None:
                self.archive.put(batch)
            elif self.journal is None:
                self.machine.admission.acks.durable(batch.lsn)
