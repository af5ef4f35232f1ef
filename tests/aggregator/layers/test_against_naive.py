"""Characteristics and matching against slow twins, over drawn requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.layers.characteristics import outstanding, sequentiality
from laggard_aggregator.layers.columns import READ, RequestColumns
from laggard_aggregator.layers.matching import MatchKind, match_by_address
from tests import naive_layers as naive

TIMES = st.integers(0, 60)
DRAWN = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), TIMES, st.integers(1, 20)), min_size=1, max_size=14
)


def columns(drawn: list[tuple[int, int, int, int]]) -> RequestColumns:
    """Reads from (start, size, begin, duration)."""
    start, size, begin, lasting = (np.array(each, np.int64) for each in zip(*drawn, strict=True))
    return RequestColumns.of(
        len(drawn),
        admit=begin,
        callback=begin + lasting,
        start=start,
        size=size,
        operation=np.full(len(drawn), READ),
        space=np.zeros(len(drawn)),
    )


@given(DRAWN)
def test_concurrency(drawn: list[tuple[int, int, int, int]]) -> None:
    made = columns(drawn)
    found = outstanding(made.begin_ns, made.end)
    mean, busy, most = naive.concurrency([(begin, begin + lasting) for _, _, begin, lasting in drawn])
    assert found.most == most
    assert [found.mean, found.mean_busy] == pytest.approx([mean, busy])


@given(DRAWN)
def test_runs_and_streams(drawn: list[tuple[int, int, int, int]]) -> None:
    ordered = sorted(drawn, key=lambda each: each[2])
    ranges = [(start, size) for start, size, _, _ in ordered]
    found = sequentiality(columns(ordered))
    assert found.run_bytes.tolist() == naive.runs(ranges)
    assert found.stream_bytes.tolist() == naive.streams(ranges)
    assert 1 <= found.chains <= len(found.run_bytes)


@given(DRAWN, DRAWN)
def test_kinds_of_reads(
    upper: list[tuple[int, int, int, int]], lower: list[tuple[int, int, int, int]]
) -> None:
    below = [(start, size, begin, begin + lasting) for start, size, begin, lasting in lower]
    found = match_by_address(columns(upper), columns(lower))
    for at, (start, size, begin, lasting) in enumerate(upper):
        assert MatchKind(found.kind[at]).name.lower() == naive.read_kind(
            (start, size, begin, begin + lasting), below
        )


@given(DRAWN, DRAWN)
def test_matched_pairs_share_bytes(
    upper: list[tuple[int, int, int, int]], lower: list[tuple[int, int, int, int]]
) -> None:
    found = match_by_address(columns(upper), columns(lower))
    for u, low, kind in zip(
        found.upper.tolist(), found.lower.tolist(), found.pair_kind.tolist(), strict=True
    ):
        assert max(upper[u][0], lower[low][0]) < min(sum(upper[u][:2]), sum(lower[low][:2]))
        begins, ends = (upper[u][2], lower[low][2]), (sum(upper[u][2:]), sum(lower[low][2:]))
        if kind == MatchKind.NESTED:
            assert begins[0] <= begins[1] <= ends[0]
        else:
            assert begins[1] < begins[0]
            assert (ends[1] <= begins[0]) == (kind == MatchKind.HIT)
