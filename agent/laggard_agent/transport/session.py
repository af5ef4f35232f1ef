"""One connection to the broker, and what the agent says over it.

One publish is in flight at a time, and a schema is published before the first batch that needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from laggard_agent.settings import AgentSettings
from laggard_agent.spool.segments import Key, Stored
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Job, Worker
from laggard_agent.transport.heartbeat import StatusMessages
from laggard_common import wire
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.mqtt_connection import Connection, Hear
from laggard_common.mqtt_packets import Will
from laggard_common.wire import topics
from laggard_common.wire.limits import MAX_ACK_BYTES
from laggard_common.wire.schema import Schema

T = TypeVar("T")

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_LAST_ANSWER_SECONDS = 1.0
_LEAVE_SECONDS = 0.5
_KEEPALIVE_SECONDS = 30
_MOST_PACKET_BYTES = MAX_ACK_BYTES + 1024  # an acknowledgement and its topic


class Session:
    """Publishes batches, schemas and statuses over `connection`. Made by `open`.

    All that happens to `spool` happens on `worker`. Everything raises MqttError when the connection is lost,
    also because the broker does not answer; `finishing` says whether to wait for that but a moment.
    """

    def __init__(
        self,
        connection: Connection,
        settings: AgentSettings,
        statuses: StatusMessages,
        *,
        spool: Spool,
        worker: Worker,
        finishing: Callable[[], bool],
    ) -> None:
        self.connection = connection
        self._settings = settings
        self._statuses = statuses
        self._spool = spool
        self._worker = worker
        self._finishing = finishing
        self._loop = asyncio.get_running_loop()
        self._in_flight: tuple[asyncio.Future[None], Job | None] | None = None
        self._published_schemas: dict[Key, int] = {}

    @classmethod
    async def open(
        cls,
        arguments: ClientArguments,
        settings: AgentSettings,
        statuses: StatusMessages,
        *,
        hear: Hear,
        spool: Spool,
        worker: Worker,
        finishing: Callable[[], bool],
    ) -> Self:
        """A session with the broker that `arguments` name. Raises MqttError and OSError."""
        connection = await Connection.open(
            arguments,
            f"laggard-{settings.node}@{settings.site}",
            hear=hear,
            most_bytes=_MOST_PACKET_BYTES,
            keepalive_seconds=_KEEPALIVE_SECONDS,
            timeout_seconds=_CONNECT_SECONDS,
            will=Will(statuses.topic, statuses.will()),
        )
        return cls(connection, settings, statuses, spool=spool, worker=worker, finishing=finishing)

    async def close(self) -> None:
        """Says goodbye, so that the will is not published."""
        await self.connection.close(_LEAVE_SECONDS)

    async def subscribe(self) -> bool:
        """Asks for the acknowledgements; False when the broker does not let us have them."""
        acknowledgements = topics.ack_topic(self._settings.site, self._settings.node)
        return not await self._answered(self.connection.subscribe([acknowledgements]), _ANSWER_SECONDS)

    async def publish(self, stored: Stored) -> None:
        """Publishes a batch, after its schema."""
        if self._published_schemas.get(stored.key, -1) < stored.epoch:
            schema = await self._worker.call(partial(self._spool.schema, stored.key))
            if schema is not None:
                await self.publish_schema(schema)
        s = self._settings
        topic = topics.data_topic(s.site, s.role, s.node, stored.source)
        if s.spool.acknowledge == "broker":
            taken = partial(self._spool.acknowledge, stored.key, (stored.seqs,))
            await self._send(topic, stored.data, then=taken)
        else:
            await self._send(topic, stored.data, then=partial(self._spool.mark_sent, stored))

    async def publish_schema(self, schema: Schema) -> None:
        """Retained, unless a newer stream of the source is in use: then only for who listens now."""
        s = self._settings
        current = await self._worker.call(self._spool.current_schemas)
        topic = topics.schema_topic(s.site, s.role, s.node, schema.source)
        retain = any(schema.stream == other.stream for other in current)
        await self._send(topic, wire.encode_schema(schema), retain=retain)
        self._published_schemas[schema.stream, schema.source] = schema.epoch

    def publish_schemas_again(self, keys: Iterable[Key]) -> None:
        """The schemas of these streams go out once more before the next batch."""
        for key in keys:
            self._published_schemas.pop(key, None)

    async def publish_status(self, state: str, facts: Mapping[str, Any]) -> None:
        """Publishes how the agent is, retained."""
        await self._send(self._statuses.topic, self._statuses.next(state, facts), retain=True)

    async def settle(self) -> None:
        """Waits until the broker has what was published last."""
        if self._in_flight is None:
            return
        taken, then = self._in_flight
        await self._answered(taken, _LAST_ANSWER_SECONDS if self._finishing() else _ANSWER_SECONDS)
        self._in_flight = None
        if then is not None:
            self._worker.defer(then)

    async def _send(
        self, topic: str, payload: bytes, *, retain: bool = False, then: Job | None = None
    ) -> None:
        """Publishes, once the broker has what was published before. `then` is done when it has this."""
        await self.settle()
        self._in_flight = self.connection.publish(topic, payload, retain=retain), then

    async def _answered(self, answer: Awaitable[T], seconds: float) -> T:
        """What the broker answers. Raises MqttError, also when it says nothing for so long."""
        give_up = partial(self.connection.abort, "the broker does not answer")
        timer = self._loop.call_later(seconds, give_up)
        try:
            return await answer
        finally:
            timer.cancel()
