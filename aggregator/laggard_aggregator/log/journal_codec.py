"""Journal entries as records of a segment, and back.

A batch or schema is `ordinal u64, received_ns i64, length of the topic u16`, little-endian, the topic in
UTF-8, and the message; everything else is MessagePack.
"""

import struct
from enum import IntEnum
from typing import Any

import msgpack

from laggard_aggregator.ingest.batches import WindowClose
from laggard_aggregator.log.entries import (
    BatchEntry,
    CloseEntry,
    Entry,
    ForgetEntry,
    ReturnEntry,
    SchemaEntry,
    SweepEntry,
)
from laggard_common.errors import StateError
from laggard_common.segment_log import Record

VERSION = 2
_MESSAGE = struct.Struct("<QqH")
_MOST_NS = 2**63 - 1


class RecordType(IntEnum):
    """What a record of the journal is."""

    BEGIN = 1  # the version of the format, at the beginning of each segment
    BATCH = 2
    SCHEMA = 3
    CLOSE = 4
    RETURN = 5
    SWEEP = 6
    FORGET = 7


Pieces = tuple[int, tuple[bytes, ...]]
"""Type and payload of a record, as `SegmentWriter.append_all` takes them."""


def begin() -> Pieces:
    """The record that a segment begins with."""
    return RecordType.BEGIN, (msgpack.packb(VERSION),)


def encode(entry: Entry) -> Pieces:
    """The record of `entry`; a message in it is not copied."""
    if isinstance(entry, BatchEntry | SchemaEntry):
        topic = entry.topic.encode()
        head = _MESSAGE.pack(entry.ordinal, entry.received_ns, len(topic))
        type_ = RecordType.BATCH if isinstance(entry, BatchEntry) else RecordType.SCHEMA
        return type_, (head, topic, entry.payload)
    if isinstance(entry, CloseEntry):
        c = entry.close
        said = (c.ordinal, c.group, c.start, c.end, c.closed_at, c.drained, c.afresh)
        return RecordType.CLOSE, (msgpack.packb(said),)
    if isinstance(entry, SweepEntry):
        return RecordType.SWEEP, (msgpack.packb((entry.ordinal, entry.now_ns, entry.forget)),)
    if isinstance(entry, ForgetEntry):
        forgotten = (entry.ordinal, entry.now_ns, entry.before_ns, entry.target)
        return RecordType.FORGET, (msgpack.packb(forgotten),)
    return RecordType.RETURN, (msgpack.packb((entry.ordinal,)),)


def decode(record: Record, path: str) -> Entry | None:
    """The entry in `record`, None for the beginning of a segment. Raises StateError on what is neither."""
    try:
        return _decode(record)
    except (ValueError, TypeError, struct.error, OverflowError, msgpack.UnpackException) as exc:
        raise StateError(path, f"the record at {record.offset} is not of a journal: {exc}"[:300]) from exc


def _decode(record: Record) -> Entry | None:
    if record.type in {RecordType.BATCH, RecordType.SCHEMA}:
        ordinal, received_ns, length = _MESSAGE.unpack_from(record.payload)
        end = _MESSAGE.size + length
        topic = record.payload[_MESSAGE.size : end].decode()
        if end > len(record.payload) or received_ns < 0:
            raise ValueError("cut short")
        kind = BatchEntry if record.type == RecordType.BATCH else SchemaEntry
        return kind(ordinal, received_ns, topic, record.payload[end:])
    value = msgpack.unpackb(record.payload, use_list=False)
    if record.type == RecordType.BEGIN:
        if value != VERSION:
            raise ValueError(f"version {value!r}, expected {VERSION}")
        return None
    if record.type == RecordType.CLOSE:
        ordinal, group, start, end, closed_at, drained, afresh = value
        times = _time(start), _time(end), _time(closed_at)
        decided = tuple(map(_text, drained)), tuple(map(_text, afresh))
        return CloseEntry(WindowClose(_count(ordinal), _text(group), *times, *decided))
    if record.type == RecordType.SWEEP:
        ordinal, now_ns, forget = value
        return SweepEntry(_count(ordinal), _count(now_ns), forget is True)
    if record.type == RecordType.FORGET:
        ordinal, now_ns, before_ns, target = value
        return ForgetEntry(_count(ordinal), _count(now_ns), _count(before_ns), _text(target))
    if record.type == RecordType.RETURN:
        (ordinal,) = value
        return ReturnEntry(_count(ordinal))
    raise ValueError(f"type {record.type}")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_NS:
        raise ValueError(repr(value)[:40])
    return value


def _time(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= _MOST_NS / 1e9:
        raise ValueError(repr(value)[:40])
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(repr(value)[:40])
    return value
