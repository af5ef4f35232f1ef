from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.spool.streams import RangeSet

pairs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def made(ranges: list[tuple[int, int]]) -> tuple[RangeSet, set[int]]:
    fast, slow = RangeSet(), set()
    for low, high in ranges:
        fast.add(low, high)
        slow |= set(range(low, high + 1))
    return fast, slow


@given(pairs, st.integers(0, 50), st.integers(0, 10))
def test_like_a_set(ranges: list[tuple[int, int]], low: int, length: int) -> None:
    fast, slow = made(ranges)
    asked = set(range(low, low + length + 1))
    assert fast.covers(low, low + length) == (asked <= slow)
    assert fast.count(low, low + length) == len(asked & slow)
    assert fast.first_missing(low) == next(i for i in range(low, 200) if i not in slow)


def test_neighbours_become_one() -> None:
    fast, _ = made([(i, i) for i in range(1000)])
    assert fast.pieces() == [(0, 999)]
