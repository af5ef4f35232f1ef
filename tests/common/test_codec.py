import struct

from hypothesis import given

from laggard_common import codec
from laggard_common.codec import Encoder
from tests import naive_wire
from tests.wire_batches import MadeBatch, batches


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
