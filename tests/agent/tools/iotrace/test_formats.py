"""Each format on its fixture and on literals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.tools.iotrace.fold import fold
from laggard_agent.tools.iotrace.text import parse
from laggard_common.wire.trace_records import MAX_POSITION, TraceRecord
from tests.support.builders.iotrace import as_line, read, sample


def test_laggards_own_format() -> None:
    records, reader = read("laggard", sample("laggard"))
    assert (reader.lines, reader.records, reader.not_understood, reader.torn) == (8, 6, 0, 0)
    first = TraceRecord("cn-17", "open", "4121:17", None, 0, 1_763_650_000_000_000_001, "/scratch/out.dat")
    assert records[0] == first
    assert records[4] == TraceRecord("cn-17", "read", "4122:3", 4096, 512, 1_763_650_001_000_000_000)
    assert [f.count for f in fold(records)] == [1, 3, 1, 1]


words = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)


@given(
    st.builds(
        TraceRecord,
        node=words,
        operation=st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True),
        descriptor=words,
        offset=st.none() | st.integers(0, MAX_POSITION // 2),
        size=st.integers(0, MAX_POSITION // 2),
        time_ns=st.integers(0, MAX_POSITION),
        path=st.just("") | st.tuples(words, words).map(" ".join),
    )
)
def test_a_line_is_read_as_the_record_it_was_made_of(record: TraceRecord) -> None:
    line = as_line(record)
    assert parse(line) == (record,) or line.startswith("#")


def test_darshan_dxt() -> None:
    records, reader = read("dxt", sample("dxt"))
    assert (reader.records, reader.not_understood, reader.torn) == (9, 0, 0)
    path, file_id, second = "/scratch/out, part 1.dat", 16457598720760448348, 1_763_650_000_000_000_000
    assert records[0] == TraceRecord(
        "cn-17", "write", f"posix:0:{file_id}", 0, 1048576, second + 2_900_000, path
    )
    assert records[6].node == "cn-18"
    assert records[8].offset is None
    assert records[8].descriptor == f"mpiio:0:{file_id}"
    shapes = [(f.operation, f.offset, f.count) for f in fold(records) if f.descriptor == f"posix:0:{file_id}"]
    assert shapes == [("write", 0, 3), ("write", 4194304, 1), ("read", 0, 2)]


def test_darshan_without_dxt_has_no_records() -> None:
    records, reader = read("dxt", b"# darshan log version: 3.41\n\n# no DXT module data available\n")
    assert (records, reader.not_understood) == ([], 0)


@pytest.mark.parametrize(
    "line",
    [
        " X_POSIX       1  write        0               0         1048576      0.0029      0.0032",
        " X_POSIX       0  erase        0               0         1048576      0.0029      0.0032",
        " X_STDIO       0  write        0               0         1048576      0.0029      0.0032",
        " X_POSIX       0  write        0              -5         1048576      0.0029      0.0032",
        " X_POSIX       0  write        0               0              -1      0.0029      0.0032",
        " X_POSIX       0  write        0               0         1048576     -0.0029      0.0032",
        " X_POSIX       0  write        0               0         1048576",
        " X_POSIX       0  write        0 9223372036854775807               1      0.0029      0.0032",
        " X_POSIX       0  write        0 99999999999999999999999           1      0.0029      0.0032",
        "# DXT, rank: zero, hostname: cn-17",
        "# start_time: yesterday",
    ],
)
def test_lines_that_darshan_does_not_print(line: str) -> None:
    head = "# DXT, file_id: 1, file_name: /f\n# DXT, rank: 0, hostname: cn-17\n"
    records, reader = read("dxt", f"{head}{line}\n".encode())
    assert (records, reader.not_understood) == ([], 1)


def test_a_segment_without_its_file_is_not_understood() -> None:
    line = b" X_POSIX       0  write        0               0         1048576      0.0029      0.0032\n"
    assert read("dxt", line)[1].not_understood == 1


@pytest.mark.parametrize(
    "line",
    [
        "1763650000.1 cn-17 write 3 -5 100",
        "1763650000.1 cn-17 write 3 0 -100",
        "-1763650000.1 cn-17 write 3 0 100",
        "1763650000.1 cn-17 write 3 9223372036854775807 1",
        "1763650000.1 cn-17 write 3 18446744073709551616 1",
        "9999999999.1 cn-17 write 3 0 1",
        "1763650000.1.2 cn-17 write 3 0 1",
        "1763650000.1 cn-17 WRITE 3 0 1",
        "1763650000.1 cn-17 write 3 0",
        "1763650000.1 cn-17 write 3 0 1e6",
        "1763650000.1 cn-17 write 3 ٣ 1",
        "1763650000.1 cn-17 write 3 0 1 /with\x07bell",
        f"1763650000.1 {'n' * 257} write 3 0 1",
        f"1763650000.1 cn-17 write 3 0 1 /{'p' * 4096}",
    ],
)
def test_lines_that_are_no_records(line: str) -> None:
    records, reader = read("laggard", f"{line}\n".encode())
    assert (records, reader.not_understood) == ([], 1)


def test_offsets_at_the_very_end_are_possible() -> None:
    (record,), _ = read("laggard", b"1763650000.1 cn-17 write 3 9223372036854775806 1\r\n")
    assert record.offset == MAX_POSITION - 1
