"""One MQTT session of the agent: topics, retained messages, and a schema before the batches that need it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import aiomqtt

from laggard_agent.settings import AgentSettings
from laggard_agent.spool.segments import Key, SpooledBatch
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.heartbeat import Heartbeat
from laggard_common import wire
from laggard_common.mqtt.client import MqttClient
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.wire import topics
from laggard_common.wire.schema import Schema

_CLOSE_SECONDS = 0.5


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
        schema = batch.schema
        if schema is not None and self._published_schemas.get(batch.key, -1) < batch.epoch:
            await self.publish_schema(schema)
        s = self._settings
        await self._client.publish(topics.data_topic(s.site, s.role, s.node, batch.source), batch.data)
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
