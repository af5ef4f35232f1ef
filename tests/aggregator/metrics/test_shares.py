"""Steadied shares: against the naive twin, and what chance makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from laggard_aggregator.metrics.shares import STRENGTH, steadied_share
from tests.naive_metrics import share_over_time

HARMLESS = 0.001
NAN = float("nan")
COUNTS = st.one_of(st.just(NAN), st.integers(0, 10**6).map(float))


@given(data=st.data(), intervals=st.integers(1, 12))
def test_it_is_the_naive_twins(data: st.DataObject, intervals: int) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=2, max_dims=2, max_side=7))
    events, trials = (data.draw(arrays.arrays(np.float64, shape, elements=COUNTS)) for _ in range(2))
    expected = share_over_time(events.tolist(), trials.tolist(), HARMLESS, intervals, STRENGTH)
    found = steadied_share(events, trials, HARMLESS, intervals)
    np.testing.assert_allclose(found, np.array(expected).reshape(shape), rtol=1e-9)


@pytest.mark.parametrize("usual", [0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("trials", [10, 1_000, 10_000, 100_000, 10_000_000])
def test_healthy_members_are_alike_whatever_they_do_and_whatever_is_usual(usual: float, trials: int) -> None:
    chance = np.random.default_rng((trials, int(usual * 1e6)))
    tried = np.full((400, 30), trials / 30)
    found = steadied_share(chance.poisson(usual * tried).astype(float), tried, HARMLESS, 30)[:, -1]
    assert np.log(found / np.median(found)).std() < 1.1 / (4.0 * np.sqrt(STRENGTH))


def test_loss_shows_where_little_is_sent_too() -> None:
    """5 % of the 80 segments with data in half a minute, of a server that is written to."""
    tried = np.full((10, 30), 80 / 30)
    events = np.zeros_like(tried)
    events[3, ::8] = 1.0
    found = steadied_share(events, tried, HARMLESS, 30)[:, -1]
    assert found[3] / np.median(found) > 1.3


def test_one_event_is_none() -> None:
    tried = np.full((10, 30), 5.0)
    events = np.zeros_like(tried)
    events[3, 7] = 1.0
    found = steadied_share(events, tried, HARMLESS, 30)
    assert np.log(found[3] / found[2]).max() < 0.1


def test_who_tried_nothing_is_as_the_middle() -> None:
    tried = np.full((5, 3), 1e6)
    tried[4] = 0.0
    found = steadied_share(tried * 0.01, tried, HARMLESS, 3)
    assert found[:, -1] == pytest.approx(np.full(5, 0.011))
