"""Batches of every shape that may be archived."""

from collections.abc import Mapping

import numpy as np

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.interface import Verdicts
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema

SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND  # 2027-01-15T08:00:00Z

NAMES = ("rd_ios", "tick", "Node", "field.x", "site", "a b", "ü", "dot.ted", "x" * 200, '"')


def run_of(seed: int) -> list[Batch]:
    """Batches of up to three nodes in one order, over as much as two days."""
    chance = np.random.default_rng(seed)
    types = {name: FieldType(int(chance.integers(3))) for name in NAMES}
    schemas = [_schema(chance, f"n{at}", types) for at in range(chance.integers(1, 4))]
    found = []
    now_ns = START_NS
    for ordinal in range(chance.integers(1, 9)):
        now_ns += int(chance.choice([0, 1, SECOND, 28_800 * SECOND]))
        found.append(_batch(chance, schemas[chance.integers(len(schemas))], ordinal, now_ns))
    return found


def _schema(chance: np.random.Generator, node: str, types: Mapping[str, FieldType]) -> Schema:
    """A schema whose fields have the types of `types`."""
    names = [str(name) for name in chance.permutation(NAMES)[: chance.integers(1, 6)]]
    kinds = [FieldKind(int(kind)) for kind in chance.integers(3, size=len(names))]
    labels = tuple((str(key), "of it") for key in chance.permutation(["model", "size"])[: chance.integers(3)])
    return Schema(
        node=node,
        source=str(chance.choice(["diskstats", "net"])),
        stream=chance.bytes(16),
        epoch=int(chance.integers(2**32)),
        interval_ns=SECOND,
        batch_ticks=int(chance.integers(1, 60)),
        fields=tuple(Field(name, kind, "ms", types[name]) for name, kind in zip(names, kinds, strict=True)),
        components=tuple(
            Component(f"wwn-{at}", f"sd{at}", labels) for at in chance.permutation(chance.integers(1, 6))
        ),
    )


def _batch(chance: np.random.Generator, schema: Schema, ordinal: int, received_ns: int) -> Batch:
    """A batch of some of the schema's components and of its first fields, often with gaps."""
    n, f = int(chance.integers(1, 5)), int(chance.integers(1, len(schema.fields) + 1))
    places = chance.permutation(len(schema.components))[: chance.integers(1, len(schema.components) + 1)]
    c = places.size
    idle = int(chance.integers(c + 1))
    indexes = np.concatenate([np.sort(places[: c - idle]), np.sort(places[c - idle :])])
    values = chance.integers(-(2**63), 2**63 - 1, (n, c, f), endpoint=True)
    values[:, c - idle :] = values[:1, c - idle :]
    present = None
    if chance.random() < 0.5:
        present = chance.random((c, f)) < 0.7
        values[:, ~present] = 0
    tick_ns = received_ns - (n - np.arange(n, dtype=np.int64)) * SECOND
    return Batch(
        lsn=ordinal,
        site="site",
        role=str(chance.choice(["storage", "compute"])),
        stream=schema.stream,
        seq=int(chance.integers(2**64, dtype=np.uint64)),
        received_ns=received_ns,
        schema=schema,
        counters=Block(
            indexes=indexes.astype(np.int64),
            values=values,
            present=present,
            tick_ns=tick_ns,
            read_ns=tick_ns + chance.integers(-(10**6), 10**6, n) * 1000,
            idle=idle,
        ),
        late=chance.random(n) < 0.3,
    )


def judgement() -> Judgement:
    """Four components: one anomalous, one that was, one quiet, one not judged."""
    nan = float("nan")
    alarm = Alarm("luns", "a", "await", "component", 10.0, 60.0, 60.0, 1.5, 2.0, 2.0, 8.0, 4.0)
    return Judgement(
        group="luns",
        metric="await",
        components=("a", "b", "c", "d"),
        start=0.0,
        end=60.0,
        verdicts=Verdicts(
            judged=np.array([True, True, True, False]),
            anomalous=np.array([True, False, False, True]),
            score=np.array([1.5, 0.2, 0.1, 0.0]),
            severity=np.array([2.0, 1.0, nan, nan]),
            observed=np.array([8.0, 4.0, 4.0, nan]),
            reference=np.array([4.0, 4.0, 4.0, nan]),
            note="",
        ),
        persistence=np.array([3, 1, 0, 0]),
        straggler=np.array([True, False, False, False]),
        since=np.array([10.0, 0.0, 0.0, 0.0]),
        levels=("component",) * 4,
        transitions=(AlarmEvent("raised", alarm, 60.0),),
    )


def assert_same(got: Batch, expected: Batch) -> None:
    """Fails unless both say the same; no presence map is as good as one that is all True."""
    for name in ("lsn", "site", "role", "stream", "seq", "received_ns", "schema"):
        assert getattr(got, name) == getattr(expected, name), name
    np.testing.assert_array_equal(got.late, expected.late)
    assert got.counters.idle == expected.counters.idle
    for name in ("indexes", "values", "tick_ns", "read_ns"):
        ours, theirs = getattr(got.counters, name), getattr(expected.counters, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    shape = (expected.counters.indexes.size, expected.counters.values.shape[2])
    everywhere = np.ones(shape, dtype=np.bool_)
    np.testing.assert_array_equal(
        everywhere if got.counters.present is None else got.counters.present,
        everywhere if expected.counters.present is None else expected.counters.present,
    )
