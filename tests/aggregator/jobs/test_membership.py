"""The interval map divides increments as its slow twin does, moment by moment."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.join.membership import Membership, NodeNames, Occupation
from tests.naive_jobs import naive_division

SECOND = 10**9
ORIGIN = 1_800_000_000 * SECOND

held = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 40)), max_size=6)
spans = st.lists(st.tuples(st.integers(0, 45), st.integers(1, 15)), min_size=1, max_size=8)


@given(held=held, increments=spans)
def test_increments_are_divided_as_by_the_twin(
    held: list[tuple[int, int, int]], increments: list[tuple[int, int]]
) -> None:
    occupations = [
        Occupation(job, "n", ORIGIN + first * SECOND, ORIGIN + last * SECOND) for job, first, last in held
    ]
    other = Occupation(9, "m", ORIGIN, ORIGIN + 100 * SECOND)
    found = Membership([*occupations, other], ORIGIN - SECOND)
    begin = np.array([ORIGIN + first * SECOND for first, _ in increments])
    end = begin + np.array([length * SECOND for _, length in increments])
    pieces = found.divide(np.full(begin.size, found.number("n")), begin, end)
    shares: dict[int, dict[frozenset[int], float]] = defaultdict(lambda: defaultdict(float))
    for row, state, (low, high) in zip(
        pieces.row.tolist(), pieces.state.tolist(), pieces.share.tolist(), strict=True
    ):
        shares[row][frozenset(found.jobs_of[state])] += high - low
    for row, (first, length) in enumerate(increments):
        wanted = naive_division(held, first, first + length)
        every = sum(wanted.values())
        assert shares[row] == pytest.approx({jobs: count / every for jobs, count in wanted.items()})


def test_names_that_several_nodes_have_are_none_of_theirs() -> None:
    names = NodeNames(["n1.a", "n1.b", "N2"])
    assert [names.of(each) for each in ("n1", "n2.example", "n1.a", "n3")] == ["n1", "N2", "n1.a", "n3"]
