"""`laggard` on groups made to be hard, its properties, and its slow twin."""

import csv
import json
import lzma
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from laggard_aggregator.detect.interface import TOO_FEW, Verdicts
from laggard_aggregator.detect.laggard.detector import NOT_PEERS, LaggardDetector
from laggard_aggregator.detect.laggard.evidence import (
    KINDS,
    LENGTHS,
    MEMORY_WINDOWS,
    ROW_WINDOWS,
    SCALE_WINDOWS,
    GroupEvidence,
)
from laggard_aggregator.detect.laggard.load import LoadModel, log_moved
from laggard_aggregator.detect.laggard.thresholds import chance_per_window, critical, normal_quantile
from laggard_aggregator.detect.peers import (
    leave_one_out_median,
    row_median,
    shortest_half,
    trimmed_mean,
)
from laggard_aggregator.detect.settings import DetectSettings
from tests import naive
from tests.aggregator.detect.courses import (
    SHIFT,
    WINDOW,
    Values,
    autocorrelated,
    course_of,
    detector_of,
    healthy,
    slowed,
    windows_of,
)
from tests.support.shared_data import shared


@pytest.mark.parametrize("freedom", [1, 3, 17, 400, 10**6])
def test_quantiles_are_those_of_scipy_stats_to_the_bit(freedom: int) -> None:
    for chance in np.geomspace(1e-300, 0.49, 200).tolist():
        lax = chance**0.5
        expected = stats.norm.isf(chance) * stats.t.isf(lax, freedom) / stats.norm.isf(lax)
        assert normal_quantile(chance, freedom) == expected


def spreads(falling: float) -> Values:
    """Spreads in single-window units of both kinds, the power by which they fall with length given."""
    return np.tile(SCALE_WINDOWS**-falling, KINDS)


@pytest.mark.parametrize("of_service", [False, True])
@pytest.mark.parametrize("falling", [-0.3, 0.0, 0.1, 0.25, 0.6])
def test_thresholds_fall_the_more_windows_must_agree(falling: float, of_service: bool) -> None:
    lengths = np.minimum(ROW_WINDOWS[:, None], [[0.01, 0.5, 1.0, 7.3, 32.0]])
    freedom = np.linspace(0.0, 500.0, ROW_WINDOWS.size)
    found = [
        critical(1e-6, freedom, lengths, spreads(falling), confirm, of_service=of_service)
        for confirm in range(1, 10)
    ]
    assert all(np.isfinite(each).all() and (each > 0.0).all() for each in found)
    assert all((more <= fewer).all() for fewer, more in pairwise(found))
    assert found[8].tolist() == found[4].tolist()  # of the last row of the table
    assert found[2][:, 0].tolist() == found[2][:, 2].tolist()  # parts of a window as a window


def test_thresholds_do_not_depend_on_the_unit_of_spreads() -> None:
    lengths, freedom = np.repeat(ROW_WINDOWS[:, None], 3, axis=1), np.full(ROW_WINDOWS.size, 12.0)
    for scale in (1e-6, 1e-3, 1e6):
        one = critical(1e-6, freedom, lengths, spreads(0.1), 3, of_service=False)
        assert critical(1e-6, freedom, lengths, spreads(0.1) * scale, 3, of_service=False) == pytest.approx(
            one
        )


# --- what must stay silent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("rows", [4, 5, 12, 40])
def test_correlated_noise_raises_nothing(rows: int, rho: float) -> None:
    course = course_of(windows_of(healthy(3, rows, 3000, rho=rho)))
    assert not course.alarmed
    assert course.anomalous.mean() < 0.005


def test_heavy_tails_raise_nothing() -> None:
    rng = np.random.default_rng(5)
    values = healthy(5, ticks=3000) * np.exp(0.2 * rng.standard_t(2.5, (12, 3000)))
    assert not course_of(windows_of(values)).alarmed


def test_spikes_of_flushes_raise_nothing() -> None:
    rng = np.random.default_rng(6)
    values = healthy(6, ticks=3000)
    starts = rng.random(values.shape) < 0.01
    for after in range(8):
        values[:, after:] *= np.where(starts[:, : values.shape[1] - after], 5.0 - after / 2.0, 1.0)
    assert not course_of(windows_of(values)).alarmed


