"""Publishing loop and session: live batches first, then those that the broker lost and the backlog.

A session begins with the status and all current schemas, and publishes a schema before the batches that need
it. A lost connection is logged as one WARNING until the next session, each session as one INFO.
"""

import asyncio
import gc
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import aiomqtt

from laggard_agent.settings import AgentSettings
from laggard_agent.spool.backlog import ENOUGH_TICKS
from laggard_agent.spool.segments import Key, SpooledBatch
from laggard_agent.spool.spool import Spool, SpoolFacts
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.heartbeat import Heartbeat
from laggard_agent.transport.pacing import BacklogRate, Backoff
from laggard_agent.transport.redelivery import Redelivery
from laggard_common import wire
from laggard_common.clock import Clock
from laggard_common.errors import ConfigError, MqttError, WireError
from laggard_common.mqtt.client import MqttClient
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.wire import topics
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema

_log = logging.getLogger(__name__)

STATUS_SECONDS = 30.0
_LIVE_BATCHES = 64
_FINISH_SECONDS = 1.0
_CLOSE_SECONDS = 0.5


class Publisher:
    """Publishes the batches of `spool`, whose jobs run on `worker`.

    `arguments` reads the TLS and password files, and is called for each connection, so renewed files need no
    restart. `status` returns the status fields other than `state`. Live batches are due `delay_seconds`, the
    node's splay, after they are offered.
    """

    def __init__(
        self,
        settings: AgentSettings,
        arguments: Callable[[], ClientArguments],
        *,
        spool: Spool,
        worker: Worker,
        status: Callable[[SpoolFacts], Mapping[str, Any]],
        clock: Clock,
        rng: random.Random,
        delay_seconds: float,
    ) -> None:
        self._settings = settings
        self._arguments = arguments
        self._spool = spool
        self._worker = worker
        self._status = status
        self._clock = clock
        self._delay_seconds = delay_seconds
        self._session: Session
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(settings, clock, rng.randbytes(STREAM_BYTES))
        self._redelivery = Redelivery(spool, worker, rng)
        self._backoff = Backoff(rng)
        batches_per_second = len(settings.collectors) / (settings.batch_samples * settings.interval_seconds)
        self._rate = BacklogRate(batches_per_second, ENOUGH_TICKS * settings.interval_seconds, rng)
        self._live: deque[tuple[float, SpooledBatch]] = deque()
        self._wake = asyncio.Event()
        self._finishing = False
        self._connected = False
        self._warned = False
        self._status_due = 0.0
        self._backlog = False
        self._overflowed = False

    @property
    def connected(self) -> bool:
        """Whether a session is open."""
        return self._connected

    @property
    def acks_seen(self) -> bool:
        """Whether an aggregator ever acknowledged a batch."""
        return self._redelivery.acks_seen

    def offer(self, batch: SpooledBatch) -> None:
        """Queues a new batch as live. Without a session it stays in the backlog.

        Called on the spool's thread.
        """
        if not self._connected:
            return
        if len(self._live) >= _LIVE_BATCHES:
            self._live.popleft()
            self._overflowed = True
        if self._spool.found_late:
            self._spool.found_late = False
            self._overflowed = True
        self._live.append((self._now() + self._delay_seconds, batch))
        self._worker.run_on_loop(self._wake.set)

    def publish_status_soon(self) -> None:
        """Lets `run` publish the status after live batches that are due."""
        self._status_due = 0.0
        self._wake.set()

    def finish(self) -> None:
        """Lets `run` publish the live batches and the status `stopped`, and return."""
        self._finishing = True
        self._wake.set()

    async def run(self) -> None:
        """Keeps a session open until `finish`."""
        while not self._finishing:
            start = self._now()
            try:
                await self._run_session()
            except (MqttError, ConfigError) as exc:
                self._warn_once(exc)
            was_connected, self._connected = self._connected, False
            self._live.clear()
            gc.collect()  # clients and TLS contexts are cycles
            if not self._finishing:
                if was_connected:
                    self._backoff.ended(self._now() - start, good=self._redelivery.acks_in_connection)
                await self._pause(self._backoff.pause_seconds())

    def _warn_once(self, exc: Exception) -> None:
        reason = str(exc)  # the exception itself keeps the socket of a failed TLS handshake
        if self._warned or self._finishing:
            _log.debug("no connection to the broker: %s", reason)
            return
        self._warned = True
        address = self._settings.mqtt.address
        _log.warning("no connection to the broker at %s: %s; batches wait in the spool", address, reason)

    # -- one session

    async def _run_session(self) -> None:
        """Publishes over one session until `finish`. Raises MqttError, and ConfigError for a file."""
        self._session = Session(
            self._arguments(),
            self._settings,
            self._heartbeat,
            on_message=self._on_ack,
            on_lost=self._wake.set,
            spool=self._spool,
            worker=self._worker,
        )
        try:
            if not await self._session.open():
                _log.warning("the broker denies the subscription to acknowledgements")
            await self._publish_status()
            for schema in await self._worker.call(self._spool.current_schemas):
                await self._session.publish_schema(schema)
            _log.info("connected to the broker at %s", self._settings.mqtt.address)
            self._connected = True
            self._warned = False
            await self._start_backlog()
            while not self._finishing:
                await self._step()
            async with asyncio.timeout(_FINISH_SECONDS):
                while self._live:
                    await self._publish_live()
                await self._publish_status("stopped")
        except TimeoutError as exc:
            raise MqttError("the broker does not answer") from exc
        finally:
            await self._session.close()

    async def _start_backlog(self) -> None:
        """Rewinds the backlog, after the batches that the last session's broker may have lost."""
        await self._redelivery.connected(self._now())
        oldest_ns = await self._worker.call(self._spool.oldest_unsent_ns)
        waiting_ns = 0 if oldest_ns is None else self._clock.wall_ns() - oldest_ns
        self._rate.connected(self._now(), waiting_ns / 1e9)
        await self._rewind()

    async def _rewind(self) -> None:
        await self._worker.call(self._spool.rewind)
        self._backlog = True

    async def _step(self) -> None:
        """Publishes the most urgent message, or sleeps until one is due."""
        self._session.check()
        now = self._now()
        if self._redelivery.suspected:
            self._redelivery.check_soon(now, idle=self._rate.is_idle(now))
        if self._live and self._live[0][0] <= now:
            await self._publish_live()
        elif self._status_due <= now:
            await self._publish_status()
        elif self._overflowed and not self._backlog:
            self._overflowed = False
            await self._rewind()
        elif self._redelivery.due <= now:
            await self._redeliver(now)
        elif self._backlog and self._rate.due <= now:
            await self._publish_backlog(now)
        else:
            due = [self._status_due, self._redelivery.due]
            due += [self._live[0][0]] if self._live else []
            due += [self._rate.due] if self._backlog else []
            await self._sleep(min(due) - now)

    async def _publish_live(self) -> None:
        await self._session.publish(self._live[0][1])
        self._live.popleft()

    async def _publish_backlog(self, now: float) -> None:
        """Publishes the next backlog message if there is one and the rate allows it."""
        if not self._rate.may_send(now):
            return
        batch = await self._worker.call(partial(self._spool.next_backlog, self._is_live))
        if batch is None:
            self._backlog = False
            return
        await self._session.publish(batch)
        self._rate.sent(batch, now)

    def _is_live(self, batch: SpooledBatch) -> bool:
        """Whether the live queue holds the batch. Called on the spool's thread."""
        name = batch.key, batch.seqs
        return any((other.key, other.seqs) == name for _, other in list(self._live))

    async def _publish_status(self, state: str = "up") -> None:
        self._status_due = self._now() + STATUS_SECONDS
        facts = await self._worker.call(self._spool.facts)
        await self._session.publish_status(state, self._status(facts))

    async def _redeliver(self, now: float) -> None:
        """Returns lost batches to the backlog, and their schemas, which may not be retained, before them."""
        lost = await self._redelivery.find(now)
        if lost:
            self._session.forget_schemas(lost)
            self._rate.lost(lost)
            self._backlog = True

    def _on_ack(self, payload: bytes) -> None:
        try:
            acks = wire.decode_ack(payload)
        except WireError as exc:
            _log.debug("malformed acknowledgement: %s", exc)
            return
        for ack in acks:
            self._worker.piggyback(partial(self._redelivery.acknowledged, ack))
            if self._backlog or self._rate.in_flight:
                self._rate.acknowledged(ack, self._now())
        if self._backlog:
            self._wake.set()

    # -- time

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    async def _pause(self, seconds: float) -> None:
        """Sleeps `seconds`, less when `finish` is called."""
        until = self._loop.time() + seconds
        while not self._finishing and (left := until - self._loop.time()) > 0:
            await self._sleep(left)

    async def _sleep(self, seconds: float) -> None:
        """Sleeps at most `seconds`, until the wake event is set."""
        timer = self._loop.call_later(seconds, self._wake.set)  # cheaper than a task with a time-out
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()


