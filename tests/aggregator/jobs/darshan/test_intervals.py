"""The sweep line: Fig. 3 of IOMiner, special cases, and random instances against brute force."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.darshan.intervals import busy_time, critical_path
from tests import naive_mining as naive

Interval = tuple[int, int]


def columns(intervals: list[Interval]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(intervals, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def path(intervals: list[Interval]) -> list[tuple[int, int, int]]:
    found = critical_path(*columns(intervals))
    return list(zip(found.place.tolist(), found.start.tolist(), found.end.tolist(), strict=True))


def test_figure_3() -> None:
    files = [(0, 10), (6, 12), (4, 8), (16, 18)]
    assert path(files) == [(0, 0, 10), (1, 10, 12), (3, 16, 18)]
    assert busy_time(*columns(files)) == 14


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(3, 3), (1, 2)], [(1, 1, 2)]),
        ([(0, 5), (5, 9)], [(0, 0, 5), (1, 5, 9)]),
        ([(2, 7), (2, 7), (2, 7)], [(0, 2, 7)]),
        ([(3, 4), (0, 9), (2, 5)], [(1, 0, 9)]),
        ([(0, 4), (1, 8), (2, 8), (3, 6)], [(0, 0, 4), (1, 4, 8)]),
        ([(-5, -2), (-3, 1)], [(0, -5, -2), (1, -2, 1)]),
    ],
    ids=["none", "zero", "zero beside", "touching", "identical", "nested", "equal ends", "negative"],
)
def test_special_cases(intervals: list[Interval], expected: list[tuple[int, int, int]]) -> None:
    assert path(intervals) == expected


def test_of_equal_ends_the_first_of_the_input_is_chosen_also_when_it_starts_later() -> None:
    assert path([(2, 8), (0, 4), (1, 8)]) == [(1, 0, 4), (0, 4, 8)]


def random_instances(count: int) -> list[list[Interval]]:
    chance = random.Random(1)
    made = []
    for _ in range(count):
        size = chance.randint(1, 8)
        starts = [chance.randint(0, 20) for _ in range(size)]
        made.append([(start, start + chance.randint(0, 9)) for start in starts])
    return made


def test_ten_thousand_random_instances_are_minimal_and_the_published_rules_are_not() -> None:
    worse = {"printed": 0, "released": 0}
    for intervals in random_instances(10_000):
        found = critical_path(*columns(intervals))
        assert found.place.size == naive.least_cover(intervals)
        cells = naive.covered(intervals)
        assert found.exclusive.sum() == len(cells)
        assert naive.covered([intervals[at] for at in found.place]) == cells
        worse["printed"] += len(naive.printed(intervals)) > found.place.size
        worse["released"] += len(naive.released(intervals)) > found.place.size
    assert min(worse.values()) > 100, worse


intervals_of_jobs = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=30
)


@given(intervals_of_jobs)
def test_groups_are_as_if_alone(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(sorted(rows, key=lambda row: row[0]), np.int64)
    groups, starts, ends = table[:, 0], table[:, 1], table[:, 1] + table[:, 2]
    together = critical_path(starts, ends, groups)
    for group in np.unique(groups):
        own = np.flatnonzero(groups == group)
        alone = critical_path(starts[own], ends[own])
        of = together.group == group
        assert together.place[of].tolist() == own[alone.place].tolist()
        assert together.start[of].tolist() == alone.start.tolist()
        assert together.end[of].tolist() == alone.end.tolist()


@given(intervals_of_jobs)
def test_busy_time_is_the_number_of_covered_cells(rows: list[tuple[int, int, int]]) -> None:
    intervals = [(start, start + width) for _, start, width in rows]
    assert busy_time(*columns(intervals)) == len(naive.covered(intervals))


@given(intervals_of_jobs, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter_with_keys(
    rows: list[tuple[int, int, int]], chance: random.Random
) -> None:
    """The chosen intervals: of those that started in time and end last, the least key."""
    keyed = list({(group, start, start + width): at for at, (group, start, width) in enumerate(rows)}.items())
    chance.shuffle(keyed)
    intervals = [(start, end) for (_, start, end), _ in keyed]
    keys = [np.array([group for (group, _, _), _ in keyed]), np.array([at for _, at in keyed])]
    found = critical_path(*columns(intervals), keys=keys)
    for place, begin in zip(found.place.tolist(), found.start.tolist(), strict=True):
        end = intervals[place][1]
        rivals = [at for at, each in enumerate(intervals) if each[0] <= begin and each[1] == end]
        assert place == min(rivals, key=lambda at: (keys[0][at], keys[1][at]))
        assert end == max(each[1] for each in intervals if each[0] <= begin)


def test_hostile_times_of_one_group_leave_the_others_alone() -> None:
    century = 3_600_000_000 * 24 * 36_525
    starts = np.array([0, 5, -century * 200, -century * 100, 7], np.int64)
    ends = np.array([10, 15, century * 1000, century * 900, 9], np.int64)
    groups = np.array([1, 1, 2, 3, 4])
    found = critical_path(starts, ends, groups)
    assert found.place.tolist() == [0, 1, 2, 3, 4]
    assert found.exclusive.tolist() == [10, 5, century * 1200, century * 1000, 2]
    assert found.group.tolist() == [1, 1, 2, 3, 4]
