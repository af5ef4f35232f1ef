"""Messages as bytes: the envelope, schemas, states and acknowledgements; docs/wire-format.md is the contract.

All input is untrusted: `decode_*` returns a valid value or raises WireError.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar

import msgpack

from laggard_common.errors import WireError
from laggard_common.wire import limits
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema
from laggard_common.wire.topics import LEVEL

VERSION = 1
OLDEST_VERSION = 1  # an aggregator takes this version and the one before

_U64 = 2**64
_ENVELOPE_ITEMS = 64  # limit of any array in an envelope, and of arrays within lists elsewhere
_HEAD_BYTES = 512  # of a schema, in which its components have not begun
_UNPACKING = {
    "raw": False,
    "use_list": False,
    "strict_map_key": True,
    "max_str_len": 4096,
    "max_map_len": 4096,
    "max_ext_len": 0,
}
_UNREADABLE = (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException)

T = TypeVar("T")


class Kind(IntEnum):
    """Kind of a message's payload."""

    COUNTERS = 0
    EVENTS = 1
    STATE = 2
    JOINED = 3  # consecutive batches of counters, encoded as one


# By number: calling an enumeration takes a microsecond.
_KINDS = tuple(Kind)
_FIELD_KINDS = tuple(FieldKind)
_FIELD_TYPES = tuple(FieldType)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message. `t0_ns`: nominal time of the first tick, ns since the epoch; `dt_ns`: ns between ticks.

    `n`: ticks (counters), records (events) or 1 (state). `stream`: 16 random bytes made with the spool.
    `seq`: sequence number of the batch within its source and stream, from 0; of coalesced ones the first.
    """

    kind: Kind
    node: str
    source: str
    stream: bytes
    seq: int
    schema_epoch: int
    t0_ns: int
    dt_ns: int
    n: int
    codec: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledged batches of one source in one stream: ascending inclusive ranges of sequence numbers."""

    stream: bytes
    source: str
    ranges: tuple[tuple[int, int], ...]


def encode_envelope(envelope: Envelope) -> bytes:
    """The bytes of one message."""
    e = envelope
    fields = (VERSION, int(e.kind), e.node, e.source, e.stream, e.seq, e.schema_epoch)
    return _pack((*fields, e.t0_ns, e.dt_ns, e.n, e.codec, e.payload))


def decode_envelope(data: bytes) -> Envelope:
    """Decodes a message; `payload` remains encoded by `codec`. Raises WireError."""
    parts = _unpack(data, _ENVELOPE_ITEMS)
    if not isinstance(parts, tuple) or not parts:
        raise WireError("msgpack", "not an array")
    _check_version(parts[0])
    if len(parts) != 12:
        raise WireError("envelope", f"{len(parts)} fields, expected 12")
    _, kind, node, source, stream, seq, epoch, t0_ns, dt_ns, n, codec, payload = parts
    return Envelope(
        kind=_KINDS[_integer(kind, "kind", 0, len(_KINDS) - 1)],
        node=_level(node, "node"),
        source=_level(source, "source"),
        stream=_binary(stream, "stream", limits.STREAM_BYTES),
        seq=_integer(seq, "seq", 0, _U64 - 1),
        schema_epoch=_integer(epoch, "schema_epoch", 0, 2**32 - 1),
        t0_ns=_integer(t0_ns, "t0", 0, 2**63 - 1),
        dt_ns=_integer(dt_ns, "dt", 0, limits.MAX_INTERVAL_NS),
        n=_integer(n, "n", 1, limits.MAX_TICKS),
        codec=_integer(codec, "codec", 0, 255),
        payload=_binary(payload, "payload"),
    )


def join_payload(ticks: Sequence[int], payload: bytes) -> bytes:
    """Payload of coalesced batches with these tick counts; `payload`: that of all as one batch."""
    return struct.pack(f"<{1 + len(ticks)}H", len(ticks), *ticks) + payload


