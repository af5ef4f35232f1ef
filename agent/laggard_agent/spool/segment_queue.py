"""The spool's segments, oldest first: batches are appended to the newest; whole segments are deleted.

A segment is deleted when all of it is acknowledged, or, oldest first, for lack of room. Its unacknowledged
batches are then counted as unconfirmed if sent (PUBACK), otherwise as dropped. The newest always stays.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from laggard_agent.spool.segments import (
    SUFFIX,
    DiskSegment,
    Header,
    MemorySegment,
    SpoolRecordType,
    SpoolSegment,
    batches,
    begin_ns,
    encode_header,
)
from laggard_agent.spool.streams import Progress
from laggard_common.errors import SpoolError

_log = logging.getLogger(__name__)

_LEAST_SEGMENT_BYTES = 64 * 1024
_MOST_SEGMENT_BYTES = 4 * 1024 * 1024
_MOST_MEMORY_BYTES = 8 * 1024 * 1024


class SegmentQueue:
    """Segments in `directory` and in memory, with at most `max_bytes` on disk.

    `progress` holds the acknowledged ranges; an unreadable batch counts `batch_ticks` samples.
    """

    def __init__(self, directory: Path, progress: Progress, max_bytes: int, batch_ticks: int) -> None:
        self._directory = directory
        self._progress = progress
        self._max_bytes = max_bytes
        self._batch_ticks = batch_ticks
        self._segments: deque[SpoolSegment] = deque()
        self._header_bytes = 0  # of the newest segment
        self._next_file = 0
        self._full = False
        self.segment_bytes = max(_LEAST_SEGMENT_BYTES, min(_MOST_SEGMENT_BYTES, max_bytes // 16))
        self.dropped_samples = 0
        self.unconfirmed_samples = 0

    def __iter__(self) -> Iterator[SpoolSegment]:
        return iter(self._segments)

    @property
    def newest(self) -> SpoolSegment:
        """The segment to which batches are appended."""
        return self._segments[-1]

    def pending_bytes(self) -> int:
        """Approximate unacknowledged bytes."""
        return sum(round(s.size_bytes * self._progress.unacked_share(s)) for s in self._segments)

    def prepend(self, segments: Sequence[DiskSegment], next_file: int) -> None:
        """Inserts an earlier agent's segments before all others; new files are numbered from `next_file`."""
        self._next_file = next_file
        self._segments.extendleft(reversed(segments))

    def start_segment(self, header: Header, *, in_memory: bool) -> None:
        """Begins a newest segment. Raises SpoolError without any change."""
        segment: SpoolSegment
        if in_memory:
            segment = MemorySegment()
        else:
            segment = DiskSegment.create(self._directory / f"{self._next_file:010d}{SUFFIX}")
        try:
            segment.append(SpoolRecordType.HEADER, encode_header(header))
        except SpoolError:
            with contextlib.suppress(SpoolError):
                segment.delete()
            raise
        if isinstance(segment, DiskSegment):
            self._next_file += 1
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
        return newest.size_bytes - self._header_bytes >= worth_while and self._progress.is_done(newest)

    def drop_acknowledged(self) -> bool:
        """Deletes acknowledged segments; True if there were any."""
        kept = deque(s for s in self._segments if s is self._segments[-1] or not self._progress.is_done(s))
        gone = [segment for segment in self._segments if segment not in kept]
        self._segments = kept
        self._full &= len(kept) > 1
        for segment in gone:
            discard(segment)
        return bool(gone)

    def make_room(self, newest_ns: int) -> bool:
        """Deletes the oldest segments beyond the limit; True if there were any.

        `newest_ns`: of the newest batch.
        """
        held = len(self._segments)
        self._drop_oldest_beyond(self._max_bytes, newest_ns, on_disk=True)
        self._drop_oldest_beyond(min(self._max_bytes, _MOST_MEMORY_BYTES), newest_ns, on_disk=False)
        return len(self._segments) < held

    def close(self) -> None:
        """Closes the newest segment."""
        for segment in self._segments:
            segment.close()

    def _drop_oldest_beyond(self, most_bytes: int, newest_ns: int, *, on_disk: bool) -> None:
        """Keeps the segments on disk, or in memory, within their limit, except the newest."""
        held = deque(s for s in self._segments if s.on_disk == on_disk)
        size_bytes = sum(s.size_bytes for s in held)
        while size_bytes > most_bytes and held and held[0] is not self._segments[-1]:
            oldest = held.popleft()
            size_bytes -= oldest.size_bytes
            if on_disk and not self._full:  # logged once, until everything is acknowledged
                self._full = True
                hours = (newest_ns - begin_ns(oldest, newest_ns)) / 3600e9
                _log.warning("spool: full: %d bytes hold %.1f hours, dropping the oldest", most_bytes, hours)
            self._drop(oldest)

    def _drop(self, segment: SpoolSegment) -> None:
        self._segments.remove(segment)
        try:
            held = list(batches(segment))
        except SpoolError as exc:
            _log.warning("spool: %s; its batches are lost", exc)
            self.dropped_samples += self._progress.unacked(segment) * self._batch_ticks
            held = []
        for stored in held:
            if self._progress.is_acked(stored.key, stored.seq, stored.seq):
                continue
            if self._progress.is_sent(stored.key, stored.seq, stored.seq):
                self.unconfirmed_samples += stored.n
            else:
                self.dropped_samples += stored.n
        discard(segment)


def discard(segment: SpoolSegment) -> None:
    """Deletes a segment; a file that cannot be removed is found again at the next start."""
    try:
        segment.delete()
    except SpoolError as exc:
        _log.debug("spool: %s", exc)
