"""Admission: messages of the broker in; batches out, each once, with its schema.

Every message is hostile until checked against its topic, the limits, and the earlier messages of its stream.
A rejected message is counted by reason: in `wire_errors` if it is malformed, else in `refused`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.groups.patterns import covering
from laggard_aggregator.ingest.batches import Accepted, Batch, Document, Message
from laggard_aggregator.ingest.decode import Decoder, document_bytes, max_value_bytes
from laggard_aggregator.ingest.dedup_state import (
    MAX_NODE_STREAMS,
    Acks,
    SourceStreams,
    StreamState,
    extends,
    sharing,
)
from laggard_aggregator.ingest.nodes import Nodes
from laggard_aggregator.ingest.schema_limit import SchemaLimit
from laggard_aggregator.ingest.schema_wait import SchemaWait
from laggard_aggregator.log.entries import BatchEntry, LogEntry, LogSequence, SchemaEntry
from laggard_aggregator.windows.counter_block import Block
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.schema import Schema
from laggard_common.wire.topics import Topic, parse_topic

SCRAPED = b"prometheus"
"""First bytes of the streams of scraped counters, whose times are not their nodes'."""

MAX_NODES = 65_536
MAX_SOURCES = 64  # of one node
MAX_NODE_COMPONENTS = 65_536  # over all sources and streams of one node
MAX_SITE_COMPONENTS = 4_000_000
MAX_TOPICS = 262_144  # in the cache of parsed topics
GAP_HORIZON_NS = 3600 * 1_000_000_000
OLDEST_NS = 366 * 86400 * 1_000_000_000
AHEAD_NS = 86400 * 1_000_000_000
"""Ticks older than OLDEST_NS, or further than this ahead of their reception, are rejected."""
MAX_NODE_DOCUMENT_BYTES = 8 * 1024**2
MAX_DOCUMENT_BYTES = 64 * 1024**2
"""Content of documents that wait to be archived: of one node, of all. Further ones are sent again."""
_NODES_AT_ONCE = 1000  # in a snapshot


@dataclass(slots=True)
class AdmissionCounts:
    """Totals since the start; see `status.view.Counters`. `unaccepted`: batches judged but not accepted, and
    documents.
    """

    messages: int = 0
    documents: int = 0
    duplicates: int = 0
    gaps: int = 0
    two_streams: int = 0
    unaccepted: int = 0


@dataclass(slots=True)
class Room:
    """Free space of the archive's queue, claimed for each batch and document before it is accepted.

    `documents`: bytes of the documents that wait, by node.
    """

    batches: int
    value_bytes: int
    documents: Counter[str] = field(default_factory=Counter)

    def claim(self, value_bytes: int) -> bool:
        """Claims space for a batch; False where there is not enough."""
        if not self.batches or value_bytes > self.value_bytes:
            return False
        self.batches -= 1
        self.value_bytes -= value_bytes
        return True

    def claim_document(self, node: str, value_bytes: int) -> bool:
        """The same for a document, which has less space, so that samples never wait for documents."""
        if (
            self.documents[node] + value_bytes > MAX_NODE_DOCUMENT_BYTES
            or self.documents.total() + value_bytes > MAX_DOCUMENT_BYTES
            or not self.claim(value_bytes)
        ):
            return False
        self.documents[node] += value_bytes
        return True


NO_ROOM = Room(0, 0)


class _Admitted(NamedTuple):
    """A batch before it is decoded, or a document, which has no schema.

    `new_ticks`: which ticks are no duplicates, None for all. `schema_bytes`: as in Batch.
    """

    entry: BatchEntry
    topic: Topic
    envelope: Envelope
    schema: Schema | None = None
    new_ticks: BoolArray | None = None
    schema_bytes: int = 0