def split_joined(envelope: Envelope) -> tuple[tuple[int, ...], Envelope]:
    """Splits a coalesced payload into the tick counts of its batches and the payload of all as one batch.

    Raises WireError.
    """
    data = envelope.payload
    count = int.from_bytes(data[:2], "little")
    end = 2 + 2 * count
    if not 1 <= count <= limits.MAX_TICKS or len(data) < end or envelope.seq + count > _U64:
        raise WireError("joined", f"{count} batches in {len(data)} bytes")
    ticks = struct.unpack_from(f"<{count}H", data, 2)
    if not all(ticks) or sum(ticks) != envelope.n:
        raise WireError("joined", f"{sum(ticks)} ticks, expected {envelope.n}")
    return ticks, replace(envelope, kind=Kind.COUNTERS, payload=data[end:])


def encode_schema(schema: Schema) -> bytes:
    """The bytes of a schema message."""
    s = schema
    fields = [(f.name, int(f.kind), f.unit, int(f.type)) for f in s.fields]
    components = [(c.id, c.name, dict(c.labels)) for c in s.components]
    return _pack(
        (VERSION, s.node, s.source, s.stream, s.epoch, s.interval_ns, s.batch_ticks, fields, components)
    )


def decode_schema(data: bytes) -> Schema:
    """The schema in `data`. Raises WireError."""
    schema = _read(data, limits.MAX_MESSAGE_BYTES, _schema)
    if len({f.name for f in schema.fields}) != len(schema.fields) or not schema.fields:
        raise WireError("schema", "field names are empty or repeat")
    if len({c.id for c in schema.components}) != len(schema.components):
        raise WireError("schema", "component ids repeat")
    return schema


def schema_head(data: bytes) -> tuple[str, str, bytes, int]:
    """Node, source, stream and epoch of a schema, of which nothing else is read. Raises WireError."""
    try:
        unpacker = msgpack.Unpacker(max_buffer_size=_HEAD_BYTES, **_UNPACKING)
        unpacker.feed(data[:_HEAD_BYTES])
        _open(unpacker, "schema", 9)
        return (
            _level(unpacker.unpack(), "node"),
            _level(unpacker.unpack(), "source"),
            _binary(unpacker.unpack(), "stream", limits.STREAM_BYTES),
            _integer(unpacker.unpack(), "epoch", 0, 2**32 - 1),
        )
    except _UNREADABLE as exc:
        raise WireError("msgpack", str(exc)[:200]) from exc


def encode_ack(acks: Sequence[Ack]) -> bytes:
    """The bytes of an acknowledgement to one node."""
    return _pack((VERSION, [(a.stream, a.source, a.ranges) for a in acks]))


def decode_ack(data: bytes) -> tuple[Ack, ...]:
    """The acknowledgements in `data`. Raises WireError."""
    return _read(data, limits.MAX_ACK_BYTES, _acks)


def encode_state(state: Mapping[str, Any]) -> bytes:
    """The payload of a state message: a map with string keys."""
    return _pack(dict(state))


def decode_state(payload: bytes) -> dict[str, Any]:
    """Decodes the map of a state message; its keys are unchecked. Raises WireError."""
    state = _unpack(payload, limits.MAX_FIELDS)
    if not isinstance(state, dict):
        raise WireError("state", "not a map")
    return state


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def _unpack(data: bytes, most_items: int) -> Any:
    """Unpacks a value whose arrays have at most `most_items`.

    The library allocates an array by its declared length, and up to a thousand nested ones, before it notices
    missing items, each of which takes at least a byte.
    """
    if len(data) > limits.MAX_MESSAGE_BYTES:
        raise WireError("too long", f"{len(data)} bytes")
    try:
        return msgpack.unpackb(
            data, max_bin_len=len(data), max_array_len=min(most_items, len(data)), **_UNPACKING
        )
    except _UNREADABLE as exc:
        raise WireError("msgpack", str(exc)[:200]) from exc


def _read(data: bytes, max_bytes: int, read: Callable[[Any], T]) -> T:
    """Applies `read` to an unpacker over `data`: lists may be long, arrays within them are short.

    `read` opens the lists with the library's unpacker; any other array has few items.
    """
    if len(data) > max_bytes:
        raise WireError("too long", f"{len(data)} bytes")
    try:
        unpacker = msgpack.Unpacker(
            max_buffer_size=max(len(data), 1),
            max_bin_len=len(data),
            max_array_len=_ENVELOPE_ITEMS,
            **_UNPACKING,
        )
        unpacker.feed(data)
        value = read(unpacker)
        if unpacker.tell() != len(data):
            raise WireError("msgpack", "more than one value")
    except _UNREADABLE as exc:
        raise WireError("msgpack", str(exc)[:200]) from exc
    return value


