"""Payloads that are decoded together: each comes out as if it had been alone, and so do errors."""

import random
from collections.abc import Sequence

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.ingest.decode import LEAST_ALIKE, MOST_VALUES, Decoder
from laggard_aggregator.windows.counter_block import Block
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind, codec
from laggard_common.wire.codec import Encoder
from tests.support.mutation import mutated
from tests.support.thorough import examples

SECOND = 1_000_000_000
RISES = (0, 1, 127, 128, 30_000, 40_000, 2**31 + 5, 2**40, 2**63, -1, -200)


def envelope(payload: bytes, n: int, at: int = 0, kind: int = codec.DELTA_ZSTD) -> Envelope:
    t0_ns = 1_700_000_000 * SECOND + at * SECOND
    return Envelope(Kind.COUNTERS, f"n{at}", "s", bytes(16), at, 0, t0_ns, SECOND, n, kind, payload)


def made(chance: random.Random, n: int, c: int, f: int, at: int) -> Envelope:
    """A batch whose series rise by anything, or not at all."""
    steps = [[chance.choice(RISES) for _ in range(f)] for _ in range(c)]
    first = [[chance.randrange(2**64) for _ in range(f)] for _ in range(c)]
    ticks = [
        [
            tuple((v + t * s) % 2**64 for v, s in zip(*row, strict=True))
            for row in zip(first, steps, strict=True)
        ]
        for t in range(n)
    ]
    indexes = sorted(chance.sample(range(50), c))
    payload = Encoder().encode(indexes, ticks, [chance.randrange(-(10**6), 10**6) for _ in range(n)])
    return envelope(payload, n, at)


def outcome(found: Block | WireError) -> object:
    if isinstance(found, WireError):
        return found.reason, found.detail
    assert found.tick_ns.flags.c_contiguous
    present = None if found.present is None else found.present.tolist()
    return (
        *(found.indexes.tolist(), found.indexes.dtype, found.values.tolist(), found.values.dtype, present),
        *(found.tick_ns.tolist(), found.read_ns.tolist(), found.idle),
    )


def alone(envelopes: Sequence[Envelope]) -> list[object]:
    found: list[object] = []
    for each in envelopes:
        try:
            found.append(outcome(Decoder().decode(each)))
        except WireError as exc:
            found.append((exc.reason, exc.detail))
    return found


def together(envelopes: Sequence[Envelope]) -> list[object]:
    return [outcome(found) for found in Decoder().decode_all(envelopes)]


@given(st.integers(0, 2**32), st.integers(1, 11), st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=examples(60))
def test_alike_or_not_each_is_what_it_is_alone(seed: int, n: int, c: int, f: int) -> None:
    chance = random.Random(seed)
    envelopes = [made(chance, n, c, f, at) for at in range(chance.randrange(1, 12))]
    envelopes += [made(chance, chance.randrange(1, 5), chance.randrange(1, 3), f, at) for at in range(20, 26)]
    chance.shuffle(envelopes)
    assert together(envelopes) == alone(envelopes)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_one_that_is_wrong_harms_no_other(seed: int) -> None:
    chance = random.Random(seed)
    squeeze, inflate = zstandard.ZstdCompressor(), zstandard.ZstdDecompressor()
    envelopes = []
    for at in range(3 * LEAST_ALIKE):
        good = made(chance, 6, 2, 3, at)
        raw = inflate.decompress(good.payload)
        payload = chance.choice(
            (
                good.payload,
                squeeze.compress(mutated(raw, chance)),
                squeeze.compress(raw[: chance.randrange(len(raw))]),
                squeeze.compress(raw + b"\0"),
                mutated(good.payload, chance),
            )
        )
        envelopes.append(envelope(payload, chance.choice((6, 6, 5)), at, chance.choice((0, 1, 1, 1, 2))))
    assert together(envelopes) == alone(envelopes)


@pytest.mark.parametrize("at", [12, 13, 15, 17, 18, 19])
def test_indexes_that_do_not_ascend_or_are_too_large_are_refused(at: int) -> None:
    chance = random.Random(at)
    good = [made(chance, 4, 2, 2, number) for number in range(LEAST_ALIKE)]
    raw = bytearray(zstandard.ZstdDecompressor().decompress(good[0].payload))
    raw[at] = 0xFF
    bad = envelope(zstandard.ZstdCompressor().compress(bytes(raw)), 4, 99)
    found = list(Decoder().decode_all([*good, bad]))
    assert [isinstance(each, WireError) for each in found] == [*[False] * len(good), True]
    assert together([*good, bad]) == alone([*good, bad])


def test_large_ones_are_decoded_one_after_another() -> None:
    """A small message may be a large batch: what a burst may ask for is not all held at once."""
    n, f = 512, MOST_VALUES // 16
    ticks = [[tuple([t] * f)] for t in range(n)]
    envelopes = [envelope(Encoder().encode([0], ticks, [0] * n), n, at) for at in range(5)]
    assert max(len(each.payload) for each in envelopes) < 4096
    decoded: list[int] = []

    class Counting(Decoder):
        def _raw(self, envelope: Envelope) -> bytes:
            decoded.append(envelope.seq)
            return super()._raw(envelope)

    found = Counting().decode_all(envelopes)
    for number in range(5):
        assert len(decoded) == number
        next(found)
    assert together(envelopes) == alone(envelopes)
