"""The spool's segments, oldest first, with the ranges of their batches that are sent and acknowledged.

Batches are appended to the newest segment; whole segments are deleted: when all of it is acknowledged, or,
oldest first, for lack of room. Its unacknowledged batches are then counted as unconfirmed if sent (PUBACK),
otherwise as dropped. The newest always stays.
"""

import logging
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from laggard_agent.spool.segments import (
    SUFFIX,
    Header,
    Key,
    SpooledBatch,
    SpoolRecordType,
    SpoolSegment,
    encode_header,
)
from laggard_common import wire
from laggard_common.errors import SpoolError
from laggard_common.wire import Ack

_log = logging.getLogger(__name__)

_LEAST_SEGMENT_BYTES = 64 * 1024
_MOST_SEGMENT_BYTES = 4 * 1024 * 1024
_MOST_MEMORY_BYTES = 8 * 1024 * 1024


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
        return self.first_missing(low) > high

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


class SegmentQueue:
    """Segments in `directory` and in memory, with at most `max_bytes` on disk.

    `acked`, `sent`: sequence numbers by stream and source. An unreadable batch counts `batch_ticks` samples.
    """

    def __init__(self, directory: Path, max_bytes: int, batch_ticks: int) -> None:
        self.acked: defaultdict[Key, RangeSet] = defaultdict(RangeSet)
        self.sent: defaultdict[Key, RangeSet] = defaultdict(RangeSet)
        self.segment_bytes = max(_LEAST_SEGMENT_BYTES, min(_MOST_SEGMENT_BYTES, max_bytes // 16))
        self.dropped_samples = 0
        self.unconfirmed_samples = 0
        self._directory = directory
        self._max_bytes = max_bytes
        self._batch_ticks = batch_ticks
        self._segments: deque[SpoolSegment] = deque()
        self._header_bytes = 0  # of the newest segment
        self._next_file = 0
        self._is_full = False
        self._has_undeletable = False  # a file that cannot be deleted
        self._unreadable: set[Path | None] = set()

    def __iter__(self) -> Iterator[SpoolSegment]:
        return iter(self._segments)

    @property
    def newest(self) -> SpoolSegment:
        """The segment to which batches are appended."""
        return self._segments[-1]

    def pending_bytes(self) -> int:
        """Approximate unacknowledged bytes."""
        total = 0
        for segment in self._segments:
            held = sum(high - low + 1 for low, high in segment.spans.values())
            total += round(segment.size_bytes * self._unacked(segment) / held) if held else 0
        return total

    def unsent(self) -> Iterator[SpooledBatch]:
        """Yields the unsent batches, oldest first, including those appended to the newest meanwhile.

        Those of a file that cannot be read now wait, with one WARNING.
        """
        for segment in list(self._segments):
            if all(self._is_sent(key, *span) for key, span in segment.spans.items()):
                continue
            try:
                for batch in segment.batches():
                    if not self._is_sent(batch.key, *batch.seqs):
                        yield batch
                self._unreadable.discard(segment.path)
            except SpoolError as exc:  # continue with the next segment
                if isinstance(exc.__cause__, FileNotFoundError):  # it was deleted meanwhile
                    continue
                if segment.path not in self._unreadable:
                    _log.warning("spool: %s: its batches wait", exc)
                self._unreadable.add(segment.path)

    def is_passed_over(self, key: Key) -> bool:
        """True when a sent batch is unacknowledged although a later one of the stream is acknowledged."""
        pieces = pairwise([(-1, -1), *self.acked[key].pieces()])
        return any(self.sent[key].count(high + 1, low - 1) for (_, high), (low, _) in pieces)

    def oldest_unacknowledged(self) -> dict[Key, int]:
        """The lowest unacknowledged sequence number of each stream where that batch is sent."""
        oldest: dict[Key, int] = {}
        for segment in self._segments:
            for key, (low, high) in segment.spans.items():
                missing = self.acked[key].first_missing(low)
                if key not in oldest and missing <= high:
                    oldest[key] = missing
        return {key: seq for key, seq in oldest.items() if self.sent[key].covers(seq, seq)}

    def encode_acked(self) -> bytes:
        """All acknowledged ranges, encoded as an acknowledgement."""
        return wire.encode_ack([Ack(*key, tuple(r.pieces())) for key, r in self.acked.items() if r.pieces()])

    def forget_all_but(self, alive: set[Key]) -> None:
        """Keeps only the streams in `alive`, with one range for all batches that left the segments."""
        lows: dict[Key, int] = {}
        for segment in self._segments:
            for key, (low, _) in segment.spans.items():
                lows.setdefault(key, low)
        for table in (self.acked, self.sent):
            for key in [key for key in table if key not in alive]:
                del table[key]
            for key, ranges in table.items():
                if lows.get(key, 0) > 0:
                    ranges.add(0, lows[key] - 1)

    def prepend(self, segments: Sequence[SpoolSegment], next_file: int) -> None:
        """Inserts an earlier agent's segments before all others; new files are numbered from `next_file`."""
        self._next_file = next_file
        self._segments.extendleft(reversed(segments))

    def start_segment(self, header: Header, *, in_memory: bool) -> None:
        """Begins a newest segment. Raises SpoolError without any change."""
        path = self._directory / f"{self._next_file:010d}{SUFFIX}"
        segment = SpoolSegment() if in_memory else SpoolSegment.create(path)
        try:
            segment.append(SpoolRecordType.HEADER, encode_header(header))
        except SpoolError:
            self.discard(segment)
            raise
        self._next_file += not in_memory
        if self._segments:
            self._segments[-1].close()
        self._segments.append(segment)
        self._header_bytes = segment.size_bytes

    def is_newest_full(self) -> bool:
        """True when a new segment is due."""
        return self._segments[-1].size_bytes - self._header_bytes >= self.segment_bytes

    def is_newest_done(self) -> bool:
        """True when the newest is fully acknowledged and large enough to be replaced."""
        newest = self._segments[-1]
        worth_while = max(_LEAST_SEGMENT_BYTES, self._header_bytes)
        return newest.size_bytes - self._header_bytes >= worth_while and not self._unacked(newest)

    def drop_acknowledged(self) -> bool:
        """Deletes acknowledged segments except the newest; True if there were any."""
        done = [s for s in self._segments if s is not self._segments[-1] and not self._unacked(s)]
        for segment in done:
            self._segments.remove(segment)
            self.discard(segment)
        self._is_full &= len(self._segments) > 1
        return bool(done)

    def make_room(self, newest_ns: int) -> bool:
        """Deletes the oldest segments beyond the limit, except the newest; True if there were any.

        `newest_ns`: of the newest batch.
        """
        before = len(self._segments)
        for in_memory, most_bytes in (
            (False, self._max_bytes),
            (True, min(self._max_bytes, _MOST_MEMORY_BYTES)),
        ):
            held = deque(s for s in self._segments if (s.path is None) == in_memory)
            size_bytes = sum(s.size_bytes for s in held)
            while size_bytes > most_bytes and held[0] is not self._segments[-1]:
                size_bytes -= held[0].size_bytes
                self._drop(held.popleft(), newest_ns)
        return len(self._segments) < before

    def _drop(self, segment: SpoolSegment, newest_ns: int) -> None:
        self._segments.remove(segment)
        try:
            held = list(segment.batches())
        except SpoolError as exc:
            _log.warning("spool: %s; its batches are lost", exc)
            self.dropped_samples += self._unacked(segment) * self._batch_ticks
            held = []
        if segment.path is not None and not self._is_full:  # logged once, until everything is acknowledged
            self._is_full = True
            hours = (newest_ns - held[0].envelope.t0_ns) / 3600e9 if held else 0.0
            _log.warning("spool: full: %d bytes hold %.1f hours, dropping the oldest", self._max_bytes, hours)
        for batch in held:
            if self.acked[batch.key].covers(*batch.seqs):
                continue
            if self.sent[batch.key].covers(*batch.seqs):
                self.unconfirmed_samples += batch.envelope.n
            else:
                self.dropped_samples += batch.envelope.n
        self.discard(segment)

    def discard(self, segment: SpoolSegment) -> None:
        """Deletes a segment; one WARNING for files that cannot be deleted, until one can be."""
        try:
            segment.delete()
        except SpoolError as exc:
            if not self._has_undeletable:
                _log.warning("spool: cannot delete a file, which stays, emptied if possible: %s", exc)
            self._has_undeletable = True
        else:
            self._has_undeletable = False

    def _is_sent(self, key: Key, low: int, high: int) -> bool:
        return self.acked[key].covers(low, high) or self.sent[key].covers(low, high)

    def _unacked(self, segment: SpoolSegment) -> int:
        """Number of unacknowledged batches in the segment."""
        spans = segment.spans.items()
        return sum(high - low + 1 - self.acked[key].count(low, high) for key, (low, high) in spans)
