"""Bytes and time a sample of the wire format, beside JSON and plain MessagePack. `python -m bench.wire`.

64 disks with 17 counters, sampled every second: all of them busy, and one in sixteen busy. Numbers are made
from a seed: monotonic counters with the spread of a disk's, `in_flight` a gauge.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgpack

from bench.machine import machine
from laggard_agent.collectors.diskstats.collector import FIELDS
from laggard_aggregator.ingest.decode import Decoder
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec
from laggard_common.wire.codec import Encoder, Row

DEVICES = 64
BATCHES = (1, 5, 60)
NAMES = tuple(field.name for field in FIELDS)
IN_FLIGHT = NAMES.index("in_flight")
# The most that each counter grows by in a second of a busy disk.
GROWTH = (400, 20, 60_000, 3_000, 200, 90, 30_000, 5_000, 0, 1_000, 9_000, 2, 1, 4_000, 9, 3, 20)
SECONDS_A_MEASUREMENT = 0.4

Ticks = list[list[Row]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one way to send a batch, for a sample (all devices, one tick): bytes, microseconds of work."""

    size: float
    encode_us: float
    decode_us: float


def made(ticks: int, busy_share: float, seed: int = 1) -> Ticks:
    """`ticks` samples of all devices; rows of idle ones are the same object, as collectors hand them on."""
    chance = random.Random(seed)
    rows: list[Row] = [tuple(chance.randrange(10**9) for _ in NAMES) for _ in range(DEVICES)]
    busy = [chance.random() < busy_share or busy_share == 1 for _ in rows]
    samples = []
    for _ in range(ticks):
        samples.append(list(rows))
        rows = [
            _after_a_second(row, chance) if at_work else row for row, at_work in zip(rows, busy, strict=True)
        ]
    return samples


def _after_a_second(row: Row, chance: random.Random) -> Row:
    grown = [int(value or 0) + chance.randint(0, most) for value, most in zip(row, GROWTH, strict=True)]
    grown[IN_FLIGHT] = chance.randrange(8)
    return tuple(grown)


def measure(ticks: Ticks, encode: Callable[[Ticks], bytes], decode: Callable[[bytes], object]) -> Cost:
    """The cost of a batch, divided by its ticks."""
    data = encode(ticks)
    n = len(ticks)
    return Cost(len(data) / n, _best_us(lambda: encode(ticks)) / n, _best_us(lambda: decode(data)) / n)


def _best_us(work: Callable[[], object]) -> float:
    """The fastest of the calls that fit into the time of a measurement: what is left when nobody disturbs."""
    best = float("inf")
    end = time.perf_counter() + SECONDS_A_MEASUREMENT
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def as_json(ticks: Ticks) -> bytes:
    """What `--once` says: an object with names for each device and tick."""
    return json.dumps(
        [{f"sd{i}": dict(zip(NAMES, row, strict=True)) for i, row in enumerate(tick)} for tick in ticks],
        separators=(",", ":"),
    ).encode()


def as_lists(ticks: Ticks) -> bytes:
    """MessagePack lists of numbers, without names."""
    packed: bytes = msgpack.packb(ticks)
    return packed


def laggard(number: int) -> tuple[Callable[[Ticks], bytes], Callable[[bytes], object]]:
    """The wire format with a codec: whole messages, decoded into numpy."""
    encoder, decoder = Encoder(number), Decoder()
    indexes = range(DEVICES)

    def encode(ticks: Ticks) -> bytes:
        payload = encoder.encode(indexes, ticks, [150] * len(ticks))
        return wire.encode_envelope(
            Envelope(
                kind=Kind.COUNTERS,
                node="oss-1",
                source="diskstats",
                stream=bytes(16),
                seq=1,
                schema_epoch=1,
                t0_ns=1_763_650_000 * 10**9,
                dt_ns=10**9,
                n=len(ticks),
                codec=number,
                payload=payload,
            )
        )

    return encode, lambda data: decoder.decode(wire.decode_envelope(data))


def table() -> list[str]:
    """The lines of the table, in Markdown."""
    ways: Sequence[tuple[str, Callable[[Ticks], bytes], Callable[[bytes], object]]] = (
        ("JSON objects", as_json, json.loads),
        ("MessagePack lists", as_lists, msgpack.unpackb),
        ("codec 0 (raw)", *laggard(codec.RAW)),
        ("codec 1 (minimal width, zstd)", *laggard(codec.DELTA_ZSTD)),
    )
    lines = [
        "| 64 disks x 17 counters | batch | bytes a sample | us to encode | us to decode |",
        "|---|---|---|---|---|",
    ]
    for load, share in (("all busy", 1.0), ("4 busy", 1 / 16)):
        for n in BATCHES:
            ticks = made(n, share)
            for name, encode, decode in ways:
                cost = measure(ticks, encode, decode)
                figures = f"{cost.size:,.0f} | {cost.encode_us:,.0f} | {cost.decode_us:,.1f}"
                lines.append(f"| {name}, {load} | {n} | {figures} |")
    return lines


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(prog="python -m bench.wire", description=__doc__).parse_args()
    print("\n".join(table()))
    print(f"\n{machine('msgpack', 'zstandard', 'numpy')}")


if __name__ == "__main__":
    main()
