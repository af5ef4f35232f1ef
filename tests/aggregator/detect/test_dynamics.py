"""How soon `laggard` raises and clears, in windows: steps at every alignment, and the recorded run."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from laggard_aggregator.alarms.alarms import AlarmEvent, Persistence
from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.demo.recording import Recording, read_recording
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.laggard.detector import NOT_PEERS, LaggardDetector
from laggard_aggregator.detect.laggard.evidence import GroupEvidence
from laggard_aggregator.detect.laggard.thresholds import chance_per_window
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from tests import naive
from tests.aggregator.detect.courses import (
    INTERVAL,
    SHIFT,
    ComponentHistory,
    Values,
    autocorrelated,
    course_of,
    detector_of,
    healthy,
    slowed,
    windows_of,
)
from tests.support.thorough import times

CONFIRM = 3
SOON = CONFIRM + 3
"""Windows after a fault's last one by which its alarm is gone: as many to see it, and k to confirm it."""
OFFSETS = range(0, SHIFT, 3)


# --- steps -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A component that is `factor` times slower for `lasting` windows, after `before` healthy ones."""

    factor: float
    lasting: int
    before: int = 12
    after: int = 16

    def of(self, seed: int, offset: int, noise: float) -> tuple[Values, int, int]:
        """Values, and the numbers of the first and last window that the fault fills by more than half."""
        values = healthy(seed, 12, (self.before + self.lasting + self.after) * SHIFT, noise)
        start = self.before * SHIFT + offset
        values[3, start : start + self.lasting * SHIFT] *= self.factor
        first = self.before + round(offset / SHIFT + 1e-9)
        return values, first, first + self.lasting - 1


def alarms_of(values: Values, detector: LaggardDetector | None = None) -> tuple[ComponentHistory, list[int]]:
    """The course with windows of one shift, and in which of them component 3 was an alarm."""
    course = course_of(windows_of(values, window=SHIFT, shift=SHIFT), detector)
    return course, np.flatnonzero(np.array(course.alarms)[:, 3]).tolist()


@pytest.mark.parametrize("noise", [0.03, 0.15])
@pytest.mark.parametrize("before", [2, 12])
@pytest.mark.parametrize("lasting", [6, 20])
@pytest.mark.parametrize("factor", [2.0, 3.0, 10.0])
def test_large_steps_raise_after_k_windows_and_clear_soon(
    factor: float, lasting: int, before: int, noise: float
) -> None:
    late = []
    unsure = (factor, before, noise) == (2.0, 2, 0.15)  # two windows show little of a noisy group
    for offset in OFFSETS:
        values, first, last = Step(factor, lasting, before).of(offset, offset, noise)
        course, alarms = alarms_of(values)
        assert course.alarmed == {3}
        assert alarms[0] <= first + CONFIRM - 1 + unsure
        assert alarms == list(range(alarms[0], alarms[-1] + 1)), "one episode"
        late.append(alarms[-1] + 1 - last)
    assert np.median(late) <= SOON - 1
    assert max(late) <= SOON + 1


@pytest.mark.parametrize("lasting", [8, 20])
def test_half_as_slow_again_is_raised_and_cleared_soon(lasting: int) -> None:
    for offset in OFFSETS:
        values, first, last = Step(1.5, lasting).of(40 + offset, offset, 0.1)
        course, alarms = alarms_of(values)
        assert course.alarmed == {3}
        assert alarms[0] <= first + CONFIRM
        assert alarms[-1] + 1 - last <= SOON + 1


def test_a_large_site_is_no_slower_to_raise() -> None:
    values, first, _ = Step(3.0, 6).of(1, 0, 0.1)
    of_many = LaggardDetector(DetectSettings(window_samples=30, tests_at_once=1_000_000), "await")
    assert alarms_of(values, of_many)[1][0] <= first + CONFIRM - 1


@pytest.mark.parametrize(("slow", "quiet"), [(1, 1), (2, 1), (2, 2), (3, 2), (5, 2)])
def test_quiet_spells_clear_nothing(slow: int, quiet: int) -> None:
    for seed in range(5):
        values = healthy(seed, ticks=2400, noise=0.1)
        for start in range(0, 2400, (slow + quiet) * SHIFT):
            values[3, start : start + slow * SHIFT] *= 3.0
        _, alarms = alarms_of(values)
        assert alarms == list(range(alarms[0], 80))


