"""The backlog: unsent batches in the spool, oldest first, coalesced per stream.

Coalesced messages drain faster, take fewer bytes, and cost the aggregator less than single batches. Batches
keep their sequence numbers, so the aggregator drops duplicates and acknowledges batch by batch. Only adjacent
ones are coalesced: consecutive sequence numbers of one stream with consecutive ticks and the same components,
fields and absent values.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from laggard_agent.sampling.batcher import MOST_VALUES
from laggard_agent.spool.decode import DecodedRows, unpack
from laggard_agent.spool.segment_queue import SegmentQueue
from laggard_agent.spool.segments import Key, SpooledBatch
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import Encoder
from laggard_common.wire.limits import MAX_MESSAGE_BYTES, MAX_TICKS

LEAST_TICKS, MOST_TICKS = 60, 600
ENOUGH_VALUES = 2048
"""A message is full with this many values and LEAST_TICKS, or with MOST_TICKS. Longer ones would save the
aggregator little, and let a site's first ones after an outage outgrow its queue."""

_Part = tuple[SpooledBatch, DecodedRows]


class Backlog:
    """One pass over the unsent batches of `queue`, including those appended meanwhile."""

    def __init__(self, queue: SegmentQueue) -> None:
        self._unsent = queue.unsent()
        self._coalescer = Coalescer()
        self._ready: deque[SpooledBatch] = deque()

    def next(self, is_live: Callable[[SpooledBatch], bool]) -> SpooledBatch | None:
        """The next message, None at the end. Live batches (`is_live`) are skipped."""
        while not self._ready:
            batch = next(self._unsent, None)
            if batch is None:
                self._ready.extend(self._coalescer.flush())
                break
            if not is_live(batch):
                self._ready.extend(self._coalescer.add(batch))
        return self._ready.popleft() if self._ready else None


class Coalescer:
    """Accepts batches of several streams, each stream's in order, and returns messages.

    A message that cannot grow, or is full, is returned at once.
    """

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._open: dict[Key, list[_Part]] = {}

    def add(self, batch: SpooledBatch) -> list[SpooledBatch]:
        """Adds a batch; returns the messages completed by it, oldest first."""
        envelope = batch.envelope
        try:
            rows = unpack(envelope) if envelope.kind == Kind.COUNTERS else None
        except WireError:  # the aggregator reports malformed batches
            rows = None
        if rows is None:
            return [*self._close(batch.key), batch]
        parts = self._open.get(batch.key, [])
        closed = [] if not parts or _continues(parts, envelope, rows) else self._close(batch.key)
        parts = self._open.setdefault(batch.key, [])
        parts.append((batch, rows))
        return closed + (self._close(batch.key) if _is_full(parts) else [])

    def flush(self) -> list[SpooledBatch]:
        """Returns the incomplete messages."""
        return [message for key in list(self._open) for message in self._close(key)]

    def _close(self, key: Key) -> list[SpooledBatch]:
        """The stream's open batches as one message, or as they are when it would exceed the limit."""
        parts = self._open.pop(key, [])
        alone = [batch for batch, _ in parts]
        if len(parts) < 2:
            return alone
        payload = self._encoder.encode(
            parts[0][1].indexes,
            [tick for _, rows in parts for tick in rows.ticks],
            [offset for _, rows in parts for offset in rows.offsets_us],
        )
        envelope = replace(
            alone[0].envelope,
            kind=Kind.JOINED,
            schema_epoch=alone[-1].envelope.schema_epoch,
            n=_ticks(parts),
            codec=self._encoder.codec,
            payload=wire.join_payload([batch.envelope.n for batch in alone], payload),
        )
        fits = len(wire.encode_envelope(envelope)) <= MAX_MESSAGE_BYTES
        return [SpooledBatch(envelope, len(parts))] if fits else alone


def _ticks(parts: Sequence[_Part]) -> int:
    return sum(batch.envelope.n for batch, _ in parts)


def _is_full(parts: Sequence[_Part]) -> bool:
    ticks, rows = _ticks(parts), parts[-1][1]
    values = ticks * len(rows.indexes) * rows.fields
    return ticks >= MOST_TICKS or (ticks >= LEAST_TICKS and values >= ENOUGH_VALUES)


def _continues(parts: Sequence[_Part], envelope: Envelope, rows: DecodedRows) -> bool:
    """True when a batch continues the last one and does not exceed a message's ticks and values."""
    last, like = parts[-1][0].envelope, parts[-1][1]
    ticks = _ticks(parts) + envelope.n
    return (
        envelope.seq == last.seq + 1
        and envelope.t0_ns == last.t0_ns + last.n * last.dt_ns
        and envelope.dt_ns == last.dt_ns
        and (rows.indexes, rows.absent, rows.fields) == (like.indexes, like.absent, like.fields)
        and ticks <= MAX_TICKS
        and ticks * len(rows.indexes) * rows.fields <= MOST_VALUES
    )
