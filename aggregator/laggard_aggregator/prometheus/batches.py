"""Readings of scraped counters as messages of the wire format, as agents publish them.

The stream and the sequence number follow from the settings and the scrape interval: an interval that is read
again, as after a restart, is a duplicate.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.prometheus.compare_map import MappedSource
from laggard_aggregator.prometheus.scrapes import ScrapedComponent, ScrapedReading
from laggard_common import wire
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import DELTA_ZSTD, Encoder
from laggard_common.wire.limits import MAX_COMPONENTS, STREAM_BYTES
from laggard_common.wire.schema import Component, Field, FieldKind, Schema
from laggard_common.wire.topics import data_topic, schema_topic


@dataclass(frozen=True, slots=True)
class KnownStream:
    """The accepted schema of a node's stream, and whether the interval asked for was accepted."""

    schema: Schema | None = None
    accepted: bool = False


@dataclass(slots=True)
class BatchMaker:
    """Makes the messages of one source of the input `name`, whose components without a node belong to it.

    `mark`: the first bytes of the stream. `without_room`: readings of components beyond a message's limit.
    """

    site: str
    role: str
    name: str
    source: MappedSource
    interval: float
    mark: bytes
    without_room: int = 0
    _encoder: Encoder = field(default_factory=Encoder)

    @property
    def stream(self) -> bytes:
        """The stream: another one for other fields or another interval."""
        fields = [
            (mapped.name, mapped.counters, mapped.scale, *filter(None, [mapped.le, mapped.older]))
            for mapped in self.source.fields
        ]
        description = repr((self.name, self.source.name, self.source.comparison, self.interval, fields))
        return (self.mark + hashlib.sha256(description.encode()).digest())[:STREAM_BYTES]

    def messages(
        self, interval: int, readings: Iterable[ScrapedReading], known: Callable[[str], KnownStream]
    ) -> Iterator[tuple[str, bytes]]:
        """Topics and payloads of an interval's readings, by node, schemas where components are new.

        `known`: the accepted stream of a node.
        """
        nodes: dict[str, list[ScrapedReading]] = {}
        for reading in readings:
            if any(value is not None for value in reading.values):
                nodes.setdefault(reading.component.node or self.name, []).append(reading)
        for node, of_node in nodes.items():
            stream = known(node)
            if not stream.accepted:
                yield from self._of_node(node, interval, of_node, stream.schema)

    def _of_node(
        self, node: str, interval: int, readings: list[ScrapedReading], known: Schema | None
    ) -> Iterator[tuple[str, bytes]]:
        schema = self._schema(node, [reading.component for reading in readings], known)
        if schema is not known:
            yield schema_topic(self.site, self.role, node, schema.source), wire.encode_schema(schema)
        place = {component.id: at for at, component in enumerate(schema.components)}
        rows = {place[r.component.name]: r for r in readings if r.component.name in place}
        indexes = sorted(rows)
        self.without_room += len(readings) - len(rows)
        if not indexes:
            return
        t0_ns = interval * schema.interval_ns
        read = float(np.median([rows[at].time for at in indexes]))
        payload = self._encoder.encode(
            indexes, [[rows[at].values for at in indexes]], [round(read * 1e6) - t0_ns // 1000]
        )
        envelope = Envelope(
            kind=Kind.COUNTERS,
            node=node,
            source=schema.source,
            stream=schema.stream,
            seq=interval,
            schema_epoch=schema.epoch,
            t0_ns=t0_ns,
            dt_ns=0,
            n=1,
            codec=DELTA_ZSTD,
            payload=payload,
        )
        yield data_topic(self.site, self.role, node, schema.source), wire.encode_envelope(envelope)

    def _schema(self, node: str, components: list[ScrapedComponent], known: Schema | None) -> Schema:
        """The schema with all `components` that fit; `known` itself where nothing is new."""
        old = {} if known is None else {component.id: component for component in known.components}
        new = dict(old)
        for fresh in components:
            if fresh.name in new or len(new) < MAX_COMPONENTS:
                new[fresh.name] = Component(fresh.name, fresh.name, fresh.labels)
        if known is not None and new == old:
            return known
        return Schema(
            node=node,
            source=self.source.name,
            stream=self.stream,
            epoch=0 if known is None else known.epoch + 1,
            interval_ns=round(self.interval * 1e9),
            batch_ticks=1,
            fields=tuple(
                Field(mapped.name, FieldKind.HISTOGRAM if mapped.le else FieldKind.COUNTER)
                for mapped in self.source.fields
            ),
            components=tuple(new.values()),
        )
