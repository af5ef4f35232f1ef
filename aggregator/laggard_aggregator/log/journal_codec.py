"""The journal's format: entries as records of a segment, and back.

An incompatible change needs a new `VERSION`. The segment log adds length and checksum of each record.

A batch or schema is `lsn u64, received_ns i64, length of the topic u16`, little-endian, the topic in UTF-8,
and the payload; everything else is MessagePack.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import astuple
from enum import IntEnum
from typing import Any, TypeVar

import msgpack

from laggard_aggregator.log.entries import (
    BatchEntry,
    ForgetEntry,
    LogEntry,
    SchemaEntry,
    SweepEntry,
    WindowClose,
)
from laggard_common.errors import LaterVersionError, StateError
from laggard_common.segment_log import Record

VERSION = 2
_READ = (1, VERSION)  # closes of the first have no overrides
_CLOSE_FIELDS = 7
_MESSAGE = struct.Struct("<QqH")
_MAX_NS = 2**63 - 1
T = TypeVar("T")


class RecordType(IntEnum):
    """Type of a journal record."""

    HEADER = 1  # the version of the format, first in each segment
    BATCH = 2
    SCHEMA = 3
    CLOSE = 4
    RETURN = 5  # of earlier versions: takes back the acceptance of an earlier BATCH
    SWEEP = 6
    FORGET = 7
    UNACCEPTED = 8  # a batch that was judged only


WITHOUT_LSN = frozenset(RecordType) - {RecordType.BATCH, RecordType.CLOSE}
"""Types of records that no one acknowledged, or that have no sequence number."""


Pieces = tuple[int, tuple[bytes, ...]]
"""Type and payload of a record, as `SegmentWriter.append_all` takes them."""


def header() -> Pieces:
    """The first record of a segment."""
    return RecordType.HEADER, (msgpack.packb(VERSION),)


def encode(entry: LogEntry) -> Pieces:
    """The record of `entry`; the payload of a message is not copied."""
    if isinstance(entry, BatchEntry | SchemaEntry):
        topic = entry.topic.encode()
        head = _MESSAGE.pack(entry.lsn, entry.received_ns, len(topic))
        if isinstance(entry, SchemaEntry):
            return RecordType.SCHEMA, (head, topic, entry.payload)
        return RecordType.BATCH if entry.accepted else RecordType.UNACCEPTED, (head, topic, entry.payload)
    type_ = next(type_ for type_, (made, _) in _PACKED.items() if made is type(entry))
    return type_, (msgpack.packb(astuple(entry)),)


def decode(record: Record, path: str) -> LogEntry | None:
    """The entry in `record`, None for HEADER and RETURN.

    Raises StateError on any other record, LaterVersionError on the HEADER of a later version.
    """
    if record.type == RecordType.HEADER and _checked(_version, record, path) > VERSION:
        raise LaterVersionError(path)
    return _checked(_decode, record, path)


def returned_lsn(record: Record, path: str) -> int:
    """The lsn in a RETURN record. Raises StateError."""
    return _checked(lambda record: _count(*msgpack.unpackb(record.payload)), record, path)


def _checked(read: Callable[[Record], T], record: Record, path: str) -> T:
    try:
        return read(record)
    except (ValueError, TypeError, struct.error, OverflowError, msgpack.UnpackException) as exc:
        raise StateError(path, f"the record at {record.offset} is not of a journal: {exc}"[:300]) from exc


def _message(record: Record) -> BatchEntry | SchemaEntry:
    lsn, received_ns, length = _MESSAGE.unpack_from(record.payload)
    end = _MESSAGE.size + length
    topic = record.payload[_MESSAGE.size : end].decode()
    if end > len(record.payload) or received_ns < 0:
        raise ValueError("cut short")
    if record.type == RecordType.SCHEMA:
        return SchemaEntry(lsn, received_ns, topic, record.payload[end:])
    return BatchEntry(lsn, received_ns, topic, record.payload[end:], record.type == RecordType.BATCH)


def _version(record: Record) -> int:
    return _count(msgpack.unpackb(record.payload))


def _decode(record: Record) -> LogEntry | None:
    if record.type in {RecordType.BATCH, RecordType.SCHEMA, RecordType.UNACCEPTED}:
        return _message(record)
    value = msgpack.unpackb(record.payload, use_list=False)
    if record.type == RecordType.HEADER:
        if value not in _READ:
            raise ValueError(f"version {value!r}, expected {VERSION}")
        return None
    if record.type == RecordType.RETURN:
        return None
    if record.type not in _PACKED:
        raise ValueError(f"type {record.type}")
    make, checks = _PACKED[record.type]
    if record.type == RecordType.CLOSE and len(value) == _CLOSE_FIELDS - 2:
        value = (*value, (), ())
    return make(*[check(field) for check, field in zip(checks, value, strict=True)])


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NS:
        raise ValueError(repr(value)[:40])
    return value


def _time(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= _MAX_NS / 1e9:
        raise ValueError(repr(value)[:40])
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(repr(value)[:40])
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value))


_PACKED: Mapping[int, tuple[Callable[..., LogEntry], tuple[Callable[[Any], Any], ...]]] = {
    RecordType.CLOSE: (WindowClose, (_count, _text, _time, _time, _time, _texts, _texts)),
    RecordType.SWEEP: (SweepEntry, (_count, _count, lambda value: value is True)),
    RecordType.FORGET: (ForgetEntry, (_count, _count, _count, _text)),
}
"""Entries in MessagePack: the class, and the check of each of its fields in their order."""
