"""The fast form of `cdf` against its slow twin, and what the detector promises beside its verdicts."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from laggard_aggregator.detect.cdf import BinLimitMode
from laggard_aggregator.detect.cdf.binned_group import BinnedGroup, CdfOptions, binned
from laggard_aggregator.detect.cdf.bins import Bins, freedman_diaconis
from laggard_aggregator.detect.cdf.detector import CdfDetector
from laggard_aggregator.detect.cdf.pivots import far_majority
from laggard_aggregator.detect.cdf.training import largest_deviation
from laggard_aggregator.detect.interface import GroupWindow, Verdicts
from laggard_aggregator.detect.settings import DetectSettings
from tests import naive
from tests.support.thorough import examples

Values = NDArray[np.float64]
HISTORY = 14


def window_of(values: Values, history: int = HISTORY, worse: int = 1) -> GroupWindow:
    names = tuple(f"oss/{c}" for c in range(len(values)))
    samples = values.shape[1] - history
    return GroupWindow("g", names, 0.0, samples * 15.0, history, {"await": values}, worse={"await": worse})


def detector_of(window: GroupWindow, thresholds: Values, options: CdfOptions | None = None) -> CdfDetector:
    known = {c: float(t) for c, t in zip(window.components, thresholds, strict=True) if not np.isnan(t)}
    return CdfDetector(DetectSettings(detector="cdf", thresholds={"await": known}), "await", options)


def binned_of(window: GroupWindow, options: CdfOptions) -> BinnedGroup | None:
    return binned(window.metrics["await"], window.history, options)


def deviation_of(window: GroupWindow, options: CdfOptions | None = None) -> Values:
    return largest_deviation(window.metrics["await"], window.history, options or CdfOptions())


def flags(verdicts: Verdicts) -> list[bool | None]:
    pairs = zip(verdicts.anomalous.tolist(), verdicts.judged.tolist(), strict=True)
    return [anomalous if judged else None for anomalous, judged in pairs]


def draw_group(rng: np.random.Generator, n: int, samples: int, shape: str, missing: float) -> Values:
    """Values (n, HISTORY + samples) of one of the shapes that real groups have."""
    size = (n, HISTORY + samples)
    if shape == "constant":
        values = np.full(size, 7.0)
    elif shape == "ties":
        values = rng.integers(0, 4, size).astype(np.float64)
    elif shape == "idle":
        values = np.where(rng.random(size) < 0.02, rng.gamma(2, 10, size), 0.0)
    elif shape == "constant series":
        values = np.repeat(rng.integers(0, 5, (n, 1)).astype(np.float64), size[1], axis=1)
    elif shape == "clusters":
        values = rng.gamma(4, 5, size) * 3.0 ** rng.integers(0, 4, (n, 1))
    elif shape == "heavy":
        values = rng.pareto(1.1, size) + rng.pareto(0.7, (n, 1))
    else:
        values = rng.gamma(4, 5, size)
    values[rng.random(size) < missing] = np.nan
    if missing:
        values[rng.random(n) < 0.1] = np.nan
        values[rng.random(n) < 0.1, -1] = np.inf
    return values


def draw_thresholds(
    rng: np.random.Generator, live: list[int], distances: Values, n: int, about: str
) -> Values:
    """Thresholds (n,) at the members' own median distance to the bit, about it, or anywhere; some unknown."""
    thresholds = np.full(n, 1.0)
    if len(distances):
        thresholds[live] = np.sort(distances, axis=1)[:, len(live) // 2]
    if about == "next":
        thresholds = np.nextafter(thresholds, rng.choice([-1e9, 1e9], n)).clip(0)
    elif about == "around":
        thresholds *= rng.uniform(0.7, 1.4, n)
    elif about == "any":
        thresholds = rng.choice([0.0, 0.5, 1.0, 10.0, 1e12], n)
    thresholds[rng.random(n) < 0.1] = np.nan
    return thresholds


SHAPES = ("constant", "ties", "idle", "constant series", "clusters", "heavy", "even")
ABOUT = ("median", "next", "around", "any")


@dataclass(frozen=True)
class Case:
    """One Hypothesis-made group and how it is judged."""

    seed: int
    n: int
    samples: int
    shape: str
    missing: float
    about: str
    mode: BinLimitMode
    limit: int
    pivots: int


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32 - 1),
    n=st.one_of(st.integers(4, 40), st.integers(41, 300)),
    samples=st.sampled_from((8, 20, 60)),
    shape=st.sampled_from(SHAPES),
    missing=st.sampled_from((0.0, 0.0, 0.01, 0.15)),
    about=st.sampled_from(ABOUT),
    mode=st.sampled_from(("widen", "clip")),
    limit=st.sampled_from((5, 100, 1000)),
    pivots=st.sampled_from((1, 2, 12)),
)


