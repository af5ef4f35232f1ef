"""Folded records on the wire: round trips and bounds."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from laggard_common.wire import Envelope, Kind, decode_envelope, encode_envelope, limits
from laggard_common.wire.trace_codec import RAW, ZSTD, EventEncoder, batches
from laggard_common.wire.trace_records import MAX_POSITION, Folded
from tests.support.builders.iotrace import decoded

T0 = 1_763_650_000 * 10**9
ONE = Folded("cn-17", "write", "4121:17", 0, 65536, 3, T0, T0 + 500, "/scratch/out.dat")
TWO = Folded("cn-17", "close", "4121:17", None, 0, 1, T0 + 900, T0 + 900)


def message(records: list[Folded], codec: int = ZSTD) -> Envelope:
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
        payload=EventEncoder(codec).encode(records),
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
    assert decoded(envelope) == records


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
            assert decoded(message(part)) == part
    assert len(list(batches(few))) > 1
    assert [len(part) for part in batches(many)] == [limits.MAX_TICKS, limits.MAX_TICKS, 1]
    assert list(batches([])) == []
