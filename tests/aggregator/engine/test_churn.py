"""Components and nodes that appear once: bounded rows, room for the living, nothing left of the others."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from laggard_aggregator.engine import routing
from laggard_aggregator.engine.checkpoint import capture, restore
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.log import snapshot_codec
from laggard_aggregator.log.entries import LogEntry
from laggard_common.wire.schema import Component, Schema
from tests.support.builders.site import (
    NODES,
    SECOND,
    START,
    Message,
    close,
    data_message,
    new_core,
    receive,
    schema,
    schema_message,
)

GROUP = "storage/diskstats"
NODE = "oss-1"
ROWS = 1024
NEW = 6
"""Devices of containers that come, and go, with each batch."""


def churning(seq: int) -> Schema:
    """A node with two disks that stay, and others that are there for five seconds."""
    stays = schema(NODE)
    short = tuple(Component(f"dm-{seq}-{n}", f"dm-{n}") for n in range(NEW))
    return replace(stays, stream=seq.to_bytes(16, "big"), components=(*stays.components, *short))


def batches(count: int = 300) -> Iterator[tuple[int, list[Message]]]:
    for seq in range(count):
        now_ns = START + (5 * seq + 6) * SECOND
        made = churning(seq)
        topic, payload, _ = data_message(made, seq)
        yield now_ns, [schema_message(made, now_ns), (topic, payload, now_ns)]


def churned(core: Machine) -> None:
    for seq, (now_ns, messages) in enumerate(batches()):
        receive(core, messages)
        core.admission.acks.durable(core.sequence.last)
        close(core, now_ns)
        if seq % 12 == 11:
            core.sweep(now_ns)


def test_components_that_are_gone_make_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """1,802 components in 25 minutes, of which eight are there at a time."""
    monkeypatch.setattr(routing, "MAX_NODE_ROWS", ROWS)
    core, entries = new_core(), list[LogEntry]()
    core.record(entries.append)
    with caplog.at_level("INFO"):
        churned(core)
    known = set(core.stores[GROUP].components)
    assert core.refused["rows"] == 0
    assert len(known) <= ROWS
    assert {f"{NODE}/wwn-0", f"{NODE}/wwn-1", *(f"{NODE}/dm-299-{n}" for n in range(NEW))} <= known
    assert f"{NODE}/dm-0-0" not in known
    assert core.names.keys() <= known
    assert "components that are gone, to make room for others" in caplog.text
    replayed = new_core()
    for entry in entries:
        list(replayed.replay(entry))
    assert replayed.stores[GROUP].components == core.stores[GROUP].components


def test_a_node_that_was_silent_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its components are behind by the same time, as after an outage."""
    core = new_core()
    made = schema(NODE, disks=40)
    receive(core, [schema_message(made), data_message(made, 0)])
    monkeypatch.setattr(routing, "MAX_NODE_ROWS", 40)
    core.sweep(START + 3600 * SECOND)
    assert len(core.stores[GROUP].components) == 40


def test_nothing_is_left_of_nodes_that_came_once() -> None:
    core = new_core(forget_seconds=60)
    for wave in range(3):
        at_ns = START + 1000 * wave * SECOND
        for name in NODES:
            made = schema(name)
            topic, payload, _ = data_message(made, 200 * wave)
            receive(core, [schema_message(made, at_ns), (topic, payload, at_ns)])
        core.admission.acks.durable(core.sequence.last)
        assert set(core._routing._origins.numbers.values()) == set(range(1, len(NODES) + 1)), (
            "numbers are used again"
        )
        core.sweep(at_ns + 500 * SECOND, forget=True)
        assert (len(core.admission.nodes), core.stores[GROUP].components, core.names) == (0, [], {})
        assert core._routing._origins.numbers == {}
        assert core._routing.routes == {}
        assert core.admission._topics == {}


def test_free_numbers_of_origins_are_those_of_a_restored_aggregator() -> None:
    core = new_core(forget_seconds=60)
    for n, name in enumerate(NODES):
        made = schema(name)
        receive(core, [schema_message(made), data_message(made, 40 if n % 2 else 0)])
    core.forget_components(START + 100 * SECOND, NODES[::2], 0.0)
    assert core._routing._origins.free == [1, 3, 5, 7]
    other = new_core()
    restore(
        other, iter([snapshot_codec.unpack(snapshot_codec.pack(s)) for s in capture(core, 1, START)]), "t"
    )
    assert other._routing._origins.numbers == core._routing._origins.numbers
    assert other._routing._origins.free == core._routing._origins.free
