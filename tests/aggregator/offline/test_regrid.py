"""Rows at any times in any order become one value a component and interval."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.offline.regrid import Rows, binned
from laggard_aggregator.offline.sample_grid import NS, Grid, windows_in_order
from tests.support.thorough import examples


def rows_of(
    times: Sequence[float],
    values: Sequence[float],
    component: Sequence[int] = (),
    load: Sequence[float] | None = None,
) -> Rows:
    places = list(component) or [0] * len(times)
    return Rows(
        group="g",
        components=tuple(f"c{n}" for n in range(max(places) + 1)),
        component=np.array(places, dtype=np.int32),
        time_ns=np.array([round(t * NS) for t in times], dtype=np.int64),
        metrics={"m": np.array(values, dtype=np.float64)},
        load={} if load is None else {"throughput": np.array(load, dtype=np.float64)},
        weight=None if load is None else "throughput",
    )


def intervals(grid: Grid) -> dict[int, float]:
    """The first component's values by the end of their interval, seconds."""
    index = (grid.blocks[:, None] * grid.block_samples + np.arange(grid.block_samples)).ravel()
    seconds = (index + 1) * grid.interval_ns // NS
    values = grid.metrics["m"][0]
    return {int(at): float(v) for at, v in zip(seconds, values, strict=True) if not np.isnan(v)}


def test_a_sample_belongs_to_the_interval_that_it_ends() -> None:
    assert intervals(binned(rows_of([15, 30, 60], [1, 2, 3]), 15 * NS, 4)) == {15: 1, 30: 2, 60: 3}


@pytest.mark.parametrize("phase", [0.0, 0.4, 3.0, 7.5, 11.0])
def test_jitter_around_a_steady_phase_leaves_one_sample_an_interval(phase: float) -> None:
    chance = np.random.default_rng(1)
    times = 15.0 * np.arange(1, 200) + phase + chance.uniform(-2, 2, 199)
    found = intervals(binned(rows_of(times.tolist(), list(range(199))), 15 * NS, 4))
    assert list(found.values()) == list(range(199))
    assert np.all(np.diff(list(found)) == 15)


def test_samples_that_share_an_interval_are_averaged_by_their_load() -> None:
    times, values = [1, 6, 11, 16], [10.0, 40.0, float("nan"), 7.0]
    assert intervals(binned(rows_of(times, values), 15 * NS, 4)) == {15: 25.0, 30: 7.0}
    by_load = binned(rows_of(times, values, load=[3.0, 1.0, 5.0, 0.0]), 15 * NS, 4)
    assert intervals(by_load) == {15: 17.5, 30: 7.0}
    assert by_load.load["throughput"][0, :2].tolist() == [3.0, 0.0]


def test_of_repeated_rows_the_last_counts() -> None:
    assert intervals(binned(rows_of([15, 15, 15], [1, 2, 3]), 15 * NS, 4)) == {15: 3}


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_the_order_of_rows_does_not_matter(data: st.DataObject) -> None:
    times = data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=40, unique=True))
    component = data.draw(st.lists(st.integers(0, 3), min_size=len(times), max_size=len(times)))
    values = [float(t % 97) for t in times]
    order = data.draw(st.permutations(range(len(times))))
    one = binned(rows_of([*(float(t) for t in times), 1.0], [*values, 0.0], [*component, 3]), 10 * NS, 6)
    other = binned(
        rows_of(
            [*(float(times[i]) for i in order), 1.0],
            [*(values[i] for i in order), 0.0],
            [*(component[i] for i in order), 3],
        ),
        10 * NS,
        6,
    )
    np.testing.assert_array_equal(one.blocks, other.blocks)
    np.testing.assert_allclose(one.metrics["m"], other.metrics["m"], rtol=1e-12)


def test_windows_end_at_multiples_of_the_shift_and_empty_ones_are_left_out() -> None:
    day = 86_400.0
    times = [30.0, 60.0, 90.0, day + 30.0]
    grid = binned(rows_of(times, [1, 2, 3, 4]), 30 * NS, 2)
    found = list(windows_in_order([grid], 4, {"g": 2}))
    assert [(w.start, w.end) for w in found] == [
        (-60.0, 60.0),
        (0.0, 120.0),
        (60.0, 180.0),
        (day - 60.0, day + 60.0),
        (day, day + 120.0),
    ]
    nan = float("nan")
    np.testing.assert_array_equal(found[1].metrics["m"], [[nan, nan, 1, 2, 3, nan]])
    np.testing.assert_array_equal(found[2].metrics["m"], [[1, 2, 3, nan, nan, nan]])
    assert found[0].history == 2
    assert grid.blocks.size == 3, "only stretches with data are kept"


def test_windows_of_all_groups_come_in_order_of_their_ends() -> None:
    first, second = (binned(rows_of([t, t + 300.0], [1, 2]), 30 * NS, 2) for t in (30.0, 90.0))
    found = list(windows_in_order([first, second], 2, {"g": 0}))
    assert [w.end for w in found] == sorted(w.end for w in found)
    assert len(found) == 4
