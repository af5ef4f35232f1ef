"""Segments of the spool, on disk, or in memory while the disk is unusable.

Both hold the same records. A segment begins with a HEADER, which suffices to continue: the streams, their
next sequence numbers and schemas. So the newest segment always stays, and all others may be deleted.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import msgpack

from laggard_common import segment_log, wire
from laggard_common.errors import SpoolError, WireError
from laggard_common.wire import Envelope
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


@dataclass(slots=True)
class Stream:
    """A source's stream: its newest schema, the sequence number of its next batch, and the generation of the
    batcher's dictionary.
    """

    schema: Schema
    next_seq: int = 0
    generation: int = 0

    @property
    def key(self) -> Key:
        """Stream and source."""
        return self.schema.stream, self.schema.source


@dataclass(frozen=True, slots=True)
class Header:
    """State for a restarted agent. `boot_id`: of the kernel at the start of the segment."""

    node: str
    boot_id: str
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """A batch ready to publish, or `count` coalesced ones with the sequence numbers from `envelope.seq` on.

    `schema`: the newest of the stream; `SpoolSegment.batches` omits it.
    """

    envelope: Envelope
    count: int = 1
    schema: Schema | None = None

    @property
    def seqs(self) -> tuple[int, int]:
        """The first and the last sequence number."""
        return self.envelope.seq, self.envelope.seq + self.count - 1

    @property
    def key(self) -> Key:
        """Stream and source."""
        return self.envelope.stream, self.envelope.source


def encode_header(header: Header) -> bytes:
    """The payload of a HEADER record."""
    streams = [(s.next_seq, wire.encode_schema(s.schema)) for s in header.streams]
    packed: bytes = msgpack.packb((_HEADER_VERSION, header.node, header.boot_id, streams))
    return packed


def is_later(payload: bytes) -> bool:
    """Whether a HEADER record is of a later version."""
    try:
        version, *_ = msgpack.unpackb(payload)
    except (ValueError, TypeError):
        return False
    return type(version) is int and version > _HEADER_VERSION


def decode_header(payload: bytes) -> Header:
    """The header in a HEADER record. Raises WireError."""
    try:
        version, node, boot_id, streams = msgpack.unpackb(payload, use_list=False)
        if version != _HEADER_VERSION:
            raise WireError("spool", f"header version {version!r}")
        decoded = tuple(Stream(wire.decode_schema(schema), int(next_seq)) for next_seq, schema in streams)
    except (ValueError, TypeError) as exc:
        raise WireError("spool", f"header: {exc}"[:200]) from exc
    return Header(str(node), str(boot_id), decoded)


class SpoolSegment:
    """Records in the file `path`, or in memory without one. Appending to a file needs a `writer`.

    Raises SpoolError where the file cannot be looked at.

    `size_bytes` counts all records. `spans`: the first and last sequence number of the batches, by stream and
    source.
    """

    def __init__(self, path: Path | None = None, writer: segment_log.SegmentWriter | None = None) -> None:
        self.path = path
        self.spans: dict[Key, tuple[int, int]] = {}
        self.size_bytes = 0
        if path is not None:
            with SpoolError.from_os_errors(path):
                self.size_bytes = path.stat().st_size
        self._writer = writer
        self._records: list[segment_log.Record] = []  # in memory

    @classmethod
    def create(cls, path: Path) -> "SpoolSegment":
        """Creates a segment at `path`, open for appending. Raises SpoolError."""
        return cls(path, segment_log.SegmentWriter(path))

    def append(self, type_: SpoolRecordType, payload: bytes) -> None:
        """Appends a complete record, or raises SpoolError without any change."""
        if self.path is None:
            self._records.append(segment_log.Record(type_, payload, 0, 0))
            self.size_bytes += segment_log.HEADER.size + len(payload)
            return
        if self._writer is None:
            raise SpoolError(str(self.path), "is closed")
        if len(payload) > segment_log.MAX_RECORD_BYTES:
            raise SpoolError(str(self.path), f"does not take a record of {len(payload)} bytes")
        self._writer.append(type_, payload)
        self.size_bytes = self._writer.size_bytes

    def note(self, key: Key, seq: int) -> None:
        """Adds the sequence number of an appended batch to `spans`."""
        low, _ = self.spans.get(key, (seq, seq))
        self.spans[key] = (low, seq)

    def records(self) -> Iterator[segment_log.Record]:
        """The records in order. Raises SpoolError."""
        return iter(self._records) if self.path is None else segment_log.scan(self.path)

    def batches(self) -> Iterator[SpooledBatch]:
        """Yields the batches in order, except those of an unknown format. Raises SpoolError."""
        for record in self.records():
            if record.type == SpoolRecordType.BATCH:
                try:
                    yield SpooledBatch(wire.decode_envelope(record.payload))
                except WireError:  # logged by `recover`
                    continue

    def sync(self) -> None:
        """Waits until the records are on the disk itself. Raises SpoolError."""
        if self.path is not None and self._writer is not None:
            self._writer.sync()
            with SpoolError.from_os_errors(self.path):
                segment_log.sync_path(self.path.parent)

    def close(self, *, sync: bool = False) -> None:
        """Closes the segment for appending; with `sync` its records are on the disk itself then.

        Raises SpoolError when they cannot be synced.
        """
        if self._writer is not None:
            if sync:
                self._writer.sync()
            self._writer.close()
            self._writer = None

    def delete(self) -> None:
        """Deletes the records. Raises SpoolError when the file cannot be removed.

        Then it is emptied, if it can be: the next start would send its batches again.
        """
        self.close()
        self._records = []
        if self.path is not None:
            with SpoolError.from_os_errors(self.path):
                try:
                    self.path.unlink(missing_ok=True)
                except OSError:
                    with suppress(OSError):
                        os.truncate(self.path, 0)
                    raise
