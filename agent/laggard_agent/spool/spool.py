"""The agent's bounded disk spool, with its streams and sequence numbers.

Rules
- A batch gets its stream and sequence number here, and is on disk before it is published. A document is also
  synced, as whoever gave it deletes its own copy.
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
from laggard_agent.settings import AgentSettings
from laggard_agent.spool.backlog import Backlog
from laggard_agent.spool.recovery import Recovered, recover
from laggard_agent.spool.segment_queue import SegmentQueue
from laggard_agent.spool.segments import Header, Key, SpooledBatch, SpoolRecordType, Stream
from laggard_common import wire
from laggard_common.daemon import file_lock
from laggard_common.errors import ServiceError, SpoolError
from laggard_common.wire.limits import MAX_ACK_BYTES, MAX_MESSAGE_BYTES, STREAM_BYTES
from laggard_common.wire.schema import Schema

_log = logging.getLogger(__name__)

_TRY_DISK_EVERY = 50  # batches kept in memory, and attempts to store a document
_NOTE_ACKED_EVERY = 60  # batches kept on disk: bounds the batches sent again after a crash


class Spool:
    """The spool of one agent, recovered from its directory; `random_bytes` makes stream ids.

    `on_disk` False: the directory does not answer, and is never touched.
    Raises ServiceError when another agent uses the directory. An unusable directory causes one WARNING, and
    the spool is kept in memory.
    """

    def __init__(
        self,
        settings: AgentSettings,
        boot_id: str,
        random_bytes: Callable[[int], bytes] = os.urandom,
        *,
        on_disk: bool = True,
    ) -> None:
        self._settings = settings
        self._directory = settings.spool.directory
        self._boot_id = boot_id
        self._random_bytes = random_bytes
        self._streams: dict[str, Stream] = {}  # the current one of each source
        self._schemas: dict[Key, Schema] = {}  # the newest of each stream, also of earlier streams
        self._lock: IO[bytes] | None = None
        self._taken_over = False
        self.queue = SegmentQueue(self._directory, settings.spool.max_bytes, settings.batch_samples)
        self._backlog: Backlog | None = None
        self._attempts_in_memory = 0
        self._disk_appends = 0
        self._too_large_samples = 0
        self.in_memory = False
        self.took_over_late = False
        """True when an earlier agent's batches were found late; the publisher resets it."""
        self._on_disk = on_disk
        if not on_disk:
            self.in_memory = True
            self._begin_segment()
            return
        try:
            self._lock = _take_lock(self._directory)
            recovered = self._take_over()
            for stream in recovered.streams_to_continue(boot_id, settings.node):
                self._continue(stream)
            self._begin_segment()
            for segment in recovered.spent:
                self.queue.discard(segment)
            if recovered.spent:
                self._forget()
            self._drop_acknowledged()
        except SpoolError as exc:
            self._fall_back(exc)

    def dictionaries(self) -> dict[str, Dictionary]:
        """The dictionary of each source, to continue after a restart."""
        return {
            source: Dictionary(s.generation, s.schema.epoch, s.schema.fields, s.schema.components)
            for source, s in self._streams.items()
        }

    def current_schemas(self) -> list[Schema]:
        """The newest schema of every source's current stream."""
        return [stream.schema for stream in self._streams.values()]

    def status(self) -> dict[str, int]:
        """The spool's fields of the status message. `spool_bytes`: approximate unacknowledged bytes."""
        return {
            "spool_bytes": self.queue.pending_bytes(),
            "spool_in_memory": self.in_memory,
            "dropped_samples": self.queue.dropped_samples + self._too_large_samples,
            "unconfirmed_samples": self.queue.unconfirmed_samples,
        }

    def append(self, batch: EncodedBatch) -> SpooledBatch | None:
        """Stores a batch under its sequence number; None if it or its schema exceeds the message limit."""
        try:
            if self.in_memory:
                self.try_disk_again()
            stored = self._append(batch)
            if batch.kind == wire.Kind.EVENTS:
                self.queue.newest.sync()
        except SpoolError as exc:
            self._fall_back(exc)
            stored = self._append(batch)
        if stored is None:
            self._too_large_samples += batch.n
            return None
        self._make_room(batch.t0_ns)
        return stored

    def try_disk_again(self) -> None:
        """Goes back to the disk where it is usable again; only each 50th call looks.

        For whoever waits for that; `append` calls it too.
        """
        self._attempts_in_memory += 1
        if not self._on_disk or self._attempts_in_memory % _TRY_DISK_EVERY:
            return
        self.in_memory = False
        try:
            if self._lock is None:
                self._lock = _take_lock(self._directory)
            if not self._taken_over:  # missing at the start, such as a late mount
                self.took_over_late = bool(self._take_over().segments)
            with SpoolError.from_os_errors(self._directory):
                disk = os.statvfs(self._directory)
            if disk.f_bavail * disk.f_frsize < self.queue.segment_bytes:
                raise SpoolError(str(self._directory), "is nearly full")
            self._begin_segment()
        except (SpoolError, ServiceError) as exc:
            self.in_memory = True
            _log.debug("spool: still in memory: %s", exc)
            return
        _log.info("spool: %s is usable again", self._directory)

    def mark_sent(self, batch: SpooledBatch) -> None:
        """Marks a batch as sent to the broker."""
        self.queue.sent[batch.key].add(*batch.seqs)

    def acknowledge(self, key: Key, ranges: tuple[tuple[int, int], ...]) -> bool:
        """Marks sequence numbers as acknowledged. True when the stream belongs to this spool."""
        if key not in self._schemas:
            return False
        next_seq = self.next_seq(key)
        for low, high in ranges:
            if low < next_seq:
                self.queue.acked[key].add(low, min(high, next_seq - 1))
        self._drop_acknowledged()
        return True

    def next_seq(self, key: Key) -> int:
        """The sequence number of the stream's next batch; acknowledgements from there on are ignored."""
        current = self._streams.get(key[1])
        if current is not None and current.key == key:
            return current.next_seq
        return max((s.spans[key][1] + 1 for s in self.queue if key in s.spans), default=0)

    def resend(self, keys: Iterable[Key]) -> None:
        """Returns these streams' sent, unacknowledged batches to the backlog."""
        for key in keys:
            self.queue.sent.pop(key, None)
        self.rewind()

    def rewind(self) -> None:
        """Restarts the backlog at the oldest batch."""
        self._backlog = Backlog(self.queue)

    def oldest_unsent_ns(self) -> int | None:
        """Nominal time of the oldest unsent batch; None without one."""
        oldest = next(self.queue.unsent(), None)
        return None if oldest is None else oldest.envelope.t0_ns

    def next_backlog(self, is_live: Callable[[SpooledBatch], bool] = lambda _: False) -> SpooledBatch | None:
        """The next unsent message, oldest first; None at the end.

        Live batches (`is_live`) are skipped.
        """
        if self._backlog is None:
            return None
        batch = self._backlog.next(is_live)
        if batch is None:
            self._backlog = None
            return None
        return replace(batch, schema=self._schemas.get(batch.key))

    def close(self) -> None:
        """Shuts down cleanly, so that the streams continue at the next start."""
        if not self.in_memory:
            try:
                self._note_acknowledged()
                self.queue.newest.append(SpoolRecordType.CLOSED, b"")
                self.queue.newest.close(sync=True)
            except SpoolError as exc:
                _log.warning("spool: %s", exc)
        self.queue.newest.close()
        if self._lock is not None:
            self._lock.close()

    # -- appending

    def _append(self, batch: EncodedBatch) -> SpooledBatch | None:
        stream = self._stream_for(batch)
        if stream is None:
            return None
        envelope = wire.Envelope(
            kind=batch.kind,
            node=self._settings.node,
            source=batch.source,
            stream=stream.schema.stream,
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
        self.queue.newest.append(SpoolRecordType.BATCH, data)
        self.queue.newest.note(stream.key, stream.next_seq)
        stream.next_seq += 1
        return SpooledBatch(envelope, schema=stream.schema)

    def _stream_for(self, batch: EncodedBatch) -> Stream | None:
        """The source's stream with a schema for `batch`, both recorded in the spool.

        None when the schema exceeds the message limit.
        """
        d, current = batch.dictionary, self._streams.get(batch.source)
        if current is None or current.generation != d.generation:
            stream, seq = self._random_bytes(STREAM_BYTES), 0
        elif current.schema.epoch < d.epoch:
            stream, seq = current.schema.stream, current.next_seq
        else:
            return current
        schema = Schema(
            node=self._settings.node,
            source=batch.source,
            stream=stream,
            epoch=d.epoch,
            interval_ns=self._settings.interval_ns,
            batch_ticks=self._settings.batch_samples,
            fields=d.fields,
            components=d.components,
        )
        encoded = wire.encode_schema(schema)
        if len(encoded) > MAX_MESSAGE_BYTES:
            return None
        self.queue.newest.append(SpoolRecordType.SCHEMA, encoded)
        return self._set_current(Stream(schema, seq, d.generation))

    def _set_current(self, stream: Stream) -> Stream:
        """Makes `stream` the current one of its source."""
        self._streams[stream.schema.source] = stream
        self._schemas[stream.key] = stream.schema
        return stream

    def _begin_segment(self) -> None:
        """Begins a newest segment. Raises SpoolError without any change."""
        header = Header(self._settings.node, self._boot_id, tuple(self._streams.values()))
        self.queue.start_segment(header, in_memory=self.in_memory)

    def _make_room(self, newest_ns: int) -> None:
        try:
            if self.queue.is_newest_full():
                self._begin_segment()
            self._disk_appends += not self.in_memory
            if self._disk_appends >= _NOTE_ACKED_EVERY:
                self._note_acknowledged()
        except SpoolError as exc:
            self._fall_back(exc)
        if self.queue.make_room(newest_ns):
            self._forget()

    def _note_acknowledged(self) -> None:
        """Records the acknowledged ranges, so that a restarted agent does not send them again."""
        self._disk_appends = 0
        acked = self.queue.encode_acked()
        if len(acked) <= MAX_ACK_BYTES:
            self.queue.newest.append(SpoolRecordType.ACKED, acked)

    # -- deleting acknowledged batches

    def _drop_acknowledged(self) -> None:
        if self.queue.is_newest_done():
            try:
                self._begin_segment()
            except SpoolError as exc:
                self._fall_back(exc)
        if self.queue.drop_acknowledged():
            self._forget()

    def _forget(self) -> None:
        """Forgets streams without batches."""
        alive = {key for kept in self.queue for key in kept.spans}
        alive |= {stream.key for stream in self._streams.values()}
        self._schemas = {key: schema for key, schema in self._schemas.items() if key in alive}
        self.queue.forget_all_but(alive)

    # -- recovery

    def _take_over(self) -> Recovered:
        """Inserts an earlier agent's batches before all others. Raises SpoolError."""
        recovered = recover(self._directory, self._settings.node, self._boot_id)
        self._taken_over = True
        self.queue.prepend(recovered.segments, recovered.next_file)
        self._schemas |= recovered.schemas
        self.queue.dropped_samples += recovered.lost_batches * self._settings.batch_samples
        for key, low, high in recovered.lost:
            self.queue.acked[key].add(low, high)  # so that the rest of their segment is not waited for
        for ack in recovered.acks:
            for low, high in ack.ranges:
                self.queue.acked[ack.stream, ack.source].add(low, high)
        return recovered

    def _continue(self, stream: Stream) -> None:
        """Continues an earlier agent's stream, in a new epoch if interval or batch size changed."""
        old, s = stream.schema, self._settings
        today = replace(old, interval_ns=s.interval_ns, batch_ticks=s.batch_samples)
        schema = old if today == old else replace(today, epoch=old.epoch + 1)
        self._set_current(Stream(schema, stream.next_seq))

    # -- fall-back to memory

    def _fall_back(self, exc: SpoolError) -> None:
        """Switches to memory with new streams, as the disk's state of the old ones may lag."""
        _log.warning("spool: %s; keeping batches in memory only", exc)
        self.in_memory = True
        self._attempts_in_memory = 0
        for stream in list(self._streams.values()):
            renewed = replace(stream.schema, stream=self._random_bytes(STREAM_BYTES))
            self._set_current(Stream(renewed, 0, stream.generation))
        self._begin_segment()


def _take_lock(directory: Path) -> IO[bytes]:
    """Locks `directory`, which is created if needed; closing the lock releases it.

    Raises ServiceError when another agent holds it, SpoolError when the directory is unusable.
    """
    with SpoolError.from_os_errors(directory):
        return file_lock.take_lock(directory, "the spool is in use by another agent")
