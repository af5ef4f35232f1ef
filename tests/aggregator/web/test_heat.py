"""Heat maps, against slow and obvious twins."""

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from laggard_aggregator.status.window_history import Column, WindowHistory
from laggard_aggregator.web.pages.charts import (
    GONE,
    OPEN,
    SLOW,
    SLOWER,
    SLOWEST,
    WELL,
    WIDE,
    drawing,
    heat,
    levels_of,
)
from tests.support.builders import live_status

NAN = float("nan")


def columns(*severities: dict[str, float], metric: str = "await") -> tuple[Column, ...]:
    history = WindowHistory()
    for at, window in enumerate(severities):
        names, values = tuple(window), list(window.values())
        judged = live_status.judgement("luns", names, [0] * len(names), values, [False] * len(names))
        history.judged([replace(judged, metric=metric, start=60.0 * at, end=60.0 * at + 60)])
    return history.columns("luns", metric)


def test_a_cell_says_how_a_component_stood() -> None:
    (column,) = columns({"well": 1.1, "wide": 1.4, "slow": 1.6, "slower": 2.0, "slowest": 5.0, "open": NAN})
    assert levels_of(column, column.factors(1)).tolist() == [WELL, WIDE, SLOW, SLOWER, SLOWEST, OPEN]


def test_without_a_factor_the_score_tells_how_bad_it_is() -> None:
    judged = live_status.judgement("luns", ("a", "b", "c"), [0] * 3, [1.0, 1.0, 1.0], [False] * 3)
    verdicts = replace(
        judged.verdicts,
        severity=np.full(3, NAN),
        anomalous=np.array([True, True, False]),
        score=np.array([1.2, 9.0, 0.5]),
    )
    history = WindowHistory()
    history.judged([replace(judged, verdicts=verdicts)])
    (column,) = history.columns("luns", "await")
    assert levels_of(column, column.factors(1)).tolist() == [SLOW, SLOWEST, WELL]


def test_components_that_come_and_go_keep_their_rows() -> None:
    found = heat([(columns({"a": 1.0, "b": 3.0}, {"b": 3.0}, {"c": 1.0, "a": NAN, "b": 1.0}), 1)])
    assert found.components == ("a", "b", "c")
    assert found.levels.tolist() == [[WELL, GONE, OPEN], [SLOWER, SLOWER, WELL], [GONE, GONE, WELL]]
    assert found.anomalous.tolist() == [0, 2, 0]
    assert found.windows.tolist() == [1, 3, 1]
    assert found.worst.tolist() == [1.0, 3.0, 1.0]


def test_of_several_metrics_a_cell_is_the_worst() -> None:
    slow = columns({"a": 1.0, "b": 2.5}, {"a": 1.0, "b": 1.0})
    wide = columns({"a": 1.4, "b": 1.0}, metric="w_await")
    assert heat([(slow, 1), (wide, 1)]).levels.tolist() == [[WIDE, WELL], [SLOWER, WELL]]


def test_the_worst_now_come_first_then_the_worst_before_then_by_name() -> None:
    found = heat(
        [(columns({"a": 1.0, "b": 1.0, "c": 9.0, "d": 1.0}, {"a": 1.0, "b": 2.5, "c": 1.0, "d": 1.0}), 1)]
    )
    assert [found.components[row] for row in found.by_severity()] == ["b", "c", "a", "d"]


def test_a_cell_is_of_its_window_and_not_of_the_average_over_several() -> None:
    """A step of 6 times, of which the average knows little yet; then a recovery that it has not followed."""
    judged = live_status.judgement("luns", ("a", "b"), [1, 0], [2.3, 1.0], [False] * 2)
    history = WindowHistory()
    for at, (observed, severity) in enumerate(((12.0, 2.3), (2.0, 5.3))):
        verdicts = replace(
            judged.verdicts, severity=np.array([severity, 1.0]), observed=np.array([observed, 2.0])
        )
        history.judged([replace(judged, start=60.0 * at, end=60.0 * at + 60, verdicts=verdicts)])
    found = heat([(history.columns("luns", "await"), 1)])
    assert found.levels[0].tolist() == [SLOWEST, SLOW]
    assert (found.worst[0], found.latest[0]) == (6.0, 1.0)


def test_nothing_yet_is_an_empty_map() -> None:
    found = heat([((), 1)])
    assert (found.components, found.levels.shape) == ((), (0, 0))
    assert "<path" not in drawing(found.levels, "", "map")


@pytest.mark.parametrize("count", [1, 95, 96, 97, 150, 191, 192])
def test_of_many_windows_each_column_is_the_worst_of_neighbours(count: int) -> None:
    chance = np.random.default_rng(count)
    anomalous = set(chance.choice(count, 5).tolist())
    found = heat([(columns(*({"a": 3.0 if at in anomalous else 1.0} for at in range(count))), 1)])
    assert len(found.ends) == len(found.starts) <= 96
    assert found.ends[-1] == 60.0 * count
    assert found.starts[0] == 0.0
    for level, start, end in zip(found.levels[0], found.starts, found.ends, strict=True):
        inside = {at for at in range(count) if start <= 60.0 * at < end}
        assert inside
        assert (level == SLOWER) == bool(inside & anomalous)


def cells(path: str) -> NDArray[np.bool_]:
    """What a path of a drawing covers, of 30 times 40 cells."""
    covered = np.zeros((30, 40), dtype=np.bool_)
    for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path):
        row = covered[int(y)]
        assert not row[int(x) : int(x) + int(width)].any()
        row[int(x) : int(x) + int(width)] = True
    return covered


def test_a_drawing_covers_each_cell_once_in_its_level() -> None:
    levels = np.random.default_rng(1).integers(0, 7, (30, 40)).astype(np.uint8)
    svg = drawing(levels, 'a "label" <here>', "map")
    assert 'aria-label="a &#34;label&#34; &lt;here&gt;"' in svg
    for level in range(1, 7):
        (path,) = re.findall(rf'class="l{level}" d="([^"]*)"', svg)
        np.testing.assert_array_equal(cells(path), levels == level)


def test_a_quiet_group_of_any_size_is_a_few_bytes() -> None:
    assert len(drawing(np.full((1000, 96), WELL, dtype=np.uint8), "", "map")) < 25_000


def test_the_columns_and_the_axis_have_the_times_of_the_windows() -> None:
    found = heat([(columns(*({"a": 1.0} for _ in range(8))), 1)])
    edges = np.cumsum([float(step) for step in found.spans.split()])
    np.testing.assert_array_equal(edges.reshape(-1, 2), np.stack([found.starts, found.ends], axis=1))
    assert found.times == (0.0, 120.0, 240.0, 360.0)
    assert (heat([((), 1)]).spans, heat([((), 1)]).times) == ("", ())
