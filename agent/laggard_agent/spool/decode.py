"""Decodes counter payloads of `laggard_common.wire.codec` into rows, without numpy."""

import struct
from dataclasses import dataclass
from itertools import compress

import zstandard

from laggard_common.errors import WireError
from laggard_common.wire import Envelope, codec, limits
from laggard_common.wire.codec import Row

_SIGN = 1 << 63
_LANE = 1 << 64


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """A batch as `codec.Encoder.encode` expects it. Values are the 64-bit lanes as signed numbers.

    `absent`: for each component the fields that it lacks, None where it has all.
    """

    indexes: list[int]
    ticks: list[list[Row]]
    offsets_us: list[int]
    absent: list[tuple[bool, ...] | None]
    fields: int


def unpack(envelope: Envelope) -> DecodedRows:
    """Decodes the rows of a batch of this agent. Raises WireError on malformed bytes."""
    data = envelope.payload
    try:
        if envelope.codec == codec.RAW:
            return _unpack(data, envelope.n, packed=False)
        if not 0 <= zstandard.frame_content_size(data) <= limits.MAX_PAYLOAD_BYTES:
            raise WireError("payload", "too long")
        return _unpack(zstandard.ZstdDecompressor().decompress(data), envelope.n, packed=True)
    except (struct.error, zstandard.ZstdError, IndexError, ValueError) as exc:
        raise WireError("payload", str(exc)[:200]) from exc


def _unpack(data: bytes, n: int, *, packed: bool) -> DecodedRows:
    flags, fields, changing, idle = codec.HEADER.unpack_from(data)
    count = changing + idle
    reader = _NumberReader(data, codec.HEADER.size)
    order = reader.some("I", count)
    bits = -(-count * fields // 8) if flags & codec.FLAG_PRESENCE else 0
    present = int.from_bytes(reader.some("B", bits), "little") if bits else -1
    offsets = reader.some("i", n)
    first = reader.some("q", count * fields)
    moving = changing * fields
    later = _summed(first[:moving], reader, n) if packed else reader.rows("q", moving, n - 1)
    if reader.offset != len(data):
        raise WireError("payload", "trailing bytes")
    absent = [_absent(present >> at * fields, fields) for at in range(count)]
    places = sorted(range(count), key=order.__getitem__)
    still = _split(first[moving:], fields)
    ticks = []
    for lanes in (first[:moving], *later):
        rows = _split(lanes, fields) + still
        ticks.append([_without(rows[at], absent[at]) for at in places])
    return DecodedRows(
        indexes=[order[at] for at in places],
        ticks=ticks,
        offsets_us=list(offsets),
        absent=[absent[at] for at in places],
        fields=fields,
    )


class _NumberReader:
    """Reads numbers of `data` from `offset` on."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self.offset = offset

    def some(self, form: str, count: int) -> tuple[int, ...]:
        """The next `count` numbers. Raises struct.error when there are fewer."""
        numbers = struct.unpack_from(f"<{count}{form}", self._data, self.offset)
        self.offset += struct.calcsize(f"<{count}{form}")
        return numbers

    def rows(self, form: str, count: int, rows: int) -> list[tuple[int, ...]]:
        """The next `rows` times `count` numbers."""
        return [self.some(form, count) for _ in range(rows)]


def _summed(first: tuple[int, ...], reader: _NumberReader, n: int) -> list[tuple[int, ...]]:
    """The lanes of the changing series at each tick but the first, from the deltas that follow."""
    codes = bytes(reader.some("B", len(first)))
    deltas = []
    for width, form in codec.WIDTHS:
        places = list(compress(range(len(codes)), (code == width for code in codes)))
        if places:
            deltas.append((places, reader.rows(form, len(places), n - 1)))
    lanes = list(first)
    body = []
    for tick in range(n - 1):
        for places, rows in deltas:
            for place, delta in zip(places, rows[tick], strict=True):
                lanes[place] += delta
        if lanes and not -_SIGN <= min(lanes) <= max(lanes) < _SIGN:
            lanes = [(lane + _SIGN) % _LANE - _SIGN for lane in lanes]
        body.append(tuple(lanes))
    return body


def _split(lanes: tuple[int, ...], fields: int) -> list[Row]:
    return [lanes[at : at + fields] for at in range(0, len(lanes), fields)]


def _absent(present: int, fields: int) -> tuple[bool, ...] | None:
    lacks = tuple(not present >> field & 1 for field in range(fields))
    return lacks if any(lacks) else None


def _without(row: Row, lacks: tuple[bool, ...] | None) -> Row:
    return row if lacks is None else tuple(None if lack else v for lack, v in zip(lacks, row, strict=True))
