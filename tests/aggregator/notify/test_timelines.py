from dataclasses import replace

import numpy as np

from laggard_aggregator.notify.timelines import LEAD_WINDOWS, MANY, MAX_COURSES, MAX_POINTS, Courses
from tests.support.builders.live_status import NOW, MadeView, alarm, judgement

STEP = 450.0


def windows(view: MadeView, first: int, last: int, own: float, names: tuple[str, ...]) -> None:
    """Windows `first` to `last`, in which the first of `names` had that severity, and the others 1 to 1.2."""
    others = np.linspace(1.0, 1.2, len(names) - 1).tolist()
    for n in range(first, last):
        made = judgement("luns", names, [0] * len(names), [own, *others], [False] * len(names))
        end = NOW + STEP * n
        view.history.judged([replace(made, start=end - 2 * STEP, end=end)])


def slow(view: MadeView, name: str, since: int) -> None:
    made = replace(alarm("luns", name), since=NOW + STEP * (since - 2))
    view.alarms_[made.key] = made


NAMES = ("oss-1/a", "oss-2/b", "oss-3/c", "oss-4/d")


def test_the_band_is_of_the_others_alone() -> None:
    view = MadeView()
    windows(view, 0, 10, 1.0, NAMES)
    windows(view, 10, 20, 40.0, NAMES)
    slow(view, NAMES[0], 10)
    courses = Courses()
    assert courses.look(view)
    (key,) = view.alarms_
    course = courses.of(view.alarms_[key])
    assert course is not None
    assert course.end.tolist() == [NOW + STEP * n for n in range(20)]
    assert course.own.tolist() == [2.0] * 10 + [80.0] * 10
    assert course.high.max() < 2.4
    np.testing.assert_allclose(course.middle, 2.2, rtol=1e-6)
    np.testing.assert_allclose(course.low, 2.02, rtol=1e-6)


def test_the_children_of_a_slow_node_are_not_its_peers() -> None:
    view = MadeView()
    made = judgement(
        "luns",
        ("n1/a", "n1/b", "n2/a", "n3/a", "n4/a", "n1"),
        [0] * 6,
        [9.0, 9.0, 1.0, 1.0, 1.0, 9.0],
        [False] * 6,
    )
    view.history.judged([made])
    whole = replace(alarm("luns", "n1"), level="node")
    view.alarms_[whole.key] = whole
    courses = Courses()
    courses.look(view)
    course = courses.of(whole)
    assert course is not None
    assert (course.own[0], course.high[0]) == (18.0, 2.0)


def test_in_a_large_group_one_does_not_matter() -> None:
    view = MadeView()
    names = tuple(f"n{n}/a" for n in range(10 * MANY))
    windows(view, 0, 1, 40.0, names)
    slow(view, names[0], 0)
    courses = Courses()
    courses.look(view)
    course = courses.of(next(iter(view.alarms_.values())))
    assert course is not None
    assert course.own[0] == 80.0
    np.testing.assert_allclose([course.low[0], course.high[0]], [2.02, 2.38], rtol=1e-2)


def test_in_a_very_large_group_the_children_of_one_node_do_not_matter() -> None:
    view = MadeView()
    names = tuple(f"n{n}/a" for n in range(MANY * MANY))
    windows(view, 0, 1, 40.0, (*names, "n0"))
    whole = replace(alarm("luns", "n0"), level="node")
    view.alarms_[whole.key] = whole
    courses = Courses()
    courses.look(view)
    course = courses.of(whole)
    assert course is not None
    (column,) = view.history.columns("luns", "await")
    assert (course.low[0], course.high[0]) == (column.band[0], column.band[-1])


def test_it_goes_on_where_another_process_was_killed() -> None:
    view = MadeView()
    windows(view, 0, 20, 4.0, NAMES)
    slow(view, NAMES[0], 10)
    before = Courses()
    before.look(view)
    after = MadeView(alarms_=view.alarms_)
    windows(after, 21, 24, 5.0, NAMES)  # its history begins anew
    courses = Courses(before.state())
    assert not courses.look(after)
    course = courses.of(next(iter(view.alarms_.values())))
    assert course is not None
    assert course.end.tolist() == [NOW + STEP * n for n in [*range(20), *range(21, 24)]]


def test_days_are_kept_coarsely_with_the_moment_it_began() -> None:
    view = MadeView()
    slow(view, NAMES[0], 100)
    (since,) = (each.since for each in view.alarms_.values())
    windows(view, 0, 100, 1.0, NAMES)
    courses = Courses()
    for n in range(100, 3000, 50):
        windows(view, n, n + 50, 4.0, NAMES)
        courses.look(view)
    course = courses.of(next(iter(view.alarms_.values())))
    assert course is not None
    assert len(course.end) <= MAX_POINTS
    assert (course.end <= since).sum() == LEAD_WINDOWS
    assert course.end[-1] == NOW + STEP * 2999
    assert (np.diff(course.end) > 0).all()


def test_there_is_room_for_so_many_and_those_that_ended_leave() -> None:
    view = MadeView()
    windows(view, 0, 3, 4.0, NAMES)
    for n in range(MAX_COURSES + 50):
        slow(view, f"oss-{n}/x", n)
    courses = Courses()
    courses.look(view)
    assert len(courses.state()) == MAX_COURSES
    view.alarms_.clear()
    assert courses.look(view)
    assert courses.state() == {}


def test_what_is_no_course_is_left_out() -> None:
    assert Courses({"a": b"x", "b": b"", "c": bytes(40 * 1000)}).state() == {}
