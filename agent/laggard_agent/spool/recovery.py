"""Recovers an earlier agent's spool: waiting batches, and the state of its streams."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from laggard_agent.spool.segments import (
    SUFFIX,
    Header,
    Key,
    SpoolRecordType,
    SpoolSegment,
    Stream,
    decode_header,
    is_later,
)
from laggard_common import segment_log, wire
from laggard_common.daemon.host_name import HostName
from laggard_common.errors import LATER_VERSION, SpoolError, WireError
from laggard_common.wire import Ack
from laggard_common.wire.schema import Schema

_log = logging.getLogger(__name__)

_UNKNOWN = -1


@dataclass(slots=True)
class Recovered:
    """`header`: as of the end of the newest segment, None in a new spool. `whole`: nothing was truncated or
    unreadable. `closed`: the previous agent shut down cleanly. `segments`: those with batches, oldest first.
    `spent`: the others, to be deleted once a newer segment holds the header. `lost`: sequence numbers of
    damaged batches, as ranges with both ends.
    """

    header: Header | None = None
    whole: bool = True
    closed: bool = False
    next_file: int = 0
    segments: list[SpoolSegment] = field(default_factory=list)
    spent: list[SpoolSegment] = field(default_factory=list)
    schemas: dict[Key, Schema] = field(default_factory=dict)
    acks: tuple[Ack, ...] = ()
    lost: list[tuple[Key, int, int]] = field(default_factory=list)

    @property
    def lost_batches(self) -> int:
        """Number of damaged batches."""
        return sum(high - low + 1 for _, low, high in self.lost)

    def streams_to_continue(self, boot_id: str, node: str) -> tuple[Stream, ...]:
        """The earlier agent's streams; none, with a log line, when batches of them may be lost.

        None either when the host had another name than `node`: streams are a node's.

        Nothing can be lost after a clean shutdown, nor with complete files within one boot of the kernel.
        After a power loss published records may be missing.
        """
        if self.header is None or not self.header.streams:
            return ()
        if self.header.node != node:
            _log.info("spool: written when the node was named %s; starting new streams", self.header.node)
            return ()
        if self.whole and (self.closed or self.header.boot_id == boot_id != ""):
            return self.header.streams
        _log.info("spool: its last batches may be lost; starting new streams")
        return ()


def recover(directory: Path, node: str, boot_id: str = "") -> Recovered:
    """Reads every segment in `directory` and truncates torn tails.

    The spool of another node (an image that was cloned) is spent, with a WARNING: its streams are the other
    node's. One of this boot is this host's under an earlier name, when the node is named by the host or was
    named by nobody: its batches are kept, and are published under the present name. A file that can neither
    be read nor truncated is left out, with a WARNING. Raises SpoolError when the directory cannot be read,
    or a segment is of a later version; then nothing is changed.
    """
    recovered = Recovered()
    foreign = ""
    with SpoolError.from_os_errors(directory):
        paths = [p for p in segment_log.files(directory, SUFFIX) if p.stem.isdecimal()]
    _refuse_later(paths)
    for at, path in enumerate(paths, start=1):
        follows, lost = int(path.stem) == recovered.next_file, len(recovered.lost)
        recovered.next_file = int(path.stem) + 1
        recovered.closed = False
        try:
            segment = SpoolSegment(path)
            torn = segment_log.recover(path)
            if torn:
                _log.warning("spool: truncated %d damaged bytes of %s", torn, path)
            recovered.whole &= not torn
            header = _read(segment, recovered, paths[at:], follows=follows)
        except SpoolError as exc:
            _log.warning("spool: %s; it is left out", exc)
            recovered.whole = False
            continue
        if header is not None and header.node != node and not _is_renamed(header, node, boot_id):
            foreign = header.node
            del recovered.lost[lost:]
        elif header is not None:
            recovered.header = header
            if segment.spans:
                recovered.segments.append(segment)
                continue
        recovered.spent.append(segment)
    if recovered.lost:
        _log.warning("spool: %s is damaged: %d batches are lost", directory, recovered.lost_batches)
    if foreign:
        _log.warning("spool: %s belongs to node %s: discarding its batches", directory, foreign)
    return recovered


def _refuse_later(paths: Sequence[Path]) -> None:
    """Raises SpoolError where a segment is of a later version."""
    for path in paths:
        try:
            record = next(segment_log.scan(path), None)
        except SpoolError as exc:
            _log.debug("spool: %s", exc)
            continue
        if record is not None and record.type == SpoolRecordType.HEADER and is_later(record.payload):
            raise SpoolError(str(path), LATER_VERSION)


def _is_renamed(header: Header, node: str, boot_id: str) -> bool:
    """Whether a spool is of this host, when it had another name."""
    by_host = isinstance(node, HostName) or not HostName(header.node).is_usable
    return by_host and header.boot_id == boot_id != ""


def _read(
    segment: SpoolSegment, recovered: Recovered, later: Sequence[Path], *, follows: bool
) -> Header | None:
    """Records the batches of `segment`; returns the header as of its end.

    A damaged HEADER is replaced by the one before it, or by the first of the segments `later`. `follows`:
    there was no segment between the one before and this one, so its HEADER shows how far that one went.
    """
    header: Header | None = None
    streams: dict[str, Stream] = {}
    end: int | None = None
    for record in segment.records():
        if record.offset != (len(segment_log.MAGIC) if end is None else end):
            _log.warning("spool: %s: damaged before byte %d", segment.path, record.offset)
            recovered.whole = False
            if end is None:  # its header is lost
                header = recovered.header or _first_header(later)
                known = () if header is None else header.streams
                streams = {stream.schema.source: replace(stream, next_seq=_UNKNOWN) for stream in known}
        end = record.end
        recovered.closed = record.type == SpoolRecordType.CLOSED
        try:
            if record.type == SpoolRecordType.HEADER:
                header = decode_header(record.payload)
                streams = {stream.schema.source: stream for stream in header.streams}
                if follows and not recovered.whole and recovered.header is not None:
                    recovered.lost += _lost_between(recovered.header, streams)
            elif record.type == SpoolRecordType.SCHEMA:
                schema = wire.decode_schema(record.payload)
                before = streams.get(schema.source)
                goes_on = before is not None and before.schema.stream == schema.stream
                first = 0 if header is not None else _UNKNOWN
                header = header or Header(schema.node, "", ())
                streams[schema.source] = Stream(schema, before.next_seq if before and goes_on else first)
            elif record.type == SpoolRecordType.BATCH:
                envelope = wire.decode_envelope(record.payload)
                key, seq = (envelope.stream, envelope.source), envelope.seq
                stream = streams.get(envelope.source)
                if stream is None or stream.key != key:  # its schema is damaged
                    recovered.lost.append((key, seq, seq))
                    continue
                if not recovered.whole and _UNKNOWN < stream.next_seq < seq:
                    recovered.lost.append((key, stream.next_seq, seq - 1))
                stream.next_seq = seq + 1
                segment.note(key, seq)
            elif record.type == SpoolRecordType.ACKED:
                recovered.acks = wire.decode_ack(record.payload)
        except (WireError, KeyError) as exc:
            _log.warning("spool: %s: malformed record: %s", segment.path, exc)
            recovered.whole = False
        recovered.schemas |= {stream.key: stream.schema for stream in streams.values()}
    return None if header is None else replace(header, streams=tuple(streams.values()))


def _lost_between(end: Header, streams: dict[str, Stream]) -> Iterator[tuple[Key, int, int]]:
    """Batches after the `end` of a segment and before the next one, which has `streams` in its header."""
    for stream in end.streams:
        next_ = streams.get(stream.schema.source)
        if next_ is not None and next_.key == stream.key and _UNKNOWN < stream.next_seq < next_.next_seq:
            yield stream.key, stream.next_seq, next_.next_seq - 1


def _first_header(paths: Sequence[Path]) -> Header | None:
    """The first header that can be read. Its streams may have begun in an earlier segment than its own."""
    for path in paths:
        try:
            record = next(segment_log.scan(path), None)
            if record is not None and record.type == SpoolRecordType.HEADER:
                return decode_header(record.payload)
        except (SpoolError, WireError) as exc:
            _log.debug("spool: %s", exc)
    return None
