"""Streams of the spool: a current one per source, older ones while they have batches.

`Streams` has the schemas and the next sequence numbers, `Progress` the ranges sent and acknowledged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_agent.spool.segments import Key, SpoolIdentity, SpoolSegment, Stream
from laggard_common import wire
from laggard_common.wire import Ack
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema


class Streams:
    """Current stream, sequence number and schema of each source. `random_bytes` makes stream ids."""

    def __init__(self, owner: SpoolIdentity, random_bytes: Callable[[int], bytes]) -> None:
        self._owner = owner
        self._random_bytes = random_bytes
        self._current: dict[str, Stream] = {}
        self._generations: dict[str, int] = {}
        self._schemas: dict[Key, Schema] = {}

    def current(self) -> tuple[Stream, ...]:
        """The current stream of every source."""
        return tuple(self._current.values())

    def keys(self) -> set[Key]:
        """The keys of the current streams."""
        return {(stream.stream, source) for source, stream in self._current.items()}

    def dictionaries(self) -> dict[str, Dictionary]:
        """The dictionary of each source."""
        return {
            source: Dictionary(
                self._generations[source], s.schema.epoch, s.schema.fields, s.schema.components
            )
            for source, s in self._current.items()
        }

    def schema(self, key: Key) -> Schema | None:
        """The newest schema of a stream, None for a forgotten one."""
        return self._schemas.get(key)

    def next_seq(self, key: Key) -> int | None:
        """The sequence number of a current stream's next batch; None for another stream."""
        stream = self._current.get(key[1])
        return stream.next_seq if stream is not None and stream.stream == key[0] else None

    def stream_for(self, batch: EncodedBatch) -> tuple[Stream, bool]:
        """The stream of `batch` with a schema for it, and True if that schema is new.

        Changes nothing; `remember` makes it current.
        """
        dictionary = batch.dictionary
        stream = self._current.get(batch.source)
        if stream is None or self._generations[batch.source] != dictionary.generation:
            fresh = self._random_bytes(STREAM_BYTES)
            return Stream(fresh, 0, self._schema(batch, fresh)), True
        if stream.schema.epoch < dictionary.epoch:
            return replace(stream, schema=self._schema(batch, stream.stream)), True
        return stream, False

    def remember(self, stream: Stream, generation: int) -> None:
        """Makes `stream` the current one of its source."""
        source = stream.schema.source
        self._current[source] = stream
        self._generations[source] = generation
        self._schemas[stream.stream, source] = stream.schema

    def continue_streams(self, streams: Iterable[Stream]) -> None:
        """Continues an earlier agent's streams, in a new epoch if interval or batch size changed."""
        owner = self._owner
        for stream in streams:
            old = stream.schema
            today = replace(old, interval_ns=owner.interval_ns, batch_ticks=owner.batch_ticks)
            schema = old if today == old else replace(today, epoch=old.epoch + 1)
            self.remember(replace(stream, schema=schema), generation=0)

    def add_schemas(self, schemas: Mapping[Key, Schema]) -> None:
        """Adds schemas of an earlier agent's batches."""
        self._schemas.update(schemas)

    def advance(self, source: str) -> None:
        """Assigns the next sequence number of the source's stream."""
        stream = self._current[source]
        self._current[source] = replace(stream, next_seq=stream.next_seq + 1)

    def renew(self) -> None:
        """Begins a new stream for every source."""
        for source, stream in list(self._current.items()):
            fresh = self._random_bytes(STREAM_BYTES)
            renewed = Stream(fresh, 0, replace(stream.schema, stream=fresh))
            self.remember(renewed, self._generations[source])

    def forget_all_but(self, alive: set[Key]) -> None:
        """Keeps the schemas of these streams only."""
        self._schemas = {key: schema for key, schema in self._schemas.items() if key in alive}

    def _schema(self, batch: EncodedBatch, stream: bytes) -> Schema:
        d = batch.dictionary
        return Schema(
            node=self._owner.node,
            source=batch.source,
            stream=stream,
            epoch=d.epoch,
            interval_ns=self._owner.interval_ns,
            batch_ticks=self._owner.batch_ticks,
            fields=d.fields,
            components=d.components,
        )


