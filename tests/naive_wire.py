"""The wire format's payloads decoded slowly and obviously, without numpy, as docs/wire-format.md says it."""

import io
import struct
from dataclasses import dataclass

import zstandard

from laggard_common.wire import Envelope


@dataclass(frozen=True, slots=True)
class NaiveBatch:
    """`values[tick][component][field]`: the lane as 0 <= v < 2^64, None where absent."""

    indexes: list[int]
    values: list[list[list[int | None]]]
    read_ns: list[int]
    idle: int


def decode(envelope: Envelope) -> NaiveBatch:
    """The batch in `envelope`, which must be a valid one."""
    data = envelope.payload
    if envelope.codec == 1:
        data = zstandard.ZstdDecompressor().decompress(data)
    stream = io.BytesIO(data)

    def take(form: str) -> int:
        (value,) = struct.unpack("<" + form, stream.read(struct.calcsize("<" + form)))
        assert isinstance(value, int)
        return value

    flags, fields, changing, idle = take("H"), take("H"), take("I"), take("I")
    components = changing + idle
    indexes = [take("I") for _ in range(components)]
    bitmap = stream.read((components * fields + 7) // 8) if flags & 1 else b"\xff" * (components * fields)
    offsets = [take("i") for _ in range(envelope.n)]
    lanes = [[[take("Q") for _ in range(fields)] for _ in range(components)]]
    lanes += [[list(row) for row in lanes[0]] for _ in range(envelope.n - 1)]
    if envelope.codec == 0:
        for tick in range(1, envelope.n):
            for c in range(changing):
                for f in range(fields):
                    lanes[tick][c][f] = take("Q")
    else:
        codes = [take("B") for _ in range(changing * fields)]
        for width, form in ((1, "b"), (2, "h"), (4, "i"), (8, "q")):
            for tick in range(1, envelope.n):
                for series, code in enumerate(codes):
                    if code == width:
                        c, f = divmod(series, fields)
                        lanes[tick][c][f] = (lanes[tick - 1][c][f] + take(form)) % 2**64
    assert stream.read() == b""

    def present(c: int, f: int) -> bool:
        bit = c * fields + f
        return bool(bitmap[bit // 8] >> bit % 8 & 1)

    values = [
        [[lane if present(c, f) else None for f, lane in enumerate(row)] for c, row in enumerate(tick)]
        for tick in lanes
    ]
    read_ns = [envelope.t0_ns + i * envelope.dt_ns + offset * 1000 for i, offset in enumerate(offsets)]
    return NaiveBatch(indexes, values, read_ns, idle)
