"""Deduplication state: received sequence numbers of each stream, and acknowledgements of durable batches.

Live data comes before the backlog of an outage, so a missing message may still arrive: a gap is declared only
after a horizon. All memory is bounded.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import is_
from typing import Any, NamedTuple

from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Ack
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema
from laggard_common.wire.topics import ack_topic

MAX_RANGES = 4096
KEPT_STREAMS = 4
"""Latest streams of a source, one per new spool, that are kept however long they are silent."""
KEPT_NS = 900 * 1_000_000_000
"""Further streams are kept for this time after their last batch or schema: an agent repeats what is not
acknowledged every minute, and a batch of a stream that was dropped would be accepted twice."""
MAX_NODE_STREAMS = 512
"""Limit of streams of a node; messages of further ones are refused."""
ALTERNATING_NS = 600 * 1_000_000_000
"""A stream that continues within this time after another one followed it alternates with that one."""
ACK_RANGES = 8192  # of one message; with at most RANGE_BYTES each they stay below MAX_ACK_BYTES
RANGE_BYTES = 19
_ENTRY_RANGES = 2  # as large as the entry of a stream without its source's name
COMPONENT_BYTES, FIELD_BYTES = 400, 200
"""Memory of a component and of a field of a schema, with two labels."""
MAX_PENDING = 1_000_000  # messages noted as not durable; the oldest beyond wait until all noted ones are


class SeqRanges:
    """Inclusive ranges, ascending, never adjacent.

    Beyond MAX_RANGES the oldest gap is given up: it is declared, and its messages count as received, so that
    they are not sent again.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._opened: list[int] = []  # time when the gap before each range was first seen; 0 once declared

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq <= self._ends[at]

    def as_tuples(self) -> tuple[tuple[int, int], ...]:
        """The ranges, lowest first."""
        return tuple(zip(self._starts, self._ends, strict=True))

    def add(self, seq: int, now_ns: int = 0) -> bool:
        """Adds `seq` at `now_ns`; False for a duplicate."""
        return self._add_new(seq, seq, now_ns)

    def add_all(self, seqs: range, now_ns: int = 0) -> list[bool]:
        """Adds consecutive `seqs`, at least one; for each False if it is a duplicate."""
        if self._add_new(seqs[0], seqs[-1], now_ns):
            return [True] * len(seqs)
        return [self.add(seq, now_ns) for seq in seqs]

    def remove(self, seq: int) -> None:
        """Removes `seq` if it is there."""
        at = bisect_right(self._starts, seq) - 1
        if at < 0 or seq > self._ends[at]:
            return
        start, end, opened = self._starts[at], self._ends[at], self._opened[at]
        left = [(start, seq - 1, opened)] if start < seq else []
        right = [(seq + 1, end, opened if not left else 0)] if seq < end else []
        kept = [*left, *right]
        self._starts[at : at + 1] = [interval[0] for interval in kept]
        self._ends[at : at + 1] = [interval[1] for interval in kept]
        self._opened[at : at + 1] = [interval[2] for interval in kept]

    def declare(self, now_ns: int, horizon_ns: int) -> int:
        """Declares gaps older than `horizon_ns`; returns the number of their messages."""
        missing = 0
        for at in range(1, len(self._starts)):
            if self._opened[at] and now_ns - self._opened[at] >= horizon_ns:
                missing += self._starts[at] - self._ends[at - 1] - 1
                self._opened[at] = 0
        return missing

    def give_up(self) -> int:
        """Closes the oldest gaps beyond MAX_RANGES; returns the number of messages declared missing."""
        missing = 0
        while len(self._starts) > MAX_RANGES:
            if self._opened[1]:
                missing += self._starts[1] - self._ends[0] - 1
            self._ends[0] = self._ends[1]
            del self._starts[1], self._ends[1], self._opened[1]
        return missing

    def state(self) -> list[tuple[int, ...]]:
        """State as plain data: starts, ends, and the time when the gap before each was first seen."""
        return [tuple(self._starts), tuple(self._ends), tuple(self._opened)]

    @classmethod
    def restore(cls, state: Sequence[Sequence[int]]) -> "SeqRanges":
        """Restores `state()`. Raises ValueError when it is malformed."""
        starts, ends, opened = (list(numbers) for numbers in state)
        if not len(starts) == len(ends) == len(opened) or len(starts) > MAX_RANGES:
            raise ValueError("ranges of different lengths")
        if not all(type(n) is int and 0 <= n < 2**64 for numbers in (starts, ends, opened) for n in numbers):
            raise ValueError("ranges that are not numbers")
        if any(a > b for a, b in zip(starts, ends, strict=True)) or any(
            b + 1 >= a for b, a in zip(ends, starts[1:], strict=False)
        ):
            raise ValueError("ranges that do not ascend")
        ranges = cls()
        ranges._starts, ranges._ends, ranges._opened = starts, ends, opened
        return ranges

    def copy(self) -> "SeqRanges":
        """An independent copy."""
        return SeqRanges.restore(self.state())

    def _add_new(self, first: int, last: int, now_ns: int) -> bool:
        """Adds `first` to `last`; False, and nothing is added, if any of them is there."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, first) - 1
        follows = at + 1 < len(starts)
        if (at >= 0 and first <= ends[at]) or (follows and starts[at + 1] <= last):
            return False
        joins_before = at >= 0 and ends[at] == first - 1
        joins_after = follows and starts[at + 1] == last + 1
        if joins_before and joins_after:
            ends[at] = ends[at + 1]
            del starts[at + 1], ends[at + 1], self._opened[at + 1]
        elif joins_before:
            ends[at] = last
        elif joins_after:
            starts[at + 1] = first
        else:
            self._insert(at + 1, first, last, now_ns)
        return True

    def _insert(self, at: int, first: int, last: int, now_ns: int) -> None:
        """Inserts a range; a gap split by it keeps its age on both sides."""
        inside = 0 < at < len(self._starts)
        self._starts.insert(at, first)
        self._ends.insert(at, last)
        self._opened.insert(at, self._opened[at] if inside else max(now_ns, 1))
        if at == 0 and len(self._starts) > 1:
            self._opened[1] = max(now_ns, 1)


@dataclass(slots=True)
class StreamState:
    """`received`, `durable`: ranges of seq; the latter are acknowledged. `schema_message`: as received.

    `made_ns`, by the node's clock: of the current stream its newest batch, of another one the batch of the
    stream that followed it; -1 where that is not known, as after a restart. `heard_ns`: when its last batch
    or schema was accepted; 0 where that is not known. `pending`: batches that are not durable yet.
    `schema_bytes`: memory of the schemas that no batch holds yet.
    """

    schema: Schema | None = None
    schema_message: bytes = b""
    received: SeqRanges = field(default_factory=SeqRanges)
    durable: SeqRanges = field(default_factory=SeqRanges)
    made_ns: int = -1
    heard_ns: int = 0
    pending: int = 0
    schema_bytes: int = 0


@dataclass(slots=True)
class SourceStreams:
    """The streams of one node and source, the latest one last. `_left`: when another stream followed each."""

    streams: dict[bytes, StreamState] = field(default_factory=dict)
    _current: bytes = b""
    _left: dict[bytes, int] = field(default_factory=dict)

    @property
    def components(self) -> int:
        """Number of components over all streams."""
        return sum(len(stream.schema.components) for stream in self.streams.values() if stream.schema)

    def drop_silent(self, now_ns: int) -> None:
        """Makes room for a new stream: drops those that are silent for KEPT_NS and have nothing pending.

        The latest ones stay however long they are silent.
        """
        for stream_id in list(self.streams)[: 1 - KEPT_STREAMS]:
            stream = self.streams[stream_id]
            if not stream.heard_ns and stream.schema is not None:
                stream.heard_ns = now_ns
            if not stream.pending and now_ns - stream.heard_ns >= KEPT_NS:
                del self.streams[stream_id]
                self._left.pop(stream_id, None)

    def alternates(self, stream_id: bytes, made_ns: int, now_ns: int) -> bool:
        """Whether a stream continues after another followed it: two agents, or one spool twice.

        `made_ns`: time of the batch by its node's clock. Batches from before the stream was followed are the
        backlog of an agent that began a new stream, as after a power loss.
        """
        stream = self.streams[stream_id] = self.streams.pop(stream_id)
        current = self.streams.get(self._current)
        newest_ns = -1 if current is None else current.made_ns
        if stream is current:
            stream.made_ns = max(newest_ns, made_ns)
            return False
        known = stream.made_ns >= 0 or stream_id in self._left
        followed_ns = stream.made_ns if stream.made_ns >= 0 else self._left.get(stream_id, newest_ns)
        if made_ns <= followed_ns:
            stream.made_ns = followed_ns
            return False
        self._left.pop(stream_id, None)
        if current is not None:
            self._left[self._current] = now_ns
            current.made_ns = made_ns
        stream.made_ns = made_ns
        self._current = stream_id
        return known and made_ns - followed_ns < ALTERNATING_NS

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
        if len(streams) > MAX_NODE_STREAMS:
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


def sharing(schema: Schema, earlier: Schema | None) -> tuple[Schema, int]:
    """`schema` with the components of `earlier` where they are equal, and the bytes of its own besides."""
    known = () if earlier is None else earlier.components
    components = tuple(old if new == old else new for new, old in zip(schema.components, known, strict=False))
    components += schema.components[len(known) :]
    kept = sum(map(is_, components, known))
    size = COMPONENT_BYTES * (len(components) - kept) + FIELD_BYTES * len(schema.fields) + 8 * len(components)
    return replace(schema, components=components), size


class _PendingBatches(NamedTuple):
    lsn: int
    node: str
    stream: StreamState
    seqs: range


class Acks:
    """Batches of a site that are not durable yet, and nodes to be sent an acknowledgement.

    `sources`: of each node, then by source; owned by the admission.
    """

    def __init__(self, site: str, sources: Mapping[str, Mapping[str, SourceStreams]]) -> None:
        self._site = site
        self._sources = sources
        self._pending: deque[_PendingBatches] = deque(maxlen=MAX_PENDING)
        self._dropped_lsn = 0  # the newest one that `_pending` had no room for
        self._requested: dict[str, None] = {}  # nodes in the order of their requests

    def accept(self, lsn: int, node: str, stream: StreamState, seqs: range) -> None:
        """Notes batches `seqs`, accepted as `lsn` or as a part of it, as not durable yet."""
        if len(self._pending) == MAX_PENDING:
            self._dropped_lsn = self._pending[0].lsn
        stream.pending += 1
        self._pending.append(_PendingBatches(lsn, node, stream, seqs))

    def durable(self, lsn: int) -> None:
        """Marks every batch up to `lsn` as durable, to be acknowledged."""
        while self._pending and self._pending[0].lsn <= lsn:
            _, node, stream, seqs = self._pending.popleft()
            stream.pending -= 1
            stream.durable.add_all(seqs)
            stream.durable.give_up()  # as `received` did: bounded, whatever seqs a node sends
            self._requested[node] = None
        if 0 < self._dropped_lsn <= lsn:
            self._mark_all_but_pending()

    def request_ack(self, node: str) -> None:
        """Sends the node an acknowledgement even if no batch of it became durable."""
        self._requested[node] = None

    def forget(self, node: str) -> None:
        """Sends the node no acknowledgement."""
        self._requested.pop(node, None)

    def messages(self, most: int | None = None) -> list[tuple[str, bytes]]:
        """Topics and payloads of the requested acknowledgements, oldest request first, of `most` nodes."""
        nodes = list(islice(self._requested, most))
        for node in nodes:
            del self._requested[node]
        return [
            (ack_topic(self._site, node), wire.encode_ack(acks))
            for node in nodes
            for acks in self._acks(node)
        ]

    def _mark_all_but_pending(self) -> None:
        """Marks everything received as durable except the pending batches, as not all of them were noted."""
        self._dropped_lsn = 0
        for node, sources in self._sources.items():
            for source in sources.values():
                for stream in source.streams.values():
                    stream.durable = stream.received.copy()
                    stream.pending = 0
            self._requested[node] = None
        for _, _, stream, seqs in self._pending:
            stream.pending += 1
            for seq in seqs:
                stream.durable.remove(seq)

    def _acks(self, node: str) -> Iterator[list[Ack]]:
        """The durable ranges of a node, in messages of at most ACK_RANGES ranges.

        A stream without a schema gets an entry without ranges, on which its agent sends the schema again.
        """
        message: list[Ack] = []
        room = ACK_RANGES
        for name, source in self._sources.get(node, {}).items():
            entry_room = _ENTRY_RANGES + len(name.encode()) // RANGE_BYTES
            for stream_id, stream in source.streams.items():
                ranges = stream.durable.as_tuples()
                is_named = stream.schema is not None  # without one, an entry without ranges comes first
                while ranges or not is_named:
                    if room <= entry_room:
                        yield message
                        message, room = [], ACK_RANGES
                    room -= entry_room
                    part = ranges[:room] if is_named else ()
                    message.append(Ack(stream_id, name, part))
                    ranges, room, is_named = ranges[len(part) :], room - len(part), True
        if message:
            yield message
