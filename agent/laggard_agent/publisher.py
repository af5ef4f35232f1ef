"""The connection to the broker: live batches first, the backlog behind them, and the acknowledgements.

One publish is in flight at a time. Every connect begins with the status and all schemas; a schema is
published before the first batch that needs it. Losing the broker is one WARNING, finding it one INFO.

To wake up costs more than to publish. So while nothing is due the connection is not even read: what the
broker answers, what is acknowledged, and that the broker is gone, is learnt when there is something to say
again.
"""

import asyncio
import gc
import logging
import random
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from laggard_agent.joining import ENOUGH_TICKS
from laggard_agent.pace import Pace
from laggard_agent.settings import AgentSettings
from laggard_agent.spool import Spool
from laggard_agent.spool_segments import Key, SpoolFacts, Stored
from laggard_agent.worker import Job, Worker
from laggard_common import __version__, topics, wire
from laggard_common.clock import Clock
from laggard_common.errors import ConfigError, MqttError, WireError
from laggard_common.limits import MAX_ACK_BYTES, STREAM_BYTES
from laggard_common.mqtt import ClientArguments
from laggard_common.mqtt_connection import Connection
from laggard_common.mqtt_packets import Message, Will
from laggard_common.schema import Schema

_log = logging.getLogger(__name__)

T = TypeVar("T")

STATUS_SECONDS = 30.0
_EARLY_SECONDS = 0.05  # that a batch may be published before its moment, or looked for after it
_RECONNECT_LEAST_SECONDS = 1.0
_RECONNECT_MOST_SECONDS = 60.0
_STABLE_SECONDS = 10.0  # a connection that lasted so long begins the pauses anew
_GOOD_FAILURES = 2  # and one that was good for an acknowledgement begins with such of some seconds
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_LAST_ANSWER_SECONDS = 1.0
_LEAVE_SECONDS = 0.5
_KEEPALIVE_SECONDS = 30
_MOST_PACKET_BYTES = MAX_ACK_BYTES + 1024  # an acknowledgement and its topic
_RESEND_LEAST_SECONDS = 5.0  # after a connection began, as that is when a broker may have lost something
_RESEND_MOST_SECONDS = 60.0
_LIVE_BATCHES = 64


def phase_ns(site: str, node: str, batch_ns: int) -> int:
    """This node's own moment inside the batch interval, so that nodes do not publish all at once."""
    return zlib.crc32(f"{site}/{node}".encode()) * batch_ns >> 32