class Progress:
    """Sent (PUBACK) and acknowledged sequence numbers by stream and source."""

    def __init__(self) -> None:
        self._acked: dict[Key, RangeSet] = {}
        self._sent: dict[Key, RangeSet] = {}

    def acknowledge(self, key: Key, low: int, high: int) -> None:
        """Marks these as acknowledged by the aggregator."""
        self._acked.setdefault(key, RangeSet()).add(low, high)

    def mark_sent(self, key: Key, low: int, high: int) -> None:
        """Marks these as sent to the broker."""
        self._sent.setdefault(key, RangeSet()).add(low, high)

    def send_again(self, key: Key) -> None:
        """Marks the stream's unacknowledged batches as unsent."""
        self._sent.pop(key, None)

    def is_acked(self, key: Key, low: int, high: int) -> bool:
        """True when all of these are acknowledged."""
        ranges = self._acked.get(key)
        return ranges is not None and ranges.covers(low, high)

    def is_sent(self, key: Key, low: int, high: int) -> bool:
        """True when all of these are sent."""
        ranges = self._sent.get(key)
        return ranges is not None and ranges.covers(low, high)

    def is_done(self, segment: SpoolSegment) -> bool:
        """True when everything in the segment is acknowledged."""
        return all(self.is_acked(key, *span) for key, span in segment.spans.of.items())

    def is_all_sent(self, segment: SpoolSegment) -> bool:
        """True when everything in the segment is sent."""
        return all(self.is_sent(key, *span) for key, span in segment.spans.of.items())

    def first_unacked(self, key: Key, low: int) -> int:
        """The smallest unacknowledged sequence number from `low` on."""
        ranges = self._acked.get(key)
        return low if ranges is None else ranges.first_missing(low)

    def is_passed_over(self, key: Key) -> bool:
        """True when a sent batch is unacknowledged although a later one of the stream is acknowledged."""
        acked, sent = self._acked.get(key), self._sent.get(key)
        if acked is None or sent is None:
            return False
        pieces = pairwise([(-1, -1), *acked.pieces()])
        return any(sent.count(high + 1, low - 1) for (_, high), (low, _) in pieces)

    def unacked(self, segment: SpoolSegment) -> int:
        """Number of unacknowledged batches in the segment."""
        count = 0
        for key, (low, high) in segment.spans.of.items():
            ranges = self._acked.get(key)
            count += high - low + 1 - (ranges.count(low, high) if ranges else 0)
        return count

    def unacked_share(self, segment: SpoolSegment) -> float:
        """Unacknowledged share of the segment's batches, 0 to 1."""
        held = sum(high - low + 1 for low, high in segment.spans.of.values())
        return self.unacked(segment) / held if held else 0.0

    def forget(self, alive: Iterable[Key], segments: Iterable[SpoolSegment]) -> None:
        """Keeps only the streams in `alive`, with one range for all batches that left the segments."""
        lows: dict[Key, int] = {}
        for segment in segments:
            for key, (low, _) in segment.spans.of.items():
                lows.setdefault(key, low)
        kept = set(alive)
        for table in (self._acked, self._sent):
            for key in [key for key in table if key not in kept]:
                del table[key]
            for key, ranges in table.items():
                if lows.get(key, 0) > 0:
                    ranges.add(0, lows[key] - 1)

    def encode_acked(self) -> bytes:
        """All acknowledged ranges, encoded as an acknowledgement."""
        return wire.encode_ack(
            [Ack(stream, source, tuple(r.pieces())) for (stream, source), r in self._acked.items()]
        )


class RangeSet:
    """A set of integers as ascending inclusive ranges that neither touch nor overlap."""

    __slots__ = ("_highs", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: int, high: int) -> None:
        """Adds every number from `low` to `high`, both included."""
        first = bisect_left(self._highs, low - 1)
        last = bisect_right(self._lows, high + 1)
        if first < last:
            low = min(low, self._lows[first])
            high = max(high, self._highs[last - 1])
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]

    def covers(self, low: int, high: int) -> bool:
        """True when every number from `low` to `high` is in the set."""
        at = bisect_right(self._lows, low) - 1
        return at >= 0 and self._highs[at] >= high

    def count(self, low: int, high: int) -> int:
        """Number of integers from `low` to `high` in the set."""
        first = bisect_left(self._highs, low)
        last = bisect_right(self._lows, high)
        pairs = zip(self._lows[first:last], self._highs[first:last], strict=True)
        return sum(min(high, end) - max(low, begin) + 1 for begin, end in pairs)

    def first_missing(self, low: int) -> int:
        """The smallest integer from `low` on that is not in the set."""
        at = bisect_right(self._lows, low) - 1
        return self._highs[at] + 1 if at >= 0 and self._highs[at] >= low else low

    def pieces(self) -> list[tuple[int, int]]:
        """The ranges, ascending, both ends included."""
        return list(zip(self._lows, self._highs, strict=True))
