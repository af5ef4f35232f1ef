import struct
from itertools import pairwise

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from laggard_common.wire import codec
from laggard_common.wire.codec import Encoder
from tests import naive_wire
from tests.support.builders.wire_batches import MadeBatch, batches


@given(batches())
def test_every_batch_comes_back(made: MadeBatch) -> None:
    envelope = made.envelope()
    decoded = naive_wire.decode(envelope)
    found = {
        index: [decoded.values[t][c] for t in range(envelope.n)] for c, index in enumerate(decoded.indexes)
    }
    assert found == made.expected()
    assert decoded.read_ns == [
        envelope.t0_ns + t * envelope.dt_ns + offset * 1000 for t, offset in enumerate(made.offsets_us)
    ]


@given(batches())
def test_idle_components_come_last_and_both_parts_ascend(made: MadeBatch) -> None:
    decoded = naive_wire.decode(made.envelope())
    changing = len(decoded.indexes) - decoded.idle
    assert decoded.indexes[:changing] == sorted(decoded.indexes[:changing])
    assert decoded.indexes[changing:] == sorted(decoded.indexes[changing:])
    expected = made.expected()
    idle = {index for index, ticks in expected.items() if all(row == ticks[0] for row in ticks)}
    assert set(decoded.indexes[changing:]) <= idle


def test_an_idle_component_costs_its_first_row_and_nothing_else() -> None:
    row = (1, 2, 3)
    one = Encoder(codec.RAW).encode([0], [[row]], [0])
    many = Encoder(codec.RAW).encode([0], [[row]] * 100, [0] * 100)
    assert len(many) - len(one) == 99 * 4


def test_equal_rows_that_are_not_the_same_object_are_idle_too() -> None:
    again = [1]
    payload = Encoder(codec.RAW).encode([0, 1], [[(1,), (5,)], [tuple(again), (6,)]], [0, 0])
    assert codec.HEADER.unpack_from(payload) == (0, 1, 1, 1)
    assert struct.unpack_from("<II", payload, codec.HEADER.size) == (1, 0)


def test_a_steady_counter_costs_one_byte_a_tick() -> None:
    ticks = [[(1_000_000 + 7 * t,)] for t in range(50)]
    raw = Encoder(codec.RAW).encode([0], ticks, [0] * 50)
    small = Encoder(codec.DELTA_ZSTD).encode([0], ticks, [0] * 50)
    assert len(raw) == 12 + 4 + 50 * 4 + 50 * 8
    assert len(small) < 60


LANES = st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
STEPS = st.sampled_from([0, 1, -1, 127, -128, 128, -129, 2**15, 2**31, -(2**31), 2**62, 2**63]) | st.integers(
    -(2**33), 2**33
)


@given(LANES, st.lists(STEPS, min_size=1, max_size=6), LANES, st.lists(STEPS, min_size=6, max_size=6))
def test_series_are_as_narrow_as_their_longest_difference(
    first: int, steps: list[int], other: int, others: list[int]
) -> None:
    """Whatever the series beside it does."""
    ticks = [[(first, other)]]
    for step, beside in zip(steps, others, strict=False):
        (before,) = ticks[-1]
        ticks.append([((before[0] + step) % 2**64, (before[1] + beside) % 2**64)])
    payload = Encoder().encode([0], ticks, [0] * len(ticks))
    if all(tick == ticks[0] for tick in ticks):
        return
    plain = zstandard.ZstdDecompressor().decompress(payload)
    codes = plain[codec.HEADER.size + 4 + 4 * len(ticks) + 2 * 8 :][:2]
    for series, code in enumerate(codes):
        deltas = [(b[0][series] - a[0][series]) % 2**64 for a, b in pairwise(ticks)]
        signed = [d - 2**64 if d >= 2**63 else d for d in deltas]
        fits = [w for w in (0, 1, 2, 4, 8) if all(-(2 ** (8 * w)) <= 2 * d < 2 ** (8 * w) for d in signed)]
        assert code == (0 if not any(signed) else fits[0])
