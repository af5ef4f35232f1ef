"""The agent's bounded disk spool, with its streams and sequence numbers.

Rules
- A batch gets its stream and sequence number here, and is on disk before it is published.
- It is deleted when an acknowledgement covers it, or, oldest first, when `max_bytes` is reached.
- A stream continues across restarts when nothing can be lost. Otherwise a sequence number could be reused for
  other data, which the aggregator would drop as a duplicate: every source then begins a new stream.
- While the disk cannot be written, batches are kept in bounded memory, with new streams for the same reason.
  Segments on the disk stay there.

All methods block and belong to one thread.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_agent.spool.backlog import Backlog
from laggard_agent.spool.recovery import Recovered, recover
from laggard_agent.spool.segment_queue import SegmentQueue, discard
from laggard_agent.spool.segments import (
    DiskSegment,
    Header,
    Key,
    SpooledBatch,
    SpoolFacts,
    SpoolIdentity,
    SpoolRecordType,
    Stream,
)
from laggard_agent.spool.streams import Progress, Streams
from laggard_common import wire
from laggard_common.daemon import file_lock
from laggard_common.errors import ServiceError, SpoolError
from laggard_common.wire.limits import MAX_ACK_BYTES, MAX_MESSAGE_BYTES
from laggard_common.wire.schema import Schema

_log = logging.getLogger(__name__)

_TRY_DISK_EVERY = 50  # batches kept in memory
_NOTE_ACKED_EVERY = 60  # batches kept on disk: bounds the batches sent again after a crash


class Spool:
    """The spool of one agent, created by `open`; `random_bytes` makes stream ids."""

    def __init__(
        self,
        directory: Path,
        owner: SpoolIdentity,
        max_bytes: int,
        boot_id: str,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._boot_id = boot_id
        self._streams = Streams(owner, random_bytes)
        self._lock: IO[bytes] | None = None
        self._taken_over = False
        self._progress = Progress()
        self._queue = SegmentQueue(directory, self._progress, max_bytes, owner.batch_ticks)
        self._backlog: Backlog | None = None
        self._memory_appends = 0
        self._disk_appends = 0
        self._too_large_samples = 0
        self.in_memory = False
        self.found_late = False
        """True when an earlier agent's batches were found late; the publisher resets it."""

    @classmethod
    def open(
        cls,
        directory: Path,
        owner: SpoolIdentity,
        max_bytes: int,
        boot_id: str,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> "Spool":
        """Opens and recovers the spool in `directory`. Raises ServiceError when another agent uses it.

        An unusable directory causes one WARNING, and the spool is kept in memory.
        """
        spool = cls(directory, owner, max_bytes, boot_id, random_bytes)
        try:
            spool._lock = _take_lock(directory)
            recovered = spool._take_over()
            spool._streams.continue_streams(recovered.streams_to_continue(boot_id))
            spool._begin_segment()
            for segment in recovered.spent:
                discard(segment)
            if recovered.spent:
                spool._forget()
            spool._drop_acknowledged()
        except SpoolError as exc:
            spool._fall_back(exc)
        return spool

    def dictionaries(self) -> dict[str, Dictionary]:
        """The dictionary of each source, to continue after a restart."""
        return self._streams.dictionaries()

    def current_schemas(self) -> list[Schema]:
        """The newest schema of every source's current stream."""
        return [stream.schema for stream in self._streams.current()]

    def facts(self) -> SpoolFacts:
        """Current state of the spool."""
        queue = self._queue
        dropped = queue.dropped_samples + self._too_large_samples
        return SpoolFacts(queue.pending_bytes(), self.in_memory, dropped, queue.unconfirmed_samples)

    def append(self, batch: EncodedBatch) -> SpooledBatch | None:
        """Stores a batch under its sequence number; None if it or its schema exceeds the message limit."""
        try:
            if self.in_memory:
                self._try_disk_again()
            stored = self._append(batch)
        except SpoolError as exc:
            self._fall_back(exc)
            stored = self._append(batch)
        if stored is None:
            self._too_large_samples += batch.n
            return None
        self._make_room(batch.t0_ns)
        return stored

    def mark_sent(self, stored: SpooledBatch) -> None:
        """Marks a batch as sent to the broker."""
        self._progress.mark_sent(stored.key, *stored.seqs)

    def acknowledge(self, key: Key, ranges: tuple[tuple[int, int], ...]) -> bool:
        """Marks sequence numbers as acknowledged. True when the stream belongs to this spool."""
        if self._streams.schema(key) is None:
            return False
        next_seq = self.next_seq(key)
        for low, high in ranges:
            if low < next_seq:
                self._progress.acknowledge(key, low, min(high, next_seq - 1))
        self._drop_acknowledged()
        return True

    def next_seq(self, key: Key) -> int:
        """The sequence number of the stream's next batch; acknowledgements from there on are ignored."""
        current = self._streams.next_seq(key)
        if current is not None:
            return current
        return max((s.spans.of[key][1] + 1 for s in self._queue if key in s.spans.of), default=0)

    def is_passed_over(self, key: Key) -> bool:
        """True when a sent batch is unacknowledged although a later one of the stream is acknowledged."""
        return self._progress.is_passed_over(key)

    def oldest_unacknowledged(self) -> dict[Key, int]:
        """The lowest unacknowledged sequence number of each stream where that batch is sent."""
        oldest: dict[Key, int] = {}
        for segment in self._queue:
            for key, (low, high) in segment.spans.of.items():
                missing = self._progress.first_unacked(key, low)
                if key not in oldest and missing <= high:
                    oldest[key] = missing
        return {key: seq for key, seq in oldest.items() if self._progress.is_sent(key, seq, seq)}

    def resend(self, keys: Iterable[Key]) -> None:
        """Returns these streams' sent, unacknowledged batches to the backlog."""
        for key in keys:
            self._progress.send_again(key)
        self.rewind()

    def rewind(self) -> None:
        """Restarts the backlog at the oldest batch."""
        self._backlog = Backlog(self._queue, self._progress)

    def oldest_unsent_ns(self) -> int | None:
        """Nominal time of the oldest unsent batch; None without one."""
        return Backlog(self._queue, self._progress).oldest_ns()

    def next_backlog(self, is_live: Callable[[SpooledBatch], bool] = lambda _: False) -> SpooledBatch | None:
        """The next unsent message, oldest first; None at the end.

        Live batches (`is_live`) are skipped.
        """
        if self._backlog is None:
            return None
        found = self._backlog.next(is_live)
        if found is None:
            self._backlog = None
            return None
        return replace(found, schema=self._streams.schema(found.key))

    def close(self) -> None:
        """Shuts down cleanly, so that the streams continue at the next start."""
        if not self.in_memory:
            newest = self._queue.newest
            try:
                self._note_acknowledged()
                newest.append(SpoolRecordType.CLOSED, b"")
                if isinstance(newest, DiskSegment):
                    newest.sync()
            except SpoolError as exc:
                _log.warning("spool: %s", exc)
        self._queue.close()
        if self._lock is not None:
            self._lock.close()

    # -- appending

    def _append(self, batch: EncodedBatch) -> SpooledBatch | None:
        stream = self._stream_for(batch)
        if stream is None:
            return None
        envelope = wire.Envelope(
            kind=wire.Kind.COUNTERS,
            node=self._owner.node,
            source=batch.source,
            stream=stream.stream,
            seq=stream.next_seq,
            schema_epoch=batch.dictionary.epoch,
            t0_ns=batch.t0_ns,
            dt_ns=batch.dt_ns,
            n=batch.n,
            codec=batch.codec,
            payload=batch.payload,
        )
        data = wire.encode_envelope(envelope)
        if len(data) > MAX_MESSAGE_BYTES:
            return None
        newest = self._queue.newest
        newest.append(SpoolRecordType.BATCH, data)
        newest.spans.note((stream.stream, batch.source), stream.next_seq)
        self._streams.advance(batch.source)
        return SpooledBatch(
            stream.stream,
            batch.source,
            stream.next_seq,
            batch.dictionary.epoch,
            batch.n,
            data,
            schema=stream.schema,
        )

    def _stream_for(self, batch: EncodedBatch) -> Stream | None:
        """The source's stream with a schema for `batch`, both recorded in the spool.

        None when the schema exceeds the message limit.
        """
        stream, is_new = self._streams.stream_for(batch)
        if is_new:
            encoded = wire.encode_schema(stream.schema)
            if len(encoded) > MAX_MESSAGE_BYTES:
                return None
            self._queue.newest.append(SpoolRecordType.SCHEMA, encoded)
            self._streams.remember(stream, batch.dictionary.generation)
        return stream

    def _begin_segment(self) -> None:
        """Begins a newest segment. Raises SpoolError without any change."""
        header = Header(self._owner.node, self._boot_id, self._streams.current())
        self._queue.start_segment(header, in_memory=self.in_memory)

    def _make_room(self, newest_ns: int) -> None:
        try:
            if self._queue.is_newest_full():
                self._begin_segment()
            self._disk_appends += not self.in_memory
            if self._disk_appends >= _NOTE_ACKED_EVERY:
                self._note_acknowledged()
        except SpoolError as exc:
            self._fall_back(exc)
        if self._queue.make_room(newest_ns):
            self._forget()

    def _note_acknowledged(self) -> None:
        """Records the acknowledged ranges, so that a restarted agent does not send them again."""
        self._disk_appends = 0
        acked = self._progress.encode_acked()
        if len(acked) <= MAX_ACK_BYTES:
            self._queue.newest.append(SpoolRecordType.ACKED, acked)

    # -- deleting acknowledged batches

    def _drop_acknowledged(self) -> None:
        if self._queue.is_newest_done():
            try:
                self._begin_segment()
            except SpoolError as exc:
                self._fall_back(exc)
        if self._queue.drop_acknowledged():
            self._forget()

    def _forget(self) -> None:
        """Forgets streams without batches."""
        alive = {key for kept in self._queue for key in kept.spans.of}
        alive |= self._streams.keys()
        self._streams.forget_all_but(alive)
        self._progress.forget(alive, self._queue)

    # -- recovery

    def _take_over(self) -> Recovered:
        """Inserts an earlier agent's batches before all others. Raises SpoolError."""
        recovered = recover(self._directory, self._owner.node)
        self._taken_over = True
        self._queue.prepend(recovered.segments, recovered.next_file)
        self._streams.add_schemas(recovered.schemas)
        for ack in recovered.acks:
            for low, high in ack.ranges:
                self._progress.acknowledge((ack.stream, ack.source), low, high)
        return recovered

    # -- fall-back to memory

    def _fall_back(self, exc: SpoolError) -> None:
        """Switches to memory with new streams, as the disk's state of the old ones may lag."""
        _log.warning("spool: %s; keeping batches in memory only", exc)
        self.in_memory = True
        self._memory_appends = 0
        self._streams.renew()
        self._begin_segment()

    def _try_disk_again(self) -> None:
        self._memory_appends += 1
        if self._memory_appends % _TRY_DISK_EVERY:
            return
        self.in_memory = False
        try:
            if self._lock is None:
                self._lock = _take_lock(self._directory)
            if not self._taken_over:  # missing at the start, such as a late mount
                self.found_late = bool(self._take_over().segments)
            if _free_bytes(self._directory) < self._queue.segment_bytes:
                raise SpoolError(str(self._directory), "is nearly full")
            self._begin_segment()
        except (SpoolError, ServiceError) as exc:
            self.in_memory = True
            _log.debug("spool: still in memory: %s", exc)
            return
        _log.info("spool: %s is usable again", self._directory)


def _take_lock(directory: Path) -> IO[bytes]:
    """Locks `directory`, which is created if needed; closing the lock releases it.

    Raises ServiceError when another agent holds it, SpoolError when the directory is unusable.
    """
    try:
        return file_lock.take_lock(directory, "the spool is in use by another agent")
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc


def _free_bytes(directory: Path) -> int:
    """Bytes this process may still write on the file system of `directory`. Raises SpoolError."""
    try:
        found = os.statvfs(directory)
    except OSError as exc:
        raise SpoolError(str(directory), exc.strerror or str(exc)) from exc
    return found.f_bavail * found.f_frsize
