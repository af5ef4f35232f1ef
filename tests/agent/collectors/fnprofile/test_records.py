"""Records out of the ring buffer: every kind, cut anywhere, wrapped, and bytes that lie."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.fnprofile.perf import unwrapped
from laggard_agent.collectors.fnprofile.records import Ended, Forked, Mapped, Records, Renamed, parse
from tests.support.builders.fnprofile import comm, ended, fork, lost, mmap2, record, sample

THROTTLE = record(5, bytes(24))
MIXED = b"".join(
    (
        sample(7, 0x1000, 5),
        sample(8, 0x2000, 6, mode=1),
        fork(9, 7, 10),
        comm(9, "dd", 11, executed=True),
        mmap2(9, 0x400000, 0x1000, 0x2000, "/usr/bin/dd", 77, 12),
        sample(9, 0x400010, 13),
        lost(3),
        THROTTLE,
        ended(9, 14),
        sample(7, 0x1001, 15),
    )
)


def samples(records: Records) -> list[tuple[int, int, int, int]]:
    """Mode, pid, address and time of every sample."""
    words = [word for run in records.runs for word in run]
    four = [words[i : i + 4] for i in range(0, len(words), 4)]
    return [(h >> 32 & 7, thread & 0xFFFFFFFF, address, time) for h, address, thread, time in four]


def naive(data: bytes) -> tuple[list[tuple[int, int, int, int]], int]:
    """Samples, and bytes that make no sense: one record after the other."""
    found = []
    at = garbled = 0
    while at + 8 <= len(data):
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        if size < 8 or size % 8 or at + size > len(data):
            break
        if kind == 9 and size == 32:
            address, pid, _, time = struct.unpack_from("<QIIQ", data, at + 8)
            found.append((misc & 7, pid, address, time))
        elif kind == 9:
            garbled += size
        at += size
    return found, garbled + len(data) - at


def test_every_kind() -> None:
    records = parse(MIXED)
    assert samples(records) == [
        (2, 7, 0x1000, 5),
        (1, 8, 0x2000, 6),
        (2, 9, 0x400010, 13),
        (2, 7, 0x1001, 15),
    ]
    assert records.changes == [
        Forked(10, 9, 7),
        Renamed(11, 9, "dd", True),
        Mapped(12, 9, 0x400000, 0x401000, 0x2000, 77, "/usr/bin/dd"),
        Ended(14, 9),
    ]
    assert (records.lost, records.throttled, records.garbled) == (3, 1, 0)


def test_threads_are_not_processes() -> None:
    data = fork(7, 7, tid=70) + comm(7, "worker", tid=70) + ended(7, tid=70)
    assert parse(data).changes == []
    assert parse(comm(7, "main")).changes == [Renamed(0, 7, "main", False)]


def test_lost_samples_of_later_kernels() -> None:
    assert parse(record(13, struct.pack("<QIIQ", 9, 0, 0, 0))).lost == 9


def test_long_runs_and_what_lies_between() -> None:
    runs = [sample(7, i, i) for i in range(1000)]
    runs[300:300] = [fork(9, 7, 1)]
    runs[901:901] = [lost(1), ended(9, 2)]
    records = parse(b"".join(runs))
    assert [address for _, _, address, _ in samples(records)] == list(range(1000))
    assert (len(records.changes), records.lost, records.garbled) == (2, 1, 0)


@given(
    st.lists(
        st.one_of(
            st.integers(1, 600).map(lambda n: b"".join(sample(n, i) for i in range(n))),
            st.sampled_from([lost(2), fork(1, 2), record(9, bytes(40)), record(77, b""), THROTTLE]),
        ),
        max_size=6,
    ),
    st.integers(0, 100),
)
def test_as_one_record_after_the_other(pieces: list[bytes], cut: int) -> None:
    data = b"".join(pieces)
    data = data[: max(len(data) - cut, 0)]
    records = parse(data)
    assert (samples(records), records.garbled) == naive(data)


def test_truncated_at_every_byte() -> None:
    whole = samples(parse(MIXED))
    for size in range(len(MIXED)):
        records = parse(MIXED[:size])
        assert samples(records) == whole[: len(samples(records))]
        assert naive(MIXED[:size]) == (samples(records), records.garbled)


@pytest.mark.parametrize("size", [0, 7, 8, 9, 12, 0xFFFF, 0xFFF8])
def test_sizes_that_lie(size: int) -> None:
    """A record that cannot be one ends the parsing; a header alone is one."""
    data = sample(7, 1) + struct.pack("<IHH", 10, 0, size) + bytes(64)
    records = parse(data)
    assert len(samples(records)) == 1
    assert records.garbled > 0


@given(st.lists(st.tuples(st.integers(0, len(MIXED) - 1), st.integers(0, 255)), max_size=10))
def test_mutated(changes: list[tuple[int, int]]) -> None:
    data = bytearray(MIXED)
    for at, value in changes:
        data[at] = value
    records = parse(bytes(data))
    assert naive(bytes(data))[0] == samples(records)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    parse(data)


@given(st.integers(0, 2**64 - 1), st.integers(0, 64))
def test_a_ring_that_is_wrapped(tail: int, length: int) -> None:
    """Bytes 0, 1, 2, ... written from `tail` on come back in that order."""
    ring = bytearray(8 + 64)
    for i in range(length):
        ring[8 + (tail + i) % 64] = i
    assert unwrapped(bytes(ring), 8, 64, tail + length, tail) == bytes(range(length))


def test_a_ring_whose_ends_make_no_sense() -> None:
    assert unwrapped(bytes(72), 8, 64, 5, 6) == b""
    assert unwrapped(bytes(72), 8, 64, 100, 6) == b""
