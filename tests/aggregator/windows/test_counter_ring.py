"""The ring of open intervals: it holds what was written, in as much room as that needs."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.windows.interval_metrics import CounterRing

LEAST = 8
WATERMARK = 1000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 60), st.integers(0, 2)),
        st.tuples(st.just("reset"), st.integers(1, 60), st.integers(0, 2)),
        st.tuples(st.just("advance"), st.integers(0, 70), st.just(0)),
    ),
    max_size=40,
)


def made() -> CounterRing:
    ring = CounterRing(counters=1, watermark=WATERMARK, slots=LEAST)
    ring.grow_rows(3)
    return ring


def wrote(ring: CounterRing, interval: int, row: int, value: int) -> None:
    assert ring.reaches(interval)
    rows = np.array([row])
    ring.write(interval, rows, np.array([[value]]), tick_ns=interval, read_ns=interval + 1)


def held(ring: CounterRing) -> dict[int, dict[int, tuple[Any, ...]]]:
    """What the ring has of each row, by interval: value, time, time of reading, reset."""
    found: dict[int, dict[int, tuple[Any, ...]]] = {}
    for ahead in range(1, ring.slots + 1):
        interval = ring.watermark + ahead
        slot = interval % ring.slots
        for row in range(3):
            if ring.tick[slot, row]:
                one = (ring.values[slot, row, 0], ring.tick[slot, row], ring.read[slot, row])
                found.setdefault(interval, {})[row] = (*map(int, one), bool(ring.reset[slot, row]))
    return found


@given(steps)
def test_nothing_is_lost_in_whatever_room(story: list[tuple[str, int, int]]) -> None:
    ring = made()
    expected: dict[int, dict[int, tuple[Any, ...]]] = {}
    resets: set[tuple[int, int]] = set()
    for number, (what, ahead, row) in enumerate(story, 1):
        interval = ring.watermark + ahead
        if what == "advance":
            ring.advance(interval)
        elif what == "reset":
            if ring.reaches(interval):
                ring.mark_reset(np.array([interval]), np.array([row]))
                resets.add((interval, row))
        elif interval not in expected or row not in expected[interval]:  # the newest of an interval is kept
            wrote(ring, interval, row, number)
            expected.setdefault(interval, {})[row] = (number, interval, interval + 1)
        open_now = {
            at: {r: (*one, (at, r) in resets) for r, one in rows.items()}
            for at, rows in expected.items()
            if at > ring.watermark
        }
        assert held(ring) == open_now


def test_room_goes_when_it_is_not_needed_any_more() -> None:
    """A window that closes late, or a clock that is ahead, must not take memory for good."""
    ring = made()
    wrote(ring, WATERMARK + 60, 0, 1)
    assert ring.slots == 60
    for moved in range(4, 64, 4):
        ring.advance(WATERMARK + moved)
        assert ring.slots < max(60 - moved + 4, LEAST) * 2
    assert ring.slots == LEAST


def test_room_that_is_needed_each_time_stays() -> None:
    ring = made()
    sizes = set()
    for watermark in range(WATERMARK, WATERMARK + 400, 4):
        wrote(ring, watermark + 20, 0, 1)
        sizes.add(ring.slots)
        ring.advance(watermark + 4)
    assert sizes == {20}


def test_a_restored_ring_takes_the_room_of_the_one_before() -> None:
    ring, other = made(), made()
    wrote(ring, WATERMARK + 60, 0, 1)
    ring.advance(WATERMARK + 4)
    other.restore(ring.state(3), 3)
    for moved in range(8, 72, 4):
        for each in (ring, other):
            each.advance(WATERMARK + moved)
        assert other.slots == ring.slots
        assert held(other) == held(ring)
