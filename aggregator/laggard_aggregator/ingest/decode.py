"""Decodes counter payloads into numpy arrays. The layout is in docs/wire-format.md."""

from collections.abc import Iterator, Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from laggard_aggregator.windows.counter_block import Block
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, codec, limits
from laggard_common.wire.schema import Schema

_CODES = frozenset((0, *(width for width, _ in codec.WIDTHS)))
MOST_VALUES = 1024
"""Payloads with more values are decoded alone: the copies would cost more than the calls."""
MOST_BYTES = 16 * MOST_VALUES
"""Upper bound of such a payload after decompression."""
LEAST_ALIKE = 4
_VALID = np.zeros(256, dtype=np.bool_)
_VALID[[0, *(width for width, _ in codec.WIDTHS)]] = True


class Decoder:
    """Decodes counter payloads. Not thread-safe: it reuses a zstd context."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def decode(self, envelope: Envelope) -> Block:
        """The batch in `envelope`. Raises WireError on a malformed payload."""
        return _decoded(envelope, self._raw(envelope))

    def decode_all(self, envelopes: Sequence[Envelope]) -> Iterator[Block | WireError]:
        """For each envelope the result of `decode` or its WireError; small payloads are decoded together.

        Large ones are decoded one by one as the iterator advances, so that few are in memory at a time.
        """
        decoded: dict[int, Block | None] = {}
        raws: dict[int, bytes] = {}
        groups: dict[bytes, list[int]] = {}
        for at, envelope in enumerate(envelopes if len(envelopes) >= LEAST_ALIKE else ()):
            if envelope.codec != codec.DELTA_ZSTD or _content_bytes(envelope) > MOST_BYTES:
                continue
            try:
                raws[at] = self._raw(envelope)
            except WireError:
                continue  # raised again below
            shape = layout(envelope, raws[at])
            if shape is not None:
                groups.setdefault(shape, []).append(at)
        for alike in groups.values():
            if len(alike) >= LEAST_ALIKE:
                blocks = decode_alike([envelopes[at] for at in alike], [raws[at] for at in alike])
                decoded.update(zip(alike, blocks, strict=True))
        for at, envelope in enumerate(envelopes):
            try:
                block = decoded.get(at) or _decoded(envelope, raws.get(at) or self._raw(envelope))
            except WireError as exc:
                yield exc
            else:
                yield block

    def _raw(self, envelope: Envelope) -> bytes:
        if envelope.codec == codec.RAW:
            return envelope.payload
        if envelope.codec != codec.DELTA_ZSTD:
            raise WireError("codec", str(envelope.codec))
        try:
            size = zstandard.frame_content_size(envelope.payload)
            if not 0 <= size <= limits.MAX_PAYLOAD_BYTES:
                raise WireError("payload", f"{size} bytes after decompression")
            raw: bytes = self._zstd.decompress(envelope.payload, allow_extra_data=False)
        except zstandard.ZstdError as exc:
            raise WireError("zstd", str(exc)[:200]) from exc
        return raw


def max_value_bytes(envelope: Envelope, schema: Schema) -> int:
    """Upper bound of the batch's `values.nbytes` before it is decoded: a series takes 8 bytes or more."""
    values = envelope.n * len(schema.components) * len(schema.fields)
    if values > MOST_VALUES:
        raw = envelope.codec == codec.RAW
        size = len(envelope.payload) if raw else _content_bytes(envelope)
        values = min(values, envelope.n * (size // 8), limits.MAX_VALUES)
    return 8 * values


def document_bytes(envelope: Envelope) -> int:
    """Size of a document's content. Raises WireError where it is none, or beyond the limit."""
    size = _content_bytes(envelope) if envelope.codec == codec.DELTA_ZSTD else 0
    if not 0 < size <= limits.MAX_EVENT_BYTES or envelope.n != 1:
        raise WireError("document", f"codec {envelope.codec}, {size} bytes, n {envelope.n}")
    return size


def _content_bytes(envelope: Envelope) -> int:
    """Size after decompression by the payload's header; 0 without one: such a payload is malformed."""
    try:
        return max(int(zstandard.frame_content_size(envelope.payload)), 0)
    except zstandard.ZstdError:
        return 0


def _decoded(envelope: Envelope, data: bytes) -> Block:
    """The batch in a payload after decompression. Raises WireError."""
    n = envelope.n
    if len(data) < codec.HEADER.size:
        raise WireError("payload", "shorter than its header")
    flags, f, changing, idle = codec.HEADER.unpack_from(data)
    c = changing + idle
    if flags & ~codec.FLAG_PRESENCE or c > limits.MAX_COMPONENTS or not 1 <= f <= limits.MAX_FIELDS:
        raise WireError("payload", f"flags {flags}, {c} components, {f} fields")
    if n * c * f > limits.MAX_VALUES:
        raise WireError("payload", f"{n} x {c} x {f} values")
    take = _Reader(data, codec.HEADER.size)
    indexes = take.array("<u4", c)
    _check_indexes(indexes, changing)
    present = _presence(take.array("u1", (c * f + 7) // 8), c, f) if flags & codec.FLAG_PRESENCE else None
    offsets_us = take.array("<i4", n)
    first = take.array("<i8", c * f)
    values = np.empty((n, c * f), dtype=np.int64)
    values[0] = first
    values[1:, changing * f :] = first[changing * f :]
    if envelope.codec == codec.RAW:
        values[1:, : changing * f] = take.array("<i8", (n - 1) * changing * f).reshape(n - 1, changing * f)
    else:
        _add_deltas(values[:, : changing * f], take, n)
    take.end()
    tick_ns = envelope.t0_ns + np.arange(n, dtype=np.int64) * envelope.dt_ns
    read_ns = tick_ns + offsets_us * np.int64(1000)
    return Block(indexes.astype(np.int64), values.reshape(n, c, f), present, tick_ns, read_ns, idle)


class _Reader:
    """Reads arrays from a payload and checks its exact length."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def array(self, dtype: str, count: int) -> NDArray[np.int64]:
        end = self._offset + count * np.dtype(dtype).itemsize
        if end > len(self._data):
            raise WireError("payload", "truncated")
        taken = np.frombuffer(self._data, dtype=dtype, count=count, offset=self._offset)
        self._offset = end
        return taken

    def end(self) -> None:
        if self._offset != len(self._data):
            raise WireError("payload", "trailing bytes")


def _check_indexes(indexes: NDArray[np.int64], changing: int) -> None:
    """Checks that each part ascends strictly and that no component is in both."""
    for part in (indexes[:changing], indexes[changing:]):
        if part.size > 1 and not (part[1:] > part[:-1]).all():
            raise WireError("payload", "component indexes do not ascend")
    if 0 < changing < indexes.size and np.intersect1d(indexes[:changing], indexes[changing:]).size:
        raise WireError("payload", "component indexes repeat")
    if indexes.size and indexes.max() >= limits.MAX_COMPONENTS:
        raise WireError("payload", "component index too large")


def _presence(bitmap: NDArray[np.int64], c: int, f: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(bitmap.astype(np.uint8), count=c * f, bitorder="little")
    return bits.reshape(c, f).astype(np.bool_)


def _add_deltas(body: NDArray[np.int64], take: _Reader, n: int) -> None:
    """Sets rows 1.. of `body` (n, series), whose row 0 holds the first values.

    Summed in place: temporary arrays of a large payload would cost four times as much.
    """
    codes = take.array("u1", body.shape[1])
    widths = set(codes.tobytes())
    if not widths <= _CODES:
        raise WireError("payload", "unknown width code")
    if n == 1:
        return
    if 0 in widths:
        body[1:] = 0
    for width in sorted(widths - {0}):
        chosen = np.flatnonzero(codes == width) if len(widths) > 1 else slice(None)
        count = codes.size if isinstance(chosen, slice) else chosen.size
        body[1:, chosen] = take.array(f"<i{width}", (n - 1) * count).reshape(n - 1, count)
    np.add.accumulate(body, axis=0, out=body)


def layout(envelope: Envelope, raw: bytes) -> bytes | None:
    """Key of payloads that are decoded together; None for one to be decoded alone.

    `raw` is the payload after decompression.
    """
    if envelope.codec != codec.DELTA_ZSTD or len(raw) < codec.HEADER.size:
        return None
    flags, f, changing, idle = codec.HEADER.unpack_from(raw)
    if flags or idle or not 1 <= f <= limits.MAX_FIELDS or not 0 < envelope.n * changing * f <= MOST_VALUES:
        return None
    return raw[: codec.HEADER.size] + envelope.n.to_bytes(2)


def decode_alike(envelopes: Sequence[Envelope], raws: Sequence[bytes]) -> list[Block | None]:
    """The batches of payloads of one `layout`, None for malformed ones."""
    n = envelopes[0].n
    _, f, c, _ = codec.HEADER.unpack_from(raws[0])
    series, at = c * f, codec.HEADER.size
    head = at + 4 * c + 4 * n + 9 * series
    sizes = np.array([len(raw) for raw in raws])
    long_enough = sizes >= head
    padded = [raw if fits else bytes(head) for raw, fits in zip(raws, long_enough.tolist(), strict=True)]
    heads = np.frombuffer(b"".join([raw[:head] for raw in padded]), np.uint8).reshape(len(raws), head)
    indexes, offsets_us, first, codes = (
        _lanes(heads, at, "<u4", c),
        _lanes(heads, at + 4 * c, "<i4", n),
        _lanes(heads, at + 4 * c + 4 * n, "<i8", series),
        heads[:, head - series :],
    )
    right = long_enough & _VALID[codes].all(axis=1)
    right &= sizes == head + (n - 1) * codes.sum(axis=1, dtype=np.int64)
    right &= (indexes[:, -1] < limits.MAX_COMPONENTS) & (indexes[:, 1:] > indexes[:, :-1]).all(axis=1)
    chosen = np.flatnonzero(right)
    values = np.empty((chosen.size, n, series), dtype=np.int64)
    values[:] = first[chosen, None, :]
    _add_shared_deltas(values, codes[chosen], b"".join([raws[at][head:] for at in chosen.tolist()]))
    t0_ns = np.array([envelope.t0_ns for envelope in envelopes])[chosen, None]
    dt_ns = np.array([envelope.dt_ns for envelope in envelopes])[chosen, None]
    tick_ns = t0_ns + np.arange(n, dtype=np.int64) * dt_ns
    read_ns = tick_ns + offsets_us[chosen] * np.int64(1000)
    shaped, places = values.reshape(-1, n, c, f), indexes[chosen].astype(np.int64)
    batches: list[Block | None] = [None] * len(raws)
    for place, batch in zip(chosen.tolist(), zip(places, shaped, tick_ns, read_ns, strict=True), strict=True):
        batches[place] = Block(batch[0], batch[1], None, batch[2], batch[3], 0)
    return batches


def _lanes(heads: NDArray[np.uint8], at: int, kind: str, count: int) -> NDArray[np.int64]:
    """(len(heads), count): numbers of one type at the same place of every head."""
    end = at + count * np.dtype(kind).itemsize
    lanes: NDArray[np.int64] = np.ascontiguousarray(heads[:, at:end]).view(kind)
    return lanes


def _add_shared_deltas(values: NDArray[np.int64], codes: NDArray[np.uint8], deltas: bytes) -> None:
    """Adds the deltas to ticks 1.. of `values` (m, n, series), which hold the first values.

    `codes` (m, series): the width of each series' deltas. `deltas`: of all payloads one after the other, in
    each by ascending width, then by tick.
    """
    _, n, _ = values.shape
    if n == 1:
        return
    flat = np.frombuffer(deltas, np.uint8)
    lengths = (n - 1) * codes.sum(axis=1, dtype=np.int64)
    block = np.cumsum(lengths) - lengths
    ticks = np.arange(n - 1)
    for width, _ in codec.WIDTHS:
        mask = codes == width
        payload, series = np.nonzero(mask)
        if not payload.size:
            continue
        count = mask.sum(axis=1)
        rank = (np.cumsum(mask, axis=1) - 1)[payload, series]
        element = ticks * count[payload, None] + rank[:, None]  # (K, n - 1)
        where = block[payload, None] + element * width
        pieces = np.ascontiguousarray(flat[where[:, :, None] + np.arange(width)])
        rises = pieces.view(f"<i{width}")[:, :, 0]
        values[payload, 1:, series] += np.add.accumulate(rises, axis=1, dtype=np.int64)
        block += (n - 1) * width * count
