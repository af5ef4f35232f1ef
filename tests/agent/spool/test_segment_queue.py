import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.spool.segment_queue import RangeSet, SegmentQueue
from laggard_agent.spool.segments import Header, SpoolRecordType, SpoolSegment
from laggard_common import wire
from laggard_common.errors import SpoolError
from laggard_common.segment_log import MAX_RECORD_BYTES

KIB = 1024
KEY = (bytes(16), "net")
HEADER = Header("oss-1", "boot", ())
MINUTE_NS = 60 * 10**9


class Queued:
    """A queue of at most `max_bytes` on disk, filled with batches of 5 samples and 10 kB a minute."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.queue = SegmentQueue(folder, max_bytes, batch_ticks=5)
        self.seq = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            envelope = wire.Envelope(
                kind=wire.Kind.COUNTERS,
                node="oss-1",
                source="net",
                stream=KEY[0],
                seq=self.seq,
                schema_epoch=1,
                t0_ns=self.seq * MINUTE_NS,
                dt_ns=10**9,
                n=5,
                codec=1,
                payload=bytes(10_000),
            )
            self.queue.newest.append(SpoolRecordType.BATCH, wire.encode_envelope(envelope))
            self.queue.newest.note(KEY, self.seq)
            self.seq += 1

    def fill(self, *counts: int, in_memory: bool = False) -> None:
        """A segment of so many batches for each of `counts`."""
        for count in counts:
            self.queue.start_segment(HEADER, in_memory=in_memory)
            self.add(count)

    def make_room(self) -> bool:
        return self.queue.make_room(newest_ns=(self.seq - 1) * MINUTE_NS)

    def spans(self) -> list[tuple[int, int]]:
        return [segment.spans[KEY] for segment in self.queue if segment.spans]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


Make = Callable[..., Queued]


def _close(queue: SegmentQueue) -> None:
    queue.newest.close()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Make]:
    """Makes a queue in the test's own folder, which is closed at the end."""
    with contextlib.ExitStack() as closing:

        def make(max_bytes: int = 1024 * KIB) -> Queued:
            queued = Queued(tmp_path, max_bytes)
            closing.callback(_close, queued.queue)
            return queued

        yield make


def test_segments_that_are_acknowledged_leave_but_for_the_newest(made: Make) -> None:
    queued = made()
    queued.fill(3, 3, 3)
    assert not queued.queue.drop_acknowledged()
    queued.queue.acked[KEY].add(3, 8)
    assert queued.queue.drop_acknowledged()
    assert queued.spans() == [(0, 2), (6, 8)]
    assert queued.files() == ["0000000000.segment", "0000000002.segment"]
    assert 30_000 < queued.queue.pending_bytes() < 31_000
    assert queued.queue.dropped_samples == queued.queue.unconfirmed_samples == 0


def test_the_newest_is_replaced_when_it_is_large_and_all_of_it_acknowledged(made: Make) -> None:
    queued = made()
    queued.fill(3)
    queued.queue.acked[KEY].add(0, 8)
    assert not queued.queue.is_newest_done()  # a new file would cost more than it saves
    queued.add(6)
    assert queued.queue.is_newest_done()
    queued.add(1)
    assert not queued.queue.is_newest_done()


def test_a_segment_is_full_at_a_sixteenth_of_the_whole(made: Make) -> None:
    queued = made(max_bytes=1600 * KIB)
    queued.fill(10)
    assert not queued.queue.is_newest_full()
    queued.add(1)
    assert queued.queue.is_newest_full()


