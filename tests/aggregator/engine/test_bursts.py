"""Messages that are taken by the burst leave a core as if each had been taken alone, to the bit."""

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.engine.checkpoint import capture
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log import snapshot_codec
from laggard_aggregator.log.entries import LogEntry
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.builders.site import (
    SECOND,
    START,
    Message,
    close,
    new_core,
    receive,
    schema_message,
    steps,
)
from tests.support.mutation import mutated
from tests.support.thorough import examples

NODES = tuple(f"oss-{n}" for n in range(16))
DISK = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms")
SOURCES = {
    "diskstats": DISK,
    "lustre_ost": ("read_samples", "read_sum", "write_samples", "write_sum", "start_time"),
    "lustre_mdt": ("open_samples", "open_sum", "getattr_samples", "getattr_sum"),
}


class Site:
    """Nodes of all kinds, whose messages come in any order, twice, late, broken, or with counters anew."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.schemas: dict[tuple[str, str], Schema] = {}
        self.seq: dict[tuple[str, str, bytes], int] = {}
        self.totals: dict[tuple[str, str, int], list[int]] = {}
        self.sent: list[Message] = []

    def schema(self, node: str, source: str) -> Schema:
        """A new stream of a source; targets of Lustre may be those of other nodes."""
        moving = source != "diskstats" and self.chance.random() < 0.6
        labels = (("scope", "site"),) if moving else ()
        first = self.chance.randrange(30) if moving else 0
        names = [f"c-{first + n}" for n in range(1 + (NODES.index(node) % 5 == 0))]
        components = tuple(Component(name, name, labels) for name in names)
        fields = SOURCES[source] if source != "diskstats" or node != NODES[0] else (*DISK, "dc_ios", "dc_ms")
        stream = self.chance.randbytes(16)
        return Schema(node, source, stream, 1, SECOND, 5, tuple(map(Field, fields)), components)

    def data(self, of: Schema, now: int) -> Message:
        """A few ticks that end about `now`, seconds since START."""
        chance, name = self.chance, (of.node, of.source, of.stream)
        n = 5 if chance.random() < 0.95 else chance.randrange(1, 5)
        seq = self.seq[name] = self.seq.get(name, -1) + 1
        anew = chance.randrange(n) if chance.random() < 0.05 else -1
        ticks = []
        for tick in range(n):
            rows = []
            for at in range(len(of.components)):
                row = self.totals.setdefault((of.node, of.source, at), [500] * len(of.fields))
                row[:] = [(0 if tick == anew else v) + chance.randrange(300) for v in row]
                if of.fields[-1].name == "start_time":
                    row[-1] = 5 + chance.randrange(8) // 7
                rows.append(list(row))
            ticks.append(rows)
        payload = codec.Encoder().encode(range(len(of.components)), self.lacking(of, ticks), [100] * n)
        if chance.random() < 0.02:
            payload = mutated(payload, chance)
        t0_ns = START + (now - n + 1 + chance.choice((*[0] * 40, -1, -4, -9, 40))) * SECOND
        envelope = Envelope(
            Kind.COUNTERS, of.node, of.source, of.stream, seq, 1, t0_ns, SECOND, n, codec.DELTA_ZSTD, payload
        )
        topic = topics.data_topic("site", "storage", of.node, of.source)
        return topic, wire.encode_envelope(envelope), START + now * SECOND + 70_000_000

    def lacking(self, of: Schema, ticks: list[list[list[int]]]) -> list[list[list[int | None]]]:
        """The same without some counters, now and then."""
        absent = 2 if len(of.fields) > len(DISK) and self.chance.random() < 0.5 else 0
        absent = 1 if of.source == "lustre_mdt" and self.chance.random() < 0.05 else absent
        return [[[*row[: len(row) - absent], *[None] * absent] for row in tick] for tick in ticks]

    def burst(self, now: int) -> list[Message]:
        """What comes at a time."""
        made, often = [], self.chance.choice(tuple(SOURCES))
        for _ in range(self.chance.randrange(1, 50)):
            source = often if self.chance.random() < 0.8 else self.chance.choice(tuple(SOURCES))
            name = (self.chance.choice(NODES), source)
            if name not in self.schemas or self.chance.random() < 0.02:
                self.schemas[name] = self.schema(*name)
                made.append(schema_message(self.schemas[name], START + now * SECOND))
            made.append(self.data(self.schemas[name], now))
            if self.sent and self.chance.random() < 0.02:
                made.append(self.chance.choice(self.sent))
        self.sent += made
        return made


def bits(core: Machine) -> list[bytes]:
    return [snapshot_codec.pack(section) for section in capture(core, 1, START)]


def told(batch: Batch) -> tuple[object, ...]:
    b = batch.counters
    arrays = (b.indexes, b.values, b.tick_ns, b.read_ns, batch.late)
    return (
        *(batch.lsn, batch.role, batch.schema, batch.stream, batch.seq, batch.received_ns, b.idle),
        *(array.tobytes() for array in arrays),
        None if b.present is None else b.present.tobytes(),
    )


def compared(bursts: Sequence[tuple[list[Message], int]]) -> Machine:
    alone, together = new_core(), new_core()
    entries: dict[str, list[LogEntry]] = {"alone": [], "together": []}
    alone.record(entries["alone"].append)
    together.record(entries["together"].append)
    for some, now_ns in bursts:
        one_by_one = [told(batch) for message in some for batch in receive(alone, [message])]
        received = [each for each in together.receive(some) if isinstance(each, Batch)]
        assert [told(batch) for batch in received] == one_by_one
        close(alone, now_ns)
        close(together, now_ns)
    assert bits(together) == bits(alone)
    assert entries["together"] == entries["alone"]
    assert together.admission.counts == alone.admission.counts
    assert together.admission.wire_errors == alone.admission.wire_errors
    assert together.admission.refused == alone.admission.refused
    assert together.samples == alone.samples
    for name, store in together.stores.items():
        assert store.counts == alone.stores[name].counts
    assert together.admission.acks.messages() == alone.admission.acks.messages()
    return together


@given(st.integers(0, 2**32))
@settings(max_examples=examples(15), deadline=None)
def test_whatever_comes(seed: int) -> None:
    site = Site(seed)
    compared([(site.burst(now), START + now * SECOND) for now in range(1, 60, 5)])


def test_a_whole_day_in_short() -> None:
    core = compared(list(steps(25)))
    assert core.stores["storage/diskstats"].counts.resets
    assert core.admission.counts.duplicates
