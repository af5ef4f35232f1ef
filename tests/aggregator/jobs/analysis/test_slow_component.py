"""Slow components within a job."""

import numpy as np
import pytest

from laggard_aggregator.jobs.verdict.analysis.slow_component import (
    LEAST_PEERS,
    PEERS_HOURS,
    below_peak,
    below_peers,
    slow_in_job,
)


def measured(count: int, samples: int = 100) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    """Names, latencies with 10 % noise, and load that differs from component to component."""
    rng = np.random.default_rng(count)
    operations = rng.poisson(500 * np.exp(0.2 * rng.standard_normal((count, 1))), (count, samples)).astype(
        float
    )
    return (
        [f"OST{i}" for i in range(count)],
        5 * rng.gamma(100, 0.01, (count, samples)),
        {"operations": operations},
    )


@pytest.mark.parametrize("count", [4, 7, 60])
def test_one_at_twice_the_latency(count: int) -> None:
    names, latencies, load = measured(count)
    assert slow_in_job(names, latencies, load, 15.0) == {}
    latencies[1] *= 2
    found = slow_in_job(names, latencies, load, 15.0)
    assert list(found) == ["OST1"]
    assert found["OST1"] == pytest.approx(2, rel=0.15)


def test_too_few_peers_or_too_short_a_job() -> None:
    names, latencies, load = measured(LEAST_PEERS - 1)
    latencies[1] *= 9
    assert slow_in_job(names, latencies, load, 15.0) == {}
    names, latencies, load = measured(8, 5)
    assert slow_in_job(names, latencies, load, 15.0) == {}


def test_an_hour_below_the_peak() -> None:
    rates = np.full((3, 300), 100.0)
    rates[1, 100:160] = 29
    rates[2, 100:159] = 29
    peaks = np.full(3, 100.0)
    assert below_peak(rates, peaks, 60.0) == [1]
    rates[1, 130] = 0
    assert below_peak(rates, peaks, 60.0) == []


@pytest.mark.parametrize("hours", PEERS_HOURS)
def test_a_single_straggler_stays_one(hours: float) -> None:
    rates = np.full((6, 97 * 4), 100.0)
    rates[3] = 40
    rates[5] = np.nan
    assert below_peers(rates, 900.0, hours) == [3]


def test_two_stragglers_do_not_clear_each_other() -> None:
    rates = np.full((8, 10), 100.0)
    rates[3], rates[4] = 30, 35
    assert below_peers(rates, 900.0, 1) == [3, 4]
    assert below_peers(rates[:1], 900.0, 1) == []
