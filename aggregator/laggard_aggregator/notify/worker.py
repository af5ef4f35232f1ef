"""Sends the queued messages of one channel, in order, until each has an outcome.

While the destination is unavailable all messages wait. A message that it refuses for now waits alone, with
the one that resolves it, for the recipients who do not have it. One that it refuses for good is given up,
as is one that waited for GIVE_UP_SECONDS.
"""

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress

from laggard_aggregator.notify.channel import Channel, UnavailableError
from laggard_aggregator.notify.outbox import Outbox, Outcome, QueuedMessage
from laggard_common.clock import Clock
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 15.0
LAST_RETRY_SECONDS = 900.0
MAX_RETRY_AFTER_SECONDS = 3600.0
"""Upper limit of a delay that the destination asks for."""
GIVE_UP_SECONDS = 5 * 86_400.0
"""As RFC 5321 (4.5.4.1) has it for mail servers."""
MIN_TRYING_SECONDS = 3600.0
"""Each process tries for this long: a wall clock that was set ahead by days is no outage."""
FINISH_SECONDS = 5.0
"""At the end of the process an attempt under way may take this long to finish."""
IDLE_SECONDS = 60.0

RESULTS = ("sent", "retried", "refused", "expired")
"""Labels of `laggard_notifications_total`: outcomes, and attempts that have to be repeated (retried)."""