class Admission:
    """Admits messages of one site. `sequence` is shared with window closes.

    `record` is called with every journal entry before its effect is visible.
    """

    def __init__(self, site: str, sequence: LogSequence) -> None:
        self.site = site
        self.record: Callable[[LogEntry], None] = lambda _: None
        self.nodes = Nodes()
        self.counts = AdmissionCounts()
        self.wire_errors: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.nodes_twice: set[str] = set()
        """Nodes with two streams of a source at once: two agents of one name, or a copied spool."""
        self._sequence = sequence
        self._room: Room | None = None
        self._decoder = Decoder()
        self._sources: dict[str, dict[str, SourceStreams]] = {}  # by node, then by source
        self._topics: dict[str, Topic] = {}
        self._components: Counter[str] = Counter()  # by node
        self._components_in_all = 0
        self._waiting = SchemaWait()
        self._restored: list[Message] = []
        self._limit = SchemaLimit()
        self._replayed = False
        self.acks = Acks(site, self._sources)

    @property
    def held(self) -> int:
        """Number of messages that wait for their schema."""
        return self._waiting.count

    def receive(
        self, messages: Sequence[Message], room: Room | None = None, *, replayed: bool = False
    ) -> Iterator[Accepted]:
        """Admits all messages, then decodes and yields their batches, and those that waited for a schema.

        A batch beyond `room` is not accepted: it is yielded, but not marked as received nor to be
        acknowledged, so that its agent sends it again. A document beyond it is not yielded either. None: no
        limit. `replayed`: from the journal, so that no schema waits.
        """
        self._room, self._replayed = room, replayed
        admitted: list[_Admitted] = []
        for waited in self._limit.due(messages[0][2]) if messages and not replayed else ():
            admitted += self._receive(waited, self._admit_late_schema)
        for message in messages:
            if message[0].split("/", 4)[3:4] == ["ack"]:
                continue  # an aggregator's, under a wide subscription
            self.counts.messages += 1
            admitted += self._receive(message)
        yield from self._decode(admitted)

    def pop_restored(self) -> list[Message]:
        """The messages that waited for their schema in the snapshot, once.

        They are no part of a replay: to be received after it.
        """
        restored, self._restored = self._restored, []
        return restored

    def drop_held(self) -> bool:
        """Drops the messages that wait for a schema; whether there was any."""
        return self._waiting.drop_all() > 0

    def mark_received(self, entry: BatchEntry) -> None:
        """Marks the batches of a journaled message as received: the archive has them."""
        topic, envelope = parse_topic(entry.topic), wire.decode_envelope(entry.payload)
        source = self._source(topic, entry.received_ns)
        stream = self._stream(topic, source, envelope.stream, entry.received_ns)
        if stream is None:
            return
        batches = len(wire.split_joined(envelope)[0]) if envelope.kind == Kind.JOINED else 1
        seqs = range(envelope.seq, envelope.seq + batches)
        stream.received.add_all(seqs, entry.received_ns)
        stream.heard_ns = entry.received_ns
        self.acks.accept(entry.lsn, topic.node, stream, seqs)

    def is_known(self, node: str) -> bool:
        """Whether a schema or a batch of the node was accepted."""
        return node in self._sources

    def stream_of(self, node: str, source: str, stream_id: bytes) -> StreamState | None:
        """The state of a stream, None for one without a schema or batch."""
        streams = self._sources.get(node, {}).get(source)
        return None if streams is None else streams.streams.get(stream_id)

    def newest_seq(self, source: str, stream_id: bytes) -> int | None:
        """The highest sequence number of a stream over all nodes, None for none."""
        states = (self.stream_of(node, source, stream_id) for node in self._sources)
        ranges = [state.received.as_tuples() for state in states if state is not None]
        return max((known[-1][1] for known in ranges if known), default=None)

    def sweep(self, now_ns: int) -> None:
        """Declares old gaps and drops messages whose schema never came; to be called periodically."""
        for sources in self._sources.values():
            for source in sources.values():
                for stream in source.streams.values():
                    if len(stream.received) > 1:
                        self.counts.gaps += stream.received.declare(now_ns, GAP_HORIZON_NS)
        self._count_dropped(self._waiting.expire(now_ns))
        self._limit.sweep(now_ns)

    def is_pending(self, before_ns: int, target: str = "*") -> bool:
        """Whether a node that `forget` would drop has a batch that is not durable yet.

        Its agent would send that batch again, and without the node's streams it would be accepted twice.
        """
        return any(
            stream.pending
            for node in self._silent(before_ns, target)
            for source in self._sources.get(node, {}).values()
            for stream in source.streams.values()
        )

    def forget(self, before_ns: int, target: str = "*") -> list[str]:
        """Drops the nodes named by `target` without a message since `before_ns`; returns their names."""
        gone = self._silent(before_ns, target)
        for node in gone:
            self.nodes.forget(node)
            self.nodes_twice.discard(node)
            self._sources.pop(node, None)
            self._components_in_all -= self._components.pop(node, 0)
            self.acks.forget(node)
        if gone:
            self._topics.clear()
        return gone

    def _silent(self, before_ns: int, target: str) -> list[str]:
        covered = covering((target,))
        return [node for node in self.nodes.silent_since(before_ns) if covered((node,))]

    def state(self) -> Iterator[dict[str, Any]]:
        """Nodes, streams and messages that wait for a schema as plain data, in parts."""
        yield {"nodes": self.nodes.state()}
        nodes = list(self._sources.items())
        for first in range(0, len(nodes), _NODES_AT_ONCE):
            part = nodes[first : first + _NODES_AT_ONCE]
            yield {"sources": [(node, [(name, s.state()) for name, s in own.items()]) for node, own in part]}
        for message in self._waiting.messages():
            yield {"waiting": message}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a part of `state()`; all of it is durable. Raises ValueError when it is malformed."""
        self.nodes.restore(state.get("nodes", ()))
        for node, sources in state.get("sources", ()):
            if node not in self.nodes or len(sources) > MAX_SOURCES or len(self._sources) >= MAX_NODES:
                raise ValueError(f"sources of node {node!r}"[:100])
            self._sources[node] = {str(name): SourceStreams.restore(kept) for name, kept in sources}
            self._account(node, sum(source.components for source in self._sources[node].values()))
        if "waiting" in state:
            name, payload, received_ns = state["waiting"]
            parse_topic(name)
            self._restored.append((name, bytes(payload), int(received_ns)))

    def start_counting(self) -> None:
        """Resets all counters."""
        self.counts = AdmissionCounts()
        self.nodes_twice.clear()
        self.wire_errors.clear()
        self.refused.clear()

    def _admit_late_schema(self, message: Message) -> list[_Admitted]:
        return self._admit_schema(parse_topic(message[0]), message)

    def _receive(
        self, message: Message, admit: Callable[[Message], list[_Admitted]] | None = None
    ) -> list[_Admitted]:
        """The batches that `message` admits: its own, or those that waited for it."""
        try:
            return (admit or self._admit)(message)
        except WireError as exc:
            self.wire_errors[exc.reason] += 1
            return []

    def _admit(self, message: Message) -> list[_Admitted]:
        name, payload, received_ns = message
        topic = self._topics.get(name) or self._topic(name)
        if topic.site != self.site:
            self.refused["site"] += 1
            return []
        if topic.channel == "schema":
            return self._admit_schema(topic, message) if self._is_wanted(topic, message) else []
        envelope = wire.decode_envelope(payload)
        if envelope.node != topic.node or (topic.channel == "data" and envelope.source != topic.source):
            self.refused["topic"] += 1
        elif topic.channel == "status":
            self._take_status(topic, envelope, received_ns)
        elif envelope.kind == Kind.EVENTS:
            return self._admit_document(topic, envelope, message)
        elif envelope.kind == Kind.STATE:
            self.refused["kind"] += 1
        else:
            return self._admit_counters(topic, envelope, message)
        return []

    def _topic(self, name: str) -> Topic:
        """The parsed topic; cached where its node is known, so that unknown ones take no memory."""
        topic = parse_topic(name)
        if topic.node in self._sources:
            if len(self._topics) >= MAX_TOPICS:
                self._topics.clear()
            self._topics[name] = topic
        return topic

    def _take_status(self, topic: Topic, envelope: Envelope, received_ns: int) -> None:
        if envelope.kind != Kind.STATE:
            self.refused["kind"] += 1
            return
        status = wire.decode_state(envelope.payload)
        if self._add_node(topic, received_ns):
            self.nodes.status(topic.node, status, envelope.t0_ns, received_ns)

    def _is_wanted(self, topic: Topic, message: Message) -> bool:
        """Whether a schema is new and is to be read now, by its first bytes. Raises WireError."""
        node, source, stream_id, epoch = wire.schema_head(message[1])
        if (node, source) != (topic.node, topic.source):
            self.refused["topic"] += 1
            return False
        streams = self._sources.get(node, {}).get(source)
        stream = None if streams is None else streams.streams.get(stream_id)
        if stream is not None and stream.schema is not None and epoch <= stream.schema.epoch:
            return False
        if self._replayed or self._limit.admits((node, source, stream_id), message):
            return True
        self.refused["schemas"] += 1
        return False

    def _admit_schema(self, topic: Topic, message: Message) -> list[_Admitted]:
        name, payload, received_ns = message
        schema = wire.decode_schema(payload)
        entry = SchemaEntry(self._sequence.last, received_ns, name, payload)
        source = self._source(topic, received_ns)
        stream = self._stream(topic, source, schema.stream, entry.received_ns)
        if stream is None:
            return []
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
        self.record(entry)
        self._account(topic.node, grown)
        schema, own_bytes = sharing(schema, known)
        stream.schema, stream.schema_message = schema, entry.payload
        stream.schema_bytes += own_bytes
        stream.heard_ns = entry.received_ns
        self.nodes.announced(topic.node, schema.interval_ns, schema.batch_ticks)
        waited = self._waiting.release((topic.node, topic.source, schema.stream), schema.epoch)
        return [admitted for message in waited for admitted in self._receive(message)]

    def _admit_counters(self, topic: Topic, envelope: Envelope, message: Message) -> list[_Admitted]:
        received_ns = message[2]
        source = self._source(topic, received_ns)
        if source is None or not self._is_in_time(topic.node, envelope, received_ns):
            return []
        stream = self._stream(topic, source, envelope.stream, received_ns)
        if stream is None:
            return []
        if stream.schema is None or stream.schema.epoch < envelope.schema_epoch:
            key = (topic.node, topic.source, envelope.stream)
            self._count_dropped(self._waiting.add(key, envelope.schema_epoch, message))
            self.acks.request_ack(topic.node)  # a node without any other source gets no ack otherwise
            return []
        # Marked as received before it is decoded: a malformed payload stays malformed, and is not sent again.
        schema = stream.schema
        ticks: tuple[int, ...] = (envelope.n,)
        if envelope.kind == Kind.JOINED:
            ticks, envelope = wire.split_joined(envelope)
        seqs = range(envelope.seq, envelope.seq + len(ticks))
        accepted = self._room is None or self._room.claim(
            max_value_bytes(envelope, schema) + stream.schema_bytes
        )
        if accepted:
            is_new = stream.received.add_all(seqs, received_ns)
        else:
            is_new = [seq not in stream.received for seq in seqs]
        whole = all(is_new)
        if not whole:
            self.counts.duplicates += is_new.count(False)
            self.acks.request_ack(topic.node)  # a node that sends again missed the acknowledgement
            if not any(is_new):
                return []
        self.counts.gaps += stream.received.give_up()
        if source.alternates(envelope.stream, _last_ns(envelope), received_ns):
            self.counts.two_streams += 1
            self.nodes_twice.add(topic.node)
        self.counts.unaccepted += not accepted
        self._sequence.last += 1
        entry = BatchEntry(self._sequence.last, received_ns, message[0], message[1], accepted)
        self.record(entry)
        stream.heard_ns = received_ns
        if accepted:
            for run in [seqs] if whole else [range(seq, seq + 1) for seq in compress(seqs, is_new)]:
                self.acks.accept(entry.lsn, topic.node, stream, run)
        own_bytes, stream.schema_bytes = (stream.schema_bytes, 0) if accepted else (0, stream.schema_bytes)
        new_ticks = None if whole else np.repeat(is_new, ticks)
        return [_Admitted(entry, topic, envelope, schema, new_ticks, own_bytes)]

    def _is_in_time(self, node: str, envelope: Envelope, received_ns: int) -> bool:
        """Whether the ticks of a batch are of a time that is accepted. Raises WireError."""
        if envelope.n > 1 and envelope.dt_ns == 0:
            raise WireError("dt", "0")
        last_ns = _last_ns(envelope)
        if received_ns - OLDEST_NS < envelope.t0_ns <= last_ns < received_ns + AHEAD_NS:
            return True
        self.refused["time"] += 1
        self.nodes.heard(node, last_ns, received_ns)
        return False

    def _admit_document(self, topic: Topic, envelope: Envelope, message: Message) -> list[_Admitted]:
        received_ns = message[2]
        size = document_bytes(envelope)
        source = self._source(topic, received_ns)
        stream = self._stream(topic, source, envelope.stream, received_ns)
        if stream is None:
            return []
        seqs = range(envelope.seq, envelope.seq + 1)
        if envelope.seq in stream.received:
            self.counts.duplicates += 1
            self.acks.request_ack(topic.node)
            return []
        if self._room is not None and not self._room.claim_document(topic.node, size):
            self.counts.unaccepted += 1
            return []
        stream.received.add_all(seqs, received_ns)
        stream.heard_ns = received_ns
        self.counts.gaps += stream.received.give_up()
        self.counts.documents += 1
        self._sequence.last += 1
        entry = BatchEntry(self._sequence.last, received_ns, message[0], message[1])
        self.record(entry)
        self.acks.accept(entry.lsn, topic.node, stream, seqs)
        return [_Admitted(entry, topic, envelope)]

    def _decode(self, admitted: Sequence[_Admitted]) -> Iterator[Accepted]:
        """The documents and the decoded batches, in order; malformed payloads of batches are counted."""
        decoded = self._decoder.decode_all([m.envelope for m in admitted if m.schema is not None])
        for entry, topic, envelope, schema, new_ticks, schema_bytes in admitted:
            if schema is None:
                size = document_bytes(envelope)
                name = (topic.site, topic.role, topic.node, envelope.source)
                yield Document(entry.lsn, *name, entry.received_ns, envelope.payload, size)
                continue
            counters = next(decoded)
            if isinstance(counters, WireError):
                self.wire_errors[counters.reason] += 1
                continue
            if counters.values.shape[2] > len(schema.fields) or _highest(counters) >= len(schema.components):
                self.wire_errors["payload"] += 1  # fields or components that the schema does not have
                continue
            new = counters if new_ticks is None else counters.only(new_ticks)
            scraped = envelope.stream.startswith(SCRAPED)
            self.nodes.data(topic.node, int(new.read_ns[-1]), entry.received_ns, scraped=scraped)
            yield Batch(
                lsn=entry.lsn,
                site=topic.site,
                role=topic.role,
                stream=envelope.stream,
                seq=envelope.seq,
                received_ns=entry.received_ns,
                schema=schema,
                counters=new,
                late=_none_late(new.tick_ns.size),
                accepted=entry.accepted,
                schema_bytes=schema_bytes,
            )

    def _count_dropped(self, messages: int) -> None:
        if messages:
            self.refused["schema_missing"] += messages

    def _add_node(self, topic: Topic, now_ns: int) -> bool:
        """Adds the node if it is new; False where there are MAX_NODES."""
        if topic.node not in self.nodes and len(self.nodes) >= MAX_NODES:
            self.refused["nodes"] += 1
            return False
        self.nodes.add(topic.node, topic.role, now_ns)
        return True

    def _source(self, topic: Topic, now_ns: int) -> SourceStreams | None:
        """The source, created if new; None at a limit."""
        sources = self._sources.get(topic.node)
        if sources is None:
            if not self._add_node(topic, now_ns):
                return None
            sources = self._sources[topic.node] = {}
        source = sources.get(topic.source)
        if source is None:
            if len(sources) >= MAX_SOURCES:
                self.refused["sources"] += 1
                return None
            source = sources[topic.source] = SourceStreams()
        return source

    def _stream(
        self, topic: Topic, source: SourceStreams | None, stream_id: bytes, now_ns: int
    ) -> StreamState | None:
        """The stream, created if new, for which silent ones are dropped; None at the limit."""
        if source is None:
            return None
        stream = source.streams.get(stream_id)
        if stream is not None:
            return stream
        before = source.components
        source.drop_silent(now_ns)
        self._account(topic.node, source.components - before)
        if sum(len(source.streams) for source in self._sources[topic.node].values()) >= MAX_NODE_STREAMS:
            self.refused["streams"] += 1
            return None
        stream = source.streams[stream_id] = StreamState()
        return stream

    def _account(self, node: str, components: int) -> None:
        self._components[node] += components
        self._components_in_all += components


@lru_cache(maxsize=64)
def _none_late(ticks: int) -> BoolArray:
    """Flags of a batch without late ticks, read-only."""
    flags = np.zeros(ticks, dtype=np.bool_)
    flags.flags.writeable = False
    return flags


def _last_ns(envelope: Envelope) -> int:
    """Time of the last tick of a batch."""
    return envelope.t0_ns + (envelope.n - 1) * envelope.dt_ns


def _highest(counters: Block) -> int:
    """The highest component index, -1 without components: the last of either part, as both ascend."""
    c = counters.indexes.size
    ends = {c - 1, c - counters.idle - 1} - {-1}
    return max((int(counters.indexes[end]) for end in ends), default=-1)
