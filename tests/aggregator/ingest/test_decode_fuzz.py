"""Random and mutated payloads, thoroughly 100,000 of each, raise WireError or decode; memory stays flat."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from laggard_aggregator.ingest.decode import Decoder
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind, codec, limits
from laggard_common.wire.codec import HEADER, Encoder
from tests.support.mutation import mutated
from tests.support.thorough import times

TICKS = [[(t * 3 + c, c, 2**40 + t * t * 977) for c in range(4)] + [(9, 9, 9)] for t in range(6)]
WITH_ABSENT = [[(*row[:2], None) for row in tick] for tick in TICKS]
ENVELOPE = Envelope(Kind.COUNTERS, "n", "s", bytes(16), 0, 0, 1_700_000_000 * 10**9, 10**9, 6, 0, b"")


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def try_to_decode(decoder: Decoder, envelope: Envelope) -> bool:
    try:
        batch = decoder.decode(envelope)
    except WireError:
        return False
    n, c, f = batch.values.shape
    assert n == envelope.n
    assert n * c * f <= limits.MAX_VALUES
    assert len(batch.indexes) == c
    return True


def test_random_and_mutated_payloads() -> None:
    chance = random.Random(2)
    decoder = Decoder()
    squeeze = zstandard.ZstdCompressor(level=1)
    offsets = [100] * 6
    valid = {c: [Encoder(c).encode(range(5), t, offsets) for t in (TICKS, WITH_ABSENT)] for c in (0, 1)}
    inner = [zstandard.ZstdDecompressor().decompress(payload) for payload in valid[1]]
    decoded = 0
    before = 0
    for round_ in range(times(25_000, 6_000)):
        if round_ == 2_000:
            before = resident_kib()
        noise = chance.randbytes(chance.randrange(200))
        cases = (
            (0, noise),
            (1, noise),
            (0, plausible(chance) + noise),
            (1, squeeze.compress(plausible(chance) + noise)),
            (0, mutated(chance.choice(valid[0]), chance)),
            (1, mutated(chance.choice(valid[1]), chance)),
            (1, squeeze.compress(mutated(chance.choice(inner), chance))),
            (0, mutated(chance.choice(inner), chance)),
        )
        for kind, payload in cases:
            decoded += try_to_decode(decoder, replace(ENVELOPE, codec=kind, payload=payload))
    assert decoded > 100
    assert resident_kib() - before < 20_000


def plausible(chance: random.Random) -> bytes:
    """A header as it might be, with counts at and beyond the limits now and then."""
    small = chance.randrange(6)
    large = chance.choice((small, small, limits.MAX_COMPONENTS, 2**32 - 1))
    return HEADER.pack(chance.choice((0, 0, 1, 2)), chance.choice((1, 3, 1024, 65535)), small, large)


@pytest.mark.parametrize(
    ("fields", "changing", "idle"),
    [(0, 1, 0), (1025, 1, 0), (1, limits.MAX_COMPONENTS, 1), (1, 0, 2**32 - 1), (1024, 8000, 0)],
)
def test_sizes_beyond_the_limits_are_refused_before_anything_is_reserved(
    fields: int, changing: int, idle: int
) -> None:
    payload = HEADER.pack(0, fields, changing, idle)
    with pytest.raises(WireError, match="payload"):
        Decoder().decode(replace(ENVELOPE, payload=payload))


def test_a_small_frame_that_would_become_huge_is_refused() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(limits.MAX_PAYLOAD_BYTES + 1))
    assert len(bomb) < 10_000
    with pytest.raises(WireError, match="after decompression"):
        Decoder().decode(replace(ENVELOPE, codec=codec.DELTA_ZSTD, payload=bomb))


def test_a_frame_that_does_not_say_its_size_is_refused() -> None:
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100))
    with pytest.raises(WireError):
        Decoder().decode(replace(ENVELOPE, codec=codec.DELTA_ZSTD, payload=unsized))


@pytest.mark.parametrize("indexes", [(1, 1), (2, 1), (0, limits.MAX_COMPONENTS)])
def test_indexes_that_repeat_or_do_not_ascend_or_are_too_large(indexes: tuple[int, int]) -> None:
    payload = Encoder(codec.RAW).encode(indexes, [[(1,), (2,)], [(3,), (4,)]], [0, 0])
    with pytest.raises(WireError, match="component index"):
        Decoder().decode(replace(ENVELOPE, n=2, payload=payload))


def test_an_index_both_changing_and_idle() -> None:
    payload = Encoder(codec.RAW).encode((3, 3), [[(1,), (2,)], [(5,), (2,)]], [0, 0])
    with pytest.raises(WireError, match="repeat"):
        Decoder().decode(replace(ENVELOPE, n=2, payload=payload))


def test_an_unknown_codec_and_an_unknown_width() -> None:
    with pytest.raises(WireError, match="codec"):
        Decoder().decode(replace(ENVELOPE, codec=2))
    inner = bytearray(
        zstandard.ZstdDecompressor().decompress(Encoder(1).encode([0], [[(1,)], [(2,)]], [0, 0]))
    )
    inner[-2] = 3
    payload = zstandard.ZstdCompressor().compress(bytes(inner))
    with pytest.raises(WireError, match="width"):
        Decoder().decode(replace(ENVELOPE, n=2, codec=1, payload=payload))
