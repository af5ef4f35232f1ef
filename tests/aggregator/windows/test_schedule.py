import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.windows.schedule import FREE_SPAN_NS, MAX_SPAN_NS, STAGGER_NS, WindowSchedule
from tests import naive

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
SHIFT = 450 * SECOND
WINDOW = 900 * SECOND


def schedule() -> WindowSchedule:
    made = WindowSchedule(5 * SECOND)
    made.add("g", SHIFT, WINDOW, START + 100 * SECOND)
    return made


def wait_ns(made: WindowSchedule) -> int:
    """How long after its end the next window is due."""
    due_ns = made.next_due_ns()
    assert due_ns is not None
    ((_, end_ns, deadline_ns),) = made.due(due_ns)
    return deadline_ns - end_ns


def test_ends_are_multiples_of_the_shift_and_come_after_span_and_lateness() -> None:
    made = schedule()
    made.announce("g", "oss-1", 5 * SECOND)
    made.announce("g", "oss-2", 10 * SECOND)
    due_ns = made.next_due_ns()
    assert due_ns is not None
    assert made.due(due_ns - 1) == []
    ((_, end_ns, deadline_ns),) = made.due(due_ns)
    assert end_ns % SHIFT == 0
    assert deadline_ns == due_ns
    assert 0 <= due_ns - end_ns - 15 * SECOND < STAGGER_NS
    assert made.due(due_ns) == []


def test_a_new_group_takes_data_from_the_end_that_would_just_have_been_due() -> None:
    made = WindowSchedule(5 * SECOND)
    begun = made.add("g", SHIFT, WINDOW, START + 100 * SECOND)
    assert begun % SHIFT == 0
    assert START + 100 * SECOND - SHIFT - 7 * SECOND < begun <= START + 100 * SECOND
    assert made.add("g", SHIFT, WINDOW, START + 10**6 * SECOND) == begun
    assert [end_ns for _, end_ns, _ in made.due(START + SHIFT + 7 * SECOND)] == [begun + SHIFT]


def test_a_member_with_an_absurd_span_does_not_hold_up_its_group_for_ever() -> None:
    made = schedule()
    made.announce("g", "oss-1", 10**6 * SECOND)
    assert MAX_SPAN_NS < wait_ns(made) <= MAX_SPAN_NS + 5 * SECOND + STAGGER_NS
    for node in range(2, 4):
        made.announce("g", f"oss-{node}", 5 * SECOND)
    assert FREE_SPAN_NS < wait_ns(made) <= FREE_SPAN_NS + 5 * SECOND + STAGGER_NS


def test_long_spans_of_most_members_count() -> None:
    made = schedule()
    for node in range(5):
        made.announce("g", f"cn-{node}", 300 * SECOND)
    made.announce("g", "cn-5", 500 * SECOND)
    assert 500 * SECOND < wait_ns(made) <= 505 * SECOND + STAGGER_NS
    made.forget("g", "cn-5")
    assert 300 * SECOND < wait_ns(made) <= 305 * SECOND + STAGGER_NS


def test_a_clock_set_back_closes_nothing_twice_and_one_set_forward_skips_what_is_empty() -> None:
    made = schedule()
    (first,) = made.due(START + SHIFT + 60 * SECOND)
    assert made.due(START - 10**6 * SECOND) == []
    assert made.due(START + SHIFT + 60 * SECOND) == []
    later = made.due(START + 1000 * SHIFT + 60 * SECOND)
    assert [end_ns for _, end_ns, _ in later] == [START + n * SHIFT for n in (998, 999, 1000)]
    assert later[0][1] > first[1]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40))
def test_however_often_it_is_asked_every_window_comes_once_and_in_order(steps: list[int]) -> None:
    made = schedule()
    now = START
    ends = []
    for step in steps:
        now += step * SECOND
        ends += [end_ns for _, end_ns, _ in made.due(now)]
    assert ends == list(range(ends[0], ends[0] + len(ends) * SHIFT, SHIFT)) if ends else True
    assert all(end + 5 * SECOND <= now for end in ends)


def test_groups_are_staggered_and_due_in_order_of_their_deadlines() -> None:
    made = WindowSchedule(0)
    for n in range(50):
        made.add(f"g{n}", SHIFT, WINDOW, START + 100 * SECOND)
    due = made.due(START + SHIFT + STAGGER_NS)
    assert len(due) == 50
    assert [due_ns for *_, due_ns in due] == sorted(due_ns for *_, due_ns in due)
    assert len({due_ns for *_, due_ns in due}) > 25


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("due"), st.integers(-50, 4000)),
        st.tuples(st.just("announce"), st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 900)),
        st.tuples(st.just("forget"), st.sampled_from("ab"), st.sampled_from("xyz")),
        st.tuples(st.just("closed"), st.sampled_from("ab"), st.integers(0, 5)),
    ),
    max_size=30,
)


@given(st.integers(1, 60), st.integers(0, 300), st.integers(0, 30), ACTIONS)
def test_the_same_windows_are_due_as_by_the_slow_schedule(
    shift: int, more: int, lateness: int, actions: list[tuple[Any, ...]]
) -> None:
    """Also of windows whose length is no multiple of the shift, and of a clock that is set."""
    shift_ns, window_ns, lateness_ns, now = shift * SECOND, (shift + more) * SECOND, lateness * SECOND, START
    made = WindowSchedule(lateness_ns)
    slow: dict[str, naive.WindowGroup] = {}
    for name in "ab":
        begun = made.add(name, shift_ns, window_ns, now)
        stagger_ns = zlib.crc32(name.encode()) % 1000 * min(shift_ns // 10, STAGGER_NS) // 1000
        slow[name] = naive.WindowGroup(shift_ns, window_ns, stagger_ns, begun)
        assert begun % shift_ns == 0
        assert begun + shift_ns > now - slow[name].wait_ns(lateness_ns) >= begun
    for action, *values in actions:
        if action == "due":
            now += values[0] * SECOND
            expected = [(name, *each) for name, g in slow.items() for each in g.due(now, lateness_ns)]
            found = made.due(now)
            assert sorted(found) == sorted(expected)
            assert [due for *_, due in found] == sorted(due for *_, due in found)
        elif action == "announce":
            name, member, span = values
            made.announce(name, member, span * SECOND)
            slow[name].spans_ns[member] = span * SECOND
        elif action == "forget":
            name, member = values
            made.forget(name, member)
            slow[name].spans_ns.pop(member, None)
        else:
            name, shifts = values
            end_ns = max([slow[name].start_ns, *slow[name].closed_ns]) + shifts * shift_ns
            made.closed(name, end_ns)
            slow[name].closed_ns.append(end_ns)