def failures_after(failures: int, lasted_seconds: float, *, good: bool) -> int:
    """How many failures in a row count for the next pause when a connection ends that lasted so long.

    `good`: the aggregator acknowledged something over it. Two agents that share a client id end each other's
    connections at once, and must not do so every second.
    """
    if lasted_seconds > _STABLE_SECONDS:
        return 0
    return min(failures, _GOOD_FAILURES) if good else failures


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
        self._rng = rng
        self._connection: Connection
        self._in_flight: tuple[asyncio.Future[None], Job | None] | None = None
        self._loop = asyncio.get_running_loop()
        self._facts: SpoolFacts | None = None
        self._run_id = rng.randbytes(STREAM_BYTES)
        self._status_seq = 0
        self._live: deque[tuple[float, Stored]] = deque()
        self._wake = asyncio.Event()
        self._sleeps_until = 0.0
        self._next_live = 0.0
        self._finishing = False
        self._connected = False
        self._warned = False
        self._published_schemas: dict[Key, int] = {}
        self._status_due = 0.0
        self._backlog = False
        self._overflowed = False
        self._batch_seconds = settings.batch_samples * settings.interval_seconds
        self._status_early_seconds = min(self._batch_seconds, STATUS_SECONDS / 2)
        self._pace = Pace(
            len(settings.collectors) / self._batch_seconds, ENOUGH_TICKS * settings.interval_seconds, rng
        )
        self._resend_due = 0.0
        self._resend_seconds = _RESEND_LEAST_SECONDS
        self._acks_since_check = False
        self._acks_in_connection = False
        self._passed_over = False
        self._unread = False  # what the aggregator has, for want of its schema
        self._oldest: dict[Key, int] = {}
        self.acks_seen = False

    @property
    def connected(self) -> bool:
        """Whether the broker has this agent."""
        return self._connected

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
        failures = 0
        while not self._finishing:
            began = self._now()
            try:
                self._connection = await self._connect()
                try:
                    await self._session()
                finally:
                    await self._connection.close(_LEAVE_SECONDS)
            except (MqttError, ConfigError, OSError) as exc:
                self._warn_once(exc)
            finally:
                was_connected, self._connected = self._connected, False
                self._in_flight = None
                self._live.clear()
                if self._settings.mqtt.tls:
                    gc.collect()  # asyncio leaves cycles with 256 KiB each where it was not agreed upon
            if not self._finishing:
                if was_connected:
                    failures = failures_after(failures, self._now() - began, good=self._acks_in_connection)
                ceiling = min(_RECONNECT_MOST_SECONDS, _RECONNECT_LEAST_SECONDS * 2**failures)
                failures = min(failures + 1, 10)
                await self._pause(ceiling * self._rng.uniform(0.5, 1.0))

    async def _connect(self) -> Connection:
        s = self._settings
        connection = await Connection.open(
            self._arguments(),
            f"laggard-{s.node}@{s.site}",
            hear=self._hear,
            most_bytes=_MOST_PACKET_BYTES,
            keepalive_seconds=_KEEPALIVE_SECONDS,
            timeout_seconds=_CONNECT_SECONDS,
            will=Will(self._status_topic(), self._status_message("down", {}, seq=0)),
        )
        connection.lost.add_done_callback(lambda _: self._wake.set())
        return connection

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

    async def _session(self) -> None:
        acknowledgements = topics.ack_topic(self._settings.site, self._settings.node)
        if await self._answered(self._connection.subscribe([acknowledgements]), _ANSWER_SECONDS):
            _log.warning("the broker does not let us subscribe to our acknowledgements")
        self._published_schemas.clear()
        await self._publish_status()
        for schema in await self._call(self._spool.current_schemas):
            await self._publish_schema(schema)
        _log.info("connected to the broker at %s", self._settings.mqtt.address)
        self._connected = True
        self._warned = False
        await self._begin_connection()
        self._resend_seconds = _RESEND_LEAST_SECONDS
        self._resend_due = self._now() + self._resend_seconds
        while not (self._finishing and not self._live):
            await self._step()
        await self._publish_status("stopped")
        await self._settle()

    async def _step(self) -> None:
        """Publishes what is most due, or waits until something is."""
        self._connection.check()
        now = self._now()
        if self._passed_over or self._unread:
            self._look_soon(now)
        if self._live and (self._live[0][0] <= now + _EARLY_SECONDS or self._finishing):
            due, batch = self._live[0]
            self._next_live = due + self._batch_seconds + _EARLY_SECONDS
            await self._publish(batch)
            self._live.popleft()
            self._awake()
            if self._status_due <= now + self._status_early_seconds:  # it costs less while we are awake
                self._status_due = 0.0
        elif self._status_due <= now:
            await self._publish_status()
        elif self._overflowed and not self._backlog:
            self._overflowed = False
            await self._begin_backlog()
        elif self._resend_due <= now:
            self._resend_seconds = min(2 * self._resend_seconds, _RESEND_MOST_SECONDS)
            self._resend_due = now + self._resend_seconds * self._rng.uniform(1.0, 1.5)
            await self._resend_what_was_lost()
        elif self._backlog and self._pace.due <= now:
            await self._publish_backlog(now)
        else:
            until = [self._status_due, self._resend_due]
            until += [self._next_live] if self._next_live > now else []
            until += [self._pace.due] if self._backlog else []
            self._sleeps_until = min(until)  # before looking at what is live, or both threads may wait
            if self._live:
                self._sleeps_until = min(self._sleeps_until, self._live[0][0])
            if not self._backlog:  # whose pace the acknowledgements set
                self._connection.pause_reading()
            await self._sleep(max(0.0, self._sleeps_until - now))
            self._connection.resume_reading()
            self._sleeps_until = 0.0

    async def _publish_backlog(self, now: float) -> None:
        """Publishes the next message of the backlog if there is one and it may go."""
        if not self._pace.may_send(now):
            return
        await self._settle()  # or what is in flight would count as backlog
        stored = await self._call(partial(self._spool.next_backlog, self._is_live))
        if stored is None:
            self._backlog = False
            return
        await self._publish(stored)
        self._pace.sent(stored, now)

    def _is_live(self, stored: Stored) -> bool:
        """True for a batch that waits for its moment; the backlog has caught up with it.

        Called on the spool's thread.
        """
        name = stored.key, stored.seq
        return any((other.key, other.seq) == name for _, other in list(self._live))

    async def _publish(self, stored: Stored) -> None:
        if self._published_schemas.get(stored.key, -1) < stored.epoch:
            schema = await self._call(partial(self._spool.schema, stored.key))
            if schema is not None:
                await self._publish_schema(schema)
        s = self._settings
        topic = topics.data_topic(s.site, s.role, s.node, stored.source)
        if s.spool.acknowledge == "broker":
            taken = partial(self._spool.acknowledge, stored.key, (stored.seqs,))
            await self._send(topic, stored.data, then=taken)
        else:
            await self._send(topic, stored.data, then=partial(self._spool.mark_sent, stored))

    async def _publish_schema(self, schema: Schema) -> None:
        """Retained, unless a newer stream of the source is in use: then only for who listens now."""
        s = self._settings
        current = await self._call(self._spool.current_schemas)
        topic = topics.schema_topic(s.site, s.role, s.node, schema.source)
        retain = any(schema.stream == other.stream for other in current)
        await self._send(topic, wire.encode_schema(schema), retain=retain)
        self._published_schemas[schema.stream, schema.source] = schema.epoch

    async def _publish_status(self, state: str = "up") -> None:
        self._status_due = self._now() + STATUS_SECONDS
        self._status_seq += 1
        known, self._facts = self._facts, None
        if known is None or state != "up":  # no batch since the last status
            known = await self._call(self._spool.facts)
        message = self._status_message(state, self._status(known), self._status_seq)
        await self._send(self._status_topic(), message, retain=True)

    async def _send(
        self, topic: str, payload: bytes, *, retain: bool = False, then: Job | None = None
    ) -> None:
        """Publishes, once the broker has what was published before. `then` is done when it has this."""
        await self._settle()
        self._in_flight = self._connection.publish(topic, payload, retain=retain), then

    async def _settle(self) -> None:
        """Waits until the broker has what was published last. Raises MqttError."""
        if self._in_flight is None:
            return
        taken, then = self._in_flight
        await self._answered(taken, _LAST_ANSWER_SECONDS if self._finishing else _ANSWER_SECONDS)
        self._in_flight = None
        if then is not None:
            self._worker.defer(then)

    async def _answered(self, answer: Awaitable[T], seconds: float) -> T:
        """What the broker answers. Raises MqttError, also when it says nothing for so long."""
        give_up = partial(self._connection.abort, "the broker does not answer")
        timer = self._loop.call_later(seconds, give_up)
        try:
            return await answer
        finally:
            timer.cancel()

    def _status_topic(self) -> str:
        return topics.status_topic(self._settings.site, self._settings.role, self._settings.node)

    def _status_message(self, state: str, facts: Mapping[str, Any], seq: int) -> bytes:
        always = {"state": state, "role": self._settings.role, "version": __version__}
        envelope = wire.Envelope(
            kind=wire.Kind.STATE,
            node=self._settings.node,
            source="agent",
            stream=self._run_id,
            seq=seq,
            schema_epoch=0,
            t0_ns=self._clock.wall_ns(),
            dt_ns=0,
            n=1,
            codec=0,
            payload=wire.encode_state(always | dict(facts)),
        )
        return wire.encode_envelope(envelope)

    # -- acknowledgements

    def _hear(self, message: Message) -> None:
        try:
            acks = wire.decode_ack(message.payload)
        except WireError as exc:
            _log.debug("not an acknowledgement: %s", exc)
            return
        for ack in acks:
            self._worker.defer(partial(self._acknowledge, ack))
            self._pace.acknowledged(ack, self._now())
        if self._backlog:
            self._wake.set()

    def _acknowledge(self, ack: wire.Ack) -> None:
        """Called on the spool's thread."""
        if self._spool.acknowledge((ack.stream, ack.source), ack.ranges):
            self.acks_seen = True
            self._acks_since_check = True
            self._acks_in_connection = True
            self._unread |= not ack.ranges
            self._passed_over |= self._spool.is_passed_over((ack.stream, ack.source))

    async def _begin_connection(self) -> None:
        """Begins the backlog. A broker that died may have lost what it took: if acknowledgements came over
        the connection before, what they did not cover is sent again now, and not only after a while.
        """
        oldest = await self._call(self._spool.oldest_unacknowledged)
        if self._acks_in_connection:
            await self._call(partial(self._spool.resend, list(oldest)))
        self._acks_in_connection = False
        oldest_ns = await self._call(self._spool.oldest_unsent_ns)
        waiting_ns = 0 if oldest_ns is None else self._clock.wall_ns() - oldest_ns
        self._pace.connected(self._now(), waiting_ns / 1e9)
        await self._begin_backlog()

    async def _begin_backlog(self) -> None:
        await self._call(self._spool.rewind)
        self._backlog = True

    def _look_soon(self, now: float) -> None:
        """Something later than what the broker took was acknowledged, and not that: it may be lost. Or it is
        there, and the schema that reads it is lost.

        What is behind live data may just be on its way, and is looked for as ever.
        """
        sure, self._unread, self._passed_over = self._unread, False, False
        if sure or self._pace.is_idle(now):
            soon = now + _RESEND_LEAST_SECONDS * self._rng.uniform(1.0, 1.5)
            self._resend_due = min(self._resend_due, soon)

    async def _resend_what_was_lost(self) -> None:
        """Sends again what the broker took a while ago, when an aggregator acknowledges but not that."""
        oldest = await self._call(self._spool.oldest_unacknowledged)
        stuck = [key for key, seq in oldest.items() if self._oldest.get(key) == seq]
        heard, self._acks_since_check = self._acks_since_check, False
        self._oldest = oldest
        if stuck and heard:
            _log.info("sending again what was not acknowledged")
            for key in stuck:  # the schema, too: it is not retained where the stream is an older one
                self._published_schemas.pop(key, None)
            await self._call(partial(self._spool.resend, stuck))
            self._pace.lost(stuck)
            self._backlog = True

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

    async def _call(self, job: Callable[[], T]) -> T:
        return await self._worker.call(job)
