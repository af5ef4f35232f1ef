"""What one core takes in: from the broker's bytes to counters in the rings.

    python -m bench.ingest

Every counter of every component grows in every tick, so nothing is idle. The cost of the MQTT client comes on
top. The journal is what a state directory costs besides: CPU time, as the thread that writes it waits for the
disk; one fsync a round. A round is one message of every node; the fastest of many rounds counts.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.machine import machine
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.ingest.admission import Admission
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import LogEntry, LogSequence
from laggard_aggregator.log.journal import Journal
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND
FIELDS = (
    *("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms"),
    *("rd_merges", "wr_merges", "in_flight", "dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)
ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes, and what a message of each holds."""

    name: str
    nodes: int
    components: int
    fields: int
    ticks: int


SHAPES = (
    Shape("server: 64 disks x 17 counters x 5 ticks", 16, 64, 17, 5),
    Shape("compute node: 1 component x 8 counters x 10 ticks", 200, 1, 8, 10),
)

Message = tuple[str, bytes, int]


def schema_of(shape: Shape, node: str) -> Schema:
    """The dictionary of one node."""
    return Schema(
        node=node,
        source="diskstats",
        stream=bytes(16),
        epoch=1,
        interval_ns=SECOND,
        batch_ticks=shape.ticks,
        fields=tuple(Field(name) for name in FIELDS[: shape.fields]),
        components=tuple(Component(f"wwn-{n}", f"sd{n}") for n in range(shape.components)),
    )


def rounds(shape: Shape) -> list[list[Message]]:
    """ROUNDS messages of each node, by round."""
    chance = np.random.default_rng(1)
    encoder = codec.Encoder()
    totals = chance.integers(0, 2**40, (shape.nodes, shape.components, shape.fields))
    made = []
    for at in range(ROUNDS):
        messages = []
        t0_ns = START_NS + (at * shape.ticks + 1) * SECOND
        for n in range(shape.nodes):
            ticks = []
            for _ in range(shape.ticks):
                totals[n] += chance.integers(1, 200, totals[n].shape)
                ticks.append([tuple(row) for row in totals[n].tolist()])
            envelope = Envelope(
                kind=Kind.COUNTERS,
                node=f"node-{n}",
                source="diskstats",
                stream=bytes(16),
                seq=at,
                schema_epoch=1,
                t0_ns=t0_ns,
                dt_ns=SECOND,
                n=shape.ticks,
                codec=codec.DELTA_ZSTD,
                payload=encoder.encode(range(shape.components), ticks, [150] * shape.ticks),
            )
            topic = topics.data_topic("site", "storage", f"node-{n}", "diskstats")
            messages.append((topic, wire.encode_envelope(envelope), t0_ns + shape.ticks * SECOND))
        made.append(messages)
    return made


def measure(shape: Shape) -> str:
    """A line of the table."""
    entries: list[LogEntry] = []
    intake = Admission("site", LogSequence())
    intake.record = entries.append
    pipeline = Machine(ConfiguredMembership((), DetectSettings()), lateness_seconds=3600.0)
    for n in range(shape.nodes):
        schema = schema_of(shape, f"node-{n}")
        topic = topics.schema_topic("site", "storage", schema.node, schema.source)
        list(intake.receive(((topic, wire.encode_schema(schema), START_NS),)))
    receive_us, store_us, journal_us = [], [], []
    for messages in rounds(shape):
        taken: list[Batch] = []
        entries.clear()
        receive_us.append(_us(lambda: taken.extend(_received(intake, messages))) / shape.nodes)  # noqa: B023
        store_us.append(_us(lambda: [list(pipeline.store((batch,))) for batch in taken]) / shape.nodes)  # noqa: B023
        journal_us.append(_journal_us(entries) / shape.nodes)
    assert pipeline.samples == ROUNDS * shape.nodes * shape.components * shape.ticks
    receive, store, journal = min(receive_us), min(store_us), min(journal_us)
    per_second = 1e6 / (receive + store)
    samples = per_second * shape.components * shape.ticks
    return (
        f"| {shape.name} | {receive:.0f} | {store:.0f} | {journal:.1f} | {per_second:,.0f} | {samples:,.0f} |"
    )


def _journal_us(entries: list[LogEntry]) -> float:
    """CPU time of appending `entries` to a journal in one group commit."""
    with TemporaryDirectory(dir=".") as directory:
        journal = Journal(Path(directory), 2**30)
        journal.rotate()
        start = time.process_time()
        journal.append(entries)
        spent = time.process_time() - start
        journal.close()
    return spent * 1e6


def _received(intake: Admission, messages: list[Message]) -> list[Batch]:
    found = [each for message in messages for each in intake.receive((message,))]
    return [each for each in found if isinstance(each, Batch)]


def _us(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(prog="python -m bench.ingest", description=__doc__).parse_args()
    print("| message | us to decode and account | us to store | us to journal | messages/s | samples/s |")
    print("|---|---|---|---|---|---|")
    for each in SHAPES:
        print(measure(each))
    print(f"\n{machine('numpy', 'zstandard', 'msgpack')}")


if __name__ == "__main__":
    main()
