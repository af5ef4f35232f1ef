"""Decodes many small payloads of one layout together, so that they share numpy's cost per call.

A compute node's message has a component or two, and decoding it alone is mostly overhead. Unusual or
malformed payloads fall back to `decode.Decoder`, which reports the error.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.ingest.batches import CounterBatch
from laggard_common.wire import Envelope, codec, limits

MOST_VALUES = 1024
"""Payloads with more values are decoded alone: the copies would cost more than the calls."""
MOST_BYTES = 16 * MOST_VALUES
"""Upper bound of such a payload after decompression."""
LEAST_ALIKE = 4

_VALID = np.zeros(256, dtype=np.bool_)
_VALID[[0, *(width for width, _ in codec.WIDTHS)]] = True


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


def decode_alike(envelopes: Sequence[Envelope], raws: Sequence[bytes]) -> list[CounterBatch | None]:
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
    _add_deltas(values, codes[chosen], b"".join([raws[at][head:] for at in chosen.tolist()]))
    t0_ns = np.array([envelope.t0_ns for envelope in envelopes])[chosen, None]
    dt_ns = np.array([envelope.dt_ns for envelope in envelopes])[chosen, None]
    tick_ns = t0_ns + np.arange(n, dtype=np.int64) * dt_ns
    read_ns = tick_ns + offsets_us[chosen] * np.int64(1000)
    shaped, places = values.reshape(-1, n, c, f), indexes[chosen]
    batches: list[CounterBatch | None] = [None] * len(raws)
    for place, batch in zip(chosen.tolist(), zip(places, shaped, tick_ns, read_ns, strict=True), strict=True):
        batches[place] = CounterBatch(batch[0], batch[1], None, batch[2], batch[3], 0)
    return batches


def _lanes(heads: NDArray[np.uint8], at: int, kind: str, count: int) -> NDArray[np.int64]:
    """(len(heads), count): numbers of one type at the same place of every head."""
    end = at + count * np.dtype(kind).itemsize
    lanes: NDArray[np.int64] = np.ascontiguousarray(heads[:, at:end]).view(kind)
    return lanes


def _add_deltas(values: NDArray[np.int64], codes: NDArray[np.uint8], deltas: bytes) -> None:
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
