"""The backlog: unsent batches in the spool, oldest first, coalesced per stream.

Coalesced messages drain faster and take fewer bytes. Their batches keep their sequence numbers, so the
aggregator drops duplicates and acknowledges batch by batch. Only adjacent batches are coalesced: consecutive
sequence numbers of one stream with consecutive ticks and the same components, fields and absent values.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from laggard_agent.sampling.batcher import MOST_VALUES
from laggard_agent.spool.decode import DecodedRows, unpack
from laggard_agent.spool.segments import Key, SpooledBatch, SpoolSegment, batches
from laggard_agent.spool.streams import Progress
from laggard_common import wire
from laggard_common.errors import SpoolError, WireError
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import Encoder
from laggard_common.wire.limits import MAX_MESSAGE_BYTES, MAX_TICKS

_log = logging.getLogger(__name__)

ENOUGH_TICKS = 60


class Backlog:
    """One pass over `segments`, including batches appended to the newest one meanwhile."""

    def __init__(self, segments: Iterable[SpoolSegment], progress: Progress) -> None:
        self._progress = progress
        self._unsent = self._stored(list(segments))
        self._joiner = Coalescer()
        self._ready: deque[SpooledBatch] = deque()

    def next(self, is_live: Callable[[SpooledBatch], bool]) -> SpooledBatch | None:
        """The next message, None at the end. Live batches (`is_live`) are skipped."""
        while not self._ready:
            stored = next(self._unsent, None)
            if stored is None:
                self._ready.extend(self._joiner.flush())
                break
            if not is_live(stored):
                self._ready.extend(self._joiner.add(stored))
        return self._ready.popleft() if self._ready else None

    def oldest_ns(self) -> int | None:
        """Nominal time of the first remaining batch, None without one; call it before `next`."""
        stored = next(self._unsent, None)
        return None if stored is None else wire.decode_envelope(stored.data).t0_ns

    def _stored(self, segments: list[SpoolSegment]) -> Iterator[SpooledBatch]:
        for segment in segments:
            if self._progress.is_all_sent(segment) or self._progress.is_done(segment):
                continue
            try:
                for stored in batches(segment):
                    if not (
                        self._progress.is_acked(stored.key, *stored.seqs)
                        or self._progress.is_sent(stored.key, *stored.seqs)
                    ):
                        yield stored
            except SpoolError as exc:  # deleted meanwhile, or unreadable: continue with the next segment
                _log.debug("spool: %s", exc)


class Coalescer:
    """Accepts batches of several streams, each stream's in order, and returns messages.

    A message that cannot grow, or has ENOUGH_TICKS, is returned at once.
    """

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._open: dict[Key, _Open] = {}

    def add(self, stored: SpooledBatch) -> list[SpooledBatch]:
        """Adds a batch; returns the messages completed by it, oldest first."""
        try:
            envelope = wire.decode_envelope(stored.data)
            rows = unpack(envelope) if envelope.kind == Kind.COUNTERS else None
        except WireError:  # the aggregator reports malformed batches
            rows = None
        if rows is None:
            return [*self._close(stored.key), stored]
        closed: list[SpooledBatch] = []
        if stored.key in self._open and not self._open[stored.key].takes(envelope, rows):
            closed = self._close(stored.key)
        one = self._open.setdefault(stored.key, _Open())
        one.parts.append(stored)
        one.envelopes.append(envelope)
        one.rows.append(rows)
        return closed + (self._close(stored.key) if one.ticks >= ENOUGH_TICKS else [])

    def flush(self) -> list[SpooledBatch]:
        """Returns the incomplete messages."""
        return [message for key in list(self._open) for message in self._close(key)]

    def _close(self, key: Key) -> list[SpooledBatch]:
        one = self._open.pop(key, None)
        if one is None:
            return []
        joined = self._joined(one) if len(one.parts) > 1 else None
        return one.parts if joined is None else [joined]

    def _joined(self, one: "_Open") -> SpooledBatch | None:
        """All batches as one message; None when it would exceed the message limit."""
        first, last = one.envelopes[0], one.envelopes[-1]
        payload = self._encoder.encode(
            one.rows[0].indexes,
            [tick for rows in one.rows for tick in rows.ticks],
            [offset for rows in one.rows for offset in rows.offsets_us],
        )
        envelope = Envelope(
            kind=Kind.JOINED,
            node=first.node,
            source=first.source,
            stream=first.stream,
            seq=first.seq,
            schema_epoch=last.schema_epoch,
            t0_ns=first.t0_ns,
            dt_ns=first.dt_ns,
            n=one.ticks,
            codec=self._encoder.codec,
            payload=wire.join_payload([envelope.n for envelope in one.envelopes], payload),
        )
        data = wire.encode_envelope(envelope)
        if len(data) > MAX_MESSAGE_BYTES:
            return None
        return SpooledBatch(
            first.stream, first.source, first.seq, last.schema_epoch, one.ticks, data, len(one.parts)
        )


@dataclass(slots=True)
class _Open:
    """Batches of one stream in the message being built, encoded and as rows."""

    parts: list[SpooledBatch] = field(default_factory=list)
    envelopes: list[Envelope] = field(default_factory=list)
    rows: list[DecodedRows] = field(default_factory=list)

    @property
    def ticks(self) -> int:
        return sum(envelope.n for envelope in self.envelopes)

    def takes(self, envelope: Envelope, rows: DecodedRows) -> bool:
        """True when this batch continues the last one."""
        last, like = self.envelopes[-1], self.rows[-1]
        values = (self.ticks + envelope.n) * len(rows.indexes) * rows.fields
        return (
            envelope.seq == last.seq + 1
            and envelope.t0_ns == last.t0_ns + last.n * last.dt_ns
            and envelope.dt_ns == last.dt_ns
            and (rows.indexes, rows.absent, rows.fields) == (like.indexes, like.absent, like.fields)
            and self.ticks + envelope.n <= MAX_TICKS
            and values <= MOST_VALUES
        )
