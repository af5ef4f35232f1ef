"""Streams of one node and source: their schemas and the sequence numbers received."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from laggard_aggregator.ingest.seq_ranges import SeqRanges
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema

MAX_STREAMS = 4
"""Limit of streams of a source, one per new spool; the least recently used one is dropped."""

ALTERNATING_NS = 600 * 1_000_000_000


@dataclass(slots=True)
class StreamState:
    """`received`, `durable`: ranges of seq; the latter are acknowledged. `schema_message`: as received."""

    schema: Schema | None = None
    schema_message: bytes = b""
    received: SeqRanges = field(default_factory=SeqRanges)
    durable: SeqRanges = field(default_factory=SeqRanges)


@dataclass(slots=True)
class SourceStreams:
    """The streams of one node and source, the latest one last."""

    streams: dict[bytes, StreamState] = field(default_factory=dict)
    _current: bytes = b""
    _left: dict[bytes, int] = field(default_factory=dict)

    @property
    def components(self) -> int:
        """Number of components over all streams."""
        return sum(len(stream.schema.components) for stream in self.streams.values() if stream.schema)

    def stream(self, stream_id: bytes) -> StreamState:
        """The stream of that ID, created if new."""
        stream = self.streams.get(stream_id)
        if stream is None:
            stream = self.streams[stream_id] = StreamState()
            while len(self.streams) > MAX_STREAMS:
                forgotten = next(iter(self.streams))
                del self.streams[forgotten]
                self._left.pop(forgotten, None)
        return stream

    def alternates(self, stream_id: bytes, now_ns: int) -> bool:
        """Whether a stream continues after another followed it: two agents, or one spool twice."""
        if stream_id == self._current:
            return False
        back = now_ns - self._left.pop(stream_id, -ALTERNATING_NS) < ALTERNATING_NS
        if self._current in self.streams:
            self._left[self._current] = now_ns
        self._current = stream_id
        self.streams[stream_id] = self.streams.pop(stream_id)
        return back

    def state(self) -> list[Any]:
        """State as plain data."""
        streams = [(key, s.schema_message, s.received.state()) for key, s in self.streams.items()]
        return [self._current, dict(self._left), streams]

    @classmethod
    def restore(cls, state: Sequence[Any]) -> "SourceStreams":
        """Restores `state()`; everything received is durable. Raises ValueError when it is malformed."""
        current, left, streams = state
        source = cls()
        source._current = current
        source._left = {_stream_id(key): int(ns) for key, ns in left.items()}
        if len(streams) > MAX_STREAMS:
            raise ValueError("too many streams")
        for key, message, ranges in streams:
            try:
                schema = wire.decode_schema(message) if message else None
            except WireError as exc:
                raise ValueError(str(exc)) from exc
            received = SeqRanges.restore(ranges)
            source.streams[_stream_id(key)] = StreamState(schema, message, received, received.copy())
        return source


def _stream_id(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) != STREAM_BYTES:
        raise ValueError("not the id of a stream")
    return value


def extends(schema: Schema, earlier: Schema) -> bool:
    """Whether `schema` only appends to `earlier`: the same fields and component IDs in the same places."""
    ids = [component.id for component in earlier.components]
    return (
        schema.fields[: len(earlier.fields)] == earlier.fields
        and [component.id for component in schema.components[: len(ids)]] == ids
    )
