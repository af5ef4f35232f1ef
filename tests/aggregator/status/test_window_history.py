"""What the last windows said, kept for pages and mails."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.status.window_history import (
    ABSENT,
    ANOMALOUS,
    BAND,
    MAX_WINDOWS,
    NORMAL,
    UNJUDGED,
    Members,
    WindowHistory,
    bands,
    places,
)
from tests.support.builders import live_status

NAN = float("nan")


def window(at: int, severities: dict[str, float]) -> Judgement:
    judged = live_status.judgement(
        "luns", tuple(severities), [0] * len(severities), list(severities.values()), [False] * len(severities)
    )
    return replace(judged, start=60.0 * at, end=60.0 * at + 60)


def test_a_course_goes_on_while_components_come_and_go_and_change_places() -> None:
    history = WindowHistory()
    history.judged([window(1, {"a": 1.0, "b": 2.0})])
    history.judged([window(2, {"b": 3.0})])
    history.judged([window(3, {"c": 1.0, "b": NAN, "a": 1.25})])
    course = history.course("luns", "await", "a")
    assert course.end.tolist() == [120, 180, 240]
    assert course.state.tolist() == [NORMAL, ABSENT, NORMAL]
    np.testing.assert_array_equal(course.severity, [1.0, NAN, 1.25])
    np.testing.assert_array_equal(course.observed, [2.0, NAN, 2.5])
    assert history.course("luns", "await", "b").state.tolist() == [ANOMALOUS, ANOMALOUS, UNJUDGED]


def test_windows_with_the_same_components_share_their_names() -> None:
    history = WindowHistory()
    for at, names in enumerate(("ab", "abc", "b", "b")):
        history.judged([window(at, dict.fromkeys(names, 1.0))])
    columns = history.columns("luns", "await")
    assert places(columns, "b") == [1, 1, 0, 0]
    assert places(columns, "c") == [-1, 2, -1, -1]
    assert columns[3].names is columns[2].names


def test_shared_names_are_read_once_for_any_number_of_components() -> None:
    class Names(tuple[str, ...]):
        read = 0

        def __contains__(self, name: object) -> bool:
            Names.read += 1
            return super().__contains__(name)

        def __iter__(self) -> Iterator[str]:
            Names.read += 1
            return super().__iter__()

    history = WindowHistory()
    history.judged([window(1, {"a": 1.0, "b": 2.0})])
    members = Members(Names(("a", "b")))
    columns = [replace(column, members=members) for column in history.columns("luns", "await")] * 48
    for _ in range(10):
        assert places(columns, "b") == [1] * 48
        assert places(columns, "c") == [-1] * 48
    assert Names.read == 1


def test_the_band_is_the_quantiles_of_the_peers_without_their_parents() -> None:
    judged = window(1, {f"n/{at}": 1.0 + at for at in range(21)} | {"n": 1000.0})
    judged = replace(judged, levels=("component",) * 21 + ("node",))
    history = WindowHistory()
    history.judged([judged])
    (band,) = history.course("luns", "await", "n/0").band
    assert band.tolist() == pytest.approx(np.quantile(2.0 * (1.0 + np.arange(21)), BAND).tolist())


def test_one_straggler_among_few_does_not_widen_the_band() -> None:
    values = np.array([[1.0, 2.0, NAN], [3.0, 1.0, NAN], [100.0, 9.0, np.inf], [2.0, NAN, NAN]])
    found = bands(values)
    np.testing.assert_array_equal(found[0], [2.0, 2.0, 2.5, 3.0, 3.0])
    np.testing.assert_array_equal(found[1], [2.0, 2.0, 2.0, 2.0, 2.0])
    assert np.isnan(found[2]).all()


def test_a_group_without_a_figure_has_no_band() -> None:
    history = WindowHistory()
    history.judged([live_status.unjudged("luns", ("a", "b"), "too few members")])
    assert np.isnan(history.course("luns", "await", "a").band).all()
    assert history.columns("luns", "await")[0].note == "too few members"


def test_what_is_not_known_has_no_windows() -> None:
    history = WindowHistory()
    history.judged([window(1, {"a": 1.0})])
    assert history.course("luns", "await", "other").state.tolist() == [ABSENT]
    assert history.course("others", "await", "a").end.size == 0
    assert history.samples("luns") is None


def test_the_oldest_windows_of_the_largest_course_go_first() -> None:
    history = WindowHistory(max_cells=10)
    for at in range(9):
        history.judged([window(at, {"a": 1.0})])
    history.judged([replace(window(9, {"b": 1.0, "c": 1.0}), group="others")])
    assert [column.end for column in history.columns("luns", "await")] == [
        60.0 * at + 60 for at in range(1, 9)
    ]
    assert len(history.columns("others", "await")) == 1
    for at in range(MAX_WINDOWS + 5):
        history = history if at else WindowHistory()
        history.judged([window(at, {"a": 1.0})])
    assert len(history.columns("luns", "await")) == MAX_WINDOWS


def test_a_small_group_keeps_its_windows_beside_a_large_one() -> None:
    history = WindowHistory(max_cells=50)
    for at in range(20):
        history.judged([window(at, {"a": 1.0})])
        history.judged([replace(window(at, dict.fromkeys("bcdefghijk", 1.0)), group="others")])
    assert len(history.columns("luns", "await")) == 20
    assert [column.end for column in history.columns("others", "await")] == [1080, 1140, 1200]
    history.judged([replace(window(1, dict.fromkeys(map(str, range(99)), 1.0)), group="huge")])
    assert history.columns("huge", "await") == ()
    assert len(history.columns("luns", "await")) == 20


def test_a_window_that_is_judged_again_is_there_once() -> None:
    history = WindowHistory(max_cells=3)
    for at, severity in ((1, 1.0), (2, 1.0), (3, 1.0), (2, 5.0)):
        history.judged([window(at, {"a": severity})])
    course = history.course("luns", "await", "a")
    assert (course.end.tolist(), course.severity.tolist()) == ([120, 180], [1.0, 5.0])
    history.judged([window(3, {"a": 1.0})])
    assert len(history.columns("luns", "await")) == 3  # there was room for it again


def test_what_is_frozen_stays_as_it_was() -> None:
    history = WindowHistory()
    history.judged([window(1, {"a": 1.0})])
    frozen = history.frozen()
    history.judged([window(2, {"a": 1.0})])
    assert len(frozen.columns("luns", "await")) == 1
    assert len(history.columns("luns", "await")) == 2


def test_the_samples_of_the_latest_window_are_kept_unless_they_are_too_many() -> None:
    def of(group: str, components: int) -> GroupWindow:
        names = tuple(f"{group}/{at}" for at in range(components))
        values = np.arange(components * 4.0).reshape(components, 4)
        return GroupWindow(group, names, 60.0, 120.0, 1, {"await": values}, worse={"await": 1})

    history = WindowHistory(max_samples=16)
    history.judged((), of("luns", 4))
    samples = history.samples("luns")
    assert samples is not None
    assert (samples.history, samples.metrics["await"].shape, samples.worse) == (1, (4, 4), {"await": 1})
    history.judged((), of("luns", 5))
    assert history.samples("luns") is None
    for at in range(6):
        history.judged((), of(f"g{at}", 4))
    assert [history.samples(f"g{at}") is not None for at in range(6)] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]


def test_more_than_a_float_can_hold_is_the_most_it_can() -> None:
    history = WindowHistory()
    history.judged([window(1, {"a": 1e300})])
    assert np.isfinite(history.course("luns", "await", "a").severity).all()
