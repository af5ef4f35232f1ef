"""Bytes a day that a node sends, by the agent's own encoder: `python -m bench.bytes_a_day`.

A storage server has 64 LUNs with the 17 counters of diskstats, all busy or four busy. Its counters are real:
the demo's recording of loop-device LUNs under fio, from before its fault, each LUN replayed several times
from moments apart. A compute node has three OSCs with 40 made-up counters, of which 8 change in a sample.
One sample a second goes through the agent's Batcher and into envelopes as the spool makes them; what the
stated time comes to is scaled to a day. Counted are MQTT's fixed header, the topic and the message, and not
TCP/IP, acknowledgements, the status (some 600 B every 30 s) and the schema (once a connection). JSON is one
object a sample with names, a message each batch.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.machine import machine
from laggard_agent.collectors.diskstats.collector import FIELDS, Parsed, parse
from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import Batcher, EncodedBatch
from laggard_aggregator.demo.recording import Recording, read_recording
from laggard_common import wire
from laggard_common.wire import topics
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Component, Field

SECONDS = 600
RECORDED_SECONDS = 120
DAY_SECONDS = 86_400
INTERVAL_NS = 10**9
START_NS = 1_763_650_000 * 10**9
BATCHES = (5, 60)
MIB = 1 << 20

LUNS = 64
BUSY_LUNS = 4
OSCS = 3
OSC_FIELDS = tuple(Field(f"counter_{i}") for i in range(40))
OSC_CHANGES = 8  # over all OSCs

Samples = list[list[Row]]


@dataclass(frozen=True, slots=True)
class Node:
    """A kind of node, and the rows that it reads second by second.

    The row of a component that did nothing is the same object again, as collectors hand it on.
    """

    name: str
    role: str
    source: str
    fields: tuple[Field, ...]
    samples: Samples


def server(recording: Recording, busy: int) -> Samples:
    """The rows of 64 LUNs of which the first `busy` go on."""
    recorded = [sample for sample in recording.samples if sample.time < recording.fault_start]
    apart = (len(recorded) - RECORDED_SECONDS) // (LUNS // len(recording.luns))
    columns: list[list[Row]] = []
    for i in range(LUNS):
        name = recording.luns[i % len(recording.luns)]
        began = i // len(recording.luns) * apart
        column = _rows([sample.rows[name] for sample in recorded[began : began + RECORDED_SECONDS]])
        columns.append(column if i < busy else [column[0]] * RECORDED_SECONDS)
    return [list(rows) for rows in zip(*columns, strict=True)]


def _rows(lines: Sequence[bytes]) -> list[Row]:
    """The row of each line of one LUN, as the collector parses them."""
    parsed: Parsed = {}
    rows = []
    for line in lines:
        parsed = parse(line, parsed)
        rows += [row for _, row in parsed.values()]
    return rows


def client(seed: int = 1) -> Samples:
    """The rows of an application's OSCs: it works with one of them at a time, whose counters move."""
    chance = random.Random(seed)
    rows: list[Row] = [tuple(chance.randrange(10**9) for _ in OSC_FIELDS) for _ in range(OSCS)]
    made = []
    for _ in range(SECONDS):
        made.append(list(rows))
        at = chance.randrange(OSCS)
        row = [int(v or 0) for v in rows[at]]
        for i in range(OSC_CHANGES):
            row[i] += chance.randrange(1, 200) * (1 << 20 if i % 4 == 3 else 1)
        rows[at] = tuple(row)
    return made


def sent_bytes(node: Node, batch: int) -> int:
    """What the agent sends of these samples, in bytes of MQTT PUBLISH packets."""
    names = [f"{node.source}-{i}" for i in range(len(node.samples[0]))]
    components = tuple(Component(name, name) for name in names)
    batcher = Batcher(node.source, INTERVAL_NS, batch)
    total = 0
    seq = 0
    for i, rows in enumerate(node.samples):
        tick = START_NS + i * INTERVAL_NS
        reading = Reading(node.source, node.fields, tick + 150_000, components, rows)
        for closed in batcher.add(tick, reading) + (batcher.flush() if i == len(node.samples) - 1 else []):
            total += _packet(node, _message(closed, seq))
            seq += 1
    return total


def json_bytes(node: Node, batch: int) -> int:
    """The same as JSON: per sample time and, by component, counters by name."""
    names = [field.name for field in node.fields]
    total = 0
    for start in range(0, len(node.samples), batch):
        objects = [
            {
                "time": START_NS // 10**9 + start + i,
                "counters": {
                    f"{node.source}-{c}": dict(zip(names, row, strict=True)) for c, row in enumerate(rows)
                },
            }
            for i, rows in enumerate(node.samples[start : start + batch])
        ]
        total += _packet(node, json.dumps(objects, separators=(",", ":")).encode())
    return total


def _message(batch: EncodedBatch, seq: int) -> bytes:
    return wire.encode_envelope(
        wire.Envelope(
            kind=wire.Kind.COUNTERS,
            node="oss-0001",
            source=batch.source,
            stream=bytes(range(STREAM_BYTES)),
            seq=seq,
            schema_epoch=batch.dictionary.epoch,
            t0_ns=batch.t0_ns,
            dt_ns=batch.dt_ns,
            n=batch.n,
            codec=batch.codec,
            payload=batch.payload,
        )
    )


def _packet(node: Node, message: bytes) -> int:
    """Bytes of the PUBLISH packet with QoS 1 (MQTT 3.1.1, 3.3)."""
    topic = topics.data_topic("site", node.role, "oss-0001", node.source).encode()
    remaining = 2 + len(topic) + 2 + len(message)  # topic with its length, packet identifier
    digits = 1
    while remaining >= 128**digits:
        digits += 1
    return 1 + digits + remaining


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(
        prog="python -m bench.bytes_a_day",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    recording = read_recording()
    nodes = (
        Node("64 LUNs, all busy", "storage", "diskstats", FIELDS, server(recording, LUNS)),
        Node("64 LUNs, 4 busy", "storage", "diskstats", FIELDS, server(recording, BUSY_LUNS)),
        Node("compute node, 8 counters changing", "compute", "lustre_osc", OSC_FIELDS, client()),
    )
    print(f"One sample a second, scaled to a day; {machine('zstandard', 'msgpack')}\n")
    print("| node | seconds | batch | bytes a sample | MiB a day | as JSON, MiB a day | ratio |")
    print("|---|---|---|---|---|---|---|")
    for node in nodes:
        seconds = len(node.samples)
        for batch in BATCHES:
            ours, theirs = sent_bytes(node, batch), json_bytes(node, batch)
            a_day = DAY_SECONDS / seconds / MIB
            print(
                f"| {node.name} | {seconds} | {batch} | {ours / seconds:,.0f} | {ours * a_day:,.1f} "
                f"| {theirs * a_day:,.0f} | {theirs / ours:.0f} |"
            )


if __name__ == "__main__":
    main()
