"""What folding the I/O trace of a compute node saves, pattern by pattern: `python -m bench.iotrace`.

Each pattern says how many runs its records are: that many, and no fewer or more, must come out. Records and
bytes are counted apart. Beacon published the first-pass factor of eight applications as data size alone,
5.4 to 34.6 (NSDI '19, section 3.2 and Table 8).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.machine import machine
from laggard_agent.tools.iotrace.fold import fold
from laggard_agent.tools.iotrace.text import parse
from laggard_common import wire
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.trace_codec import EventEncoder, batches
from laggard_common.wire.trace_records import Folded, TraceRecord
from tests.support.builders.iotrace import as_line

SEED = 19
BEACON = (5.4, 34.6)
KIB, MIB = 1024, 1024 * 1024
_START_NS = 1_763_650_000 * 10**9


@dataclass(frozen=True, slots=True)
class Pattern:
    """Records as a node's processes write them, and how many runs they are by the pattern's definition."""

    name: str
    definition: str
    records: Sequence[TraceRecord]
    runs: int

    @property
    def ratio(self) -> float:
        """Records in by records out."""
        return len(self.records) / self.runs


class _Rank:
    """What one process does with one file, call by call."""

    def __init__(self, descriptor: str, path: str) -> None:
        self.calls: list[tuple[str, int | None, int]] = [("open", None, 0)]
        self.descriptor = descriptor
        self.path = path

    def do(self, operation: str, offset: int | None = None, size: int = 0) -> None:
        self.calls.append((operation, offset, size))

    def stretch(self, operation: str, offset: int, size: int, count: int) -> None:
        """`count` calls of `size` bytes, each where the one before ended."""
        for i in range(count):
            self.do(operation, offset + i * size, size)


def patterns(seed: int = SEED) -> list[Pattern]:
    """All patterns, the same for the same seed."""
    chance = random.Random(seed)
    makers = (_sequential, _strided, _shared, _random, _metadata, _checkpoint, _mixed, _restart)
    return [maker(chance) for maker in makers]


def _sequential(chance: random.Random) -> Pattern:
    rank = _Rank("4001:3", "/scratch/in.dat")
    rank.stretch("read", 0, MIB, 8190)
    rank.do("close")
    return Pattern(
        "sequential", "8,190 reads of 1 MiB on end, open, close", _log([rank], chance), runs=1 + 1 + 1
    )


def _strided(chance: random.Random) -> Pattern:
    rank = _Rank("4001:3", "/scratch/grid.nc")
    for row in range(1024):
        rank.stretch("read", row * 4 * MIB, 64 * KIB, 8)
    rank.do("close")
    return Pattern(
        "strided", "1,024 rows of 8 reads of 64 KiB, gaps between", _log([rank], chance), runs=1 + 1024 + 1
    )


def _shared(chance: random.Random) -> Pattern:
    """N-1 as IOR's segments: in each, every rank writes a block of its own into the one file."""
    ranks = [_Rank(f"{4001 + i}:7", "/scratch/shared.h5") for i in range(16)]
    for segment in range(64):
        for i, rank in enumerate(ranks):
            rank.stretch("write", (segment * 16 + i) * 4 * MIB, 512 * KIB, 8)
    for rank in ranks:
        rank.do("close")
    return Pattern(
        "N-1 interleaved",
        "16 ranks, 64 segments of 8 writes of 512 KiB each",
        _log(ranks, chance),
        runs=16 * (1 + 64 + 1),
    )


def _random(chance: random.Random) -> Pattern:
    rank = _Rank("4001:5", "/scratch/table.db")
    blocks = 1 << 24
    block = 0
    for _ in range(8190):
        block = (block + 2 + chance.randrange(blocks - 2)) % blocks  # anywhere but right behind
        rank.do("read", block * 4 * KIB, 4 * KIB)
    rank.do("close")
    return Pattern("random", "8,190 reads of 4 KiB, none behind the other", _log([rank], chance), runs=8192)


def _metadata(chance: random.Random) -> Pattern:
    """One process takes a thousand small files in turn, under the same descriptor."""
    calls: list[_Rank] = []
    for i in range(1000):
        rank = _Rank("4001:3", f"/scratch/cfg/{i:04d}.xml")
        rank.do("stat")
        rank.stretch("read", 0, KIB, 3)
        rank.do("read", 3 * KIB, 1 + chance.randrange(KIB - 1))
        rank.do("close")
        calls.append(rank)
    return Pattern(
        "small metadata",
        "1,000 files: open, stat, 3 reads of 1 KiB, a short one, close",
        [record for rank in calls for record in _log([rank], chance)],
        runs=1000 * 5,
    )


def _checkpoint(chance: random.Random) -> Pattern:
    ranks = [_Rank(f"{4001 + i}:9", f"/scratch/ckpt/{i:02d}") for i in range(16)]
    for rank in ranks:
        rank.do("write", 0, 4 * KIB)
        rank.stretch("write", 4 * KIB, MIB, 512)
        rank.do("fsync")
        rank.do("close")
    return Pattern(
        "checkpoint",
        "16 ranks: header, 512 writes of 1 MiB, fsync",
        _log(ranks, chance),
        runs=16 * 5,
    )


