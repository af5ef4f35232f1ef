"""docs/wire-format.md says what the code does: its worked example and its table of limits."""

import re
from pathlib import Path

import zstandard

from laggard_common import wire
from laggard_common.wire import Envelope, Kind, limits
from laggard_common.wire.codec import Encoder
from laggard_common.wire.trace_codec import RAW, EventEncoder
from laggard_common.wire.trace_records import Folded

DOC = (Path(__file__).resolve().parents[3] / "docs" / "wire-format.md").read_text()

INDEXES = [0, 3]
TICKS = [[(100, 5), (7, None)], [(103, 5), (7, None)], [(110, 1005), (7, None)]]
OFFSETS_US = [150, 180, 140]


def example(name: str) -> bytes:
    """The bytes of a hex block; explanations stand after three spaces."""
    (block,) = re.findall(rf"<!-- example: {re.escape(name)} -->\n```\n(.*?)```", DOC, re.DOTALL)
    return bytes.fromhex("".join(line.split("   ")[0] for line in block.splitlines()))


def test_the_worked_example() -> None:
    payload = Encoder(0).encode(INDEXES, TICKS, OFFSETS_US)
    envelope = Envelope(
        kind=Kind.COUNTERS,
        node="oss-1",
        source="diskstats",
        stream=bytes(range(16)),
        seq=7,
        schema_epoch=2,
        t0_ns=1_763_650_000 * 10**9,
        dt_ns=10**9,
        n=3,
        codec=0,
        payload=payload,
    )
    assert wire.encode_envelope(envelope) == example("codec 0")
    assert wire.decode_envelope(example("codec 0")) == envelope


def test_the_worked_example_with_codec_1() -> None:
    raw = Encoder(0).encode(INDEXES, TICKS, OFFSETS_US)
    inner = zstandard.ZstdDecompressor().decompress(Encoder(1).encode(INDEXES, TICKS, OFFSETS_US))
    rest = example("codec 1, what follows the first tick")
    head = len(inner) - len(rest)
    assert inner == raw[:head] + rest


def test_the_example_of_io_trace_records() -> None:
    t0 = 1_763_650_000 * 10**9
    records = [
        Folded("cn-17", "write", "4121:17", 0, 65536, 3, t0, t0 + 200_000_000, "/out"),
        Folded("cn-17", "close", "4121:17", None, 0, 1, t0 + 300_000_000, t0 + 300_000_000, "/out"),
    ]
    assert EventEncoder(RAW).encode(records) == example("I/O trace records")


def test_every_limit_is_in_the_table_with_its_value() -> None:
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", DOC, re.MULTILINE))
    in_code = {name: str(value) for name, value in vars(limits).items() if name.isupper()}
    assert documented == in_code
