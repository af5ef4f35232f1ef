"""The sweep line: Fig. 3 of IOMiner, special cases, and random instances against brute force."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.mining.intervals import busy_time, critical_path, merged, overlap, sole_time
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


@given(intervals_of_jobs, st.integers(0, 45), st.integers(0, 20))
def test_periods_overlaps_and_sole_time(rows: list[tuple[int, int, int]], low: int, length: int) -> None:
    intervals = [(start, start + width) for _, start, width in rows]
    starts, ends = columns(intervals)
    cells = naive.covered(intervals)
    begin, stop = merged(starts, ends)
    assert naive.covered(list(zip(begin.tolist(), stop.tolist(), strict=True))) == cells
    assert (begin[1:] > stop[:-1]).all()
    amount = overlap(starts, ends, np.array([low]), np.array([low + length]))
    assert amount.tolist() == [len(cells & set(range(low, low + length)))]
    of = np.array([group == 0 for group, _, _ in rows])
    rest = naive.covered([each for each, is_own in zip(intervals, of, strict=True) if not is_own])
    assert sole_time(starts, ends, of) == len(cells - rest)
