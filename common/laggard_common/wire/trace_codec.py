"""Encoding of folded I/O trace records in messages of kind events; docs/wire-format.md is the contract."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgpack
import zstandard

from laggard_common.wire import codec, limits
from laggard_common.wire.codec import WIDTHS, signed
from laggard_common.wire.trace_records import Folded

RAW = codec.RAW
ZSTD = codec.DELTA_ZSTD

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
    names: set[str] = set()
    string_bytes = 0
    for record in records:
        own = {record.node, record.operation, record.descriptor, record.path}
        more = _string_bytes(own - names)
        if batch and (len(batch) == limits.MAX_TICKS or string_bytes + more > _MOST_STRING_BYTES):
            yield batch
            batch, names, string_bytes, more = [], set(), 0, _string_bytes(own)
        batch.append(record)
        names |= own
        string_bytes += more
    if batch:
        yield batch


def _string_bytes(names: Iterable[str]) -> int:
    return sum(len(name.encode()) + 5 for name in names)


def _deltas(values: Sequence[int], before: int) -> list[int]:
    """Differences to the previous value, modulo 2^64 as signed numbers."""
    return [signed(b - a) for a, b in pairwise([before, *values])]


def _packed(values: Sequence[int]) -> bytes:
    """A column in the least width that holds it: 1, 2, 4 or 8 bytes a value, signed, little-endian."""
    most = max(*values, -min(values) - 1)
    typecode = next(code for width, code in WIDTHS if most < 1 << (8 * width - 1))
    return struct.pack(f"<{len(values)}{typecode}", *values)
