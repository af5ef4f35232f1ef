"""A source's readings as the messages of an agent that publishes one sample a batch."""

from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import Batcher, EncodedBatch
from laggard_common import wire
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema
from laggard_common.wire.topics import data_topic, schema_topic

Messages = list[tuple[str, bytes]]


class AgentMessages:
    """Of `source` on `node`, through the agent's batcher."""

    def __init__(self, node: str, source: str, interval_ns: int) -> None:
        self._node = node
        self._source = source
        self._interval_ns = interval_ns
        self._batcher = Batcher(source, interval_ns, 1)
        self._known = (-1, -1)
        self._sequence = 0

    def messages(self, tick_ns: int, reading: Reading) -> Messages:
        """Topics and payloads of a reading at a tick."""
        return [message for batch in self._batcher.add(tick_ns, reading) for message in self._of(batch)]

    def _of(self, batch: EncodedBatch) -> Messages:
        known = batch.dictionary
        stream = f"{self._node}:{known.generation}".encode().ljust(STREAM_BYTES, b".")[:STREAM_BYTES]
        made: Messages = []
        if (known.generation, known.epoch) != self._known:
            self._known = (known.generation, known.epoch)
            schema = Schema(
                node=self._node,
                source=self._source,
                stream=stream,
                epoch=known.epoch,
                interval_ns=self._interval_ns,
                batch_ticks=1,
                fields=known.fields,
                components=known.components,
            )
            topic = schema_topic("site", "storage", self._node, self._source)
            made.append((topic, wire.encode_schema(schema)))
        envelope = Envelope(
            kind=Kind.COUNTERS,
            node=self._node,
            source=self._source,
            stream=stream,
            seq=self._sequence,
            schema_epoch=known.epoch,
            t0_ns=batch.t0_ns,
            dt_ns=batch.dt_ns,
            n=batch.n,
            codec=batch.codec,
            payload=batch.payload,
        )
        self._sequence += 1
        topic = data_topic("site", "storage", self._node, self._source)
        return [*made, (topic, wire.encode_envelope(envelope))]