@given(cases)
@settings(max_examples=examples(300), deadline=None)
def test_verdicts_are_the_naive_twins(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    values = draw_group(rng, case.n, case.samples, case.shape, case.missing)
    finite = np.where(np.isfinite(values), values, np.nan)
    live, distances = naive.cdf_distances(finite, HISTORY, limit=case.limit, mode=case.mode)
    thresholds = draw_thresholds(rng, live, distances, case.n, case.about)
    expected = naive.cdf_verdicts(live, distances, thresholds.tolist())
    options = CdfOptions(bin_limit=case.limit, bin_limit_mode=case.mode)

    window = window_of(values)
    assert flags(detector_of(window, thresholds, options).observe(window)) == expected

    group = binned_of(window, options)  # and with pruning forced on, by any number of pivots
    assert (group is not None) == (len(live) >= 4)
    if group is not None:
        assert group.live.tolist() == live
        own = thresholds[group.live]
        found = far_majority(
            group.members, own, np.isfinite(own), 10**9, pivots=case.pivots, all_pairs_below=0
        )
        pruned = [bool(f) if d else None for f, d in zip(found.far, found.decided, strict=True)]
        assert pruned == [expected[c] for c in live]
        assert found.undecided == 0


@given(cases)
@settings(max_examples=examples(60), deadline=None)
def test_training_gives_the_smallest_threshold_without_anomaly(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    values = draw_group(rng, case.n, case.samples, case.shape, case.missing)
    window = window_of(values)
    deviation = deviation_of(window)
    live = np.isfinite(deviation)
    if live.any():
        assert not detector_of(window, deviation).observe(window).anomalous.any()
        below = np.nextafter(deviation, -1.0)
        below[~(deviation > 0)] = np.nan  # at 0 there is no smaller threshold
        verdicts = detector_of(window, below).observe(window)
        assert (verdicts.anomalous == np.isfinite(below)).all()


@given(cases)
@settings(max_examples=40, deadline=None)
def test_order_of_components_does_not_matter(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    values = draw_group(rng, case.n, case.samples, case.shape, case.missing)
    window = window_of(values)
    thresholds = np.nan_to_num(deviation_of(window)) * rng.uniform(0.8, 1.2, case.n)
    order = rng.permutation(case.n)
    shuffled = replace(
        window,
        components=tuple(window.components[c] for c in order),
        metrics={"await": window.metrics["await"][order]},
    )
    detector = detector_of(window, thresholds)
    straight, turned = detector.observe(window), detector.observe(shuffled)
    for name in ("judged", "anomalous", "score", "severity", "observed", "reference"):
        np.testing.assert_array_equal(getattr(straight, name)[order], getattr(turned, name))


def even_group(n: int = 12, slow: float = 3.0) -> Values:
    """A group of equals of which the first is `slow` times slower."""
    values = np.random.default_rng(7).gamma(20, 1, (n, HISTORY + 60))
    values[0] *= slow
    return values


def test_a_slow_component_is_found_with_its_factor() -> None:
    window = window_of(even_group())
    trained = 2 * deviation_of(window_of(even_group(slow=1.0)))
    verdicts = detector_of(window, trained).observe(window)
    assert verdicts.anomalous.tolist() == [True] + [False] * 11
    assert verdicts.score[0] > 1.5
    assert verdicts.severity[0] == pytest.approx(3.0, rel=0.05)
    assert verdicts.observed[0] == pytest.approx(60.0, rel=0.05)
    assert verdicts.reference[0] == pytest.approx(20.0, rel=0.05)
    assert verdicts.note == ""


def test_severity_of_a_metric_that_should_be_high_is_the_other_way_round() -> None:
    values = even_group(slow=0.5)
    slow = detector_of(window := window_of(values, worse=-1), np.ones(12)).observe(window)
    assert slow.severity[0] == pytest.approx(2.0, rel=0.05)
    unlike = detector_of(window := window_of(values, worse=0), np.ones(12)).observe(window)
    assert np.isnan(unlike.severity).all()


def test_missing_rows_are_absent_and_change_nothing_for_others() -> None:
    values = even_group()
    window = window_of(values)
    thresholds = deviation_of(window)
    thresholds[0] *= 0.5
    alone = detector_of(window, thresholds).observe(window)
    with_silent = window_of(np.vstack([values, np.full((3, values.shape[1]), np.nan)]))
    silent = detector_of(with_silent, np.append(thresholds, [0.0] * 3)).observe(with_silent)
    assert flags(silent) == [*flags(alone), None, None, None]
    np.testing.assert_array_equal(silent.score[:12], alone.score)
    np.testing.assert_array_equal(silent.severity[:12], alone.severity)
    assert np.isnan(silent.observed[12:]).all()


@pytest.mark.parametrize(("missing", "judged"), [(15, True), (16, False)])
def test_a_component_needs_three_quarters_of_its_samples(missing: int, judged: bool) -> None:
    values = even_group()
    values[3, -missing:] = np.nan
    window = window_of(values)
    assert detector_of(window, np.ones(12)).observe(window).judged[3] == judged


def test_too_few_members_and_no_thresholds_are_said() -> None:
    values = even_group(5)
    values[:2] = np.nan
    window = window_of(values)
    verdicts = detector_of(window, np.ones(5)).observe(window)
    assert verdicts.note == "too few members"
    assert not verdicts.judged.any()
    assert np.isnan(deviation_of(window)).all()
    verdicts = detector_of(window_of(even_group()), np.full(12, np.nan)).observe(window_of(even_group()))
    assert verdicts.note == "no thresholds"
    assert not verdicts.judged.any()


def test_a_component_without_threshold_is_a_peer_but_not_judged() -> None:
    window = window_of(even_group())
    thresholds = deviation_of(window) * 0.99
    everyone = flags(detector_of(window, thresholds).observe(window))
    thresholds[4] = np.nan
    assert flags(detector_of(window, thresholds).observe(window)) == [*everyone[:4], None, *everyone[5:]]


def test_moving_average_runs_on_across_windows() -> None:
    values = even_group(6, slow=1.0)
    options = CdfOptions()
    values[0, :HISTORY] = 1e4  # only before the window, yet its first samples still carry it
    with_history = deviation_of(window_of(values), options)
    without = deviation_of(window_of(values[:, HISTORY:], history=0), options)
    assert with_history[0] > without[0]


def test_a_pair_budget_that_is_overrun_leaves_components_undecided() -> None:
    rng = np.random.default_rng(3)
    window = window_of(rng.gamma(4, 5, (300, HISTORY + 60)))
    thresholds = deviation_of(window)
    full = detector_of(window, thresholds).observe(window)
    short = detector_of(window, thresholds, CdfOptions(pair_budget=20_000)).observe(window)
    assert full.judged.all()
    assert full.undecided == 0
    assert short.undecided > 0
    assert 0 < np.count_nonzero(~short.judged) < 300
    assert (short.anomalous[short.judged] == full.anomalous[short.judged]).all()
    assert not short.anomalous[~short.judged].any()


def test_ordinary_groups_need_few_pairs() -> None:
    rng = np.random.default_rng(5)
    values = rng.gamma(4, 5, (2000, HISTORY + 60)) * 4.0 ** (np.arange(2000) % 2)[:, np.newaxis]
    window = window_of(values)
    group = binned_of(window, CdfOptions())
    assert group is not None
    trained = 1.5 * deviation_of(window)
    found = far_majority(group.members, trained, np.ones(2000, dtype=np.bool_), 10**9)
    assert found.decided.all()
    assert not found.far.any()
    assert found.computed < 0.01 * 2000 * 2000


@pytest.mark.parametrize(
    ("values", "mode", "expected"),
    [
        ([5.0] * 40, "widen", Bins(5.0, 0.0, 1)),  # range 0
        ([0.0] * 39 + [10.0], "widen", Bins(0.0, 0.01, 1000)),  # IQR 0
        ([0.0] * 39 + [10.0], "clip", Bins(0.0, 0.01, 1000)),
        ([0.0, 1.0, 2.0, 3.0, 1e6], "widen", Bins(0.0, 1000.0, 1000)),  # beyond the limit
        ([0.0, 1.0, 2.0, 3.0, 1e6], "clip", Bins(0.0, 2.0, 1000)),
        ([0.0, 1.0, 2.0, 3.0, 4.0], "widen", Bins(0.0, 2.0, 2)),
    ],
)
def test_bins(values: list[float], mode: BinLimitMode, expected: Bins) -> None:
    found = freedman_diaconis(np.array(values), 8, 1000, mode)
    assert (found.low, found.count) == (expected.low, expected.count)
    assert found.size == pytest.approx(expected.size)
    if found.count > 1:
        assert found.indexes(np.array(values)).max() == found.count - 1


def test_state_is_name_and_version() -> None:
    window = window_of(even_group())
    detector = detector_of(window, np.ones(12))
    detector.restore(detector.state())
    with pytest.raises(ValueError, match="not a state of cdf"):
        detector.restore({"name": "cdf", "version": 0})


@pytest.mark.parametrize("threshold", [-1.0, np.inf])
def test_thresholds_must_be_finite_and_not_negative(threshold: float) -> None:
    with pytest.raises(ValueError, match="cdf thresholds"):
        CdfDetector(DetectSettings(thresholds={"await": {"oss/0": threshold}}), "await")