@pytest.mark.parametrize("slow", [2, 5])
def test_several_at_once_stay_raised(slow: int) -> None:
    factors = {0: 1.6, 1: 1.3} if slow == 2 else dict.fromkeys(range(slow), 1.6)
    for seed in range(3):
        course = course_of(windows_of(slowed(healthy(seed, ticks=1800), factors, since=300)))
        assert course.alarmed == set(factors)
        assert np.array(course.alarms)[-20:, : len(factors)].all()


# --- groups that are none ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [8, 12, 24])
@pytest.mark.parametrize("apart", [1.2, 1.5, 2.0])
def test_far_beyond_both_halves_of_a_group_is_named(rows: int, apart: float) -> None:
    for seed in range(3):
        values = slowed(healthy(seed, rows, 1800), dict.fromkeys(range(rows // 2), apart))
        course = course_of(windows_of(slowed(values, {1: 10.0, rows - 1: 10.0}, since=600)))
        # of eight members, four 2 times slower, one in the faster half is hidden by how far the halves differ
        assert course.alarmed == ({1} if (rows, apart) == (8, 2.0) else {1, rows - 1})


def test_the_slower_half_is_not_named() -> None:
    course = course_of(windows_of(slowed(healthy(7), dict.fromkeys(range(6), 4.0))))
    assert NOT_PEERS in course.notes
    assert not course.alarmed


def test_members_of_four_kinds_are_no_stragglers() -> None:
    for seed in range(6):
        kinds = np.resize([1.0, 1.3, 1.7, 2.2], 24)
        assert not course_of(windows_of(healthy(seed, 24, 2400) * kinds[:, None])).alarmed


def test_few_that_wander_are_peers() -> None:
    """Three of four are often alike by chance in a window, which does not make the fourth a stranger."""
    notes = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        values = np.exp(autocorrelated(rng, 4, 3000, 0.995, 0.15) + rng.normal(0.0, 0.3, (4, 3000)))
        notes += course_of(windows_of(values)).notes
    assert notes.count(NOT_PEERS) < 0.1 * len(notes)


def test_one_odd_window_is_no_reason_to_doubt_the_group() -> None:
    """Half of the peers spread for one window while one is slow: its alarm does not wait for them."""
    values = healthy(8, noise=0.05)
    values[[0, 1, 2, 4, 5, 6], 450:480] *= np.array([0.7, 0.72, 0.74, 1.3, 1.35, 1.4])[:, None]
    values[3, 450:] *= 10.0
    _, alarms = alarms_of(values)
    assert alarms[0] <= 450 // SHIFT + CONFIRM - 1


# --- the recorded run --------------------------------------------------------------------------------------


@cache
def recorded() -> tuple[Recording, Values, dict[str, Values]]:
    """The demo's recording; await and load by second, its recovered part twice."""
    recording = read_recording()
    columns = {
        "rd_ios": 3,
        "rd_sectors": 5,
        "rd_ms": 6,
        "wr_ios": 7,
        "wr_sectors": 9,
        "wr_ms": 10,
        "io_ms": 12,
    }
    counters = np.array(
        [
            [[int(s.rows[n].split()[c]) for c in columns.values()] for n in recording.luns]
            for s in recording.samples
        ]
    )
    rises = np.diff(counters, axis=0).transpose(1, 0, 2)
    again = rises.shape[1] - len(recording.recovered()) + 1
    rises = np.concatenate([rises, rises[:, again:]], axis=1)
    absent = ("dc_ios", "dc_sectors", "dc_ms")
    padded = np.concatenate([rises, np.zeros((*rises.shape[:2], 3), dtype=np.int64)], axis=2).reshape(-1, 10)
    differences = Differences((*columns, *absent), padded, np.ones(len(padded)))
    metrics, loads = BLOCK.kept(["await"])
    load = {name: metric.derive(differences).reshape(rises.shape[:2]) for name, metric in loads.items()}
    return recording, metrics["await"].derive(differences).reshape(rises.shape[:2]), load


def transitions_of(begin: int, offset: int, window: int, shift: int) -> list[AlarmEvent]:
    """What an engine that began to see the run at second `begin` raised and cleared."""
    recording, values, load = recorded()
    settings = DetectSettings(
        interval_seconds=1.0, window_samples=window, shift_samples=shift, tests_at_once=12
    )
    engine, found = Judge({"luns": settings}), []
    for end in range(begin + offset + window, values.shape[1] + 1, shift):
        at = slice(end - window, end)
        judged = engine.evaluate(
            GroupWindow(
                "luns",
                recording.luns,
                float(end - window),
                float(end),
                0,
                {"await": values[:, at]},
                {name: each[:, at] for name, each in load.items()},
            )
        )
        found += [transition for each in judged for transition in each.transitions]
    return found


@pytest.mark.parametrize("begin", [0, 30, 60, 90])
@pytest.mark.parametrize(("window", "shift"), [(60, 30), (30, 15)])
def test_the_recorded_fault_is_raised_and_cleared_at_every_offset(
    begin: int, window: int, shift: int
) -> None:
    recording, _, _ = recorded()
    starts, ends = recording.fault_start - recording.start, recording.fault_end - recording.start
    for offset in range(0, shift, shift // times(5, 2)):
        raised, cleared = transitions_of(begin, offset, window, shift)
        assert {raised.alarm.component, cleared.alarm.component} == {recording.faulty}
        assert starts < raised.at <= starts + (CONFIRM + 1) * shift
        assert ends < cleared.at <= ends + (SOON + 0.5) * shift


# --- the twin ----------------------------------------------------------------------------------------------


def courses() -> dict[str, Values]:
    """Groups that fall ill and recover, or have two halves."""
    ticks = np.arange(600)
    ill = healthy(60, 9, 600, 0.1)
    ill[3, 100:300] *= 5.0
    ill[4, 200:420] *= 1.6
    flapping = healthy(61, 7, 600, 0.05)
    flapping[2] *= np.where(ticks // 60 % 2, 4.0, 1.0)
    halves = slowed(slowed(healthy(62, 8, 600), dict.fromkeys(range(4), 1.5)), {7: 8.0}, since=200)
    wandering = healthy(63, 8, 600) * np.exp(autocorrelated(np.random.default_rng(63), 8, 600, 0.99, 0.3))
    return {"ill": ill, "flapping": flapping, "halves": halves, "wandering": wandering}


@pytest.mark.parametrize("name", ["ill", "flapping", "halves", "wandering"])
def test_the_twin_recovers_alike(name: str) -> None:
    values, shift = courses()[name], 20
    detector = detector_of(len(values), shift, shift)
    budget = DetectSettings(window_samples=shift, shift_samples=shift, tests_at_once=len(values))
    twin = naive.NaiveLaggard(shift, chance_per_window(budget))
    for window in windows_of(values, window=shift, shift=shift):
        verdicts = detector.observe(window)
        expected = twin.observe(dict(zip(window.components, window.metrics["await"].tolist(), strict=True)))
        for c, component in enumerate(window.components):
            judged, anomalous, score, severity, _ = expected[component]
            assert (bool(verdicts.judged[c]), bool(verdicts.anomalous[c])) == (judged, anomalous)
            assert verdicts.score[c] == pytest.approx(score, rel=1e-6, abs=1e-9)
            assert verdicts.severity[c] == pytest.approx(severity, rel=1e-6)


# --- onsets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "noise"), [(1.2, 0.1), (1.5, 0.3), (2.0, 0.5), (10.0, 0.1)])
def test_since_is_the_window_of_the_onset(factor: float, noise: float) -> None:
    """Within two windows for most; the first anomalous window of a small slowness is later."""
    away, late = [], []
    for seed in range(8):
        step = Step(factor, lasting=60, before=24, after=0)
        values, first, _ = step.of(seed, 0, noise)
        windows = windows_of(values, window=SHIFT, shift=SHIFT)
        detector, persistence = detector_of(len(values), SHIFT, SHIFT), Persistence(CONFIRM)
        flagged = None
        for at, window in enumerate(windows):
            verdicts = detector.observe(window)
            rows = persistence.update(window.components, window.start, verdicts)
            flagged = at if flagged is None and verdicts.anomalous[3] and at >= first else flagged
            if persistence.faulty[rows[3]]:
                seconds = float(persistence.since[rows[3]]) - windows[first].start
                away.append(round(seconds / (window.end - window.start)))
                late.append((flagged or at) - first)
                break
    assert len(away) >= 6
    assert np.median(np.abs(away)) <= 1
    assert np.median(away) <= np.median(late)
    assert max(away) <= max(late)


def test_a_recovered_component_starts_anew() -> None:
    values = healthy(3, 12, 90 * SHIFT, 0.1)
    for begin, end in ((20, 40), (70, 90)):
        values[3, begin * SHIFT : end * SHIFT] *= 4.0
    windows = windows_of(values, window=SHIFT, shift=SHIFT)
    detector, persistence = detector_of(len(values), SHIFT, SHIFT), Persistence(CONFIRM)
    for window in windows:
        rows = persistence.update(window.components, window.start, detector.observe(window))
    assert persistence.faulty[rows[3]]
    assert persistence.since[rows[3]] == windows[70].start


def onset_of(values: Values, begin: int) -> float | None:
    """Windows from `begin` to `since` of the first alarm on member 3 after it; None without an alarm."""
    windows = windows_of(values, window=SHIFT, shift=SHIFT)
    detector, persistence = detector_of(len(values), SHIFT, SHIFT), Persistence(CONFIRM)
    was_faulty = False
    for at, window in enumerate(windows):
        rows = persistence.update(window.components, window.start, detector.observe(window))
        faulty = bool(persistence.faulty[rows[3]])
        if faulty and not was_faulty and at >= begin:
            seconds = float(persistence.since[rows[3]]) - windows[begin].start
            return seconds / (window.end - window.start)
        was_faulty = faulty
    return None


def test_skewed_noise_is_no_onset() -> None:
    """The mean of such noise is above 1 for all members alike."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        values = healthy(seed, 12, 60 * SHIFT, 0.1) * np.exp(rng.normal(0.0, 2.0, (12, 60 * SHIFT)))
        values[3, 40 * SHIFT :] *= 4.0
        onset = onset_of(values, 40)
        assert onset is not None
        assert abs(onset) <= 3


def test_a_harmless_difference_that_lasts_is_no_onset() -> None:
    for seed in range(4):
        values = healthy(seed, 12, 80 * SHIFT, 0.1)
        values[3] *= 1.1
        values[3, 50 * SHIFT :] *= 1.15
        onset = onset_of(values, 50)
        assert onset is not None
        assert abs(onset) <= 2


def test_chance_before_a_gap_is_no_onset() -> None:
    for idle in (5, 50):
        values = healthy(3, 12, 100 * SHIFT, 0.05)
        values[3, 20 * SHIFT : 22 * SHIFT] *= 1.16
        values[3, 22 * SHIFT : (22 + idle) * SHIFT] = 0.0
        values[3, (22 + idle) * SHIFT :] *= 2.0
        assert onset_of(values, 22 + idle) == 0


def test_slowness_before_a_gap_is_dated_back() -> None:
    values = healthy(5, 12, 120 * SHIFT, 0.5)
    values[3, 20 * SHIFT :] *= 1.5
    values[:, 30 * SHIFT : 60 * SHIFT] = np.nan
    onset = onset_of(values, 20)
    assert onset is not None
    assert abs(onset) <= 2


def test_slowness_that_fades_ends_its_sum() -> None:
    """No recovery restarts the averages then."""
    evidence = GroupEvidence(60.0)
    places = evidence.places(("a",))
    whole = np.ones(1)
    for at in range(200):
        slow = np.array([2.0 if at < 160 else 0.0])
        evidence.add_sums(places, slow, whole, (at * 60.0, at * 60.0 + 60.0))
    evidence.add_sums(places, np.array([2.0]), whole, (12000.0, 12060.0))
    assert evidence.slow_since(places, np.array([0.2])).tolist() == [12000.0]
    assert evidence.slow_since(places, np.array([2.0])).tolist() == [12000.0]


# --- closed loops ------------------------------------------------------------------------------------------


def in_flight(rng: np.random.Generator, rows: int, ticks: int) -> Values:
    """Requests that clients keep in flight at each of `rows`: 1 to 8, another number every few hours."""
    depth = np.empty((rows, ticks))
    for row in depth:
        at = 0
        while at < ticks:
            length = int(rng.exponential(960.0)) + 1
            row[at : at + length] = 2.0 ** rng.integers(0, 4)
            at += length
    return depth


def test_one_of_four_in_a_closed_loop_is_told_from_other_numbers_in_flight() -> None:
    """Queues as M/M/1, where 8 in flight take 4.5 times as long as one."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        depth = in_flight(rng, 4, 2400)
        values = slowed(5.0 * (1.0 + depth) * np.exp(rng.normal(0.0, 0.1, depth.shape)), {3: 2.0}, since=1920)
        course = course_of(windows_of(values, {"operations": 1000.0 * INTERVAL * depth / values}))
        assert course.alarmed == {3}
