"""Publishing loop and its sessions: live batches first, then those that the broker lost and the backlog.

A session begins with the status and all current schemas, and publishes a schema before the batches that need
it. A lost connection is logged as one WARNING until the next session, each session as one INFO.
"""

import asyncio
import gc
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import aiomqtt

from laggard_agent.sampling.batcher import EncodedBatch
from laggard_agent.settings import AgentSettings
from laggard_agent.spool.backlog import LEAST_TICKS
from laggard_agent.spool.segments import Key, SpooledBatch
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.broker_check import check_broker, explain
from laggard_agent.transport.pacing import BacklogRate, Backoff
from laggard_agent.transport.redelivery import Redelivery
from laggard_agent.transport.unanswered import Unanswered
from laggard_common import __version__, wire
from laggard_common.clock import Clock
from laggard_common.errors import ConfigError, MqttError, WireError
from laggard_common.mqtt.client import MqttClient
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.wire import topics
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema

_log = logging.getLogger(__name__)

STATUS_SECONDS = 30.0
DOCUMENTS_SHARE = 0.25
"""Share of the spool's space from which documents wait in the outbox."""
_LIVE_BATCHES = 64
_MAX_QUEUED_BATCHES = 1000
_FINISH_SECONDS = 1.0
_CLOSE_SECONDS = 0.5
_FILES_SECONDS = 10.0
_SESSIONS_ENDED = 3
_ENDED_WITHIN_SECONDS = 120.0
_REPORTED_LOSSES = 2


