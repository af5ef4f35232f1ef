"""A node whose schema grows with each batch costs its share, and loses nothing."""

import logging

import pytest

from laggard_aggregator.ingest import schema_limit
from laggard_aggregator.ingest.admission import Room
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire.schema import Schema
from tests.aggregator.ingest.test_admission import batches, feed, make
from tests.support.builders.messages import (
    NOW,
    SECOND,
    STREAM,
    data_message,
    envelope,
    schema,
    schema_message,
)

AT = NOW + 5 * SECOND
WIDE, EPOCHS = 10_000, 20
"""Components of a schema, and schemas that come at once: more than a node's burst."""


def names(count: int) -> tuple[str, ...]:
    return tuple(f"c{at:05}" for at in range(count))


def test_the_head_of_a_schema_says_whose_it_is() -> None:
    payload = schema_message(schema(epoch=7, components=names(16_000)))[1]
    assert wire.schema_head(payload) == ("oss-1", "diskstats", STREAM, 7)
    for end in range(20):
        with pytest.raises(WireError):
            wire.schema_head(payload[:end])


def test_of_schemas_that_come_too_fast_the_latest_is_read_when_its_time_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decoded: list[int] = []
    decode = wire.decode_schema

    def counting(payload: bytes) -> Schema:
        decoded.append(len(payload))
        return decode(payload)

    monkeypatch.setattr(wire, "decode_schema", counting)
    taker = make()
    accepted = []
    with caplog.at_level(logging.WARNING):
        for epoch in range(1, EPOCHS + 1):
            grown = names(WIDE + epoch)
            accepted += feed(taker, schema_message(schema(epoch=epoch, components=grown)), at_ns=AT)
            accepted += feed(taker, data_message(envelope(epoch, epoch=epoch)), at_ns=AT)
    size = len(schema_message(schema(components=names(WIDE)))[1])
    assert len(decoded) <= schema_limit.BURST_BYTES // size + 1
    assert taker.refused["schemas"] == EPOCHS - len(decoded) > 0
    assert caplog.text.count("node oss-1 sends schemas faster than they can be read") == 1
    assert taker.held == EPOCHS - len(accepted)
    accepted += feed(taker, data_message(envelope(0)), at_ns=AT + 60 * SECOND)
    assert [batch.seq for batch in accepted] == [*range(1, EPOCHS + 1), 0], (
        "every batch, once its schema was read"
    )
    assert accepted[-1].schema.epoch == EPOCHS


def test_schemas_of_others_are_read_meanwhile() -> None:
    taker = make()
    for epoch in range(1, EPOCHS + 1):
        feed(taker, schema_message(schema(epoch=epoch, components=names(WIDE))), at_ns=AT)
    assert taker.refused["schemas"] > 0
    (batch,) = feed(taker, schema_message(schema(node="oss-2")), data_message(envelope(0, node="oss-2")))
    assert batch.schema.node == "oss-2"


def test_a_schema_that_comes_again_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = make()
    feed(taker, schema_message(schema(epoch=2)))
    monkeypatch.delattr(wire, "decode_schema")
    for _ in range(10_000):
        feed(taker, schema_message(schema(epoch=2)), schema_message(schema(epoch=1)))
    assert taker.refused.total() == 0


def test_schemas_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_limit, "MAX_NODE_WAITING_BYTES", 30_000)
    monkeypatch.setattr(schema_limit, "MAX_WAITING_BYTES", 50_000)
    limit = schema_limit.SchemaLimit()
    for node in ("a", "b", "c"):
        assert limit.admits((node, "s", b"x"), ("t", bytes(4_000_000), AT))
        for stream in range(9):
            assert not limit.admits((node, "s", bytes([stream])), ("t", bytes(10_000), AT))
    assert limit._waiting_bytes <= 50_000
    kept = [message for second in range(500) for message in limit.due(AT + second * SECOND)]
    assert len(kept) == 5
    limit.sweep(AT + 3600 * SECOND)
    assert limit._nodes == {}


def test_the_memory_of_a_schema_is_claimed_with_its_first_batch() -> None:
    taker = make()
    feed(taker, schema_message(schema(components=names(5000))))
    room = Room(10, 10**9)
    messages = [(*data_message(envelope(seq)), AT) for seq in (0, 1)]
    first, second = batches(taker.receive(messages, room))
    assert first.schema_bytes > 5000 * 100
    assert second.schema_bytes == 0
    assert room.value_bytes <= 10**9 - first.schema_bytes
    grown = schema(epoch=2, components=names(5001))
    feed(taker, schema_message(grown))
    (third,) = batches(taker.receive([(*data_message(envelope(2, epoch=2)), AT)], room))
    assert third.schema_bytes < first.schema_bytes / 10, "it shares its components with the one before"
    assert all(map(lambda a, b: a is b, third.schema.components, first.schema.components))
