"""What is published when: live batches first, the backlog behind them, and what was lost once more.

Every connection begins with the status and all schemas. Losing the broker is one WARNING, finding it one
INFO.

To wake up costs more than to publish. So while nothing is due the connection is not even read: what the
broker answers, what is acknowledged, and that the broker is gone, is learnt when there is something to say
again.
"""

import asyncio
import gc
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from laggard_agent.settings import AgentSettings
from laggard_agent.spool.coalesce import ENOUGH_TICKS
from laggard_agent.spool.segments import SpoolFacts, Stored
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.backlog_rate import Pace
from laggard_agent.transport.backoff import Reconnecting
from laggard_agent.transport.heartbeat import StatusMessages
from laggard_agent.transport.redelivery import Losses
from laggard_agent.transport.session import Session
from laggard_common import wire
from laggard_common.clock import Clock
from laggard_common.errors import ConfigError, MqttError, WireError
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.mqtt_packets import Message
from laggard_common.wire.limits import STREAM_BYTES

_log = logging.getLogger(__name__)

STATUS_SECONDS = 30.0
_EARLY_SECONDS = 0.05  # that a batch may be published before its moment, or looked for after it
_LIVE_BATCHES = 64


class Publisher:
    """Publishes what is in the spool. `status` says what the status message shall say, without `state`.
    `awake` is called when a new batch went out.

    All that happens to `spool` happens on `worker`. `arguments` makes address, credentials and TLS for each
    connection, so that files which were renewed are used without a restart.
    """

    def __init__(
        self,
        settings: AgentSettings,
        arguments: Callable[[], ClientArguments],
        *,
        spool: Spool,
        worker: Worker,
        status: Callable[[SpoolFacts], Mapping[str, Any]],
        awake: Callable[[], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._arguments = arguments
        self._spool = spool
        self._worker = worker
        self._status = status
        self._awake = awake
        self._clock = clock
        self._session: Session
        self._loop = asyncio.get_running_loop()
        self._facts: SpoolFacts | None = None
        self._statuses = StatusMessages(settings, clock, rng.randbytes(STREAM_BYTES))
        self._losses = Losses(spool, worker, rng)
        self._reconnecting = Reconnecting(rng)
        self._live: deque[tuple[float, Stored]] = deque()
        self._wake = asyncio.Event()
        self._sleeps_until = 0.0
        self._next_live = 0.0
        self._finishing = False
        self._connected = False
        self._warned = False
        self._status_due = 0.0
        self._backlog = False
        self._overflowed = False
        self._batch_seconds = settings.batch_samples * settings.interval_seconds
        self._status_early_seconds = min(self._batch_seconds, STATUS_SECONDS / 2)
        self._pace = Pace(
            len(settings.collectors) / self._batch_seconds, ENOUGH_TICKS * settings.interval_seconds, rng
        )

    @property
    def connected(self) -> bool:
        """Whether the broker has this agent."""
        return self._connected

    @property
    def acks_seen(self) -> bool:
        """Whether an aggregator ever acknowledged something."""
        return self._losses.acks_seen

    def offer(self, stored: Stored, delay_seconds: float, facts: SpoolFacts) -> None:
        """A new batch, to be published in so many seconds if there is a connection; else it is backlog.

        `facts`: how the spool stands, for the status that goes out with the batch. Called on the spool's
        thread. The event loop is only woken when it would sleep for too long.
        """
        self._facts = facts
        if not self._connected:
            return
        if len(self._live) >= _LIVE_BATCHES:
            self._live.popleft()
            self._overflowed = True
        if self._spool.found_late:
            self._spool.found_late = False
            self._overflowed = True
        due = self._now() + delay_seconds
        self._live.append((due, stored))
        if self._sleeps_until > due + 2 * _EARLY_SECONDS:
            self._worker.tell(self._wake.set)

    def status_soon(self) -> None:
        """Something in the status changed that should be known now."""
        self._status_due = 0.0
        if self._connected:
            self._wake.set()

    def finish(self) -> None:
        """Lets `run` publish what is live, say `stopped`, and return."""
        self._finishing = True
        self._wake.set()

    async def run(self) -> None:
        """Keeps a connection until `finish`; returns then."""
        while not self._finishing:
            began = self._now()
            try:
                self._session = await self._connect()
                try:
                    await self._keep()
                finally:
                    await self._session.close()
            except (MqttError, ConfigError, OSError) as exc:
                self._warn_once(exc)
            finally:
                was_connected, self._connected = self._connected, False
                self._live.clear()
                if self._settings.mqtt.tls:
                    gc.collect()  # asyncio leaves cycles with 256 KiB each where it was not agreed upon
            if not self._finishing:
                if was_connected:
                    self._reconnecting.ended(self._now() - began, good=self._losses.acks_in_connection)
                await self._pause(self._reconnecting.pause_seconds())

    async def _connect(self) -> Session:
        session = await Session.open(
            self._arguments(),
            self._settings,
            self._statuses,
            hear=self._hear,
            spool=self._spool,
            worker=self._worker,
            finishing=lambda: self._finishing,
        )
        session.connection.lost.add_done_callback(lambda _: self._wake.set())
        return session

    def _warn_once(self, exc: Exception) -> None:
        if not self._warned and not self._finishing:
            self._warned = True
            _log.warning(
                "no connection to the broker at %s: %s; batches wait in the spool",
                self._settings.mqtt.address,
                exc,
            )
        else:
            _log.debug("no connection to the broker: %s", exc)

    # -- one connection

    async def _keep(self) -> None:
        """Publishes over the session that there is now, until `finish`."""
        if not await self._session.subscribe():
            _log.warning("the broker does not let us subscribe to our acknowledgements")
        await self._publish_status()
        for schema in await self._worker.call(self._spool.current_schemas):
            await self._session.publish_schema(schema)
        _log.info("connected to the broker at %s", self._settings.mqtt.address)
        self._connected = True
        self._warned = False
        await self._begin_connection()
        while not (self._finishing and not self._live):
            await self._step()
        await self._publish_status("stopped")
        await self._session.settle()

    async def _begin_connection(self) -> None:
        """Begins the backlog, after what an aggregator lacks of what the last connection's broker took."""
        await self._losses.connected(self._now())
        oldest_ns = await self._worker.call(self._spool.oldest_unsent_ns)
        waiting_ns = 0 if oldest_ns is None else self._clock.wall_ns() - oldest_ns
        self._pace.connected(self._now(), waiting_ns / 1e9)
        await self._begin_backlog()

    async def _begin_backlog(self) -> None:
        await self._worker.call(self._spool.rewind)
        self._backlog = True

    async def _step(self) -> None:
        """Publishes what is most due, or waits until something is."""
        self._session.connection.check()
        now = self._now()
        if self._losses.suspected:
            self._losses.look_soon(now, idle=self._pace.is_idle(now))
        if self._live and (self._live[0][0] <= now + _EARLY_SECONDS or self._finishing):
            due, batch = self._live[0]
            self._next_live = due + self._batch_seconds + _EARLY_SECONDS
            await self._session.publish(batch)
            self._live.popleft()
            self._awake()
            if self._status_due <= now + self._status_early_seconds:  # it costs less while we are awake
                self._status_due = 0.0
        elif self._status_due <= now:
            await self._publish_status()
        elif self._overflowed and not self._backlog:
            self._overflowed = False
            await self._begin_backlog()
        elif self._losses.due <= now:
            await self._look_for_losses(now)
        elif self._backlog and self._pace.due <= now:
            await self._publish_backlog(now)
        else:
            until = [self._status_due, self._losses.due]
            until += [self._next_live] if self._next_live > now else []
            until += [self._pace.due] if self._backlog else []
            self._sleeps_until = min(until)  # before looking at what is live, or both threads may wait
            if self._live:
                self._sleeps_until = min(self._sleeps_until, self._live[0][0])
            if not self._backlog:  # whose pace the acknowledgements set
                self._session.connection.pause_reading()
            await self._sleep(max(0.0, self._sleeps_until - now))
            self._session.connection.resume_reading()
            self._sleeps_until = 0.0

    async def _publish_backlog(self, now: float) -> None:
        """Publishes the next message of the backlog if there is one and it may go."""
        if not self._pace.may_send(now):
            return
        await self._session.settle()  # or what is in flight would count as backlog
        stored = await self._worker.call(partial(self._spool.next_backlog, self._is_live))
        if stored is None:
            self._backlog = False
            return
        await self._session.publish(stored)
        self._pace.sent(stored, now)

    def _is_live(self, stored: Stored) -> bool:
        """True for a batch that waits for its moment; the backlog has caught up with it.

        Called on the spool's thread.
        """
        name = stored.key, stored.seq
        return any((other.key, other.seq) == name for _, other in list(self._live))

    async def _publish_status(self, state: str = "up") -> None:
        self._status_due = self._now() + STATUS_SECONDS
        known, self._facts = self._facts, None
        if known is None or state != "up":  # no batch since the last status
            known = await self._worker.call(self._spool.facts)
        await self._session.publish_status(state, self._status(known))

    async def _look_for_losses(self, now: float) -> None:
        """Has what the broker lost go out with the backlog, and its schemas before it."""
        lost = await self._losses.look(now)
        if lost:
            self._session.publish_schemas_again(lost)  # not retained where the stream is an older one
            self._pace.lost(lost)
            self._backlog = True

    def _hear(self, message: Message) -> None:
        try:
            acks = wire.decode_ack(message.payload)
        except WireError as exc:
            _log.debug("not an acknowledgement: %s", exc)
            return
        for ack in acks:
            self._worker.defer(partial(self._losses.acknowledged, ack))
            self._pace.acknowledged(ack, self._now())
        if self._backlog:
            self._wake.set()

    # -- small things

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    async def _pause(self, seconds: float) -> None:
        """So long, unless we are to finish; whatever else wakes us, as that the connection is lost."""
        until = self._loop.time() + seconds
        while not self._finishing and (left := until - self._loop.time()) > 0:
            await self._sleep(left)

    async def _sleep(self, seconds: float) -> None:
        """Until something wakes us, at most so long."""
        timer = self._loop.call_later(seconds, self._wake.set)  # neither task nor exception
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()