def test_the_oldest_make_room_and_are_counted_by_what_became_of_them(
    made: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queued = made(max_bytes=100 * KIB)
    queued.fill(4, 4)
    assert not queued.make_room()
    queued.queue.sent[KEY].add(0, 1)
    queued.queue.acked[KEY].add(1, 2)
    queued.fill(4)
    assert queued.make_room()
    assert queued.spans() == [(4, 7), (8, 11)]
    assert (queued.queue.unconfirmed_samples, queued.queue.dropped_samples) == (5, 5)
    queued.fill(12)
    assert queued.make_room()
    assert queued.spans() == [(12, 23)]  # however large, it stays
    assert queued.queue.dropped_samples == 5 + 8 * 5
    assert [r.message for r in caplog.records] == [
        "spool: full: 102400 bytes hold 0.2 hours, dropping the oldest"
    ]


def test_disk_and_memory_have_bounds_of_their_own(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_agent.spool.segment_queue._MOST_MEMORY_BYTES", 50 * KIB)
    queued = made(max_bytes=100 * KIB)
    queued.fill(4, 4)
    queued.fill(4, 4, 0, in_memory=True)
    assert queued.make_room()
    assert queued.spans() == [(0, 3), (4, 7), (12, 15)]


def test_what_cannot_be_read_any_more_is_counted_by_its_seqs(
    made: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queued = made(max_bytes=50 * KIB)
    queued.fill(4)
    queued.queue.acked[KEY].add(0, 0)
    (tmp_path / "0000000000.segment").unlink()
    queued.fill(4)
    assert queued.make_room()
    assert queued.queue.dropped_samples == 3 * 5
    assert "its batches are lost" in caplog.text


def test_a_segment_that_cannot_be_begun_leaves_all_as_it_was(made: Make) -> None:
    queued = made()
    queued.fill(2)
    before = queued.queue.newest
    too_large = Header("oss-1", "b" * (MAX_RECORD_BYTES + 1), ())
    with pytest.raises(SpoolError):
        queued.queue.start_segment(too_large, in_memory=False)
    assert queued.queue.newest is before
    assert queued.files() == ["0000000000.segment"]
    queued.add(1)
    queued.fill(1)
    with pytest.raises(SpoolError, match="is closed"):
        before.append(SpoolRecordType.BATCH, b"")
    assert queued.spans() == [(0, 2), (3, 3)]
    assert queued.files() == ["0000000000.segment", "0000000001.segment"]


def test_what_an_earlier_agent_left_comes_before_all_others(made: Make, tmp_path: Path) -> None:
    queued = made()
    queued.fill(1, in_memory=True)
    left = [SpoolSegment.create(tmp_path / f"{number:010d}.segment") for number in (3, 4)]
    queued.queue.prepend(left, 5)
    queued.fill(1)
    order: list[SpoolSegment] = list(queued.queue)
    assert order[:2] == left
    assert queued.spans() == [(0, 0), (1, 1)]
    assert queued.files()[-1] == "0000000005.segment"


def test_a_file_that_cannot_be_removed_is_not_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "0000000000.segment"
    segment = SpoolSegment.create(path)
    path.unlink()
    path.mkdir()
    SegmentQueue(tmp_path, 1024 * KIB, 5).discard(segment)
    assert "0000000000.segment" in caplog.text


pairs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def filled(ranges: list[tuple[int, int]]) -> tuple[RangeSet, set[int]]:
    fast, slow = RangeSet(), set()
    for low, high in ranges:
        fast.add(low, high)
        slow |= set(range(low, high + 1))
    return fast, slow


@given(pairs, st.integers(0, 50), st.integers(0, 10))
def test_like_a_set(ranges: list[tuple[int, int]], low: int, length: int) -> None:
    fast, slow = filled(ranges)
    asked = set(range(low, low + length + 1))
    assert fast.covers(low, low + length) == (asked <= slow)
    assert fast.count(low, low + length) == len(asked & slow)
    assert fast.first_missing(low) == next(i for i in range(low, 200) if i not in slow)


def test_neighbours_become_one() -> None:
    fast, _ = filled([(i, i) for i in range(1000)])
    assert fast.pieces() == [(0, 999)]


def test_batches_of_a_file_that_cannot_be_read_wait_and_one_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queued = Queued(tmp_path, 10**6)
    queued.fill(2, 2, 2)
    first, second, _ = (segment.path for segment in queued.queue)
    assert first is not None
    assert second is not None
    aside = first.rename(tmp_path / "aside")
    first.mkdir()  # opening it fails for root, too
    deleted = second.rename(tmp_path / "deleted")
    for _ in range(3):
        assert [batch.envelope.seq for batch in queued.queue.unsent()] == [4, 5]
    (warning,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert warning == f"spool: {first}: Is a directory: its batches wait"
    first.rmdir()
    aside.rename(first)
    deleted.rename(second)
    assert [batch.envelope.seq for batch in queued.queue.unsent()] == list(range(6))
    for segment in queued.queue:
        segment.close()
