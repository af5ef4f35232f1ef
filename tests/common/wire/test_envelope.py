import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Ack, Envelope, Kind, limits
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema
from tests.support.mutation import mutated

STREAM = bytes(range(16))
ENVELOPE = Envelope(
    Kind.COUNTERS, "oss-1", "diskstats", STREAM, 7, 2, 1_700_000_000 * 10**9, 10**9, 5, 1, b"xyz"
)
SCHEMA = Schema(
    node="oss-1",
    source="diskstats",
    stream=STREAM,
    epoch=2,
    interval_ns=10**9,
    batch_ticks=5,
    fields=(Field("rd_ios"), Field("load", FieldKind.GAUGE, "1", FieldType.F64)),
    components=(Component("wwn-1", "sda", (("model", "X"), ("rotational", "1"))), Component("wwn-2", "sdb")),
)
ACKS = (Ack(STREAM, "diskstats", ((0, 4), (6, 2**64 - 1))), Ack(bytes(16), "net", ()))
STATE = {
    "state": "up",
    "collectors": {"net": {"success": True, "seconds": 0.5, "error": ""}},
    "spool_bytes": 7,
}

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", fullmatch=True)
texts = st.text(st.characters(categories=("L", "N", "P")), max_size=30)


@given(
    st.builds(
        Envelope,
        kind=st.sampled_from(Kind),
        node=names,
        source=names,
        stream=st.binary(min_size=16, max_size=16),
        seq=st.integers(0, 2**64 - 1),
        schema_epoch=st.integers(0, 2**32 - 1),
        t0_ns=st.integers(0, 2**63 - 1),
        dt_ns=st.integers(0, limits.MAX_INTERVAL_NS),
        n=st.integers(1, limits.MAX_TICKS),
        codec=st.integers(0, 255),
        payload=st.binary(max_size=300),
    )
)
def test_envelopes_come_back(envelope: Envelope) -> None:
    assert wire.decode_envelope(wire.encode_envelope(envelope)) == envelope


@given(
    st.builds(
        Schema,
        node=names,
        source=names,
        stream=st.binary(min_size=16, max_size=16),
        epoch=st.integers(0, 2**32 - 1),
        interval_ns=st.integers(limits.MIN_INTERVAL_NS, limits.MAX_INTERVAL_NS),
        batch_ticks=st.integers(1, limits.MAX_TICKS),
        fields=st.lists(
            st.builds(Field, texts, st.sampled_from(FieldKind), texts, st.sampled_from(FieldType)),
            min_size=1,
            max_size=5,
            unique_by=lambda field: field.name,
        ).map(tuple),
        components=st.lists(
            st.builds(
                Component,
                texts.filter(bool),
                texts,
                st.dictionaries(texts, texts, max_size=3).map(lambda d: tuple(d.items())),
            ),
            max_size=5,
            unique_by=lambda component: component.id,
        ).map(tuple),
    )
)
def test_schemas_come_back(schema: Schema) -> None:
    assert wire.decode_schema(wire.encode_schema(schema)) == schema


def test_acks_and_states_come_back() -> None:
    assert wire.decode_ack(wire.encode_ack(ACKS)) == ACKS
    assert wire.decode_state(wire.encode_state(STATE)) == STATE


def changed(**values: Any) -> bytes:
    """ENVELOPE with raw values put in place of its own, by position."""
    parts = list(msgpack.unpackb(wire.encode_envelope(ENVELOPE)))
    order = (
        "version",
        "kind",
        "node",
        "source",
        "stream",
        "seq",
        "epoch",
        "t0",
        "dt",
        "n",
        "codec",
        "payload",
    )
    for name, value in values.items():
        parts[order.index(name)] = value
    packed: bytes = msgpack.packb(parts)
    return packed


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"version": 0}, "version"),
        ({"version": 2}, "version"),
        ({"version": True}, "version"),
        ({"version": "1"}, "version"),
        ({"kind": 4}, "kind"),
        ({"node": "a/b"}, "node"),
        ({"node": ""}, "node"),
        ({"node": b"oss-1"}, "node"),
        ({"source": "#"}, "source"),
        ({"stream": bytes(15)}, "stream"),
        ({"seq": -1}, "seq"),
        ({"seq": 1.0}, "seq"),
        ({"epoch": 2**32}, "schema_epoch"),
        ({"t0": 2**63}, "t0"),
        ({"dt": limits.MAX_INTERVAL_NS + 1}, "dt"),
        ({"n": 0}, "n"),
        ({"n": limits.MAX_TICKS + 1}, "n"),
        ({"codec": 256}, "codec"),
        ({"payload": "text"}, "payload"),
        ({"payload": None}, "payload"),
    ],
)
def test_each_field_is_checked(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.decode_envelope(changed(**values))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb([]),
        msgpack.packb({}),
        msgpack.packb([1]),
        msgpack.packb([1] * 13),
        b"\xdd\xff\xff\xff\xff",  # an array said to have 2^32 - 1 items
        b"\xc6\xff\xff\xff\xff",  # 2^32 - 1 bytes
        b"\x91" * 2000,  # arrays in arrays
        wire.encode_envelope(ENVELOPE) + b"\x00",
        wire.encode_envelope(ENVELOPE)[:-1],
        bytes(limits.MAX_MESSAGE_BYTES + 1),
        msgpack.packb([msgpack.ExtType(1, b"x")] * 12),
    ],
)
def test_hostile_shapes(data: bytes) -> None:
    for decode in (wire.decode_envelope, wire.decode_schema, wire.decode_ack):
        with pytest.raises(WireError):
            decode(data)


