"""Batches made by Hypothesis, for the encoder and every decoder."""

import struct
from dataclasses import dataclass

from hypothesis import strategies as st

from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import Encoder, Row

_SMALL = st.integers(-300, 300)
_U64 = st.integers(0, 2**64 - 1)
_NEAR_WRAP = st.integers(2**64 - 200, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """What goes into the encoder. `ticks[t][c]`: a row; `idle[c]`: whether it was made to stay the same."""

    indexes: list[int]
    ticks: list[list[Row]]
    offsets_us: list[int]
    codec: int

    def envelope(self, t0_ns: int = 1_700_000_000 * 10**9, dt_ns: int = 10**9) -> Envelope:
        """The batch as a message."""
        payload = Encoder(self.codec).encode(self.indexes, self.ticks, self.offsets_us)
        return Envelope(
            Kind.COUNTERS, "n", "s", bytes(16), 0, 0, t0_ns, dt_ns, len(self.ticks), self.codec, payload
        )

    def expected(self) -> dict[int, list[list[int | None]]]:
        """By component index the lanes of each tick."""
        return {
            index: [[lane(value) for value in tick[c]] for tick in self.ticks]
            for c, index in enumerate(self.indexes)
        }


def lane(value: float | None) -> int | None:
    """The 64 bits of a value as an unsigned number."""
    if isinstance(value, float):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        assert isinstance(bits, int)
        return bits
    return None if value is None else value % 2**64


@st.composite
def _series(draw: st.DrawFn, n: int) -> list[int] | list[float] | list[None]:
    kind = draw(st.sampled_from(("counter", "wrap", "any", "signed", "float", "absent", "constant")))
    if kind == "absent":
        return [None] * n
    if kind == "float":
        # -0.0 equals 0.0, so a row that changes from one to the other counts as idle.
        return draw(st.lists(st.floats().map(lambda value: value + 0.0), min_size=n, max_size=n))
    if kind == "signed":
        return draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n))
    if kind == "any":
        return draw(st.lists(_U64, min_size=n, max_size=n))
    value = draw(_NEAR_WRAP if kind == "wrap" else _U64)
    step = st.just(0) if kind == "constant" else st.one_of(_SMALL, st.integers(0, 2**33))
    values = []
    for _ in range(n):
        values.append(value)
        value = (value + draw(step)) % 2**64
    return values


@st.composite
def batches(draw: st.DrawFn) -> MadeBatch:
    """Any batch that a Batcher could make, and more: all types of field, idle rows, absent values, wraps."""
    n = draw(st.integers(1, 5))
    f = draw(st.integers(1, 4))
    indexes = sorted(draw(st.sets(st.integers(0, 16_383), min_size=1, max_size=5)))
    rows: list[list[Row]] = []
    for _ in indexes:
        series = [draw(_series(n)) for _ in range(f)]
        ticks = [tuple(column[t] for column in series) for t in range(n)]
        same_object = draw(st.booleans())
        rows.append([ticks[0]] * n if same_object else list(ticks))
    offsets = draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=n, max_size=n))
    return MadeBatch(indexes, [[row[t] for row in rows] for t in range(n)], offsets, draw(st.integers(0, 1)))
