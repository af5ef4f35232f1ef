"""`manhattan` and its training against the slow twin, and what they promise of order, absence and causes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FunctionWindow, without
from laggard_aggregator.detect.manhattan.detector import ManhattanDetector
from laggard_aggregator.detect.manhattan.training import functions, spreads, thresholds
from laggard_aggregator.detect.manhattan.vectors import MIN_SECONDS, UNITS
from laggard_aggregator.detect.settings import DetectSettings
from tests import naive
from tests.support.thorough import examples

Values = NDArray[np.float64]
METRICS = tuple(MIN_SECONDS)


def window_of(
    values: Values, seconds: Values | None = None, metric: str = "samples", at: int = 0
) -> FunctionWindow:
    servers = tuple(f"oss-{s}" for s in range(values.shape[0]))
    functions = tuple(f"f{f:02}" for f in range(values.shape[1]))
    seconds = np.ones_like(values) if seconds is None else seconds
    start = at * 30.0
    return FunctionWindow("g", servers, functions, start, start + 60.0, {metric: values}, seconds)


def detector_of(
    thresholds: dict[str, float], metric: str = "samples", units: dict[str, float] | None = None
) -> ManhattanDetector:
    return ManhattanDetector(
        DetectSettings(
            detector="manhattan", thresholds={metric: thresholds}, options={UNITS: {metric: units or {}}}
        ),
        metric,
    )


def everywhere(threshold: float, servers: int) -> dict[str, float]:
    return {f"oss-{s}": threshold for s in range(servers)}


def reordered(window: FunctionWindow, order: NDArray[np.intp], functions: NDArray[np.intp]) -> FunctionWindow:
    return replace(
        window,
        components=tuple(window.components[s] for s in order),
        functions=tuple(window.functions[f] for f in functions),
        metrics={name: values[order][:, functions] for name, values in window.metrics.items()},
        seconds=window.seconds[order][:, functions],
    )


groups = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "servers": st.integers(4, 12),
        "functions": st.integers(1, 20),
        "metric": st.sampled_from(METRICS),
        "windows": st.integers(1, 6),
    }
)


def draw(drawn: dict[str, object], faulty: bool = False) -> tuple[np.random.Generator, list[FunctionWindow]]:
    rng = np.random.default_rng(int(str(drawn["seed"])))
    servers, functions = int(str(drawn["servers"])), int(str(drawn["functions"]))
    busy = rng.integers(0, 500, functions)
    windows = []
    for at in range(int(str(drawn["windows"]))):
        values = rng.poisson(busy, (servers, functions)).astype(np.float64)
        if faulty:
            values[0, rng.integers(functions)] += 300.0
        least = MIN_SECONDS[str(drawn["metric"])]
        seconds = least * rng.choice([0.0, 0.5, 1.0, 2.0], (servers, functions), p=[0.6, 0.37, 0.02, 0.01])
        windows.append(window_of(values, seconds, str(drawn["metric"]), at))
    return rng, windows


@given(groups, st.floats(0, 400))
@settings(max_examples=examples(100), deadline=None)
def test_verdicts_are_the_naive_twins(drawn: dict[str, object], threshold: float) -> None:
    _, windows = draw(drawn, faulty=True)
    metric = str(drawn["metric"])
    detector = detector_of(everywhere(threshold, len(windows[0].components)), metric)
    for at, window in enumerate(windows):
        kept = naive.manhattan_kept([w.seconds for w in windows[: at + 1]], MIN_SECONDS[metric])
        distances = naive.manhattan_distances(window.metrics[metric][:, kept].tolist())
        expected = [naive.manhattan_median(row) > threshold for row in distances]
        verdicts = detector.observe(window)
        assert verdicts.anomalous.tolist() == expected
        assert verdicts.judged.all()


@given(groups)
@settings(max_examples=examples(60), deadline=None)
def test_thresholds_are_the_naive_twins_and_silence_what_they_were_trained_on(
    drawn: dict[str, object],
) -> None:
    _, windows = draw(drawn)
    metric = str(drawn["metric"])
    units = functions(windows)
    kept = naive.manhattan_kept([w.seconds for w in windows], MIN_SECONDS[metric])
    assert list(units["g", metric]) == [windows[0].functions[f] for f in kept]
    learned = thresholds(windows, units)["g", metric]
    medians = [
        [
            naive.manhattan_median(row)
            for row in naive.manhattan_distances(w.metrics[metric][:, kept].tolist())
        ]
        for w in windows
    ]
    expected = [naive.manhattan_threshold(own) for own in zip(*medians, strict=True)]
    assert list(learned.values()) == expected
    detector = detector_of(learned, metric, units["g", metric])
    assert not any(detector.observe(window).anomalous.any() for window in windows)


@given(groups, st.booleans(), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_order_of_servers_and_functions_does_not_matter(
    drawn: dict[str, object], spread: bool, trained: bool
) -> None:
    rng, windows = draw(drawn, faulty=True)
    metric = str(drawn["metric"])
    units = spreads(windows, functions(windows))["g", metric] if spread else {}
    limits = everywhere(5.0 if spread else 150.0, len(windows[0].components)) if trained else {}
    one, other = detector_of(limits, metric, units), detector_of(limits, metric, units)
    for window in windows:
        order, others = rng.permutation(len(window.components)), rng.permutation(len(window.functions))
        here = one.observe(window)
        there = other.observe(reordered(window, order, others))
        assert here.score[order].tobytes() == there.score.tobytes()
        assert here.anomalous[order].tolist() == there.anomalous.tolist()
        assert set(here.causes) == set(there.causes)


@given(groups)
@settings(max_examples=40, deadline=None)
def test_an_absent_server_is_as_if_it_were_not_there(drawn: dict[str, object]) -> None:
    _, windows = draw(drawn, faulty=True)
    window = windows[0]
    if len(window.components) < 5:
        return
    metric = str(drawn["metric"])
    limits = everywhere(100.0, len(window.components))
    absent = window.metrics[metric].copy()
    absent[-1, 0] = np.nan
    seconds = window.seconds.copy()
    seconds[-1] = 0.0
    with_hole = replace(window, metrics={metric: absent}, seconds=seconds)
    fewer = without(with_hole, window.components[-1:])
    assert isinstance(fewer, FunctionWindow)
    here = detector_of(limits, metric).observe(with_hole)
    there = detector_of(limits, metric).observe(fewer)
    assert here.score[:-1].tolist() == there.score.tolist()
    assert here.anomalous[:-1].tolist() == there.anomalous.tolist()
    assert not here.judged[-1]


@given(groups, st.integers(0, 8))
@settings(max_examples=examples(60), deadline=None)
def test_untrained_verdicts_are_the_naive_twins(drawn: dict[str, object], idle: int) -> None:
    _, windows = draw(drawn, faulty=True)
    metric = str(drawn["metric"])
    windows = [replace(w, seconds=np.full_like(w.seconds, MIN_SECONDS[metric])) for w in windows]
    if idle:
        windows[0].metrics[metric][1] //= 10
        windows[-1].metrics[metric][2 : 2 + idle] = 0.0
    detector = detector_of({}, metric)
    expected = naive.manhattan_untrained([w.metrics[metric].tolist() for w in windows])
    for window, flags in zip(windows, expected, strict=True):
        verdicts = detector.observe(window)
        assert verdicts.judged.tolist() == [flag is not None for flag in flags]
        assert verdicts.anomalous.tolist() == [bool(flag) for flag in flags]


@given(groups, st.lists(st.floats(0.5, 2.0), min_size=12, max_size=12))
@settings(max_examples=examples(60), deadline=None)
def test_untrained_what_a_server_has_to_do_in_all_does_not_matter(
    drawn: dict[str, object], busy: list[float]
) -> None:
    _, windows = draw(drawn, faulty=True)
    metric = str(drawn["metric"])
    here, there = detector_of({}, metric), detector_of({}, metric)
    for window in windows:
        load = np.array(busy[: len(window.components)])[:, None]
        busier = replace(window, metrics={metric: window.metrics[metric] * load})
        one, other = here.observe(window), there.observe(busier)
        if not one.judged.all() or not other.judged.all():
            return
        assert one.score == pytest.approx(other.score, rel=1e-6, abs=1e-9)


def test_untrained_a_program_that_the_others_lack_is_the_cause() -> None:
    values = np.tile([500.0, 300.0, 0.0, 200.0], (6, 1)) * np.array([1, 2, 1, 0.5, 1, 1.5])[:, None]
    values[3, 2] = 100.0  # as much as a fifth of what the server did before
    verdicts = detector_of({}).observe(window_of(values))
    assert verdicts.anomalous.tolist() == [s == 3 for s in range(6)]
    (program, amount), *_ = verdicts.causes["oss-3"]
    assert program == "f02"
    assert amount == pytest.approx(1000 / 6)
    assert np.isnan(verdicts.severity).all()


def test_untrained_idle_servers_are_left_out_and_few_busy_ones_not_judged() -> None:
    values = np.tile([500.0, 300.0], (7, 1))
    values[:2] = [[0.0, 1.0], [0.0, 0.0]]
    detector = detector_of({})
    verdicts = detector.observe(window_of(values))
    assert verdicts.judged.tolist() == [False, False, *([True] * 5)]
    nobody = detector.observe(window_of(np.zeros((7, 2)), at=1))
    assert nobody.note == "too few members"


def test_untrained_where_most_servers_are_idle_the_others_are_compared() -> None:
    values = np.tile([500.0, 300.0], (11, 1))
    values[:6] = 0.0
    values[10] = [100.0, 900.0]
    detector = detector_of({})
    for at in range(2):
        verdicts = detector.observe(window_of(values, at=at))
        assert verdicts.judged.tolist() == [False] * 6 + [True] * 5
        assert verdicts.anomalous.tolist() == [s == 10 for s in range(11)]
    values[:] = [500.0, 300.0]
    assert detector.observe(window_of(values, at=2)).judged.all()


@pytest.mark.parametrize(("metric", "least"), [("samples", 0.004), ("count", 1.0), ("time", 1.0)])
def test_functions_count_from_the_papers_amounts_on_one_server(metric: str, least: float) -> None:
    """100 samples of 100,000 cycles are 4 ms at 2.5 GHz; or 1 s (HotDep, "Dimensionality")."""
    values = np.zeros((4, 2))
    values[0] = [100.0, 10.0]
    seconds = np.zeros((4, 2))
    seconds[3] = [least * 0.99, least]
    verdicts = detector_of(everywhere(1.0, 4), metric).observe(window_of(values, seconds, metric))
    assert verdicts.observed[0] == 10.0


def test_fewer_than_four_servers_get_no_verdict() -> None:
    verdicts = detector_of(everywhere(1.0, 3)).observe(window_of(np.eye(3) * 100))
    assert verdicts.note == "too few members"
    assert not verdicts.judged.any()


def test_a_server_without_a_threshold_is_a_peer_but_not_judged() -> None:
    values = np.full((5, 2), 10.0)
    values[4] = 1000.0
    thresholds = everywhere(50.0, 5)
    del thresholds["oss-4"]
    verdicts = detector_of(thresholds).observe(window_of(values))
    assert verdicts.judged.tolist() == [True] * 4 + [False]
    assert not verdicts.anomalous.any()


def test_causes_are_the_functions_that_differ_summed_over_the_episode() -> None:
    values = np.tile(np.arange(12.0) * 10, (6, 1))
    faulty = values.copy()
    faulty[2] += np.arange(12.0)[::-1] * 20
    detector = detector_of(everywhere(100.0, 6))
    detector.observe(window_of(faulty))
    verdicts = detector.observe(window_of(faulty, at=1))
    assert list(verdicts.causes) == ["oss-2"]
    assert verdicts.causes["oss-2"] == tuple((f"f{f:02}", 40.0 * (11 - f)) for f in range(10))
    for at in range(3):  # an episode is over after k normal windows
        assert not detector.observe(window_of(values, at=2 + at)).causes
    assert detector.observe(window_of(faulty, at=5)).causes["oss-2"][0] == ("f00", 220.0)


def test_spread_makes_a_quiet_function_count_and_a_noisy_one_not() -> None:
    rng = np.random.default_rng(5)
    quiet_and_noisy = np.array([1.0, 200.0])
    runs = [window_of(1000 + rng.normal(0, quiet_and_noisy, (8, 2))) for _ in range(40)]
    units = functions(runs)
    divided = spreads(runs, units)
    spread = divided["g", "samples"]
    assert spread["f00"] == pytest.approx(0.1 * np.median([1.0, 200.0]), rel=0.2)  # raised to the least
    assert spread["f01"] == pytest.approx(200.0, rel=0.15)
    faulty = 1000 + rng.normal(0, quiet_and_noisy, (8, 2))
    faulty[3, 0] += 400.0
    for by_series, found in ((units, False), (divided, True)):
        own = by_series["g", "samples"]
        detector = detector_of(thresholds(runs, by_series)["g", "samples"], units=own)
        assert detector.observe(window_of(faulty)).anomalous.tolist() == [found and s == 3 for s in range(8)]


def test_goes_on_from_a_saved_state() -> None:
    rng = np.random.default_rng(1)
    windows = [window_of(rng.poisson(50, (6, 5)).astype(np.float64), at=at) for at in range(8)]
    one = detector_of(everywhere(20.0, 6))
    for window in windows[:4]:
        one.observe(window)
    other = detector_of(everywhere(20.0, 6))
    other.restore(json.loads(json.dumps(one.state())))
    for window in windows[4:]:
        here, there = one.observe(window), other.observe(window)
        assert here.score.tobytes() == there.score.tobytes()
        assert here.causes == there.causes
    with pytest.raises(ValueError, match="manhattan"):
        other.restore({"name": "cdf", "version": 1})


@pytest.mark.parametrize("threshold", [-1.0, np.inf, np.nan])
def test_refuses_thresholds_that_are_none(threshold: float) -> None:
    with pytest.raises(ValueError, match="thresholds"):
        detector_of({"oss-0": threshold})