def test_schemas_that_contradict_themselves() -> None:
    twice_field = Schema("n", "s", STREAM, 0, 10**9, 1, (Field("a"), Field("a")), ())
    no_field = Schema("n", "s", STREAM, 0, 10**9, 1, (), ())
    twice_id = Schema(
        "n", "s", STREAM, 0, 10**9, 1, (Field("a"),), (Component("x", "1"), Component("x", "2"))
    )
    for schema in (twice_field, no_field, twice_id):
        with pytest.raises(WireError):
            wire.decode_schema(wire.encode_schema(schema))


DECODERS = {
    "envelope": (wire.decode_envelope, wire.encode_envelope(ENVELOPE)),
    "schema": (wire.decode_schema, wire.encode_schema(SCHEMA)),
    "ack": (wire.decode_ack, wire.encode_ack(ACKS)),
    "state": (wire.decode_state, wire.encode_state(STATE)),
}


@pytest.mark.parametrize("what", DECODERS)
def test_random_and_mutated_bytes_are_refused_or_decode(what: str) -> None:
    """100,000 of each over the four kinds of message; nothing but WireError comes out."""
    decode, valid = DECODERS[what]
    chance = random.Random(1)
    decoded = 0
    for _ in range(25_000):
        for data in (chance.randbytes(chance.randrange(64)), mutated(valid, chance)):
            try:
                decode(data)
                decoded += 1
            except WireError:
                pass
    assert decoded > 0


def test_an_acknowledgement_that_would_cost_a_node_its_memory_is_refused() -> None:
    huge = wire.encode_ack([Ack(bytes(16), "net", ((0, 0),) * 65_000)] * 20)
    assert limits.MAX_ACK_BYTES < len(huge) < limits.MAX_MESSAGE_BYTES
    with pytest.raises(WireError, match="too long"):
        wire.decode_ack(huge)


@pytest.mark.parametrize(
    ("decode", "length", "most_bytes"),
    [
        (wire.decode_envelope, 65_535, 100_000),
        (wire.decode_envelope, 64, 1_000_000),
        (wire.decode_state, 1024, 10_000_000),
        (wire.decode_schema, 65_535, 1_000_000),
        (wire.decode_schema, limits.MAX_COMPONENTS, 1_000_000),
        (wire.decode_ack, 10_000, 1_000_000),
    ],
)
def test_arrays_that_only_say_how_long_they_are_take_little_memory(
    decode: Callable[[bytes], object], length: int, most_bytes: int
) -> None:
    data = (b"\xdc" + length.to_bytes(2)) * 1000 + bytes(20_000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < most_bytes


@pytest.mark.parametrize("length", [64, limits.MAX_COMPONENTS])
def test_no_list_within_a_schemas_lists_is_long(length: int) -> None:
    whole = wire.encode_schema(SCHEMA)
    *_, components = msgpack.unpackb(whole)
    head = whole.removesuffix(msgpack.packb(components))
    assert head != whole
    data = head + (b"\xdc" + length.to_bytes(2)) * 1000 + bytes(20_000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="msgpack"):
            wire.decode_schema(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


def test_a_schema_is_all_of_its_message() -> None:
    whole = wire.encode_schema(SCHEMA)
    for data in (whole + b"\xc0", whole[:-1], b"\x90", b"\xc0", b""):
        with pytest.raises(WireError):
            wire.decode_schema(data)
