"""From bytes of the broker to batches taken for good, each once, with the schema that reads it.

Everything that comes in is hostile until checked: against its topic, against bounds, against what the same
stream said before. Whatever is not taken is counted by reason and harms nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from laggard_aggregator.alarms.overrides import covering
from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.ingest.acks import Acknowledging
from laggard_aggregator.ingest.batches import CounterBatch, TakenBatch
from laggard_aggregator.ingest.decode import Decoder
from laggard_aggregator.ingest.dedup_state import Source, Stream, extends
from laggard_aggregator.ingest.nodes import NodeBook
from laggard_aggregator.ingest.offheap_queue import Received
from laggard_aggregator.ingest.schema_wait import Held, Waiting
from laggard_aggregator.log.entries import BatchEntry, SchemaEntry
from laggard_aggregator.log.sequence import Ordinals
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.schema import Schema
from laggard_common.wire.topics import Topic, parse_topic

MAX_NODES = 65_536
MAX_SOURCES = 64  # of one node
MAX_NODE_COMPONENTS = 65_536  # over all sources and streams of one node
MAX_SITE_COMPONENTS = 4_000_000
MAX_TOPICS = 262_144  # that are kept as they were parsed
GAP_HORIZON_NS = 3600 * 1_000_000_000
OLDEST_NS = 366 * 86400 * 1_000_000_000
_NODES_AT_ONCE = 1000  # in a snapshot
AHEAD_NS = 86400 * 1_000_000_000


@dataclass(slots=True)
class IntakeCounts:
    """Totals since the start; see `view.Counters`."""

    messages: int = 0
    duplicates: int = 0
    gaps: int = 0
    two_streams: int = 0


class _Noted(NamedTuple):
    """A message of counters that is received, and not decoded yet. `chosen`: its ticks that are new."""

    ordinal: int
    topic: Topic
    envelope: Envelope
    received_ns: int
    schema: Schema
    chosen: BoolArray | None


def _nowhere(_: BatchEntry | SchemaEntry) -> None:
    """Where entries go that nobody keeps."""


class Intake:
    """Takes messages of one site. `ordinals` are shared with whoever closes windows.

    `record` is told of every message that counts, before its effect is seen.
    """

    def __init__(
        self, site: str, ordinals: Ordinals, record: Callable[[BatchEntry | SchemaEntry], None] = _nowhere
    ) -> None:
        self.site = site
        self.record = record
        self.nodes = NodeBook()
        self.counts = IntakeCounts()
        self.wire_errors: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._ordinals = ordinals
        self._decoder = Decoder()
        self._sources: dict[str, dict[str, Source]] = {}  # by node, then by source
        self._topics: dict[str, Topic] = {}
        self._components: Counter[str] = Counter()  # by node
        self._components_in_all = 0
        self._waiting = Waiting()
        self.acks = Acknowledging(site, self._sources)

    @property
    def held(self) -> int:
        """How many messages wait for their schema."""
        return len(self._waiting)

    def receive(self, topic: str, payload: bytes, received_ns: int) -> list[TakenBatch]:
        """The batches that this message lets be taken: none, itself, or those that waited for it."""
        return list(self.receive_all(((topic, payload, received_ns),)))

    def receive_all(self, messages: Sequence[Received]) -> Iterator[TakenBatch]:
        """As `receive` of one message after the other, but that all are noted before the first is decoded."""
        noted: list[_Noted] = []
        for topic, payload, received_ns in messages:
            if topic.split("/", 4)[3:4] == ["ack"]:
                continue  # an aggregator's, under a wide subscription
            self.counts.messages += 1
            try:
                noted += self._receive(topic, payload, received_ns)
            except WireError as exc:
                self.wire_errors[exc.reason] += 1
        yield from self._decoded(noted)

    def knows(self, node: str) -> bool:
        """Whether a schema or a batch of a node of that name was taken."""
        return node in self._sources

    def sweep(self, now_ns: int) -> None:
        """Declares old gaps and lets go of messages whose schema never came; to be called now and then."""
        for sources in self._sources.values():
            for source in sources.values():
                for stream in source.streams.values():
                    if len(stream.received) > 1:
                        self.counts.gaps += stream.received.declare(now_ns, GAP_HORIZON_NS)
        self._let_go(self._waiting.expire(now_ns))

    def forget(self, before_ns: int, target: str = "*") -> list[str]:
        """Forgets the nodes of which nothing came since `before_ns`, and their streams; their names.

        Only those that `target` names.
        """
        covered = covering((target,))
        gone = [node for node in self.nodes.silent_since(before_ns) if covered((node,))]
        for node in gone:
            self.nodes.forget(node)
            self._sources.pop(node, None)
            self._components_in_all -= self._components.pop(node, 0)
            self.acks.forget(node)
        return gone

    def state(self) -> Iterator[dict[str, Any]]:
        """What lasts as plain data, a part of the nodes at a time; messages that wait are not in it."""
        yield {"nodes": self.nodes.state()}
        names = list(self._sources)
        for first in range(0, len(names), _NODES_AT_ONCE):
            some = names[first : first + _NODES_AT_ONCE]
            yield {"sources": [(node, _sources_state(self._sources[node])) for node in some]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over a part of `state()`; all of it was safe. Raises ValueError on what is none."""
        self.nodes.restore(state.get("nodes", ()))
        for node, sources in state.get("sources", ()):
            if node not in self.nodes or len(sources) > MAX_SOURCES or len(self._sources) >= MAX_NODES:
                raise ValueError(f"sources of node {node!r}"[:100])
            self._sources[node] = {str(name): Source.restore(kept) for name, kept in sources}
            self._account(node, sum(source.components for source in self._sources[node].values()))

    def begin_counting(self) -> None:
        """Counts from 0: what a replay went through was counted before."""
        self.counts = IntakeCounts()
        self.wire_errors.clear()
        self.refused.clear()

    def _receive(self, name: str, payload: bytes, received_ns: int) -> list[_Noted]:
        topic = self._topics.get(name) or self._topic(name)
        if topic.site != self.site:
            self.refused["site"] += 1
            return []
        if topic.channel == "schema":
            came = SchemaEntry(self._ordinals.last, received_ns, name, payload)
            return self._schema(topic, wire.decode_schema(payload), came)
        envelope = wire.decode_envelope(payload)
        if envelope.node != topic.node or (topic.channel == "data" and envelope.source != topic.source):
            self.refused["topic"] += 1
        elif topic.channel == "status":
            self._status(topic, envelope, received_ns)
        elif envelope.kind not in {Kind.COUNTERS, Kind.JOINED}:
            self.refused["kind"] += 1
        else:
            return self._counters(Held(topic, envelope, received_ns, name, payload))
        return []

    def _topic(self, name: str) -> Topic:
        """The topic; kept when its node is known, as a million strangers would each leave one here."""
        topic = parse_topic(name)
        if topic.node in self._sources:
            if len(self._topics) >= MAX_TOPICS:
                self._topics.clear()
            self._topics[name] = topic
        return topic

    def _status(self, topic: Topic, envelope: Envelope, received_ns: int) -> None:
        if envelope.kind != Kind.STATE:
            self.refused["kind"] += 1
            return
        status = wire.decode_state(envelope.payload)
        if self._node(topic, received_ns):
            self.nodes.status(topic.node, status, envelope.t0_ns, received_ns)

    def _schema(self, topic: Topic, schema: Schema, came: SchemaEntry) -> list[_Noted]:
        if schema.node != topic.node or schema.source != topic.source:
            self.refused["topic"] += 1
            return []
        source = self._source(topic, came.received_ns)
        if source is None:
            return []
        stream = self._stream(topic, source, schema.stream)
        known = stream.schema
        if known is not None and schema.epoch <= known.epoch:
            return []
        if known is not None and not extends(schema, known):
            self.refused["schema"] += 1
            return []
        grown = len(schema.components) - (len(known.components) if known else 0)
        if (
            self._components[topic.node] + grown > MAX_NODE_COMPONENTS
            or self._components_in_all + grown > MAX_SITE_COMPONENTS
        ):
            self.refused["components"] += 1
            return []
        self.record(came)
        self._account(topic.node, grown)
        stream.schema, stream.schema_message = schema, came.payload
        self.nodes.announced(topic.node, schema.interval_ns, schema.batch_ticks)
        return self._release(source, stream, schema)

    def _counters(self, held: Held) -> list[_Noted]:
        topic, envelope, received_ns = held.topic, held.envelope, held.received_ns
        source = self._source(topic, received_ns)
        if source is None:
            return []
        if envelope.n > 1 and envelope.dt_ns == 0:
            raise WireError("dt", "0")
        last_ns = envelope.t0_ns + (envelope.n - 1) * envelope.dt_ns
        if not received_ns - OLDEST_NS < envelope.t0_ns <= last_ns < received_ns + AHEAD_NS:
            self.refused["time"] += 1
            return []
        stream = self._stream(topic, source, envelope.stream)
        if stream.schema is None or stream.schema.epoch < envelope.schema_epoch:
            self._let_go(self._waiting.add(held))
            self.acks.owe(topic.node)  # or who has no other source hears nothing of us
            return []
        return self._note(held, source, stream, stream.schema)

    def _note(self, held: Held, source: Source, stream: Stream, schema: Schema) -> list[_Noted]:
        """What a message brings that `schema` reads and that did not come before, as received and unsafe.

        Before it is decoded: a message that cannot be read now never can, and must not come again.
        """
        topic, envelope, received_ns = held.topic, held.envelope, held.received_ns
        ticks: tuple[int, ...] = (envelope.n,)
        if envelope.kind == Kind.JOINED:
            ticks, envelope = wire.split_joined(envelope)
        first = envelope.seq
        is_new = [stream.received.add(seq, received_ns) for seq in range(first, first + len(ticks))]
        if not all(is_new):
            self.counts.duplicates += is_new.count(False)
            self.acks.owe(topic.node)  # whoever sends again has not heard
            if not any(is_new):
                return []
        self.counts.gaps += stream.received.give_up()
        self.counts.two_streams += source.alternates(envelope.stream, received_ns)
        ordinal = next(self._ordinals)
        self.record(BatchEntry(ordinal, received_ns, held.name, held.data))
        for seq in compress(range(first, first + len(ticks)), is_new):
            self.acks.wait(ordinal, topic.node, stream, seq)
        chosen = None if all(is_new) else np.repeat(is_new, ticks)
        return [_Noted(ordinal, topic, envelope, received_ns, schema, chosen)]

    def _decoded(self, noted: Sequence[_Noted]) -> Iterator[TakenBatch]:
        """The batches of what was noted; what cannot be read is counted."""
        batches = self._decoder.decode_all([each.envelope for each in noted])
        for (ordinal, topic, envelope, received_ns, schema, chosen), batch in zip(
            noted, batches, strict=True
        ):
            if isinstance(batch, WireError):
                self.wire_errors[batch.reason] += 1
                continue
            if batch.values.shape[2] > len(schema.fields) or _highest(batch) >= len(schema.components):
                self.wire_errors["payload"] += 1  # fields or components that the schema does not have
                continue
            some = batch if chosen is None else batch.only(chosen)
            self.nodes.data(topic.node, int(some.read_ns[-1]), received_ns)
            late = _none_late(some.tick_ns.size)
            stream, seq = envelope.stream, envelope.seq
            yield TakenBatch(ordinal, topic.site, topic.role, stream, seq, received_ns, schema, some, late)

    def _release(self, source: Source, stream: Stream, schema: Schema) -> list[_Noted]:
        """The batches that waited for `schema`."""
        noted: list[_Noted] = []
        for held in self._waiting.release(schema.node, schema.source, schema.stream, schema.epoch):
            try:
                noted += self._note(held, source, stream, schema)
            except WireError as exc:
                self.wire_errors[exc.reason] += 1
        return noted

    def _let_go(self, messages: int) -> None:
        if messages:
            self.refused["schema never came"] += messages

    def _node(self, topic: Topic, now_ns: int) -> bool:
        """Whether the node is known, made so now if there is room for one more."""
        if topic.node not in self.nodes and len(self.nodes) >= MAX_NODES:
            self.refused["nodes"] += 1
            return False
        self.nodes.add(topic.node, topic.role, now_ns)
        return True

    def _source(self, topic: Topic, now_ns: int) -> Source | None:
        """The source, None where the node or the source is one too many."""
        sources = self._sources.get(topic.node)
        if sources is None:
            if not self._node(topic, now_ns):
                return None
            sources = self._sources[topic.node] = {}
        source = sources.get(topic.source)
        if source is None:
            if len(sources) >= MAX_SOURCES:
                self.refused["sources"] += 1
                return None
            source = sources[topic.source] = Source()
        return source

    def _stream(self, topic: Topic, source: Source, stream_id: bytes) -> Stream:
        """The stream; a new one may push out an old one, whose components no longer count then."""
        if stream_id in source.streams:
            return source.streams[stream_id]
        before = source.components
        stream = source.stream(stream_id)
        self._account(topic.node, source.components - before)
        return stream

    def _account(self, node: str, components: int) -> None:
        self._components[node] += components
        self._components_in_all += components


@lru_cache(maxsize=64)
def _none_late(ticks: int) -> BoolArray:
    """The flags of a batch none of whose ticks is late; nobody may write to them."""
    flags = np.zeros(ticks, dtype=np.bool_)
    flags.flags.writeable = False
    return flags


def _sources_state(sources: Mapping[str, Source]) -> list[tuple[str, list[Any]]]:
    return [(name, source.state()) for name, source in sources.items()]


def _highest(batch: CounterBatch) -> int:
    """The highest component index, -1 without components: that of either part, as both ascend."""
    c = batch.indexes.size
    ends = {c - 1, c - batch.idle - 1} - {-1}
    return max((int(batch.indexes[end]) for end in ends), default=-1)