@pytest.mark.parametrize("factor", [3.0, 10.0, 1000.0])
@pytest.mark.parametrize("begin", [485, 500, 505])
def test_one_blip_of_five_minutes_raises_nothing(begin: int, factor: float) -> None:
    """Windows are half as long again; it lies within one, or in two that follow each other."""
    values = healthy(7)
    values[0, begin : begin + 20] *= factor
    assert not course_of(windows_of(values)).alarmed


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_what_is_no_better_either_way_is_never_clear(factor: float) -> None:
    values = healthy(2)
    values[0, 500:520] *= factor
    assert not course_of(windows_of(values, worse=0)).alarmed


def test_what_fills_half_of_two_windows_is_anomalous_in_both_but_not_clear() -> None:
    values = healthy(7)
    values[0, 495:525] *= 1000.0
    verdicts = course_of(windows_of(values)).verdicts
    assert [window.anomalous[0] for window in verdicts[15:17]] == [True, True]
    assert not any(window.clear[0] for window in verdicts if window.clear is not None)
    values[0, 480:540] *= 1000.0
    assert course_of(windows_of(values)).alarmed == {0}


def test_steady_six_per_cent_in_a_quiet_group_is_harmless() -> None:
    course = course_of(windows_of(slowed(healthy(8, ticks=3000, noise=0.01), {0: 1.06})))
    assert not course.anomalous.any()


def test_three_times_the_load_with_normal_latency_is_silent() -> None:
    rng = np.random.default_rng(9)
    load = 100.0 * np.exp(autocorrelated(rng, 12, 1500, 0.8, 0.1))
    load[2] *= 3.0
    normal = healthy(9, ticks=1500)
    assert not course_of(windows_of(normal, {"operations": load})).alarmed
    queueing = slowed(normal, {2: 3.0**0.6})
    assert not course_of(windows_of(queueing, {"operations": load})).alarmed
    assert course_of(windows_of(queueing)).alarmed == {2}  # it is its load that excuses it


def test_latency_that_follows_load_is_learned() -> None:
    rng = np.random.default_rng(10)
    ahead = autocorrelated(rng, 12, 3000, 0.97, 0.4)
    values = healthy(10, ticks=3000, noise=0.05) * np.exp(0.7 * ahead)
    assert not course_of(windows_of(values, {"throughput": 1e7 * np.exp(ahead)})).alarmed


def after_load(seed: int, slope: float, spread: float = 0.4) -> tuple[Values, Values]:
    """Latencies and throughput of two days in which latency goes with the load 5 to 20 minutes before."""
    rng = np.random.default_rng(seed)
    ahead = autocorrelated(rng, 12, 11520, 0.97, spread)
    before = np.zeros_like(ahead)
    for tick in range(20, ahead.shape[1]):
        before[:, tick] = before[:, tick - 1] + (ahead[:, tick - 20] - before[:, tick - 1]) / 60.0
    return healthy(seed, ticks=11520, noise=0.05) * np.exp(slope * before), 1e7 * np.exp(ahead)


def delays(values: Values, throughput: Values, slow: int) -> tuple[int, int]:
    """Windows from the 480th to the alarm of `slow`, with recent load, and without."""
    windows = windows_of(values, {"throughput": throughput}, window=20, shift=20)
    known = course_of(windows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoadModel, "explained_by_recent", lambda _, load: 0.0 * load)
        unknown = course_of(windows)
    assert slow in known.alarmed & unknown.alarmed
    first, second = ([row[slow] for row in course.alarms].index(True) - 480 for course in (known, unknown))
    return first, second


def test_latency_that_follows_the_load_before_is_learned() -> None:
    known, unknown = 0, 0
    for seed in (12, 14, 16, 17):
        values, throughput = after_load(seed, 0.7)
        values[5, 9600:] *= 1.5
        first, second = delays(values, throughput, 5)
        known, unknown = known + first, unknown + second
    assert known < 0.8 * unknown


