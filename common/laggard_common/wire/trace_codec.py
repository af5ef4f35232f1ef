"""Codec of folded I/O trace records in messages of kind events, without numpy.

docs/wire-format.md describes the layout. All input is untrusted: `decode` returns valid values or raises
WireError.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import msgpack
import zstandard

from laggard_common.errors import WireError
from laggard_common.wire import Envelope, codec, limits
from laggard_common.wire.codec import WIDTHS
from laggard_common.wire.trace_records import MAX_POSITION, Folded

RAW = codec.RAW
ZSTD = codec.DELTA_ZSTD
COLUMNS = ("node", "operation", "descriptor", "path", "offset", "size", "count", "first", "span")

_LANE = 2**64
_LITTLE = sys.byteorder == "little"
_MOST_STRING_BYTES = limits.MAX_EVENT_BYTES // 2  # of one batch; its columns take at most a third of the rest


class EventEncoder:
    """Encodes batches of folded records; keeps the zstd context, so it belongs to one thread."""

    def __init__(self, codec: int = ZSTD, level: int = 3) -> None:
        self.codec = codec
        self._zstd = zstandard.ZstdCompressor(level=level, write_checksum=False, write_content_size=True)

    def encode(self, records: Sequence[Folded]) -> bytes:
        """The payload of a message whose t0 is the first record's `first_ns` and whose n is their number.

        The results of `batches`, and anything shorter, fit the limits.
        """
        places: dict[str, int] = {}
        names = [
            [places.setdefault(name, len(places)) for name in column]
            for column in zip(*((r.node, r.operation, r.descriptor, r.path) for r in records), strict=True)
        ]
        first = [r.first_ns for r in records]
        numbers = [
            *names,
            _deltas([-1 if r.offset is None else r.offset for r in records], 0),
            [r.size for r in records],
            [r.count for r in records],
            _deltas(first, first[0]),
            [r.last_ns - r.first_ns for r in records],
        ]
        raw: bytes = msgpack.packb([list(places), *map(_packed, numbers)], use_bin_type=True)
        return raw if self.codec == RAW else self._zstd.compress(raw)


def batches(records: Iterable[Folded]) -> Iterator[list[Folded]]:
    """Splits `records` into parts that each fit one message."""
    batch: list[Folded] = []
    string_bytes = 0
    names: set[str] = set()
    for record in records:
        new = {record.node, record.operation, record.descriptor, record.path} - names
        more = sum(len(name.encode()) + 5 for name in new)
        if batch and (len(batch) == limits.MAX_TICKS or string_bytes + more > _MOST_STRING_BYTES):
            yield batch
            batch, names, string_bytes = [], set(), 0
            new = {record.node, record.operation, record.descriptor, record.path}
            more = sum(len(name.encode()) + 5 for name in new)
        batch.append(record)
        names |= new
        string_bytes += more
    if batch:
        yield batch


class EventDecoder:
    """Decodes payloads of folded records; keeps the zstd context, so it belongs to one thread."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def decode(self, envelope: Envelope) -> tuple[Folded, ...]:
        """The records in a message of kind events. Raises WireError."""
        n = envelope.n
        strings, columns = _parts(self._raw(envelope), n)
        node, operation, descriptor, path, offset, size, count, first, span = map(list, columns)
        offset = [_signed(value) for value in accumulate(offset)]
        first = [_signed(value) for value in accumulate(first, initial=envelope.t0_ns)][1:]
        last = [a + b for a, b in zip(first, span, strict=True)]
        _within(node + operation + descriptor + path, 0, len(strings) - 1, "string")
        _within(offset, -1, MAX_POSITION, "offset")
        _within(size, 0, MAX_POSITION, "size")
        _within(count, 1, MAX_POSITION, "count")
        _within(first + last, 0, MAX_POSITION, "time")
        for at, bytes_, times, span_ns in zip(offset, size, count, span, strict=True):
            if at >= 0 and at + bytes_ * times > MAX_POSITION:
                raise WireError("events", "an area ends beyond the largest offset")
            if times == 1 and span_ns:
                raise WireError("events", "one record with two times")
        return tuple(
            Folded(
                node=strings[node[i]],
                operation=strings[operation[i]],
                descriptor=strings[descriptor[i]],
                offset=None if offset[i] < 0 else offset[i],
                size=size[i],
                count=count[i],
                first_ns=first[i],
                last_ns=last[i],
                path=strings[path[i]],
            )
            for i in range(n)
        )

    def _raw(self, envelope: Envelope) -> bytes:
        payload = envelope.payload
        if envelope.codec == RAW:
            if len(payload) > limits.MAX_EVENT_BYTES:
                raise WireError("events", f"{len(payload)} bytes")
            return payload
        if envelope.codec != ZSTD:
            raise WireError("codec", str(envelope.codec))
        try:
            size = zstandard.frame_content_size(payload)
            if not 0 <= size <= limits.MAX_EVENT_BYTES:
                raise WireError("events", f"{size} bytes after decompression")
            raw: bytes = self._zstd.decompress(payload, allow_extra_data=False)
        except zstandard.ZstdError as exc:
            raise WireError("zstd", str(exc)[:200]) from exc
        return raw


def _parts(data: bytes, n: int) -> "tuple[tuple[str, ...], list[array[int]]]":
    """Reads the strings and the columns of n numbers each."""
    try:
        parts = msgpack.unpackb(
            data,
            raw=False,
            use_list=False,
            max_str_len=4 * limits.MAX_PATH_CHARS,
            max_bin_len=8 * limits.MAX_TICKS,
            max_array_len=4 * limits.MAX_TICKS,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as exc:
        raise WireError("msgpack", str(exc)[:200]) from exc
    if not isinstance(parts, tuple) or len(parts) != 1 + len(COLUMNS):
        raise WireError("events", "not an array of strings and columns")
    strings = parts[0]
    if not isinstance(strings, tuple) or not all(map(_is_name, strings)):
        raise WireError("events", "strings")
    return strings, [_unpacked(column, n) for column in parts[1:]]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= limits.MAX_PATH_CHARS and value.isprintable()


def _within(values: Sequence[int], low: int, high: int, what: str) -> None:
    if min(values) < low or max(values) > high:
        raise WireError("events", f"{what} out of range")


def _deltas(values: Sequence[int], before: int) -> list[int]:
    """Differences to the previous value, modulo 2^64 as signed numbers."""
    return [_signed(b - a) for a, b in pairwise([before, *values])]


def _signed(value: int) -> int:
    value &= _LANE - 1
    return value - _LANE if value >= _LANE // 2 else value


def _packed(values: Sequence[int]) -> bytes:
    """A column in the least width that holds it: 1, 2, 4 or 8 bytes a value, signed, little-endian."""
    most = max(*values, -min(values) - 1)
    typecode = next(code for width, code in WIDTHS if most < 1 << (8 * width - 1))
    packed = array(typecode, values)
    if not _LITTLE:
        packed.byteswap()
    return packed.tobytes()


def _unpacked(column: object, n: int) -> "array[int]":
    if not isinstance(column, bytes) or len(column) / n not in _TYPECODES:
        raise WireError("events", f"a column is not {n} numbers")
    values: array[int] = array(_TYPECODES[len(column) / n], column)
    if not _LITTLE:
        values.byteswap()
    return values


_TYPECODES = {float(width): code for width, code in WIDTHS}
