"""Beacon's rule against an obvious twin that goes through every interval, and through the engine."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect.interface import GroupWindow, Verdicts
from laggard_aggregator.detect.peak.detector import MIN_BUSY_SHARE, PeakDetector
from laggard_aggregator.detect.settings import DetectSettings

Values = NDArray[np.float64]
INTERVAL, WINDOW, SHIFT = 15.0, 8, 4
PEAK, BELOW, MINUTES = 100.0, 0.3, 3.0  # 12 intervals of 15 s
SETTINGS = DetectSettings(
    detector="peak",
    interval_seconds=INTERVAL,
    window_samples=WINDOW,
    shift_samples=SHIFT,
    confirm=1,
    options={"peak": PEAK, "below": BELOW, "minutes": MINUTES},
)


def windows(values: Values, load: dict[str, Values] | None = None) -> list[GroupWindow]:
    """Overlapping windows; only the second half of each is new after the first."""
    return [
        GroupWindow(
            "peak-1",
            tuple(f"oss/{c}" for c in range(len(values))),
            (end - WINDOW) * INTERVAL,
            end * INTERVAL,
            0,
            {"throughput": values[:, end - WINDOW : end]},
            {name: of[:, end - WINDOW : end] for name, of in (load or {}).items()},
            {"throughput": 0},
        )
        for end in range(WINDOW, values.shape[1] + 1, SHIFT)
    ]


def naive(values: Values, used: NDArray[np.bool_]) -> list[list[bool]]:
    """By window and component whether anomalous, from the definition: one interval after another."""
    limit, needed = BELOW * PEAK, MINUTES * 60.0
    run, idle = [0.0] * len(values), [0.0] * len(values)
    found, before = [], 0
    for end in range(WINDOW, values.shape[1] + 1, SHIFT):
        flags = []
        for c, (row, busy) in enumerate(zip(values, used, strict=True)):
            new = range(before, end)
            idle[c] = 0.0 if any(busy[t] for t in new) else idle[c] + len(new) * INTERVAL
            if idle[c] >= needed:
                run[c] = 0.0
            for t in new:
                if busy[t]:
                    run[c] = 0.0 if row[t] >= limit else run[c] + INTERVAL
            flags.append(any(busy[t] for t in new) and run[c] >= needed)
        found.append(flags)
        before = end
    return found


@given(seed=st.integers(0, 2**32 - 1), calm=st.sampled_from([0.0, 0.02, 0.3]), idle=st.floats(0.0, 0.9))
def test_agrees_with_the_definition_and_over_a_restart(seed: int, calm: float, idle: float) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((3, 80)) < calm, 50.0, rng.uniform(1.0, 29.0, (3, 80)))
    values[:, 20:45] *= rng.random((3, 1)) < 0.7  # one that does nothing for longer than the rule's time
    values[rng.random(values.shape) < idle * 0.5] = 0.0
    values[rng.random(values.shape) < 0.05] = np.nan
    detector, flags = PeakDetector(SETTINGS, "throughput"), []
    for window in windows(values):
        if rng.random() < 0.2:
            saved = json.loads(json.dumps(detector.state()))
            detector = PeakDetector(SETTINGS, "throughput")
            detector.restore(saved)
        verdicts = detector.observe(window)
        flags.append((verdicts.judged & verdicts.anomalous).tolist())
    assert flags == naive(values, np.nan_to_num(values) > 0)


def verdicts_of(values: list[float], **load: list[float]) -> list[Verdicts]:
    detector = PeakDetector(SETTINGS, "throughput")
    loads = {name: np.array([of]) for name, of in load.items()}
    return [detector.observe(window) for window in windows(np.array([values]), loads)]


def test_says_how_far_below_the_peak_and_recovers_at_once() -> None:
    found = verdicts_of([20.0] * 11 + [25.0] * 5 + [31.0] + [20.0] * 7)
    assert [v.anomalous[0] for v in found] == [False, True, True, False, False]
    assert found[1].score[0] == pytest.approx(1.0)
    assert (found[2].observed[0], found[2].reference[0], found[2].severity[0]) == (25.0, PEAK, 4.0)


@pytest.mark.parametrize(
    ("load", "found"),
    [({}, True), ({"operations": [0.0] * 20}, False), ({"busy_share": [MIN_BUSY_SHARE - 0.01] * 20}, False)],
)
def test_only_time_in_use_counts(load: dict[str, list[float]], found: bool) -> None:
    last = verdicts_of([20.0] * 20, **load)[-1]
    assert bool(last.judged[0] and last.anomalous[0]) is found


def test_a_hung_component_in_use_has_no_factor() -> None:
    last = verdicts_of([0.0] * 20, busy_share=[1.0] * 20)[-1]
    assert last.anomalous[0]
    assert np.isnan(last.severity[0])


def test_one_component_is_enough_and_the_alarm_is_raised_and_cleared_once() -> None:
    judge = Judge({"peak-1": SETTINGS})
    values = np.array([[20.0] * 24 + [90.0] * 8])
    events = [
        (event.kind, event.at)
        for window in windows(values)
        for judged in judge.evaluate(window)
        for event in judged.transitions
    ]
    assert events == [("raised", 12 * INTERVAL), ("cleared", 28 * INTERVAL)]


def test_forgets_and_refuses_other_states() -> None:
    detector = PeakDetector(SETTINGS, "throughput")
    for window in windows(np.full((2, 20), 20.0)):
        detector.observe(window)
    detector.forget(["oss/0"])
    state: dict[str, Any] = detector.state()
    assert list(state["components"]) == ["oss/1"]
    with pytest.raises(ValueError, match="not a state of peak"):
        detector.restore({**state, "version": 0})