def _mixed(chance: random.Random) -> Pattern:
    """A solver: reads its input on end, looks things up at random, appends to a log without offsets."""
    whole, table, log = _Rank("4001:3", "/in"), _Rank("4001:4", "/table"), _Rank("4001:5", "/log")
    whole.stretch("read", 0, MIB, 2048)
    block = 0
    for _ in range(2048):
        block = (block + 2 + chance.randrange(1 << 20)) % (1 << 21)
        table.do("read", block * 8 * KIB, 8 * KIB)
    for i in range(1024):
        log.do("write", None, 80 + i % 2)  # two lengths in turn: never two alike
    for rank in (whole, table, log):
        rank.do("close")
    runs = (1 + 1 + 1) + (1 + 2048 + 1) + (1 + 1024 + 1)
    return Pattern(
        "mixed",
        "2,048 reads on end, 2,048 at random, 1,024 log lines",
        _log([whole, table, log], chance),
        runs,
    )


def _restart(chance: random.Random) -> Pattern:
    ranks = [_Rank(f"{4001 + i}:6", f"/scratch/ckpt/{i:02d}") for i in range(16)]
    for rank in ranks:
        rank.do("read", 0, 4 * KIB)
        rank.stretch("read", 4 * KIB, MIB, 256)
        rank.do("read", 4 * KIB + 256 * MIB, 300 * KIB)
        rank.do("read", 304 * KIB + 256 * MIB, 0)
        rank.do("close")
    return Pattern(
        "restart",
        "16 ranks: header, 256 reads of 1 MiB, a short one, end of file",
        _log(ranks, chance),
        runs=16 * 6,
    )


def _log(ranks: Sequence[_Rank], chance: random.Random) -> list[TraceRecord]:
    """The calls of all ranks among each other, as a node writes them down."""
    queues = [iter(rank.calls) for rank in ranks]
    left = [len(rank.calls) for rank in ranks]
    records = []
    now_ns = _START_NS
    while any(left):
        (i,) = chance.choices(range(len(ranks)), weights=left)
        left[i] -= 1
        operation, offset, size = next(queues[i])
        now_ns += 20_000 + chance.randrange(300_000)
        rank = ranks[i]
        records.append(TraceRecord("cn-17", operation, rank.descriptor, offset, size, now_ns, rank.path))
    return records


def text_bytes(records: Iterable[TraceRecord]) -> int:
    """Bytes of a log of these records in Laggard's own format."""
    return sum(len(as_line(record)) + 1 for record in records)


def wire_bytes(folded: Iterable[Folded]) -> int:
    """Bytes of all messages that carry these records."""
    encoder = EventEncoder()
    return sum(len(wire.encode_envelope(envelope(encoder, batch))) for batch in batches(folded))


def envelope(encoder: EventEncoder, batch: Sequence[Folded], seq: int = 0) -> Envelope:
    """The message that carries this batch."""
    return Envelope(
        kind=Kind.EVENTS,
        node="cn-17",
        source="iotrace",
        stream=bytes(16),
        seq=seq,
        schema_epoch=0,
        t0_ns=batch[0].first_ns,
        dt_ns=0,
        n=len(batch),
        codec=encoder.codec,
        payload=encoder.encode(batch),
    )


def alone(records: Iterable[TraceRecord]) -> Iterator[Folded]:
    """Each record as a run of its own: what the wire would carry without folding."""
    for r in records:
        yield Folded(r.node, r.operation, r.descriptor, r.offset, r.size, 1, r.time_ns, r.time_ns, r.path)


def ratios() -> list[str]:
    """The lines of the table of ratios, in Markdown."""
    lines = [
        "| pattern | records in | out | ratio | Beacon's one run | bytes of log | on the wire, not folded "
        "| folded | log to wire |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for p in patterns():
        folded = list(fold(p.records))
        single = sum(1 for _ in fold(p.records, max_open_runs=1))
        log, plain, sent = text_bytes(p.records), wire_bytes(alone(p.records)), wire_bytes(folded)
        lines.append(
            f"| {p.name} | {len(p.records):,} | {len(folded):,} | {len(p.records) / len(folded):.1f} "
            f"| {len(p.records) / single:.1f} | {log:,} | {plain:,} | {sent:,} | {log / sent:.0f} |"
        )
    return lines


def speeds() -> list[str]:
    """The lines of the table of speeds, in Markdown: least of five, CPU time of this process."""
    records = [record for p in patterns() for record in p.records]
    text = [as_line(record) for record in records]
    folded = list(alone(records))
    encoder = EventEncoder()
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("parse a line of the log", lambda: [parse(line) for line in text]),
        ("fold", lambda: list(fold(records))),
        ("encode", lambda: [encoder.encode(batch) for batch in batches(folded)]),
    )
    lines = ["| step | records a second |", "|---|---|"]
    for name, step in steps:
        lines.append(f"| {name} | {len(records) / min(_cpu_seconds(step) for _ in range(5)):,.0f} |")
    return lines


def _cpu_seconds(step: Callable[[], object]) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def main() -> None:
    """Prints both tables and what the patterns are."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("\n".join(ratios()))
    print(f"\nBeacon, eight applications, bytes: {BEACON[0]} to {BEACON[1]}. Seed {SEED}.\n")
    print("\n".join(f"- {p.name}: {p.definition}: {len(p.records):,} / {p.runs:,}" for p in patterns()))
    print()
    print("\n".join(speeds()))
    print(f"\n{machine('zstandard', 'msgpack')}")


if __name__ == "__main__":
    main()
