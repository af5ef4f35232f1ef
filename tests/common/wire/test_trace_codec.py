"""Folded records on the wire: round trips, bounds, and bytes that are none."""

import random
from dataclasses import replace
from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind, decode_envelope, encode_envelope, limits
from laggard_common.wire.trace_codec import COLUMNS, RAW, ZSTD, EventDecoder, EventEncoder, batches
from laggard_common.wire.trace_records import MAX_POSITION, Folded, unfold
from tests.support.mutation import mutated

T0 = 1_763_650_000 * 10**9
ONE = Folded("cn-17", "write", "4121:17", 0, 65536, 3, T0, T0 + 500, "/scratch/out.dat")
TWO = Folded("cn-17", "close", "4121:17", None, 0, 1, T0 + 900, T0 + 900)


def message(records: list[Folded], codec: int = ZSTD, payload: bytes | None = None) -> Envelope:
    return Envelope(
        kind=Kind.EVENTS,
        node="cn-17",
        source="iotrace",
        stream=bytes(16),
        seq=0,
        schema_epoch=0,
        t0_ns=records[0].first_ns,
        dt_ns=0,
        n=len(records),
        codec=codec,
        payload=EventEncoder(codec).encode(records) if payload is None else payload,
    )


@st.composite
def folded(draw: st.DrawFn) -> Folded:
    size = draw(st.sampled_from([0, 1, 65536]) | st.integers(0, MAX_POSITION))
    count = draw(st.integers(1, 5) | st.integers(1, max(1, min(MAX_POSITION, MAX_POSITION // max(size, 1)))))
    count = min(count, max(1, MAX_POSITION // max(size, 1)))
    offset = draw(st.none() | st.integers(0, MAX_POSITION - size * count))
    first = draw(st.integers(0, MAX_POSITION))
    texts = st.text(st.characters(categories=("L", "N", "P")), max_size=9)
    return Folded(
        node=draw(texts),
        operation=draw(st.sampled_from(["read", "write", "open"])),
        descriptor=draw(texts),
        offset=offset,
        size=size,
        count=count,
        first_ns=first,
        last_ns=first if count == 1 else draw(st.integers(0, MAX_POSITION)),
        path=draw(texts),
    )


@given(st.lists(folded(), min_size=1, max_size=30), st.sampled_from([RAW, ZSTD]))
def test_records_come_back(records: list[Folded], codec: int) -> None:
    envelope = decode_envelope(encode_envelope(message(records, codec)))
    assert EventDecoder().decode(envelope) == tuple(records)


def test_the_longest_message_fits_and_batches_split() -> None:
    few = [replace(ONE, path="/" + "€" * 4000 + f"{i:05d}") for i in range(200)]
    many = [replace(TWO, first_ns=T0 + i, last_ns=T0 + i) for i in range(limits.MAX_TICKS * 2 + 1)]
    for records in (few, many):
        parts = list(batches(records))
        assert [record for part in parts for record in part] == records
        assert all(len(part) <= limits.MAX_TICKS for part in parts)
        for part in parts:
            raw = EventEncoder(RAW).encode(part)
            assert len(raw) <= limits.MAX_EVENT_BYTES
            assert EventDecoder().decode(message(part)) == tuple(part)
    assert len(list(batches(few))) > 1
    assert [len(part) for part in batches(many)] == [limits.MAX_TICKS, limits.MAX_TICKS, 1]
    assert list(batches([])) == []


def columns(records: list[Folded], **changed: object) -> bytes:
    """The raw payload with some columns replaced."""
    parts: list[Any] = list(msgpack.unpackb(EventEncoder(RAW).encode(records)))
    for name, value in changed.items():
        parts[0 if name == "strings" else 1 + COLUMNS.index(name)] = value
    packed: bytes = msgpack.packb(parts)
    return packed


def signed(*values: int, width: int = 8) -> bytes:
    return b"".join(value.to_bytes(width, "little", signed=True) for value in values)


@pytest.mark.parametrize(
    "changed",
    [
        {"strings": ["cn-17", 7]},
        {"strings": "cn-17"},
        {"strings": []},
        {"strings": ["a\nb"] * 9},
        {"strings": ["x" * (limits.MAX_PATH_CHARS + 1)] * 9},
        {"node": signed(0, 99)},
        {"path": signed(-1, 0)},
        {"node": b"\0\0\0"},
        {"node": b""},
        {"node": [0, 0]},
        {"node": b"\0" * 6},
        {"offset": signed(-2, 0)},
        {"size": signed(-1, 0)},
        {"count": signed(0, 1)},
        {"count": signed(2**62, 1)},
        {"count": signed(2**48, 1)},
        {"first": signed(-(2**62), 0)},
        {"span": signed(2**63 - 1, 0)},
        {"span": signed(500, 1)},
        {"span": signed(-(2**63), 0)},
    ],
)
def test_values_that_cannot_be_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(WireError):
        EventDecoder().decode(message([ONE, TWO], RAW, columns([ONE, TWO], **changed)))


def test_other_codecs_lengths_and_bombs_are_refused() -> None:
    decoder, raw = EventDecoder(), EventEncoder(RAW).encode([ONE, TWO])
    bomb = zstandard.compress(bytes(limits.MAX_EVENT_BYTES + 1))
    nested = b"\x91" * 100_000
    wide = b"\xdd\xff\xff\xff\xff"
    hostile = [
        (2, raw),
        (RAW, raw + b"\0"),
        (RAW, b""),
        (ZSTD, raw),
        (ZSTD, bomb),
        (RAW, nested),
        (RAW, wide),
    ]
    hostile += [
        (RAW, bytes(limits.MAX_EVENT_BYTES + 1)),
        (ZSTD, zstandard.compress(raw) + b"x"),
        (RAW, b"\xc0"),
    ]
    for codec, payload in hostile:
        with pytest.raises(WireError):
            decoder.decode(message([ONE, TWO], codec, payload))
    for n in (1, 3, 4096):
        with pytest.raises(WireError):
            decoder.decode(replace(message([ONE, TWO], RAW), n=n))


@pytest.mark.parametrize("codec", [RAW, ZSTD])
def test_changed_and_truncated_bytes_are_refused_or_valid(codec: int) -> None:
    chance, decoder = random.Random(5), EventDecoder()
    good = message([ONE, TWO, replace(ONE, offset=2**40)], codec)
    for payload in [good.payload[:end] for end in range(len(good.payload))]:
        with pytest.raises(WireError):
            decoder.decode(replace(good, payload=payload))
    for _ in range(3000):
        try:
            records = decoder.decode(replace(good, payload=mutated(good.payload, chance)))
        except WireError:
            continue
        for record in records:
            assert record.count >= 1
            last = next(unfold(record)) if record.count > 10**6 else list(unfold(record))[-1]
            assert last.offset is None or 0 <= last.offset <= MAX_POSITION


@given(st.binary(max_size=300), st.integers(1, 50), st.sampled_from([RAW, ZSTD]))
def test_arbitrary_bytes(payload: bytes, n: int, codec: int) -> None:
    with pytest.raises(WireError):
        EventDecoder().decode(replace(message([ONE], codec, payload), n=n))
