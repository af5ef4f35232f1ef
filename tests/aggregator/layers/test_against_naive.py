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


def columns(drawn: list[tuple[int, int, int, int]], done: list[int] | None = None) -> RequestColumns:
    """Reads from (start, size, begin, duration), of which `done` bytes moved."""
    start, size, begin, lasting = (np.array(each, np.int64) for each in zip(*drawn, strict=True))
    return RequestColumns.of(
        len(drawn),
        admit=begin,
        callback=begin + lasting,
        start=start,
        size=size,
        operation=np.full(len(drawn), READ),
        space=np.zeros(len(drawn)),
        **({} if done is None else {"done": np.array(done, np.int64)}),
    )


@given(DRAWN)
def test_concurrency(drawn: list[tuple[int, int, int, int]]) -> None:
    made = columns(drawn)
    found = outstanding(made.begin_ns, made.end)
    mean, busy, most = naive.concurrency([(begin, begin + lasting) for _, _, begin, lasting in drawn])
    assert found.most == most
    assert [found.mean, found.mean_busy] == pytest.approx([mean, busy])


@given(DRAWN, st.data())
def test_runs_and_streams(drawn: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    """Short requests count with what they moved, and one that moved nothing does not."""
    ordered = sorted(drawn, key=lambda each: each[2])
    done = [data.draw(st.integers(-1, size)) for _, size, _, _ in ordered]
    moved = [size if count < 0 else count for (_, size, _, _), count in zip(ordered, done, strict=True)]
    found = sequentiality(columns(ordered, done))
    accessed = [(start, size, count) for (start, size, _, _), count in zip(ordered, moved, strict=True)]
    assert found.run_bytes.tolist() == naive.runs(accessed)
    assert found.stream_bytes.tolist() == naive.streams([(start, count) for start, _, count in accessed])
    assert found.chains <= len(found.run_bytes)
    assert (found.chains > 0) == any(moved)


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
