"""Documents of source `traces`: a round trip, and arbitrary bytes."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_common.errors import WireError
from laggard_common.wire.trace_document import TraceDocument, decode_document, encode_document
from laggard_common.wire.trace_records import MAX_POSITION, Folded

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), max_size=20)
TIMES = st.integers(0, MAX_POSITION)


@st.composite
def folded(draw: st.DrawFn) -> Folded:
    size = draw(st.integers(0, 2**40))
    count = draw(st.integers(1, 2**20))
    offset = draw(st.none() | st.integers(0, MAX_POSITION - size * count))
    host, operation, descriptor, path = (draw(NAMES) for _ in range(4))
    return Folded(host, operation, descriptor, offset, size, count, draw(TIMES), draw(TIMES), path)


RECORDS = st.lists(folded(), min_size=1, max_size=30)


@given(RECORDS, NAMES, NAMES, st.integers(0, 2**62 - 1), st.integers(1, 2**62))
def test_a_document_is_restored(records: list[Folded], job: str, log: str, start: int, size: int) -> None:
    document = TraceDocument(job, log, size, start, start + size, records)
    assert decode_document(encode_document(document)) == document


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(WireError):
        decode_document(content)


@given(RECORDS, st.data())
def test_changed_bytes_are_refused_or_within_the_limits(records: list[Folded], data: st.DataObject) -> None:
    content = bytearray(encode_document(TraceDocument("1", "/log@1", 1, 0, 9, records)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_document(bytes(content))
    except WireError:
        return
    assert found.start < found.end
    assert all(each.count > 0 and each.size >= 0 and each.first_ns >= 0 for each in found.records)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 2),
        (1, 7),
        (2, "\n"),
        (3, -1),
        (4, -1),
        (4, 9),
        (5, True),
        (6, 0),
        (6, 5000),
        (7, 2**63),
        (8, "x"),
        (8, b""),
    ],
)
def test_a_wrong_part_is_refused(place: int, value: object) -> None:
    record = Folded("n", "read", "1:2", 0, 1, 1, 5, 5, "/a")
    parts = msgpack.unpackb(encode_document(TraceDocument("1", "/log@1", 1, 0, 9, [record])))
    parts[place] = value
    with pytest.raises(WireError):
        decode_document(msgpack.packb(parts))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | NAMES
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES | st.integers(0, 9), inner, max_size=5),
    max_leaves=5,
)


@given(RECORDS, st.integers(0, 9), ANYTHING)
def test_a_part_of_another_type_is_refused(records: list[Folded], place: int, value: object) -> None:
    parts = msgpack.unpackb(encode_document(TraceDocument("1", "/log@1", 1, 0, 9, records)))
    inner = msgpack.unpackb(parts[8])
    inner[place] = value
    parts[8] = msgpack.packb(inner)
    try:
        found = decode_document(msgpack.packb(parts))
    except WireError:
        return
    assert all(isinstance(each.path, str) for each in found.records)


def test_strings_by_name_are_refused() -> None:
    record = Folded("n", "read", "1:2", 0, 1, 1, 5, 5, "/a")
    parts = msgpack.unpackb(encode_document(TraceDocument("1", "/log@1", 1, 0, 9, [record])))
    _, *columns = msgpack.unpackb(parts[8])
    parts[8] = msgpack.packb([{"a": 1, "b": 2, "c": 3, "d": 4}, *columns])
    with pytest.raises(WireError):
        decode_document(msgpack.packb(parts))