class Session:
    """Publishes batches, schemas and statuses at QoS 1; each call returns when the broker has the message.

    Jobs on `spool` run on `worker`. Every method but `close` raises MqttError when the connection is lost or
    the broker does not answer in time.
    """

    def __init__(
        self,
        arguments: ClientArguments,
        settings: AgentSettings,
        heartbeat: Heartbeat,
        *,
        on_message: Callable[[bytes], None],
        on_lost: Callable[[], None],
        spool: Spool,
        worker: Worker,
    ) -> None:
        self._settings = settings
        self._heartbeat = heartbeat
        self._spool = spool
        self._worker = worker
        self._published_schemas: dict[Key, int] = {}
        self._client = MqttClient(
            arguments,
            f"laggard-{settings.node}@{settings.site}",
            on_message=on_message,
            on_lost=on_lost,
            will=aiomqtt.Will(heartbeat.topic, heartbeat.will(), qos=1, retain=True),
        )

    async def open(self) -> bool:
        """Connects and subscribes to acknowledgements; False when the broker denies the subscription."""
        await self._client.connect()
        return await self._client.subscribe(topics.ack_topic(self._settings.site, self._settings.node))

    async def close(self) -> None:
        """Disconnects in order, so that the broker drops the will."""
        await self._client.close(_CLOSE_SECONDS)

    def check(self) -> None:
        """Raises MqttError when the connection is lost."""
        self._client.check()

    async def publish(self, batch: SpooledBatch) -> None:
        """Publishes a batch, after its schema when this session has not published that one."""
        schema, envelope = batch.schema, batch.envelope
        if schema is not None and self._published_schemas.get(batch.key, -1) < envelope.schema_epoch:
            await self.publish_schema(schema)
        s = self._settings
        topic = topics.data_topic(s.site, s.role, s.node, envelope.source)
        await self._client.publish(topic, wire.encode_envelope(envelope))
        if s.spool.acknowledge == "broker":
            self._worker.piggyback(partial(self._spool.acknowledge, batch.key, (batch.seqs,)))
        else:
            self._worker.piggyback(partial(self._spool.mark_sent, batch))

    async def publish_schema(self, schema: Schema) -> None:
        """Publishes a schema, retained only while its stream is the source's current one."""
        s = self._settings
        current = await self._worker.call(self._spool.current_schemas)
        topic = topics.schema_topic(s.site, s.role, s.node, schema.source)
        retain = any(schema.stream == other.stream for other in current)
        await self._client.publish(topic, wire.encode_schema(schema), retain=retain)
        self._published_schemas[schema.stream, schema.source] = schema.epoch

    def forget_schemas(self, keys: Iterable[Key]) -> None:
        """Publishes the schemas of these streams again before their next batch."""
        for key in keys:
            self._published_schemas.pop(key, None)

    async def publish_status(self, state: str, facts: Mapping[str, Any]) -> None:
        """Publishes the agent's status, retained."""
        await self._client.publish(self._heartbeat.topic, self._heartbeat.next(state, facts), retain=True)