class DeliveryWorker:
    """`counts`: by RESULTS. `waiting`: messages without an outcome. `wake`: set it when one was queued.

    `unavailable`: why messages wait for the destination, or empty.
    """

    def __init__(self, channel: Channel, clock: Clock, rng: random.Random) -> None:
        self.wake = asyncio.Event()
        self.counts: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self.waiting = 0
        self._channel = channel
        self._clock = clock
        self._rng = rng
        self._unsaved: dict[str, Outcome | tuple[str, ...]] = {}  # outcomes, and recipients who are left
        self._missing: dict[str, tuple[str, ...]] = {}  # by waiting message: who does not have it
        self._first_seen: dict[str, tuple[float, float]] = {}  # monotonic time, and its age then
        self._attempts: Counter[str] = Counter()
        self._not_before: dict[str, float] = {}
        self._failures = 0
        self.unavailable = ""
        self._stopping = False

    async def run(self, outbox: Outbox) -> None:
        """Sends until cancelled; an attempt under way is finished then."""
        name = self._channel.name
        while True:
            self.wake.clear()
            seconds = IDLE_SECONDS
            try:
                await self._save(outbox)
                due = await self._due(outbox)
                if due:
                    await self._send(outbox, due)
                    if self.unavailable:
                        _log.info("%s: %s accepts messages again", name, self._channel.destination)
                    self.unavailable = ""
                self._failures = 0
                if self._not_before:
                    seconds = max(min(self._not_before.values()) - self._now(), 0.1)
            except UnavailableError as exc:
                self.counts["retried"] += 1
                seconds = self._set_unavailable(str(exc), exc.retry_after_seconds)
            except StateError as exc:
                seconds = self._set_unavailable(str(exc))
            if self._failures:  # a new message does not make the destination available
                await asyncio.sleep(seconds)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.wake.wait()

    async def _due(self, outbox: Outbox) -> list[QueuedMessage]:
        """The messages to be tried now; those that waited for too long are ended."""
        queued = await outbox.do(Outbox.waiting, self._channel.name)
        now, wall = self._now(), self._clock.wall_ns() / 1e9
        self._first_seen = {m.id: self._first_seen.get(m.id) or (now, wall - m.queued_at) for m in queued}
        left = []
        for message in queued:
            first_seen, age = self._first_seen[message.id]
            if now - first_seen > MIN_TRYING_SECONDS and age + now - first_seen > GIVE_UP_SECONDS:
                _log.warning(
                    "%s: giving up on %s after days without delivery", self._channel.name, message.id
                )
                await self._end(outbox, message, "expired")
            else:
                left.append(message)
        self.waiting = len(left)
        self._missing = {message.id: message.recipients for message in left}
        self._not_before = {id_: at for id_, at in self._not_before.items() if id_ in self._missing}
        due = [message for message in left if self._not_before.get(message.id, 0.0) <= self._now()]
        return due if any(self._ready_for(message) for message in due) else []

    def _ready_for(self, message: QueuedMessage) -> tuple[str, ...]:
        """The recipients who have all messages that this one resolves."""
        waiting = {who for id_ in message.resolves for who in self._missing.get(id_, ())}
        return tuple(who for who in message.recipients if who not in waiting)

    async def _send(self, outbox: Outbox, due: list[QueuedMessage]) -> None:
        """Sends in a task of its own, so that cancellation does not interrupt an attempt."""
        sending = asyncio.create_task(self._send_all(outbox, due), name=f"{self._channel.name} attempt")
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            self._stopping = True
            await asyncio.wait({sending}, timeout=FINISH_SECONDS)
            sending.cancel()
            sending.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise

    async def _send_all(self, outbox: Outbox, due: list[QueuedMessage]) -> None:
        for message in due:
            recipients = self._ready_for(message)
            if recipients and not self._stopping:
                await self._attempt(outbox, message, recipients)

    async def _attempt(self, outbox: Outbox, message: QueuedMessage, recipients: tuple[str, ...]) -> None:
        delivery = await self._channel.send(message.message, recipients)
        for who, reason in delivery.refused.items():
            _log.warning("%s: %s refused for %s: %s", self._channel.name, message.id, who, reason)
        left = tuple(who for who in message.recipients if who in delivery.retry or who not in recipients)
        if not left:
            delivered = set(recipients) - delivery.refused.keys()
            await self._end(outbox, message, "sent" if delivered else "refused")
            return
        if delivery.retry:
            reason = next(iter(delivery.retry.values()))
            _log.info("%s: %s waits: %s", self._channel.name, message.id, reason)
            self.counts["retried"] += 1
            self._attempts[message.id] += 1
            seconds = self._delay(self._attempts[message.id], delivery.retry_after_seconds)
            self._not_before[message.id] = self._now() + seconds
        self._unsaved[message.id] = self._missing[message.id] = left
        await self._save(outbox)

    async def _end(self, outbox: Outbox, message: QueuedMessage, outcome: Outcome) -> None:
        """Saves an outcome, at the latest before anything else is sent."""
        self.waiting = max(self.waiting - 1, 0)
        self._not_before.pop(message.id, None)
        self._missing.pop(message.id, None)
        self._attempts.pop(message.id, None)
        self._unsaved[message.id] = outcome
        level = logging.INFO if outcome == "sent" else logging.DEBUG
        _log.log(level, "%s: %s %s", self._channel.name, message.id, outcome)
        await self._save(outbox)

    async def _save(self, outbox: Outbox) -> None:
        for id_, change in list(self._unsaved.items()):
            if isinstance(change, tuple):
                await outbox.do(Outbox.set_recipients, self._channel.name, id_, change)
            else:
                await outbox.do(Outbox.set_outcome, self._channel.name, id_, change)
                self.counts[change] += 1
            del self._unsaved[id_]

    def _set_unavailable(self, reason: str, retry_after_seconds: float = 0.0) -> float:
        """Logs a new reason; returns the seconds until the next attempt."""
        self._failures += 1
        if reason != self.unavailable:
            channel = self._channel
            _log.warning("%s: messages wait for %s: %s", channel.name, channel.destination, reason)
        self.unavailable = reason
        return self._delay(self._failures, retry_after_seconds)

    def _delay(self, attempts: int, retry_after_seconds: float) -> float:
        """Seconds until the next attempt: twice as many each time up to a limit, 20 % more or less.

        A delay that the destination asks for is a lower limit, up to MAX_RETRY_AFTER_SECONDS.
        """
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** min(attempts - 1, 16), LAST_RETRY_SECONDS)
        return max(seconds * self._rng.uniform(0.8, 1.2), min(retry_after_seconds, MAX_RETRY_AFTER_SECONDS))

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9
