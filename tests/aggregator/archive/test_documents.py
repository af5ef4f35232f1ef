"""Documents as rows: what was sent comes back, and hostile bytes are an error of one kind."""

from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.archive.documents import (
    NULL,
    NUMBERS,
    TEXTS,
    RecordingPart,
    decode_part,
    document_table,
    encode_part,
)
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_common.errors import WireError
from tests.support.builders.archives import START_NS
from tests.support.builders.documents import document
from tests.support.thorough import examples

INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def parts(draw: st.DrawFn) -> RecordingPart:
    rows = draw(st.integers(0, 5))
    strings = draw(st.lists(st.text("ab/µ", max_size=9), min_size=1, max_size=4))
    place = st.sampled_from([NULL, *range(len(strings))])
    columns = {name: draw(st.lists(INT64, min_size=rows, max_size=rows)) for name in NUMBERS}
    columns |= {name: draw(st.lists(place, min_size=rows, max_size=rows)) for name in TEXTS}
    return RecordingPart("run1", strings, {name: np.array(c, np.int64) for name, c in columns.items()})


@given(parts())
def test_a_part_comes_back_as_rows(part: RecordingPart) -> None:
    found = decode_part(encode_part(part))
    assert (found.recording, list(found.strings)) == (part.recording, list(part.strings))
    assert {name: c.tolist() for name, c in found.columns.items()} == {
        name: c.tolist() for name, c in part.columns.items()
    }
    rows = document_table(document(7, START_NS, encode_part(part), source="layers"), START_NS).to_pylist()
    assert len(rows) == part.columns["request"].size
    for at, row in enumerate(rows):
        assert (row["ordinal"], row["node"], row["role"], row["recording"]) == (7, "cn-1", "compute", "run1")
        for name in NUMBERS:
            value = int(part.columns[name][at])
            assert row[name] == (None if value == NULL else value)
        for name in TEXTS:
            place = int(part.columns[name][at])
            assert row[name] == (None if place == NULL else part.strings[place])


@settings(max_examples=examples(500), deadline=None)
@given(st.one_of(st.binary(max_size=300), parts().map(encode_part)), st.data())
def test_any_bytes_are_rows_or_an_error(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode_part(bytes(damaged))
    except WireError:
        return


@pytest.mark.parametrize(
    "value",
    [
        [2, "r", [], {}],
        [1, "r", ["a"], dict.fromkeys(NUMBERS, b"\x00" * 8)],
        [1, "r", ["a"], dict.fromkeys((*NUMBERS, *TEXTS), b"\x00" * 7) | {"request": b"\0" * 8}],
        [1, "r", [], dict.fromkeys((*NUMBERS, *TEXTS), b"\x00" * 8)],
        [1, "r\n", ["a"], dict.fromkeys((*NUMBERS, *TEXTS), b"\x00" * 8)],
        [1, "r", ["a"], {name: [0] for name in (*NUMBERS, *TEXTS)}],
    ],
)
def test_what_is_no_part_is_an_error(value: object) -> None:
    with pytest.raises(WireError):
        decode_part(msgpack.packb(value))


def test_the_archive_has_each_document_and_counts_the_malformed(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.document(document(1, START_NS, b'{"job": 1}'))
    writer.document(document(2, START_NS, b"rubbish", source="layers"))
    writer.document(document(3, START_NS, b"\xff\x00", node="cn-2"))
    writer.flush()
    assert writer.refused_documents == 1
    rows = ArchiveReader(tmp_path).table("events", "jobs").to_pylist()
    assert [(row["ordinal"], row["node"], row["content"]) for row in rows] == [
        (1, "cn-1", b'{"job": 1}'),
        (3, "cn-2", b"\xff\x00"),
    ]
    again = ArchiveWriter(tmp_path, "site", START_NS, continued_run_ns=START_NS)
    assert again.open() == 3
    again.document(document(3, START_NS, b"\xff\x00", node="cn-2"))
    again.document(document(4, START_NS, b"new"))
    again.flush()
    assert ArchiveReader(tmp_path).table("events", "jobs")["ordinal"].to_pylist() == [1, 3, 4]
