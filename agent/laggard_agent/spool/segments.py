"""Segments of the spool, on disk, or in memory while the disk is unusable.

Both hold the same records. A segment begins with a HEADER, which suffices to continue: the streams, their
next sequence numbers and schemas. So the newest segment always stays, and all others may be deleted.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

import msgpack

from laggard_common import segment_log, wire
from laggard_common.errors import SpoolError, WireError
from laggard_common.wire.schema import Schema

Key = tuple[bytes, str]  # stream, source

SUFFIX = ".segment"
_HEADER_VERSION = 1


class SpoolRecordType(IntEnum):
    """Type of a spool record."""

    HEADER = 1
    BATCH = 2  # an envelope
    SCHEMA = 3
    ACKED = 4  # all acknowledged ranges, written occasionally and before CLOSED
    CLOSED = 5  # clean shutdown; nothing follows


@dataclass(frozen=True, slots=True)
class SpoolIdentity:
    """Owner of the spool, part of every message and schema."""

    node: str
    interval_ns: int
    batch_ticks: int


@dataclass(frozen=True, slots=True)
class SpoolFacts:
    """State of the spool for the status message. `pending_bytes`: approximate unacknowledged bytes."""

    pending_bytes: int
    in_memory: bool
    dropped_samples: int
    unconfirmed_samples: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A source's stream, the sequence number of its next batch, and its newest schema."""

    stream: bytes
    next_seq: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class Header:
    """State for a restarted agent. `boot_id`: of the kernel at the start of the segment."""

    node: str
    boot_id: str
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """A batch ready to publish: the bytes of its envelope, its key, sequence numbers and a schema for it.

    `count` coalesced batches have the sequence numbers from `seq` on. `schema` is the newest of the stream;
    `batches` omits it.
    """

    stream: bytes
    source: str
    seq: int
    epoch: int
    n: int
    data: bytes
    count: int = 1
    schema: Schema | None = None

    @property
    def seqs(self) -> tuple[int, int]:
        """The first and the last sequence number."""
        return self.seq, self.seq + self.count - 1

    @property
    def key(self) -> Key:
        """Stream and source."""
        return self.stream, self.source


def encode_header(header: Header) -> bytes:
    """The payload of a HEADER record."""
    streams = [(s.next_seq, wire.encode_schema(s.schema)) for s in header.streams]
    packed: bytes = msgpack.packb((_HEADER_VERSION, header.node, header.boot_id, streams))
    return packed


def decode_header(payload: bytes) -> Header:
    """The header in a HEADER record. Raises WireError."""
    try:
        version, node, boot_id, streams = msgpack.unpackb(payload, use_list=False)
        if version != _HEADER_VERSION:
            raise WireError("spool", f"header version {version!r}")
        found = tuple(_stream(next_seq, schema) for next_seq, schema in streams)
    except (ValueError, TypeError) as exc:
        raise WireError("spool", f"header: {exc}"[:200]) from exc
    return Header(str(node), str(boot_id), found)


def _stream(next_seq: Any, schema: Any) -> Stream:
    decoded = wire.decode_schema(schema)
    return Stream(decoded.stream, int(next_seq), decoded)


@dataclass(slots=True)
class Spans:
    """The consecutive sequence numbers in a segment, by stream and source."""

    of: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def note(self, key: Key, seq: int) -> None:
        """Adds a batch of the segment."""
        low, _ = self.of.get(key, (seq, seq))
        self.of[key] = (low, seq)


class SpoolSegment(Protocol):
    """A segment of the spool. `size_bytes` counts all records, `spans` its batches."""

    spans: Spans
    size_bytes: int
    on_disk: bool

    def append(self, type_: SpoolRecordType, payload: bytes) -> None:
        """Appends a complete record, or raises SpoolError without any change."""
        ...

    def records(self, offset: int = 0) -> Iterator[segment_log.Record]:
        """The records from `offset` on (0: the first). Raises SpoolError."""
        ...

    def close(self) -> None:
        """Closes the segment for appending."""
        ...

    def delete(self) -> None:
        """Deletes the records."""
        ...


class DiskSegment:
    """A segment file of `laggard_common.segment_log`, created by `begin`; recovered ones have no writer."""

    on_disk = True

    def __init__(self, path: Path, writer: segment_log.SegmentWriter | None) -> None:
        self.path = path
        self.spans = Spans()
        self._writer = writer
        self.size_bytes = path.stat().st_size

    @classmethod
    def create(cls, path: Path) -> "DiskSegment":
        """Creates a segment at `path`, open for appending. Raises SpoolError."""
        return cls(path, segment_log.SegmentWriter(path))

    def append(self, type_: SpoolRecordType, payload: bytes) -> None:
        """Appends a complete record, or raises SpoolError without any change."""
        if self._writer is None:
            raise SpoolError(str(self.path), "is closed")
        if len(payload) > segment_log.MAX_RECORD_BYTES:
            raise SpoolError(str(self.path), f"does not take a record of {len(payload)} bytes")
        self._writer.append(type_, payload)
        self.size_bytes = self._writer.size_bytes

    def records(self, offset: int = 0) -> Iterator[segment_log.Record]:
        """The records from `offset` on (0: the first). Raises SpoolError."""
        return segment_log.scan(self.path, offset)

    def sync(self) -> None:
        """Waits until the records are on the disk itself. Raises SpoolError."""
        if self._writer is not None:
            self._writer.sync()

    def close(self) -> None:
        """Closes the segment for appending."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def delete(self) -> None:
        """Removes the file; if that fails it is found again at the next start."""
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as exc:
            raise SpoolError(str(self.path), exc.strerror or str(exc)) from exc


class MemorySegment:
    """A segment in memory, lost with the process."""

    on_disk = False

    def __init__(self) -> None:
        self.spans = Spans()
        self.size_bytes = 0
        self._records: list[segment_log.Record] = []

    def append(self, type_: SpoolRecordType, payload: bytes) -> None:
        """Appends a record."""
        offset = len(self._records)
        self._records.append(segment_log.Record(type_, payload, offset, offset + 1))
        self.size_bytes += len(payload) + segment_log.HEADER.size

    def records(self, offset: int = 0) -> Iterator[segment_log.Record]:
        """The current records from `offset` on."""
        return iter(self._records[offset:])

    def close(self) -> None:
        """Does nothing."""

    def delete(self) -> None:
        """Deletes the records."""
        self._records = []


def batches(segment: SpoolSegment) -> Iterator[SpooledBatch]:
    """Yields the batches of a segment in order, except those of an unknown format.

    Raises SpoolError when the segment is unreadable.
    """
    for record in segment.records():
        if record.type == SpoolRecordType.BATCH:
            try:
                e = wire.decode_envelope(record.payload)
            except WireError:  # logged by `recover`
                continue
            yield SpooledBatch(e.stream, e.source, e.seq, e.schema_epoch, e.n, record.payload)


def begin_ns(segment: SpoolSegment, otherwise: int) -> int:
    """Nominal start of the first batch in a segment; `otherwise` when none is readable."""
    with contextlib.suppress(SpoolError):
        for stored in batches(segment):
            return wire.decode_envelope(stored.data).t0_ns
    return otherwise
