"""Duty cycles: told of what comes and goes, at the true share and factor; of nothing else."""

import json

import numpy as np
import pytest

from laggard_aggregator.detect.interface import DutyCycle
from laggard_aggregator.detect.laggard.duty_cycles import BINS, MAX_COURSES, DutyCycles, classes
from tests.aggregator.detect.courses import SHIFT, Values, detector_of, healthy, windows_of

TICKS = 20
SLOW = 3


def told(values: Values, shift: int = SHIFT) -> list[dict[str, DutyCycle]]:
    """The duty cycles after each window, with windows of one shift."""
    detector = detector_of(len(values), shift, shift)
    return [
        dict(detector.observe(window).duty_cycles) for window in windows_of(values, window=shift, shift=shift)
    ]


def at_times(factor: float, on: int, period: int, noise: float, ticks: int = 900) -> Values:
    """A group whose member SLOW is slow for `on` of every `period` intervals."""
    values = healthy(7, ticks=ticks, noise=noise)
    values[SLOW, np.arange(ticks) % period < on] *= factor
    return values


@pytest.mark.parametrize(
    ("factor", "on", "period"), [(3.0, 1, 3), (3.0, 20, 60), (10.0, 1, 4), (4.0, 3, 10), (3.0, 45, 90)]
)
def test_share_and_factor_are_those_that_were_made(factor: float, on: int, period: int) -> None:
    found = [each for each in told(at_times(factor, on, period, noise=0.1))[12:] if each]
    assert len(found) > 9, "of 18 windows; not each is anomalous"
    for each in found:
        assert set(each) == {f"oss/{SLOW}"}
        cycle = each[f"oss/{SLOW}"]
        assert cycle.share == pytest.approx(on / period, abs=0.08)
        assert cycle.severity == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("noise", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("factor", [1.2, 1.5, 2.0, 10.0])
def test_steady_slowness_has_none(factor: float, noise: float) -> None:
    assert not any(told(at_times(factor, 1, 1, noise)))


@pytest.mark.parametrize("noise", [0.05, 0.15, 0.3])
@pytest.mark.parametrize("factor", [1.5, 3.0, 10.0])
@pytest.mark.parametrize("shift", [4, 20, 30])
def test_slow_until_its_recovery_has_none(factor: float, noise: float, shift: int) -> None:
    values = healthy(7, noise=noise)
    values[SLOW, 300:600] *= factor
    assert sum(map(bool, told(values, shift))) <= (noise > factor / 6.0), "a window where noise is as large"


def test_steady_slowness_with_idle_times_has_none() -> None:
    values = at_times(3.0, 1, 1, noise=0.1)
    values[:, np.arange(900) % 7 < 3] = 0.0
    assert not any(told(values))


@pytest.mark.parametrize("shift", [20, 30])
@pytest.mark.parametrize("factor", [1.6, 3.0, 10.0])
def test_idle_intervals_before_a_recovery_are_no_duty_cycle(factor: float, shift: int) -> None:
    values = healthy(7, noise=0.1)
    values[SLOW, 300:600] *= factor
    values[SLOW, np.arange(900) % 7 < 3] = 0.0
    assert not any(told(values, shift))


def test_noise_before_a_recovery_is_no_duty_cycle() -> None:
    rng = np.random.default_rng(5)
    cycles, slow = DutyCycles(), np.array([True])
    for at in range(16):
        assert not cycles.add(("a",), rng.normal(1.0 if at < 12 else 0.0, 0.05, (1, TICKS)), slow)


def test_it_holds_in_windows_between_that_are_not_anomalous() -> None:
    cycles = DutyCycles()
    found = []
    for at in range(24):
        ratios = np.full((1, TICKS), 1.0 if at % 3 == 0 else 0.0)
        found.append(bool(cycles.add(("a",), ratios, np.array([at % 3 == 0]))))
    assert found[18:] == [True] * 6
    after = [bool(cycles.add(("a",), np.zeros((1, TICKS)), np.array([False]))) for _ in range(40)]
    assert not any(after[16:])
    assert cycles.state() == {}, "none of late"


def test_places_are_limited_and_do_not_depend_on_the_order() -> None:
    names = tuple(f"oss/{c}" for c in range(MAX_COURSES + 50))
    ratios = np.zeros((len(names), TICKS))
    ratios[:, ::4] = 1.0
    one, other = DutyCycles(), DutyCycles()
    told_one = one.add(names, ratios, np.ones(len(names), np.bool_))
    told_other = other.add(names[::-1], ratios, np.ones(len(names), np.bool_))
    assert len(told_one) == MAX_COURSES
    assert dict(told_one) == dict(told_other)
    assert {**one.state()} == other.state()


def test_it_is_told_between_its_slow_windows_and_forgotten_after_the_last() -> None:
    values = at_times(3.0, 20, 60, noise=0.1, ticks=2000)
    values[SLOW, 1200:] = at_times(1.0, 1, 1, noise=0.1, ticks=2000)[SLOW, 1200:]
    found = told(values, shift=20)
    assert np.mean([bool(each) for each in found[24:60]]) > 0.9, (
        "a slow window is followed by two that are not"
    )
    assert not any(found[80:])


def test_other_components_do_not_matter_and_the_state_goes_on() -> None:
    rng = np.random.default_rng(3)
    names, anomalous = ("a", "b", "c"), np.array([False, True, False])
    whole, parted = DutyCycles(), DutyCycles()
    for at in range(12):
        ratios = rng.normal(0.0, 0.1, (3, TICKS))
        ratios[:2, ::4] += 1.0
        one = whole.add(names, ratios, anomalous)
        order = rng.permutation(3)
        other = parted.add([names[c] for c in order], ratios[order], anomalous[order])
        restored = DutyCycles()
        restored.restore(json.loads(json.dumps(parted.state())))
        parted = restored
        assert dict(one) == dict(other)
        assert set(one) <= {"b"}, "the other is not anomalous"
        assert bool(one) or at < 3
    whole.forget(["b", "nobody"])
    assert whole.state() == {}


def test_no_sample_at_all_tells_nothing() -> None:
    assert not classes(np.zeros((2, BINS))).told.any()
    cycles = DutyCycles()
    assert not cycles.add(("a",), np.full((1, TICKS), np.nan), np.array([True]))
    assert not cycles.add(("a",), np.zeros((1, 0)), np.array([True]))


def test_a_malformed_state_is_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        DutyCycles().restore({"a": [0.0, False, 0, False, [1.0]]})
