"""The generator of stops: completions and counters against an event-by-event device."""

import numpy as np
import pytest

from bench.accuracy.stops import Requests, completed, counted


class Fixed(np.random.Generator):
    """Service times of exactly their mean."""

    def gamma(self, shape, scale=1.0, size=None):  # type: ignore[no-untyped-def]
        return np.full(size, shape * scale)


def fixed() -> Fixed:
    return Fixed(np.random.PCG64(1))


def asked(seed: int = 1, count: int = 400) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests(np.sort(rng.uniform(0.0, 20.0, count)), np.full(count, 64.0), rng.random(count) < 0.5)


STOPS = np.array([[3.0, 2.0], [4.0, 2.0], [11.5, 0.7]])


def working(begin: float, seconds: float) -> float:
    """When work of `seconds` from `begin` on ends, with STOPS between."""
    for stop, end in ((3.0, 6.0), (11.5, 12.2)):
        if stop <= begin < end:
            begin = end
        elif begin < stop < begin + seconds:
            seconds, begin = seconds - (stop - begin), end
    return begin + seconds


def test_a_disk_serves_in_turn_and_not_while_it_stops() -> None:
    requests, free, expected = asked(), 0.0, []
    for at in requests.arrived.tolist():
        free = working(max(at, free), 0.008 + 64 * 512 / 150e6)
        expected.append(free)
    assert completed(fixed(), requests, STOPS, "disk") == pytest.approx(expected)


def test_flash_serves_all_at_once() -> None:
    requests = asked(2)
    expected = [working(at, 0.0006) for at in requests.arrived.tolist()]
    assert completed(fixed(), requests, STOPS, "flash") == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["disk", "flash"])
def test_counters_are_those_of_each_request(kind: str) -> None:
    requests, ticks = asked(3), np.arange(25.0)
    done = completed(fixed(), requests, STOPS, kind)
    counters = counted(requests, done, ticks, late=False)
    assert (np.diff(counters, axis=0) >= 0).all()
    for tick, row in zip(ticks, counters, strict=True):
        over = done <= tick
        assert row[0] == (over & requests.reads).sum()
        assert row[4] == 64 * (over & ~requests.reads).sum()
        assert row[2] == np.floor((done - requests.arrived)[over & requests.reads] * 1000.0).sum()
        grid = np.arange(0.0, tick, 0.0005) + 0.00025
        under_way = np.searchsorted(requests.arrived, grid) > np.searchsorted(np.sort(done), grid)
        assert row[6] == pytest.approx(under_way.sum() * 0.5, abs=25.0)
    late = counted(requests, done, ticks, late=True)
    assert (np.diff(late, axis=0) >= 0).all()
    assert late[5, 6] < counters[5, 6] - 900.0, "of the stop from 3 to 6 s nothing is counted yet"
    assert late[-1, 6] == counters[-1, 6]