@pytest.mark.parametrize("factor", [0.5, 0.1, 3.0])
@pytest.mark.parametrize("seed", [12, 13])
def test_another_load_than_before_accuses_nobody(seed: int, factor: float) -> None:
    values, throughput = after_load(seed, 0.5)
    throughput[5, 8000:] *= factor
    values[5, 8000:] *= 1.05 * np.median(values[5]) / np.median(values)
    course = course_of(windows_of(values, {"throughput": throughput}, window=20, shift=20))
    assert not np.any(course.alarms[240:])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_straggler_with_more_to_do_is_hardly_excused_by_recent_load(seed: int) -> None:
    """Both rise together, in a group whose latency does not depend on load."""
    values, throughput = after_load(seed, 0.0, 0.05)
    hour = np.clip((np.arange(values.shape[1]) - 9600) / 240.0, 0.0, 1.0)
    throughput[3] *= np.exp(np.log(1.25) * hour)
    values[3] *= np.exp(np.log(1.3) * hour / 2.0 + np.log(1.3) * np.roll(hour, 240) / 2.0)
    known, unknown = delays(values, throughput, 3)
    assert known <= 1.3 * unknown


def test_recent_load_passes_while_a_component_is_idle() -> None:
    evidence = GroupEvidence(300.0)
    places, alike = evidence.places(("a", "b")), np.zeros(2)
    for _ in range(32):
        evidence.add_load(places, np.array([0.5, 0.0]), alike)
    assert evidence.load_ahead(places).tolist() == [0.0, 0.0]  # lasting differences are usual
    evidence.add_load(places, np.array([2.0, 0.0]), alike)
    assert evidence.load_ahead(places)[0] == pytest.approx(1.5 / 3.0 - 1.5 / 32.0)
    for _ in range(12):
        evidence.add_load(places, np.array([np.nan, 0.0]), alike)
    assert abs(evidence.load_ahead(places)[0]) < 0.01


def test_load_is_bytes_where_they_are_known_and_else_operations() -> None:
    ones = np.ones((2, 3))
    assert log_moved({"read_share": ones}) is None
    for known, log in (
        ({"throughput": 2.0 * ones, "operations": ones}, 2.0),
        ({"operations": ones, "request_bytes": 4.0 * ones}, 5.0),
        ({"operations": ones}, 1.0),
    ):
        load = log_moved(known)
        assert load is not None
        assert np.array_equal(load, log * ones)


def test_idle_components_are_silent_and_not_judged() -> None:
    values = healthy(11)
    operations = np.full(values.shape, 50.0)
    values[:3], operations[:3] = 0.0, 0.0
    values[3], operations[3] = 900.0, 1.0  # one slow I/O in an interval tells nothing
    course = course_of(windows_of(values, {"operations": operations}))
    assert not course.anomalous.any()
    assert not np.array([v.judged for v in course.verdicts])[:, :4].any()


@pytest.mark.parametrize("together", [0, 2])
def test_samples_that_nobody_else_has_at_that_time_tell_nothing_and_spoil_nothing(together: int) -> None:
    """A group that is all but idle for two windows; `together`: so many of its members share their tick."""
    values = slowed(healthy(31, rows=6), {4: 3.0})
    quiet = slice(450, 450 + 2 * SHIFT)
    kept = np.full((6, 2 * SHIFT), np.nan)
    for row in range(6):
        for begin in (0, SHIFT):
            tick = begin + (0 if row < together else row)
            kept[row, tick] = values[row, 450 + tick]
    values[:, quiet] = kept
    course = course_of(windows_of(values))
    assert TOO_FEW in course.notes
    assert course.alarmed == {4}
    assert course.alarms[-1] == [False] * 4 + [True, False]
    assert np.isfinite(course.score).all()


def test_faster_is_no_fault() -> None:
    assert not course_of(windows_of(slowed(healthy(12), {0: 0.3}))).anomalous.any()


