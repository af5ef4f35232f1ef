"""Logs that nobody meant: no crash, counted, and what could be read is read."""

import random

import pytest

from laggard_agent.tools.iotrace.command import FORMATS
from laggard_common.trace_formats.line_reader import MAX_LINE_BYTES
from laggard_common.wire.trace_records import MAX_POSITION
from tests.support.builders.iotrace import read, sample
from tests.support.mutation import mutated

formats = pytest.mark.parametrize("name", FORMATS)


@formats
def test_empty(name: str) -> None:
    records, reader = read(name, b"")
    assert (records, reader.lines, reader.not_understood, reader.torn) == ([], 0, 0, 0)


@formats
def test_truncated_at_every_byte_gives_the_beginning_of_the_records(name: str) -> None:
    """A line without its end is never taken for a shorter number."""
    data = sample(name)[:6000]
    data = data[: data.rindex(b"\n") + 1]
    whole, reader = read(name, data)
    assert reader.not_understood == 0
    for end in range(len(data)):
        records, reader = read(name, data[:end])
        assert records == whole[: len(records)]
        assert reader.not_understood == 0
        assert reader.torn == (end > 0 and data[end - 1 : end] != b"\n")


@formats
def test_a_missing_last_newline_is_said(name: str) -> None:
    data = sample(name)
    whole, _ = read(name, data)
    records, reader = read(name, data.rstrip(b"\n"))
    assert reader.torn == 1
    assert records == whole[: len(records)]


@formats
def test_a_line_that_is_too_long_is_passed_over(name: str) -> None:
    data = sample(name)
    whole, _ = read(name, data)
    for length in (MAX_LINE_BYTES - 1, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 3 * MAX_LINE_BYTES):
        records, reader = read(name, b"x" * length + b"\n" + data)
        assert records == whole
        assert (reader.not_understood, reader.torn) == (1, 0)
    records, reader = read(name, data + b"x" * 2 * MAX_LINE_BYTES)
    assert (records, reader.torn) == (whole, 1)


@formats
def test_binary(name: str) -> None:
    noise = random.Random(3).randbytes(200_000)
    records, reader = read(name, noise)
    assert records == []
    assert reader.not_understood > 0


@formats
def test_changed_bytes_never_make_an_impossible_record(name: str) -> None:
    chance = random.Random(4)
    data = sample(name)
    for _ in range(300):
        records, _ = read(name, mutated(data, chance))
        for r in records:
            assert 0 <= r.size <= MAX_POSITION
            assert 0 <= r.time_ns <= MAX_POSITION
            assert r.offset is None or 0 <= r.offset <= MAX_POSITION - r.size
            assert (r.node + r.operation + r.descriptor + r.path).isprintable()


@pytest.mark.parametrize(
    "line",
    [
        b'1 100.1 open("' + b'\\"' * 30_000 + b"\n",
        b"1 100.1 pipe(" + b"[1<" * 20_000 + b") = 0\n",
        b"1 100.1 read(3, " + b") " * 30_000 + b"= \n",
        b"1 100.1 read(3<" + b">" * 60_000 + b") = 1\n",
        b"1 100.1 read(3" + b" " * 60_000 + b") = 1\n",
        b"1 100.1 read(3, " + b")= " * 20_000 + b"\n",
    ],
)
def test_lines_that_could_keep_a_parser_busy(line: bytes) -> None:
    """Each is near the bound; a pattern that tries every pair of places would take minutes."""
    _, reader = read("strace", line * 5)
    assert reader.lines == 5
