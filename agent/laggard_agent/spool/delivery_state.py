"""Delivery state of each stream in the spool: sequence numbers sent and acknowledged."""

from collections.abc import Iterable
from itertools import pairwise

from laggard_agent.spool.segments import Key, Segment
from laggard_agent.spool.seq_ranges import SeqRanges
from laggard_common import wire
from laggard_common.wire import Ack


class Progress:
    """Sent (PUBACK) and acknowledged sequence numbers by stream and source."""

    def __init__(self) -> None:
        self._acked: dict[Key, SeqRanges] = {}
        self._sent: dict[Key, SeqRanges] = {}

    def acknowledge(self, key: Key, low: int, high: int) -> None:
        """Marks these as acknowledged by the aggregator."""
        self._acked.setdefault(key, SeqRanges()).add(low, high)

    def mark_sent(self, key: Key, low: int, high: int) -> None:
        """Marks these as sent to the broker."""
        self._sent.setdefault(key, SeqRanges()).add(low, high)

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

    def is_done(self, segment: Segment) -> bool:
        """True when everything in the segment is acknowledged."""
        return all(self.is_acked(key, *span) for key, span in segment.spans.of.items())

    def is_all_sent(self, segment: Segment) -> bool:
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

    def unacked(self, segment: Segment) -> int:
        """Number of unacknowledged batches in the segment."""
        count = 0
        for key, (low, high) in segment.spans.of.items():
            ranges = self._acked.get(key)
            count += high - low + 1 - (ranges.count(low, high) if ranges else 0)
        return count

    def unacked_share(self, segment: Segment) -> float:
        """Unacknowledged share of the segment's batches, 0 to 1."""
        held = sum(high - low + 1 for low, high in segment.spans.of.values())
        return self.unacked(segment) / held if held else 0.0

    def forget(self, alive: Iterable[Key], segments: Iterable[Segment]) -> None:
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
