"""Which intervals tell a latency: those with few I/Os, small I/Os, or a time too short for the counters."""

import numpy as np
import pytest

from laggard_aggregator.detect.laggard.load import usable, with_uncounted

TICKS = 400


def test_a_member_with_small_requests_is_not_idle() -> None:
    operations = np.full((6, 4), 100.0)
    operations[5] = 1.0
    throughput = np.full((6, 4), 1e8)
    throughput[0], throughput[5] = 1e5, 1e6
    told = usable(np.full((6, 4), 8.0), {"operations": operations, "throughput": throughput})
    assert told[:5].all()
    assert not told[5].any()


def test_where_only_throughput_is_known_it_tells_who_is_idle() -> None:
    throughput = np.full((6, 4), 1e8)
    throughput[0] = 1e5
    assert not usable(np.full((6, 4), 8.0), {"throughput": throughput})[0].any()


@pytest.mark.parametrize("seed", range(5))
def test_short_requests_have_their_mean_time_though_counters_have_whole_milliseconds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    done = rng.poisson(6.0, (1, TICKS)).astype(np.float64)
    exact = np.array([[rng.exponential(0.07, int(count)).sum() for count in done[0]]])
    counted = np.diff(np.floor(np.cumsum(exact, axis=1)), prepend=0.0)
    values = np.divide(counted, done, out=np.zeros_like(done), where=done > 0)
    told = with_uncounted(values, {"operations": done})
    usual = done >= 4
    assert (values[usual] == 0.0).mean() > 0.3
    assert (told[usual] > 0.0).all()
    assert told[usual].mean() == pytest.approx(exact.sum() / done.sum(), rel=0.15)
    assert values[values > 0].mean() > 1.7 * exact.sum() / done.sum()


def test_intervals_without_requests_or_data_stay_as_they_are() -> None:
    values = np.array([[0.0, 2.0, np.nan, 0.0, 4.0, 0.0]])
    done = np.array([[0.0, 10.0, 10.0, 10.0, 10.0, 10.0]])
    told = with_uncounted(values, {"operations": done})
    assert told[0, :2].tolist() == [0.0, 2.0]
    assert np.isnan(told[0, 2])
    assert told[0, 3:] == pytest.approx([4.0 / 3.0] * 3)
    assert not with_uncounted(np.zeros((1, 6)), {"operations": done}).any()
