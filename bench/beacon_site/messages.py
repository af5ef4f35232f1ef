"""The messages that the agents of the site would publish: schemas, statuses, counters and trace documents."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import zstandard

from bench.beacon_site.shape import START_SECONDS, Shape, node_name
from bench.beacon_site.tables import Table
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Field, Schema
from laggard_common.wire.trace_document import TRACES, TraceDocument, encode_document

SITE = "site"
SECOND_NS = 1_000_000_000

Message = tuple[str, bytes]
"""Topic and body."""


def _stream(node: str, source: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}/{node}/{source}".encode(), digest_size=16).digest()


@dataclass(slots=True)
class Agents:
    """All agents of the site. `read` at each tick; `messages` gives the batches since the last call.

    `samples` counts readings of a component that were sent, `documents` parts of trace logs, `records` those
    in them.
    """

    shape: Shape
    seed: int
    tables: Sequence[Table]
    samples: int = 0
    documents: int = 0
    records: int = 0
    _rows: list[list[list[list[list[int]]]]] = field(default_factory=list)
    _ticks: list[int] = field(default_factory=list)
    _seq: dict[tuple[str, str], int] = field(default_factory=dict)
    _encoder: codec.Encoder = field(default_factory=codec.Encoder)
    _zstd: zstandard.ZstdCompressor = field(default_factory=zstandard.ZstdCompressor)
    _known: set[tuple[str, str, str]] = field(default_factory=set)

    def read(self, second: int) -> None:
        """Reads all counters at a second of the site."""
        self._ticks.append(second)
        self._rows.append([table.values().tolist() for table in self.tables])

    def schemas(self) -> Iterator[Message]:
        """All schemas."""
        interval = self.shape.interval_seconds * SECOND_NS
        ticks = self.shape.batch_seconds // self.shape.interval_seconds
        for table in self.tables:
            for node, components in zip(table.nodes, table.components, strict=True):
                self._known.add((table.role, node, table.source))
                stream = _stream(node, table.source, self.seed)
                schema = Schema(node, table.source, stream, 1, interval, ticks, table.fields, components)
                yield topics.schema_topic(SITE, table.role, node, table.source), wire.encode_schema(schema)
        for number in range(self.shape.nodes):
            node = node_name(number)
            stream, fields = _stream(node, TRACES, self.seed), (Field("content"),)
            schema = Schema(node, TRACES, stream, 1, interval, 1, fields, ())
            self._known.add(("compute", node, TRACES))
            yield topics.schema_topic(SITE, "compute", node, TRACES), wire.encode_schema(schema)

    def statuses(self, second: int) -> Iterator[Message]:
        """That every agent is up."""
        state = {
            "state": "up",
            "version": "1",
            "interval_ns": self.shape.interval_seconds * SECOND_NS,
            "batch_ticks": self.shape.batch_seconds // self.shape.interval_seconds,
            "collectors": {},
            "acknowledged_by": "aggregator",
        }
        for role, node in sorted({(role, node) for role, node, _ in self._known}):
            payload = wire.encode_state({**state, "role": role})
            at = (START_SECONDS + second) * SECOND_NS
            stream, seq = _stream(node, "agent", self.seed), self._next(node, "agent")
            body = Envelope(Kind.STATE, node, "agent", stream, seq, 0, at, 0, 1, codec.RAW, payload)
            yield topics.status_topic(SITE, role, node), wire.encode_envelope(body)

    def batches(self) -> Iterator[Message]:
        """The readings since the last call, a message for each node and source."""
        interval = self.shape.interval_seconds * SECOND_NS
        rows, ticks = self._rows, self._ticks
        self._rows, self._ticks = [], []
        for place, table in enumerate(self.tables):
            for at, node in enumerate(table.nodes):
                readings = [tick[place][at] for tick in rows]
                k = len(readings[0])
                self.samples += k * len(ticks)
                payload = self._encoder.encode(range(k), readings, [900] * len(ticks))
                body = Envelope(
                    kind=Kind.COUNTERS,
                    node=node,
                    source=table.source,
                    stream=_stream(node, table.source, self.seed),
                    seq=self._next(node, table.source),
                    schema_epoch=1,
                    t0_ns=(START_SECONDS + ticks[0]) * SECOND_NS,
                    dt_ns=interval,
                    n=len(ticks),
                    codec=codec.DELTA_ZSTD,
                    payload=payload,
                )
                yield topics.data_topic(SITE, table.role, node, table.source), wire.encode_envelope(body)

    def traces(self, parts: Sequence[tuple[str, TraceDocument]], second: int) -> Iterator[Message]:
        """Documents of trace logs, found at a second of the site."""
        for node, document in parts:
            self.documents += 1
            self.records += len(document.records)
            body = Envelope(
                kind=Kind.EVENTS,
                node=node,
                source=TRACES,
                stream=_stream(node, TRACES, self.seed),
                seq=self._next(node, TRACES),
                schema_epoch=1,
                t0_ns=(START_SECONDS + second) * SECOND_NS,
                dt_ns=0,
                n=1,
                codec=codec.DELTA_ZSTD,
                payload=self._zstd.compress(encode_document(document)),
            )
            yield topics.data_topic(SITE, "compute", node, TRACES), wire.encode_envelope(body)

    def _next(self, node: str, source: str) -> int:
        seq = self._seq.get((node, source), 0)
        self._seq[node, source] = seq + 1
        return seq