# --- what must be found ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factors",
    [
        {0: 1.2},
        {0: 1.6, 1: 1.2},
        dict.fromkeys(range(5), 1.6),
        {0: 1.3, 1: 1.5, 2: 2.0, 3: 3.0, 4: 10.0},
    ],
)
def test_slow_from_the_first_sample(factors: dict[int, float]) -> None:
    course = course_of(windows_of(slowed(healthy(20), factors)))
    assert course.alarmed == set(factors)
    for row, factor in factors.items():
        assert course.verdicts[-1].severity[row] == pytest.approx(factor, rel=0.1)
        assert course.verdicts[-1].observed[row] / course.verdicts[-1].reference[row] > 1.0


def test_large_faults_are_confirmed_at_once() -> None:
    course = course_of(windows_of(slowed(healthy(21), {4: 3.0}, since=450)))
    first = int(np.argmax(np.array(course.alarms)[:, 4]))
    assert course.alarmed == {4}
    assert WINDOW + first * SHIFT - 450 <= 3 * SHIFT


def test_steady_twenty_per_cent_is_found_after_an_onset() -> None:
    course = course_of(windows_of(slowed(healthy(22, ticks=1500), {4: 1.2}, since=600)))
    assert course.alarmed == {4}


def test_less_throughput_than_peers_is_a_fault_where_smaller_is_worse() -> None:
    course = course_of(windows_of(slowed(healthy(23), {1: 0.5}), worse=-1))
    assert course.alarmed == {1}
    assert course.verdicts[-1].severity[1] == pytest.approx(2.0, rel=0.1)
    assert course.verdicts[-1].reference[1] == pytest.approx(2 * course.verdicts[-1].observed[1], rel=0.2)


def test_recovery_is_seen() -> None:
    values = healthy(24, ticks=3000)
    values[0, 600:1200] *= 2.0
    course = course_of(windows_of(values))
    assert course.alarmed == {0}
    assert not course.alarms[-1][0]


def test_five_of_twelve_are_found_beside_one_that_is_nearly_suspect() -> None:
    values = slowed(healthy(14, noise=0.05), dict.fromkeys(range(5), 2.0) | {5: 1.13}, since=300)
    course = course_of(windows_of(values))
    assert course.alarmed == set(range(5))
    assert course.score[-1, 5] > 0.75


@pytest.mark.parametrize("slow", [6, 7])
def test_half_slow_is_not_a_group_of_peers(slow: int) -> None:
    course = course_of(windows_of(slowed(healthy(25), dict.fromkeys(range(slow), 1.6))))
    assert not course.alarmed
    assert course.notes.count(NOT_PEERS) > 0.9 * len(course.notes)


def test_three_members_are_not_judged() -> None:
    course = course_of(windows_of(slowed(healthy(26, 3), {0: 9.0})))
    assert set(course.notes) == {TOO_FEW}
    assert not any(v.judged.any() for v in course.verdicts)


# --- properties --------------------------------------------------------------------------------------------

QUICK = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


def group(
    seed: int, rows: int, noise: float, persistence: float, slow: int, gaps: float, idle: float
) -> Values:
    """A group of any health, with gaps and idle intervals."""
    values = healthy(seed, rows, 240, noise, persistence)
    rng = np.random.default_rng(seed)
    values = slowed(values, {int(c): float(rng.uniform(1.1, 4.0)) for c in rng.permutation(rows)[:slow]})
    values[rng.random(values.shape) < gaps] = np.nan
    values[rng.random(values.shape) < idle] = 0.0
    return values


