from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.notify.incidents import (
    LARGE_GROUP,
    LEAD_WINDOWS,
    MAX_POINTS,
    MAX_TIMELINES,
    AlarmTimelines,
)
from tests.support.builders.live_status import NOW, MadeView, alarm, judgement

STEP = 450.0


def windows(view: MadeView, first: int, last: int, own: float, names: tuple[str, ...]) -> None:
    """Windows `first` to `last`, in which the first of `names` had that severity, and the others 1 to 1.2."""
    others = np.linspace(1.0, 1.2, len(names) - 1).tolist()
    for n in range(first, last):
        made = judgement("luns", names, [0] * len(names), [own, *others], [False] * len(names))
        end = NOW + STEP * n
        view.history.judged([replace(made, start=end - 2 * STEP, end=end)])
        view.revision += 1


def slow(view: MadeView, name: str, since: int) -> None:
    made = replace(alarm("luns", name), since=NOW + STEP * (since - 2))
    view.alarms_[made.key] = made


def of(timelines: AlarmTimelines, alarm: Alarm) -> SimpleNamespace:
    columns = timelines.of(alarm).T
    return SimpleNamespace(**dict(zip(("end", "own", "low", "median", "high"), columns, strict=True)))


NAMES = ("oss-1/a", "oss-2/b", "oss-3/c", "oss-4/d")


def test_the_band_is_of_the_others_alone() -> None:
    view = MadeView()
    windows(view, 0, 10, 1.0, NAMES)
    windows(view, 10, 20, 40.0, NAMES)
    slow(view, NAMES[0], 10)
    timelines = AlarmTimelines()
    timelines.update(view)
    assert timelines.unsaved
    (key,) = view.alarms_
    timeline = of(timelines, view.alarms_[key])
    assert timeline.end.tolist() == [NOW + STEP * n for n in range(20)]
    assert timeline.own.tolist() == [2.0] * 10 + [80.0] * 10
    assert timeline.high.max() < 2.4
    np.testing.assert_allclose(timeline.median, 2.2, rtol=1e-6)
    np.testing.assert_allclose(timeline.low, 2.02, rtol=1e-6)


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
    timelines = AlarmTimelines()
    timelines.update(view)
    timeline = of(timelines, whole)
    assert (timeline.own[0], timeline.high[0]) == (18.0, 2.0)


def test_in_a_large_group_one_does_not_matter() -> None:
    view = MadeView()
    names = tuple(f"n{n}/a" for n in range(10 * LARGE_GROUP))
    windows(view, 0, 1, 40.0, names)
    slow(view, names[0], 0)
    timelines = AlarmTimelines()
    timelines.update(view)
    timeline = of(timelines, next(iter(view.alarms_.values())))
    assert timeline.own[0] == 80.0
    np.testing.assert_allclose([timeline.low[0], timeline.high[0]], [2.02, 2.38], rtol=1e-2)


def test_in_a_very_large_group_the_children_of_one_node_do_not_matter() -> None:
    view = MadeView()
    names = tuple(f"n{n}/a" for n in range(LARGE_GROUP * LARGE_GROUP))
    windows(view, 0, 1, 40.0, (*names, "n0"))
    whole = replace(alarm("luns", "n0"), level="node")
    view.alarms_[whole.key] = whole
    timelines = AlarmTimelines()
    timelines.update(view)
    timeline = of(timelines, whole)
    (column,) = view.history.columns("luns", "await")
    assert (timeline.low[0], timeline.high[0]) == (column.band[0], column.band[-1])


def test_it_goes_on_where_another_process_was_killed() -> None:
    view = MadeView()
    windows(view, 0, 20, 4.0, NAMES)
    slow(view, NAMES[0], 10)
    before = AlarmTimelines()
    before.update(view)
    after = MadeView(alarms_=view.alarms_)
    windows(after, 21, 24, 5.0, NAMES)  # its history begins anew
    timelines = AlarmTimelines(before.state())
    timelines.update(after)
    assert not timelines.unsaved
    timeline = of(timelines, next(iter(view.alarms_.values())))
    assert timeline.end.tolist() == [NOW + STEP * n for n in [*range(20), *range(21, 24)]]


def test_days_are_kept_coarsely_with_the_moment_it_began() -> None:
    view = MadeView()
    slow(view, NAMES[0], 100)
    (since,) = (each.since for each in view.alarms_.values())
    windows(view, 0, 100, 1.0, NAMES)
    timelines = AlarmTimelines()
    for n in range(100, 3000, 50):
        windows(view, n, n + 50, 4.0, NAMES)
        timelines.update(view)
    timeline = of(timelines, next(iter(view.alarms_.values())))
    assert len(timeline.end) <= MAX_POINTS
    assert (timeline.end <= since).sum() == LEAD_WINDOWS
    assert timeline.end[-1] == NOW + STEP * 2999
    assert (np.diff(timeline.end) > 0).all()


def test_there_is_room_for_so_many_and_those_that_ended_leave() -> None:
    view = MadeView()
    windows(view, 0, 3, 4.0, NAMES)
    for n in range(MAX_TIMELINES + 50):
        slow(view, f"oss-{n}/x", n)
    timelines = AlarmTimelines()
    timelines.update(view)
    assert len(timelines.state()) == MAX_TIMELINES
    view.alarms_.clear()
    view.revision += 1
    timelines.update(view)
    assert timelines.unsaved
    assert timelines.state() == {}


def test_what_is_no_timeline_is_left_out() -> None:
    assert AlarmTimelines({"a": b"x", "b": b"", "c": bytes(40 * 1000)}).state() == {}
