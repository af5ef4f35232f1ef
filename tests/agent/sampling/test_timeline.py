from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.sampling.sampler import Timeline
from tests.support.clock import FakeClock

SECOND = 10**9


def run(clock: FakeClock, timeline: Timeline, ticks: int) -> list[int]:
    """The nominal times of the next ticks, sleeping exactly as long as the timeline asks."""
    times: list[int] = []
    while len(times) < ticks:
        clock.sleep(timeline.wait_seconds())
        tick_ns = timeline.due_tick_ns()
        if tick_ns is not None:
            times.append(tick_ns)
    return times


def test_ticks_are_multiples_of_the_interval() -> None:
    clock = FakeClock(wall=1_700_000_000_300_000_000)
    timeline = Timeline(clock, SECOND // 4)
    first = 1_700_000_000_500_000_000
    assert run(clock, timeline, 3) == [first, first + SECOND // 4, first + SECOND // 2]


def test_a_tick_is_given_once() -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    run(clock, timeline, 1)
    assert timeline.due_tick_ns() is None
    clock.sleep(0.999)
    assert timeline.due_tick_ns() is None


def test_waking_late_misses_ticks_and_says_so() -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    (first,) = run(clock, timeline, 1)
    clock.sleep(3.4)
    assert (timeline.due_tick_ns(), timeline.missed_ticks) == (first + 3 * SECOND, 2)
    assert run(clock, timeline, 1) == [first + 4 * SECOND]


def test_a_step_forward_is_followed_at_once_and_misses_nothing() -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    (first,) = run(clock, timeline, 1)
    clock.step(3600.5)
    clock.sleep(timeline.wait_seconds())
    assert (timeline.due_tick_ns(), timeline.missed_ticks) == (first + 3601 * SECOND, 0)
    assert timeline.now_ns() == clock.wall_ns()
    assert timeline.steps == 1


@given(st.floats(0.01, 0.99))
def test_a_step_forward_within_an_interval_loses_no_tick(seconds: float) -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    (first,) = run(clock, timeline, 1)
    clock.sleep(timeline.wait_seconds())
    clock.step(seconds)
    assert (timeline.due_tick_ns(), timeline.missed_ticks) == (first + SECOND, 0)
    assert run(clock, timeline, 1) == [first + 2 * SECOND]


@given(st.floats(0.01, 59.9), st.integers(1, 30))
def test_a_step_back_neither_repeats_nor_leaves_out_a_tick(seconds: float, at: int) -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    times = run(clock, timeline, at)
    clock.step(-seconds)
    times += run(clock, timeline, 1100)
    assert times == list(range(times[0], times[0] + len(times) * SECOND, SECOND))
    assert abs(timeline.now_ns() - clock.wall_ns()) <= 2_000_000
    assert timeline.steps == 0


def test_while_it_waits_for_the_wall_clock_ticks_are_a_fifteenth_further_apart() -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    run(clock, timeline, 1)
    clock.step(-10)
    run(clock, timeline, 1)
    before = clock.monotonic
    run(clock, timeline, 1)
    assert abs(clock.monotonic - before - SECOND * 16 // 15) < SECOND // 1000


def test_a_clock_that_was_far_ahead_is_followed_back() -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    (first,) = run(clock, timeline, 1)
    clock.step(-3600)
    assert run(clock, timeline, 3) == [first + (i - 3600) * SECOND for i in (2, 3, 4)]
    assert timeline.steps == 1


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 2.5)), max_size=30))
def test_under_any_small_steps_and_delays_ticks_ascend(events: list[tuple[float, float]]) -> None:
    clock = FakeClock()
    timeline = Timeline(clock, SECOND)
    times = run(clock, timeline, 1)
    for step, late in events:
        clock.step(step)
        clock.sleep(late)
        times += run(clock, timeline, 2)
    assert timeline.steps > 0 or all(b > a for a, b in pairwise(times))
    assert all(time % SECOND == 0 for time in times)


def test_the_clock_being_read_in_two_parts_is_no_step() -> None:
    """A process that is held up between reading the two clocks must not take that for a step."""

    class Slow(FakeClock):
        held_up = 0

        def wall_ns(self) -> int:
            if self.held_up:
                self.held_up -= 1
                self.sleep(0.2)
            return self.wall

    clock = Slow()
    timeline = Timeline(clock, SECOND // 10)
    run(clock, timeline, 1)
    clock.held_up = 2
    clock.sleep(timeline.wait_seconds())
    timeline.due_tick_ns()
    assert timeline.steps == 0
    assert timeline.now_ns() == clock.wall_ns()