@st.composite
def groups(draw: st.DrawFn, least: int = 4, most: int = 14) -> Values:
    """Groups of any health, with gaps and idle intervals."""
    rows = draw(st.integers(least, most))
    return group(
        draw(st.integers(0, 2**32 - 1)),
        rows,
        draw(st.sampled_from([0.02, 0.1, 0.4])),
        draw(st.sampled_from([0.0, 0.8])),
        draw(st.integers(0, rows // 2)),
        draw(st.sampled_from([0.0, 0.1])),
        draw(st.sampled_from([0.0, 0.1])),
    )


def alike(one: Verdicts, other: Verdicts, order: NDArray[np.intp] | None = None, scale: float = 1.0) -> None:
    at = np.arange(one.judged.size) if order is None else order
    assert one.note == other.note
    assert one.judged[at].tolist() == other.judged.tolist()
    assert one.anomalous[at].tolist() == other.anomalous.tolist()
    np.testing.assert_allclose(one.score[at], other.score, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.severity[at], other.severity, rtol=1e-6)
    np.testing.assert_allclose(one.observed[at] * scale, other.observed, rtol=1e-6)
    np.testing.assert_allclose(one.reference[at] * scale, other.reference, rtol=1e-6)


@QUICK
@given(groups(), st.randoms(use_true_random=False))
def test_order_of_components_does_not_matter(values: Values, random: object) -> None:
    windows = windows_of(values)
    one = course_of(windows)
    other = detector_of(len(values))
    for index, (window, verdicts) in enumerate(zip(windows, one.verdicts, strict=True)):
        order = np.random.default_rng(index).permutation(len(values))
        names = tuple(window.components[c] for c in order)
        shuffled = replace(window, components=names, metrics={"await": window.metrics["await"][order]})
        alike(verdicts, other.observe(shuffled), order)


@QUICK
@given(groups(), st.sampled_from([1e-3, 0.37, 1000.0]))
def test_scaling_all_latencies_changes_nothing(values: Values, factor: float) -> None:
    for one, other in zip(
        course_of(windows_of(values)).verdicts, course_of(windows_of(values * factor)).verdicts, strict=True
    ):
        alike(one, other, scale=factor)


@QUICK
@given(groups())
@example(group(932005, 6, 0.4, 0.8, 3, 0.0, 0.1))
def test_missing_rows_are_absent(values: Values) -> None:
    with_absent = np.vstack([np.full((2, values.shape[1]), np.nan), values])
    names = ("gone/0", "gone/1", *(f"oss/{c}" for c in range(len(values))))
    order = np.arange(2, len(with_absent))
    one = course_of(windows_of(values), detector_of(9))
    other = course_of(windows_of(with_absent, names=names), detector_of(9))
    for without, holding in zip(one.verdicts, other.verdicts, strict=True):
        assert not holding.judged[:2].any()
        alike(holding, without, order)


@QUICK
@given(st.integers(0, 2**32 - 1), st.integers(5, 12), st.sampled_from([0.05, 0.3]))
def test_one_more_healthy_peer_alarms_no_silent_group(seed: int, rows: int, noise: float) -> None:
    """A peer like the rest: the group's own middle, tick by tick, with noise of the group's size."""
    values = healthy(seed, rows, 600, noise)
    one = course_of(windows_of(values), detector_of(rows))
    rng = np.random.default_rng(seed)
    peer = np.median(values, axis=0) * np.exp(autocorrelated(rng, 1, 600, 0.4, noise))
    two = course_of(windows_of(np.vstack([values, peer])), detector_of(rows))
    if not one.alarmed:
        assert not two.alarmed


@QUICK
@given(groups())
def test_state_goes_on_exactly(values: Values) -> None:
    windows = windows_of(values)
    detector = detector_of(len(values))
    for window in windows[:3]:
        detector.observe(window)
    restored = detector_of(len(values))
    restored.restore(json.loads(json.dumps(detector.state())))
    for window in windows[3:]:
        one, other = detector.observe(window), restored.observe(window)
        assert one.score.tobytes() == other.score.tobytes()
        assert one.anomalous.tobytes() == other.anomalous.tobytes()
    assert restored.state() == detector.state()


def test_state_of_another_version_is_refused() -> None:
    detector = detector_of(4)
    with pytest.raises(ValueError, match="laggard"):
        detector.restore({**detector.state(), "version": -1})


@pytest.mark.parametrize(
    "damage",
    [
        {"unit": [1.0]},
        {"unit": []},
        {"unit": None},
        {"evidence": {"names": ["oss/0"], "average": [[0.0]] * 3}},
        {"evidence": {"names": ["oss/0"], "average": 1.0}},
        {"evidence": {"names": ["oss/0"], "score": [0.0, 0.0]}},
        {"evidence": {}},
    ],
)
def test_a_damaged_state_is_refused_at_its_restore(damage: dict[str, object]) -> None:
    detector = detector_of(4)
    with pytest.raises((ValueError, TypeError, LookupError)):
        detector.restore({**detector.state(), **damage})


def test_a_state_of_one_kind_of_evidence_goes_on() -> None:
    """Of version 6: six averages a component, the same for both kinds of evidence from then on.

    Mean squares were of up to 96 windows.
    """
    *before, last = windows_of(slowed(healthy(8, 6, 600), {2: 3.0}))
    detector = detector_of(6)
    for window in before:
        detector.observe(window)
    state = json.loads(json.dumps(detector.state()))
    evidence = state["evidence"]
    for name in ("average", "moment"):
        evidence[name] = evidence[name][:LENGTHS]
    sums = ("sum", "sum_began", "sum_windows", "sum_until")
    for name in (*sums, "recent_load", "usual_load", "usual_ratio", "load_windows", "steady"):
        del evidence[name]
    for name in ("recent_cross", "recent_square"):
        del state["load"][name]
    evidence["seen"][0] = 96.0
    del state["time"]
    older = detector_of(6)
    older.restore({**state, "version": 6, "unit": state["unit"][:LENGTHS]})
    kept = np.array(older.state()["evidence"]["average"])
    assert kept[LENGTHS:].tolist() == kept[:LENGTHS].tolist() == evidence["average"]
    assert max(older.state()["evidence"]["seen"]) == MEMORY_WINDOWS
    assert older.state()["unit"] == state["unit"][:LENGTHS] * KINDS
    assert older.observe(last).anomalous.tolist() == [c == 2 for c in range(6)]


def test_trusted_members_that_never_have_samples_at_the_same_time_leave_no_trace() -> None:
    """Each one beside a slower one, none beside another of the majority: it has no reference, for once."""
    sparse = np.full((9, SHIFT), np.nan)
    for c in range(5):
        sparse[c, c], sparse[5 + min(c, 3), c] = 1.0, 1.3
    busy = slowed(healthy(2, 9, 600), {6: 5.0})
    values = np.hstack([sparse, busy])
    detector, twin = detector_of(9, SHIFT, SHIFT), naive.NaiveLaggard(SHIFT, 1e-6)
    first, *later = windows_of(values, window=SHIFT, shift=SHIFT)
    assert detector.observe(first).note == TOO_FEW
    found = twin.observe(dict(zip(first.components, first.metrics["await"].tolist(), strict=True)))
    assert not any(judged for judged, *_ in found.values())
    last = course_of(later, detector)
    assert last.anomalous[-1].tolist() == [c == 6 for c in range(9)]
    assert np.isfinite(last.score).all()


@QUICK
@given(groups(least=1, most=9), st.sampled_from([5, 20]))
def test_verdicts_equal_the_naive_twin(values: Values, shift: int) -> None:
    detector = detector_of(len(values), shift, shift)
    budget = DetectSettings(window_samples=shift, shift_samples=shift, tests_at_once=len(values))
    twin = naive.NaiveLaggard(shift, chance_per_window(budget))
    for window in windows_of(values, window=shift, shift=shift):
        verdicts = detector.observe(window)
        expected = twin.observe(dict(zip(window.components, window.metrics["await"].tolist(), strict=True)))
        for c, name in enumerate(window.components):
            judged, anomalous, score, severity, clear = expected[name]
            assert (bool(verdicts.judged[c]), bool(verdicts.anomalous[c])) == (judged, anomalous)
            assert verdicts.clear is None or bool(verdicts.clear[c]) == clear
            if judged:
                assert verdicts.score[c] == pytest.approx(score, rel=1e-6, abs=1e-9)
                assert verdicts.severity[c] == pytest.approx(severity, rel=1e-6)


@QUICK
@given(groups(least=1), st.data())
def test_leave_one_out_median_equals_the_naive_twin(values: Values, data: st.DataObject) -> None:
    trusted = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    values = np.round(values[:, :7], 0)  # ties
    series = {str(c): row for c, row in enumerate(values.tolist())}
    chosen = {str(c) for c in np.flatnonzero(trusted)}
    found = leave_one_out_median(values, trusted)
    for c in range(len(values)):
        expected = naive.laggard_peers_median(series, str(c), chosen)
        np.testing.assert_array_equal(found[c], expected)
        assert row_median(values)[c] == naive.laggard_median(values[c].tolist()) or np.isnan(values[c]).all()


def test_trimmed_mean_equals_the_naive_twin() -> None:
    rng = np.random.default_rng(5)
    logs, weights = rng.normal(0.0, 0.5, (40, 9)), 5 * rng.integers(0, 4, (40, 9))
    logs[rng.random(logs.shape) < 0.2] = np.nan
    weights[0] = 0
    found = trimmed_mean(logs, weights.astype(np.float64))
    expected = [
        naive.laggard_trimmed_mean(row, own) for row, own in zip(logs.tolist(), weights.tolist(), strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.isnan(found[0])


def test_shortest_half_stays_with_the_majority() -> None:
    centre, length = shortest_half(np.array([0.0, 0.1, -0.1, 0.05, 9.0, 9.0, 9.1]))
    assert centre == pytest.approx(0.0125)
    assert length == pytest.approx(0.2)


@pytest.mark.parametrize("empty", [1, WINDOW // 2, WINDOW - 4, WINDOW])
def test_a_first_window_that_begins_empty_is_as_long_as_its_data(empty: int) -> None:
    first, second = windows_of(slowed(healthy(32, ticks=WINDOW + SHIFT), {4: 1.6}))
    begins_empty, short = (
        LaggardDetector(DetectSettings(), "await"),
        LaggardDetector(DetectSettings(), "await"),
    )
    values = first.metrics["await"].copy()
    values[:, :empty] = np.nan
    alike(
        begins_empty.observe(replace(first, metrics={"await": values})),
        short.observe(replace(first, metrics={"await": first.metrics["await"][:, empty:]})),
    )
    alike(begins_empty.observe(second), short.observe(second))


def test_overlapping_windows_count_each_sample_once() -> None:
    values = slowed(healthy(30), {0: 1.3})
    together = course_of(windows_of(values, window=30, shift=30)[1:], detector_of(12))
    overlapping = course_of(windows_of(values, window=60, shift=30), detector_of(12))
    # The second window of 60 samples brings 30 new ones, as every window of 30 does.
    first, second = overlapping.verdicts[1], together.verdicts[1]
    assert first.observed.tolist() == second.observed.tolist()


# --- real drives -------------------------------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "host", ["cluster_A__host_22", "cluster_C__host_24", "cluster_J__host_20", "cluster_J__host_1"]
)
def test_real_drives(host: str) -> None:
    path = shared(f"perseus_failslow/{host}.csv.xz")
    with shared("perseus_failslow/labels.csv").open() as file:
        slow = {r["disk_id"] for r in csv.DictReader(file) if f"{r['cluster']}__{r['host']}" == host}
    with lzma.open(path, "rt") as file:
        rows = [(int(r["ts"]), r["disk_id"], r["throughput"], r["latency"]) for r in csv.DictReader(file)]
    names = tuple(sorted({name for _, name, _, _ in rows}))
    blocks = sorted({ts // 300 for ts, *_ in rows})
    place = {block: index for index, block in enumerate(blocks)}
    values = np.full((len(names), 20 * len(blocks)), np.nan)
    load = values.copy()
    for ts, name, throughput, latency in rows:
        at = names.index(name), 20 * place[ts // 300] + ts % 300 // 15
        values[at] = np.nan if latency == "NA" else float(latency)
        load[at] = np.nan if throughput == "NA" else float(throughput)
    windows = windows_of(values, {"throughput": load}, names, window=20, shift=20)
    course = course_of(
        windows,
        LaggardDetector(DetectSettings(window_samples=20, shift_samples=20, tests_at_once=310), "await"),
    )
    truth = np.array([name in slow for name in names])
    assert course.anomalous[:, truth].sum() >= 0.94 * course.anomalous[:, truth].size
    assert course.anomalous[:, ~truth].mean() < 0.005
    assert {names[c] for c in course.alarmed} >= slow