def _check_version(version: object) -> None:
    if type(version) is not int or not OLDEST_VERSION <= version <= VERSION:
        raise WireError("version", repr(version)[:40])


def _integer(value: object, what: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise WireError(what, repr(value)[:40])
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > limits.MAX_NAME_CHARS or not value.isprintable():
        raise WireError(what, repr(value)[:40])
    return value


def _level(value: object, what: str) -> str:
    if not isinstance(value, str) or LEVEL.fullmatch(value) is None:
        raise WireError(what, repr(value)[:40])
    return value


def _binary(value: object, what: str, length: int | None = None) -> bytes:
    if not isinstance(value, bytes) or length not in (None, len(value)):
        raise WireError(what, repr(value)[:40])
    return value


def _schema(unpacker: Any) -> Schema:
    _open(unpacker, "schema", 9)
    return Schema(
        node=_level(unpacker.unpack(), "node"),
        source=_level(unpacker.unpack(), "source"),
        stream=_binary(unpacker.unpack(), "stream", limits.STREAM_BYTES),
        epoch=_integer(unpacker.unpack(), "epoch", 0, 2**32 - 1),
        interval_ns=_integer(unpacker.unpack(), "interval", limits.MIN_INTERVAL_NS, limits.MAX_INTERVAL_NS),
        batch_ticks=_integer(unpacker.unpack(), "batch_ticks", 1, limits.MAX_TICKS),
        fields=_each(unpacker, "fields", limits.MAX_FIELDS, _field),
        components=_each(unpacker, "components", limits.MAX_COMPONENTS, _component),
    )


def _open(unpacker: Any, what: str, expected: int) -> None:
    """Opens a message of `expected` parts and skips its version."""
    length = unpacker.read_array_header()
    if length:
        _check_version(unpacker.unpack())
    if length != expected:
        raise WireError(what, f"{length} fields, expected {expected}")


def _each(unpacker: Any, what: str, most: int, read: Callable[[Any], T]) -> tuple[T, ...]:
    """Yields the next value's items one by one."""
    length = unpacker.read_array_header()
    if length > most:
        raise WireError(what, "too long")
    return tuple(read(unpacker) for _ in range(length))


def _row(value: object, what: str, length: int) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) != length:
        raise WireError(what, repr(value)[:40])
    return value


def _field(unpacker: Any) -> Field:
    name, kind, unit, type_ = _row(unpacker.unpack(), "field", 4)
    return Field(
        name=_text(name, "field"),
        kind=_FIELD_KINDS[_integer(kind, "field", 0, len(_FIELD_KINDS) - 1)],
        unit=_text(unit, "field"),
        type=_FIELD_TYPES[_integer(type_, "field", 0, len(_FIELD_TYPES) - 1)],
    )


def _component(unpacker: Any) -> Component:
    id_, name, labels = _row(unpacker.unpack(), "component", 3)
    if not isinstance(labels, dict) or len(labels) > limits.MAX_LABELS:
        raise WireError("component", "labels")
    pairs = tuple((_text(k, "component"), _text(v, "component")) for k, v in labels.items())
    if not id_:
        raise WireError("component", "empty id")
    return Component(_text(id_, "component"), _text(name, "component"), pairs)


def _acks(unpacker: Any) -> tuple[Ack, ...]:
    _open(unpacker, "ack", 2)
    return _each(unpacker, "acks", limits.MAX_FIELDS, _ack)


def _ack(unpacker: Any) -> Ack:
    length = unpacker.read_array_header()
    if length != 3:
        raise WireError("ack", f"{length} fields, expected 3")
    stream = _binary(unpacker.unpack(), "stream", limits.STREAM_BYTES)
    source = _level(unpacker.unpack(), "ack")
    return Ack(stream, source, _each(unpacker, "ack", limits.MAX_ACK_RANGES, _range))


def _range(unpacker: Any) -> tuple[int, int]:
    low, high = _row(unpacker.unpack(), "ack", 2)
    low = _integer(low, "ack", 0, _U64 - 1)
    return low, _integer(high, "ack", low, _U64 - 1)
