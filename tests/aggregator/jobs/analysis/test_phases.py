"""Phases of a job: spans, edges, gaps, backgrounds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.jobs.verdict.analysis.phases import METHODS, Phase, find_phases
from laggard_aggregator.jobs.verdict.analysis.rate_series import LONGEST_GAP, rate_series
from laggard_aggregator.jobs.verdict.analysis.spans import closed, refined, runs, united
from laggard_aggregator.jobs.verdict.analysis.wavelet import denoised, low_pass
from tests import naive_phases
from tests.support.thorough import examples

MIB = 2.0**20
AMOUNTS = st.floats(0, 1e12, allow_nan=False)


def series_of(spans: list[tuple[int, int]], rows: int = 600, level: float = 500 * MIB) -> np.ndarray:
    """Rows with bursts of even rate."""
    amounts = np.zeros(rows)
    for first, past in spans:
        amounts[first:past] = level
    return amounts


def found(amounts: np.ndarray, direction: str = "write", method: str = METHODS[0]) -> list[Phase]:
    """The phases of one row a second."""
    return find_phases(rate_series(np.arange(amounts.size), amounts), direction, method)


def test_bursts_are_found_to_the_row() -> None:
    assert [(p.start, p.end, p.amount) for p in found(series_of([(100, 130), (300, 303)]))] == [
        (99.5, 129.5, 30 * 500 * MIB),
        (299.5, 302.5, 3 * 500 * MIB),
    ]


@pytest.mark.parametrize("direction", ["read", "write", "metadata"])
def test_nothing_done_is_no_phase(direction: str) -> None:
    assert found(np.zeros(600), direction) == []


def test_a_background_alone_is_no_phase() -> None:
    rng = np.random.default_rng(8)
    assert found(rng.gamma(1, 2e4, 3000), "read") == []
    assert found(rng.poisson(3, 3000).astype(float), "metadata") == []


def test_a_job_that_streams_all_the_time_is_one_phase() -> None:
    (phase,) = found(np.full(500, 80 * MIB))
    assert (phase.start, phase.end) == (-0.5, 499.5)


def test_a_job_that_is_slow_at_first_is_one_phase() -> None:
    """A third of its rate for two thirds of its time is no background."""
    amounts = np.concatenate([np.full(1300, 200 * MIB), np.full(700, 680 * MIB)])
    (phase,) = found(amounts)
    assert (phase.start, phase.end, phase.amount) == (-0.5, 1999.5, amounts.sum())


def test_a_stall_of_two_seconds_is_part_of_the_phase() -> None:
    amounts = series_of([(100, 160)])
    amounts[120:122] = 0
    assert len(found(amounts)) == 1
    amounts[120:130] = 0
    assert len(found(amounts)) == 2


def test_a_weak_phase_beside_strong_ones_is_found() -> None:
    amounts = series_of([(100, 160), (300, 360)])
    amounts[450:500] = 15 * MIB
    assert [round(p.start + 0.5) for p in found(amounts)] == [100, 300, 450]


def test_a_gap_inside_is_unknown_and_no_pause() -> None:
    amounts = series_of([(100, 160)])
    amounts[120:128] = np.nan
    (phase,) = found(amounts)
    assert (phase.start, phase.end, phase.unknown_seconds) == (99.5, 159.5, 8)
    assert phase.amount == 52 * 500 * MIB


def test_the_row_after_a_gap_may_hold_the_amount_of_the_gap() -> None:
    amounts = series_of([(100, 160)])
    amounts[120:128] = np.nan
    amounts[128] = 9 * 500 * MIB
    (phase,) = found(amounts)
    assert (phase.start, phase.end, phase.amount) == (99.5, 159.5, 60 * 500 * MIB)


def test_a_gap_of_years_costs_no_memory() -> None:
    times = np.concatenate((np.arange(100), np.arange(100) + 1e9))
    series = rate_series(times, np.tile(series_of([(20, 40)], 100), 2))
    assert series.size == 200 + LONGEST_GAP - 1
    assert [p.start for p in find_phases(series, "write")] == [19.5, 1e9 + 19.5]


def test_rows_in_any_order_and_twice() -> None:
    amounts = series_of([(100, 130)])
    order = np.random.default_rng(3).permutation(600)
    times, halves = np.concatenate((order, order)), np.concatenate((amounts[order], amounts[order])) / 2
    assert find_phases(rate_series(times, halves), "write") == found(amounts)


def test_a_row_every_ten_seconds() -> None:
    series = rate_series(np.arange(0, 6000, 10), series_of([(100, 130)]))
    assert [(p.start, p.end) for p in find_phases(series, "write")] == [(995, 1295)]


def test_one_row_is_no_series() -> None:
    with pytest.raises(ValueError, match="fewer than two rows"):
        rate_series([1, 1], [5, 5])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(AMOUNTS | st.just(float("nan")) | st.just(0.0), min_size=2, max_size=200),
    st.sampled_from(METHODS),
)
def test_phases_are_in_order_apart_and_of_their_rows(amounts: list[float], method: str) -> None:
    values = np.array(amounts)
    if np.isfinite(values).sum() < 2:
        return
    series = rate_series(np.arange(values.size), values)
    for direction in ("read", "metadata"):
        phases = find_phases(series, direction, method)
        assert all(a.end <= b.start for a, b in pairwise(phases))
        for phase in phases:
            inside = (series.times > phase.start) & (series.times < phase.end)
            assert phase.amount == pytest.approx(series.amounts[inside].sum(), rel=1e-6, abs=1e-3)
            assert 0 <= phase.unknown_seconds <= phase.end - phase.start


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(AMOUNTS, min_size=2, max_size=80))
def test_denoised_is_its_twin(values: list[float]) -> None:
    expected = naive_phases.haar_denoised(values)
    np.testing.assert_allclose(denoised(np.array(values)), expected, rtol=1e-9, atol=1e-6 * (1 + max(values)))


@given(st.lists(AMOUNTS, min_size=1, max_size=80))
def test_the_low_pass_keeps_the_mean_of_whole_blocks(values: list[float]) -> None:
    smooth = low_pass(np.array(values))
    whole = len(values) // 8 * 8
    assert smooth.shape == (len(values),)
    assert smooth[:whole].sum() == pytest.approx(sum(values[:whole]), rel=1e-9, abs=1e-6)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=600),
    st.integers(0, 2),
    st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_refined_is_its_twin(rate: list[int], bound: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(rate) - 1))
    past = data.draw(st.integers(first + 1, len(rate)))
    is_open = data.draw(st.lists(st.booleans(), min_size=len(rate), max_size=len(rate)))
    values = [float(r) for r in rate]
    expected = naive_phases.refined((first, past), values, bound, is_open)
    span = refined((first, past), np.array(values), bound, np.array(is_open))
    assert span == expected or (span[0] == span[1] and expected[0] == expected[1])


def test_runs_pauses_unions() -> None:
    mask = np.array([1, 1, 0, 0, 1, 0, 0, 0, 1], np.bool_)
    assert runs(mask) == [(0, 2), (4, 5), (8, 9)]
    assert closed(runs(mask), np.ones(9, np.bool_)) == [(0, 5), (8, 9)]
    assert united([(0, 3), (2, 5), (5, 5), (6, 7)]) == [(0, 5), (6, 7)]


def test_the_rows_of_the_caller_are_not_changed() -> None:
    amounts = series_of([(100, 130), (300, 303)])
    amounts += np.random.default_rng(4).gamma(1, MIB, amounts.size)
    before = amounts.copy()
    found(amounts)
    np.testing.assert_array_equal(amounts, before)


def test_rows_at_one_distance_are_those_of_uneven_ones() -> None:
    """Even rows need no median of distances; a jitter far below the step changes no place."""
    rng = np.random.default_rng(6)
    amounts, times = rng.gamma(1, MIB, 500), np.arange(500.0)
    even, uneven = rate_series(times, amounts), rate_series(times + rng.uniform(-1e-3, 1e-3, 500), amounts)
    np.testing.assert_array_equal(even.place, uneven.place)
    assert even.size == uneven.size
    assert even.step == pytest.approx(uneven.step, rel=0.01)


QCD_READ = [0] * 9 + [9228, 5204] + [0] * 10 + [8468, 5966] + [0] * 10 + [4596, 9320, 517] + [0] * 10
"""MiB in ten seconds: 15.7 s of reading at 919 MiB/s after each 85 s of computing."""


def test_short_phases_at_a_high_rate_are_found_in_few_long_rows() -> None:
    amounts = np.array(QCD_READ) * MIB
    phases = find_phases(rate_series(np.arange(amounts.size) * 10.0, amounts), "read")
    assert [(p.start, p.end) for p in phases] == [(85, 105), (205, 225), (325, 355)]
    assert sum(p.amount for p in phases) == amounts.sum()
    assert all(p.rate == pytest.approx(919 * MIB, rel=0.09) for p in phases)


def test_a_phase_shorter_than_a_row_may_lie_in_two_of_them() -> None:
    """Reads of 8 s in rows of ten."""
    amounts = np.zeros(65)
    for first, parts in ((11, (1724, 5412)), (24, (3351, 3785)), (37, (5242, 1894)), (50, (7136,))):
        amounts[first : first + len(parts)] = np.array(parts) * MIB
    phases = find_phases(rate_series(np.arange(65) * 10.0, amounts), "read")
    assert [round(p.start + 5) // 10 for p in phases] == [11, 24, 37, 50]
    assert sum(p.amount for p in phases) == amounts.sum()
    assert not phases[-1].is_timed


def test_rare_blips_of_a_log_file_are_no_phases() -> None:
    rng = np.random.default_rng(5)
    amounts = np.where(rng.random(600) < 0.05, rng.gamma(2, 0.1 * MIB, 600), 0.0)
    assert found(amounts) == []


def test_rates_are_by_the_time_in_which_bytes_moved() -> None:
    """Readings every five rows spread the first and last bytes over rows in which nothing moved."""
    amounts = np.zeros(300)
    for first in (100, 200):
        amounts[first : first + 20] = 500 * MIB
    spread = np.repeat(np.roll(amounts, 3).reshape(-1, 5).mean(axis=1), 5)
    phases = find_phases(rate_series(np.arange(300), spread), "write", reading_seconds=5.0)
    assert [p.end - p.start for p in phases] == [25, 25]
    assert [p.busy_seconds for p in phases] == pytest.approx([20, 20])
    assert [p.rate for p in phases] == pytest.approx([500 * MIB] * 2)


def test_a_noise_that_goes_on_all_the_time_is_one_phase_from_1_mib_a_second_on() -> None:
    rng = np.random.default_rng(9)
    (phase,) = found(rng.gamma(1, 50 * MIB, 600))
    assert (phase.start, phase.end) == (-0.5, 599.5)
