"""Blocks of trace records: restored to the bit, never larger than the nodes' documents, and hostile bytes."""

from collections.abc import Sequence
from functools import cache

import msgpack
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.traces.merged_block import MAX_RECORDS, merged, records_of, restored, table_of
from laggard_common.errors import WireError
from laggard_common.wire.trace_codec import batches
from laggard_common.wire.trace_document import TraceDocument, encode_document
from laggard_common.wire.trace_records import MAX_POSITION, Folded

SECOND = 10**9
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), max_size=6)
NUMBERS = st.integers(0, 9) | st.integers(0, MAX_POSITION)
DESCRIPTORS = NAMES | st.builds("{}:{}".format, st.integers(0, 20), st.integers(0, 5)) | st.just("7::a:")


@st.composite
def folded(draw: st.DrawFn) -> Folded:
    offset = draw(st.none() | NUMBERS)
    count = draw(st.integers(1, 5) | st.integers(1, MAX_POSITION))
    size = draw(st.integers(0, (MAX_POSITION - (offset or 0)) // count))
    host, operation, path = draw(NAMES), draw(st.sampled_from(["read", "write", "é"])), draw(NAMES)
    return Folded(host, operation, draw(DESCRIPTORS), offset, size, count, draw(NUMBERS), draw(NUMBERS), path)


def as_multiset(records: Sequence[Folded]) -> list[str]:
    return sorted(map(repr, records))


def sent_bytes(records: Sequence[Folded]) -> int:
    """Bytes of the documents in which the nodes send records, each node its own."""
    by_node: dict[str, list[Folded]] = {}
    for record in records:
        by_node.setdefault(record.node, []).append(record)
    return sum(
        len(zstandard.compress(encode_document(TraceDocument("77", "/job.trace@1", 1, 0, 9, part))))
        for own in by_node.values()
        for part in batches(own)
    )


def ranks(n: int) -> list[Folded]:
    """A job in which each process writes two parts of one file, and a file of its own."""
    return [
        Folded(f"cn-{rank // 16}", "write", f"{400 + rank % 16}:{fd}", offset, 2**20, 8, at, at + 977, path)
        for rank in range(n)
        for step, (fd, offset, path) in enumerate(
            [(3, rank * 2**23, "/s"), (3, (n + rank) * 2**23, "/s"), (4, 0, f"/own/{rank:05d}")]
        )
        for at in [SECOND + step * 50_000 + rank % 7]
    ]


@given(st.lists(folded(), min_size=1, max_size=40))
def test_any_records_are_restored_and_take_no_more_than_they_took_when_sent(records: list[Folded]) -> None:
    block = merged(table_of(records))
    assert as_multiset(records_of(restored(block))) == as_multiset(records)
    assert len(block) <= sent_bytes(records)


def test_what_processes_do_alike_is_stored_once() -> None:
    records = ranks(256)
    block = merged(table_of(records))
    assert as_multiset(records_of(restored(block))) == as_multiset(records)
    assert len(block) * 4 < sent_bytes(records)


def test_equal_records_stay_as_many_as_they_were() -> None:
    records = ranks(3) * 5
    assert as_multiset(records_of(restored(merged(table_of(records))))) == as_multiset(records)


@pytest.mark.parametrize("n", [0, MAX_RECORDS + 1])
def test_a_block_has_a_bounded_number_of_records(n: int) -> None:
    with pytest.raises(ValueError, match="records"):
        merged(table_of(ranks(1)).take(pa.array([0] * n, pa.int64())))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(WireError):
        restored(content)


@cache
def block_of_ranks() -> bytes:
    """A block of 1,200 records; making it takes longer than reading it."""
    return merged(table_of(ranks(400)))


@given(st.data())
def test_a_flipped_byte_is_refused_or_has_records_within_their_limits(data: st.DataObject) -> None:
    block = bytearray(block_of_ranks())
    block[data.draw(st.integers(0, len(block) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = records_of(restored(bytes(block)))
    except WireError:
        return
    for each in found:
        assert each.count >= 1
        assert 0 <= (each.offset or 0) + each.size * each.count <= MAX_POSITION
        assert min(each.first_ns, each.last_ns) >= 0


def test_parts_that_expand_without_bound_are_refused() -> None:
    version, form, content = msgpack.unpackb(block_of_ranks())
    n, head, *columns = msgpack.unpackb(content)
    columns[0] = [zstandard.compress(bytes(2**24))]
    for parts in ([n, zstandard.compress(bytes(2**28)), *columns], [n, head, *columns]):
        with pytest.raises(WireError, match="larger than it may be"):
            restored(msgpack.packb([version, form, msgpack.packb(parts)]))


def test_texts_that_a_reader_refuses_are_stored_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.jobs.traces.merged_block._MAX_TEXT_BYTES", 2**14)
    records = [
        Folded("n", "write", f"1:{at}", 0, 1, 1, at, at, "/" + "x" * 90 + str(at)) for at in range(999)
    ]
    assert as_multiset(records_of(restored(merged(table_of(records))))) == as_multiset(records)


@pytest.mark.parametrize("n", [0, -1, 1.0, True, None, "1"])
def test_wrong_numbers_of_records_are_refused(n: object) -> None:
    version, form, content = msgpack.unpackb(merged(table_of([Folded("n", "open", "1", 0, 0, 1, 5, 5, "/")])))
    assert form == 0
    ((_, at, payload),) = msgpack.unpackb(content)
    with pytest.raises(WireError):
        restored(msgpack.packb([version, form, msgpack.packb([[n, at, payload]])]))
