"""A site's day in short: messages and window closes in the order in which an aggregator sees them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.ingest.batches import Batch
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
COUNTERS = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms")
NODES = tuple(f"oss-{n}" for n in range(1, 9))
SLOW = "oss-5"
DETECT = DetectSettings(interval_seconds=1.0, window_samples=20, shift_samples=10, confirm=2)

Message = tuple[str, bytes, int]


def new_core(site: str = "site", detect: DetectSettings = DETECT, forget_seconds: int = 10**8) -> Machine:
    """A core of automatic groups."""
    membership = ConfiguredMembership((), detect)
    return Machine(membership, site=site, lateness_seconds=1.0, forget_ns=forget_seconds * SECOND)


def schema(node: str, stream: bytes = b"s" * 16, disks: int = 2, epoch: int = 1) -> Schema:
    """A node with so many disks; the later epochs have more."""
    fields = tuple(Field(name) for name in COUNTERS)
    components = tuple(Component(f"wwn-{n}", f"sd{n}") for n in range(disks))
    return Schema(node, "diskstats", stream, epoch, SECOND, 5, fields, components)


def schema_message(of: Schema, at_ns: int = START) -> Message:
    """As the broker hands it on."""
    return topics.schema_topic("site", "storage", of.node, of.source), wire.encode_schema(of), at_ns


def data_message(of: Schema, seq: int, *, reset_at: int = 10**9) -> Message:
    """Five seconds of busy disks with noise; those of SLOW become ten times slower after a minute."""
    ticks = range(5 * seq + 1, 5 * seq + 6)
    rows = [
        [_counters(of.node, disk, tick, reset_at) for disk in range(len(of.components))] for tick in ticks
    ]
    chance = np.random.default_rng([seq, *of.node.encode()])
    envelope = Envelope(
        kind=Kind.COUNTERS,
        node=of.node,
        source=of.source,
        stream=of.stream,
        seq=seq,
        schema_epoch=of.epoch,
        t0_ns=START + ticks[0] * SECOND,
        dt_ns=SECOND,
        n=5,
        codec=codec.DELTA_ZSTD,
        payload=codec.Encoder().encode(
            range(len(of.components)), rows, [int(us) for us in chance.integers(0, 900, 5)]
        ),
    )
    topic = topics.data_topic("site", "storage", of.node, of.source)
    return topic, wire.encode_envelope(envelope), START + (ticks[-1] * 1000 + 50) * 1_000_000


def _counters(node: str, disk: int, tick: int, reset_at: int) -> list[int]:
    begun = reset_at if tick >= reset_at else 0
    t = tick - begun
    noise = (17 * NODES.index(node) + 29 + 7 * disk + tick * tick) % 60
    ms = 500 * t + noise + (4500 * max(tick - max(60, begun), 0) if node == SLOW else 0)
    return [100 * t, 12_800 * t, ms, 3 * t, 24 * t, 4 * t, 900 * t, ms]


@cache
def messages(batches: int) -> tuple[tuple[Message, ...], ...]:
    """What comes every five seconds: reordered, doubled, late, from two streams, of growing schemas."""
    chance = np.random.default_rng(5)
    schemas = {node: schema(node) for node in NODES}
    made = [[schema_message(schemas[node]) for node in NODES]]
    held_up: list[Message] = []
    for seq in range(batches):
        now: list[Message] = []
        if seq == 9:  # more disks
            schemas[NODES[1]] = schema(NODES[1], disks=3, epoch=2)
            now.append(schema_message(schemas[NODES[1]], START + 46 * SECOND))
        if seq == 14:  # a new spool, whose schema comes after its first message
            schemas[NODES[2]] = schema(NODES[2], stream=b"t" * 16)
        for node in NODES:
            if seq % 11 == 7 and node == NODES[3]:
                held_up.append(data_message(schemas[node], seq))  # backlog, after later ones
                continue
            now.append(data_message(schemas[node], seq, reset_at=90 if node == NODES[6] else 10**9))
        if seq == 14:
            now.append(schema_message(schemas[NODES[2]], START + 76 * SECOND))
        if seq % 11 == 10 and held_up:
            now.append(held_up.pop())
        order = chance.permutation(len(now)) if seq not in {9, 14} else np.arange(len(now))
        now = [now[at] for at in order]
        now += [now[int(chance.integers(len(now)))]]  # sent twice
        made.append(
            [(topic, payload, max(at_ns, START + (5 * seq + 6) * SECOND)) for topic, payload, at_ns in now]
        )
    return tuple(map(tuple, made))


def steps(batches: int) -> Iterator[tuple[list[Message], int]]:
    """The messages of each five seconds, and the time at which windows are looked at after them."""
    for at, some in enumerate(messages(batches)):
        yield list(some), START + (5 * at + 2) * SECOND


def receive(core: Machine, some: list[Message]) -> list[Batch]:
    """All batches that were taken."""
    found = [each for message in some for each in core.receive((message,))]
    return [each for each in found if isinstance(each, Batch)]


def close(core: Machine, now_ns: int) -> list[Judgement]:
    """The judgements of what is due."""
    judged: list[Judgement] = []
    due = core.windows.due(now_ns)
    for each in core.closes(due, now_ns):
        window = core.seal(each)
        judged += [] if window is None else core.judge.evaluate(window)
    return judged


def told(judged: Judgement) -> tuple[object, ...]:
    """All of a judgement in a form that compares to the bit."""
    v = judged.verdicts
    arrays = (v.judged, v.anomalous, v.score, v.severity, v.observed, v.reference)
    own = (judged.persistence, judged.straggler, judged.since)
    return (
        *(judged.group, judged.metric, judged.components, judged.start, judged.end, judged.levels, v.note),
        *(array.tobytes() for array in (*arrays, *own)),
        tuple((t.kind, t.at, t.alarm.component, t.alarm.since) for t in judged.transitions),
    )


def other_settings() -> DetectSettings:
    """Not those of `new_core`."""
    return replace(DETECT, confirm=3)