class Publisher:
    """Spools batches in `spool` and publishes them. Its jobs run on `worker`.

    `arguments` reads the TLS and password files, and is called for each connection, so renewed files need no
    restart. `status` returns the status fields other than `state`. Live batches are due `delay_seconds`, the
    node's splay, after they are spooled.
    """

    def __init__(
        self,
        settings: AgentSettings,
        arguments: Callable[[], ClientArguments],
        *,
        spool: Spool,
        worker: Worker,
        status: Callable[[dict[str, int]], Mapping[str, Any]],
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
        self._client: MqttClient
        self._published_schemas: dict[Key, int] = {}  # newest epochs in this session
        self._loop = asyncio.get_running_loop()
        self._data_topic = cache(partial(topics.data_topic, settings.site, settings.role, settings.node))
        self._status_topic = topics.status_topic(settings.site, settings.role, settings.node)
        self._status_seq = 0
        self._run_id = rng.randbytes(STREAM_BYTES)  # stream of the status messages
        self._redelivery = Redelivery(spool, worker, rng)
        self._backoff = Backoff(rng)
        batches_per_second = len(settings.collectors) / (settings.batch_samples * settings.interval_seconds)
        self._rate = BacklogRate(batches_per_second, LEAST_TICKS * settings.interval_seconds, rng)
        self._live: deque[tuple[float, SpooledBatch]] = deque()
        self._wake = asyncio.Event()
        self._finishing = False
        self._unanswered = Unanswered(by_aggregator=settings.spool.acknowledge == "aggregator")
        has_files = settings.mqtt.tls or settings.mqtt.password_file is not None
        self._files = Worker("mqtt files", worker.failed) if has_files else None
        self._broker_check: asyncio.Task[None] | None = None
        self._packets_lost = 0
        self._session_ends: deque[float] = deque(maxlen=_SESSIONS_ENDED)
        self._told_of_ends = False
        self.connected = False
        """Whether a session is open."""
        self._warned = False
        self._status_due = 0.0
        self._has_backlog = False
        self._backlog_grew = False
        """Whether the spool has batches that are not live and were added since the backlog was rewound."""
        self.overflow_samples = 0
        """Samples discarded while the spool's disk hangs."""

    @property
    def unacknowledged_seconds(self) -> float:
        """Seconds for which batches have been published and none was acknowledged by the aggregator."""
        return self._unanswered.seconds(self._now())

    @property
    def acks_seen(self) -> bool:
        """Whether an aggregator ever acknowledged a batch."""
        return self._redelivery.acks_seen

    def submit(self, batches: list[EncodedBatch]) -> None:
        """Spools new batches and queues them as live, from any thread."""
        for batch in batches:
            if self._worker.waiting < _MAX_QUEUED_BATCHES:
                self._worker.submit(partial(self.store, batch))
            else:
                self.overflow_samples += batch.n

    def store(self, new: EncodedBatch) -> None:
        """Spools a batch, on the spool's thread. Without a session it stays in the backlog."""
        batch = self._spool.append(new)
        if batch is None or not self.connected:
            return
        is_first = not self._live
        if len(self._live) >= _LIVE_BATCHES:
            self._live.popleft()
            self._backlog_grew = True
        if self._spool.took_over_late:
            self._spool.took_over_late = False
            self._backlog_grew = True
        self._live.append((self._now() + self._delay_seconds, batch))
        if is_first:  # the loop knows when the others are due
            self._worker.run_on_loop(self._wake.set)

    def store_document(self, document: EncodedBatch) -> bool:
        """Spools a document for the backlog, on the spool's thread.

        False while the spool is kept in memory or a quarter of its space is used: the rest is for samples.
        Nothing is stored then, but where the disk failed just now: the document is sent from memory, too.
        """
        spool = self._spool
        if spool.in_memory:
            spool.try_disk_again()  # a node with few samples has few batches
        if spool.in_memory or spool.queue.pending_bytes() > DOCUMENTS_SHARE * self._settings.spool.max_bytes:
            return False
        spool.append(document)
        self._backlog_grew = True
        self._worker.run_on_loop(self._wake.set)
        return not spool.in_memory

    def publish_status_soon(self) -> None:
        """Lets `run` publish the status after live batches that are due."""
        self._status_due = 0.0
        self._wake.set()

    def finish(self) -> None:
        """Lets `run` publish the live batches and the status `stopped`, and return."""
        self._finishing = True
        self._wake.set()

    def close(self) -> None:
        """Ends the thread that reads the files of [mqtt]."""
        if self._files is not None:
            self._files.end()

    async def run(self) -> None:
        """Keeps a session open until `finish`."""
        while not self._finishing:
            start = self._now()
            try:
                await self._run_session()
            except (MqttError, ConfigError) as exc:
                self._warn_once(exc)
            was_connected, self.connected = self.connected, False
            if was_connected and not self._finishing and not self._unanswered.lost_bytes():
                self._note_end()
            self._unanswered.disconnected()
            self._live.clear()
            gc.collect()  # clients and TLS contexts are cycles
            if not self._finishing:
                if was_connected:
                    self._backoff.ended(self._now() - start, good=self._redelivery.acks_in_connection)
                await self._pause(self._backoff.pause_seconds())

    def _warn_once(self, exc: Exception) -> None:
        reason = str(exc)  # the exception itself keeps the socket of a failed TLS handshake
        size = self._unanswered.lost_bytes()
        if size:
            reason += f" while a packet of {size} bytes was sent"
            self._packets_lost += 1
            if self._packets_lost == _REPORTED_LOSSES and not self._finishing:
                _log.warning(
                    "the broker at %s ends each connection on a packet of %d bytes: is its limit lower"
                    " (mosquitto: max_packet_size)? Lower batch_samples makes smaller packets",
                    self._settings.mqtt.address,
                    size,
                )
        if self._warned or self._finishing:
            _log.debug("no connection to the broker: %s", reason)
            return
        self._warned = True
        address = self._settings.mqtt.address
        _log.warning("no connection to the broker at %s: %s; batches wait in the spool", address, reason)

    def _note_end(self) -> None:
        """Says once that one session after another ends: the broker keeps one client of a name."""
        self._session_ends.append(self._now())
        within = self._session_ends[-1] - self._session_ends[0]
        if len(self._session_ends) < _SESSIONS_ENDED or within > _ENDED_WITHIN_SECONDS or self._told_of_ends:
            return
        self._told_of_ends = True
        _log.warning(
            "%d sessions with the broker at %s ended within %.0f s: does an agent on another host have the"
            " name %s, too? A broker keeps one client of a name",
            _SESSIONS_ENDED,
            self._settings.mqtt.address,
            within,
            self._settings.node,
        )

    # -- one session

    async def _run_session(self) -> None:
        """Publishes over one session until `finish`. Raises MqttError, and ConfigError for a file."""
        s = self._settings
        will = self._status_message("down", {}, seq=0)
        self._client = MqttClient(
            await self._read_files(),
            f"laggard-{s.node}@{s.site}",
            on_message=self._on_ack,
            on_lost=self._wake.set,
            will=aiomqtt.Will(self._status_topic, will, qos=1, retain=s.mqtt.retain),
        )
        self._published_schemas = {}
        try:
            await self._client.connect()
            if not await self._client.subscribe(topics.ack_topic(s.site, s.node)):
                _log.warning("the broker denies the subscription to acknowledgements")
            await self._publish_status()
            for schema in await self._worker.call(self._spool.current_schemas):
                await self._publish_schema(schema)
            _log.info("connected to the broker at %s", s.mqtt.address)
            self.connected = True
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
            await self._client.close(_CLOSE_SECONDS)  # in order, so that the broker drops the will

    async def _read_files(self) -> ClientArguments:
        """The arguments of a connection. Raises ConfigError, and MqttError while the files do not answer."""
        if self._files is None:
            return self._arguments()
        if self._files.busy_seconds or self._files.waiting:
            raise MqttError("the files of [mqtt] do not answer")
        try:
            async with asyncio.timeout(_FILES_SECONDS):
                return await self._files.call(self._arguments)
        except TimeoutError as exc:
            raise MqttError("the files of [mqtt] do not answer") from exc

    async def _start_backlog(self) -> None:
        """Rewinds the backlog, after the batches that the last session's broker may have lost."""
        await self._redelivery.connected(self._now())
        oldest_ns = await self._worker.call(self._spool.oldest_unsent_ns)
        waiting_ns = 0 if oldest_ns is None else self._clock.wall_ns() - oldest_ns
        self._rate.connected(self._now(), waiting_ns / 1e9)
        await self._rewind()

    async def _rewind(self) -> None:
        await self._worker.call(self._spool.rewind)
        self._has_backlog = True

    async def _step(self) -> None:
        """Publishes the most urgent message, or sleeps until one is due."""
        self._client.check()
        now = self._now()
        if self._unanswered.is_due(now):
            self._broker_check = asyncio.create_task(self._report_unanswered(now), name="check the broker")
        if self._redelivery.suspected:
            self._redelivery.check_soon(now, idle=self._rate.is_idle(now))
        if self._live and self._live[0][0] <= now:
            await self._publish_live()
        elif self._status_due <= now:
            await self._publish_status()
        elif self._backlog_grew and not self._has_backlog:
            self._backlog_grew = False
            await self._rewind()
        elif self._redelivery.due <= now:
            await self._redeliver(now)
        elif self._has_backlog and self._rate.due <= now:
            await self._publish_backlog(now)
        else:
            due = [self._status_due, self._redelivery.due]
            due += [self._live[0][0]] if self._live else []
            due += [self._rate.due] if self._has_backlog else []
            await self._sleep(min(due) - now)

    async def _publish_live(self) -> None:
        """Publishes the live batches together, also those that are due a little later than the first.

        One after the other, each wakes the loop several times.
        """
        batches = [batch for _, batch in list(self._live)]
        for batch in batches:
            await self._publish_schema_of(batch)
        results = await asyncio.gather(*map(self._publish_batch, batches), return_exceptions=True)
        for failure in filter(None, results):
            raise failure
        for _ in batches:
            self._live.popleft()

    async def _publish_backlog(self, now: float) -> None:
        """Publishes the next backlog message if there is one and the rate allows it."""
        if not self._rate.may_send(now):
            return
        batch = await self._worker.call(partial(self._spool.next_backlog, self._is_live))
        if batch is None:
            self._has_backlog = False
            return
        await self._publish(batch)
        self._rate.sent(batch, now)

    def _is_live(self, batch: SpooledBatch) -> bool:
        """Whether the live queue holds the batch. Called on the spool's thread."""
        name = batch.key, batch.seqs
        return any((other.key, other.seqs) == name for _, other in list(self._live))

    async def _publish_status(self, state: str = "up") -> None:
        self._status_due = self._now() + STATUS_SECONDS
        facts = self._status(await self._worker.call(self._spool.status))
        self._status_seq += 1
        message = self._status_message(state, facts, self._status_seq)
        await self._client.publish(self._status_topic, message, retain=self._settings.mqtt.retain)

    async def _send(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publishes a batch or schema, whose size may be too large for the broker."""
        size = len(topic) + len(payload)
        self._unanswered.sending(size)
        await self._client.publish(topic, payload, retain=retain)
        self._unanswered.sent(size)

    async def _report_unanswered(self, now: float) -> None:
        """Logs the answer of the broker to such messages."""
        seconds = self._unanswered.seconds(now)
        size = self._unanswered.largest_bytes
        arguments = await self._read_files()
        findings = await asyncio.to_thread(check_broker, self._settings, arguments, size)
        _log.warning(
            "the aggregator has acknowledged nothing for %.0f s: %s", seconds, explain(findings, size)
        )

    def _status_message(self, state: str, facts: Mapping[str, Any], seq: int) -> bytes:
        """A status message, or the last will, which the broker publishes without a DISCONNECT."""
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

    async def _publish(self, batch: SpooledBatch) -> None:
        """Publishes a batch, after its schema when this session has not published that one."""
        await self._publish_schema_of(batch)
        await self._publish_batch(batch)

    async def _publish_schema_of(self, batch: SpooledBatch) -> None:
        schema = batch.schema
        if schema is not None and self._published_schemas.get(batch.key, -1) < batch.envelope.schema_epoch:
            await self._publish_schema(schema)

    async def _publish_batch(self, batch: SpooledBatch) -> None:
        envelope = self._own(batch.envelope)
        await self._send(self._data_topic(envelope.source), wire.encode_envelope(envelope))
        self._unanswered.published(self._now())
        if self._settings.spool.acknowledge == "broker":
            self._worker.piggyback(partial(self._spool.acknowledge, batch.key, (batch.seqs,)))
        else:
            self._worker.piggyback(partial(self._spool.mark_sent, batch))

    async def _publish_schema(self, schema: Schema) -> None:
        """Publishes a schema, retained only while its stream is the source's current one."""
        s = self._settings
        current = await self._worker.call(self._spool.current_schemas)
        topic = topics.schema_topic(s.site, s.role, s.node, schema.source)
        retain = s.mqtt.retain and any(schema.stream == other.stream for other in current)
        own = schema if schema.node == s.node else replace(schema, node=s.node)
        await self._send(topic, wire.encode_schema(own), retain=retain)
        self._published_schemas[schema.stream, schema.source] = schema.epoch

    def _own(self, envelope: wire.Envelope) -> wire.Envelope:
        """The envelope under the node's present name; it may have been spooled under an earlier one."""
        node = self._settings.node
        return envelope if envelope.node == node else replace(envelope, node=node)

    async def _redeliver(self, now: float) -> None:
        """Returns lost batches to the backlog, and their schemas, which may not be retained, before them."""
        lost = await self._redelivery.find(now)
        if lost:
            for key in lost:
                self._published_schemas.pop(key, None)
            self._rate.lost(lost)
            self._has_backlog = True

    def _on_ack(self, payload: bytes) -> None:
        try:
            acks = wire.decode_ack(payload)
        except WireError as exc:
            _log.debug("malformed acknowledgement: %s", exc)
            return
        if any(ack.ranges for ack in acks):
            self._packets_lost = 0
            if self._unanswered.acknowledged():
                _log.info("the aggregator acknowledges again")
        for ack in acks:
            self._worker.piggyback(partial(self._redelivery.acknowledged, ack))
            if self._has_backlog or self._rate.in_flight:
                self._rate.acknowledged(ack, self._now())
        if self._has_backlog:
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
        # Exact on the agent's loop, and cheaper than a task with a time-out.
        timer = self._loop.call_at(self._loop.time() + seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()
