"""Persistence against its obvious twin: one component, one list of flags at a time."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.alarms import judge
from laggard_aggregator.alarms.alarms import Persistence
from laggard_aggregator.detect.interface import StopTally, Verdicts

COMPONENTS = ("oss-1/sda", "oss-1/sdb", "oss-2/sda")


def verdicts(flags: list[bool | None]) -> Verdicts:
    """Verdicts with these raw flags; None is a component that was not judged."""
    n = len(flags)
    nan = np.full(n, np.nan)
    return Verdicts(
        judged=np.array([flag is not None for flag in flags]),
        anomalous=np.array([bool(flag) for flag in flags]),
        score=np.zeros(n),
        severity=nan,
        observed=nan,
        reference=nan,
    )


@dataclass
class Twin:
    """Intrepid 4.2 and 4.3 word by word, for one component, and what relapses add."""

    k: int
    cleared_at: int | None = None
    patience: int = 1
    accumulator: int = 0
    flags: list[bool] = field(default_factory=list)
    faulty: bool = False
    since: float = 0.0

    @property
    def begun(self) -> bool:
        """Whether an anomalous window of the present episode is among the recent ones."""
        return any(self.flags[self.cleared_at or 0 :][-(2 * self.k - 1) :])

    def window(self, flag: bool, start: float) -> None:
        if flag and not self.begun and not self.faulty:
            self.since = start
        self.accumulator = self.accumulator + 1 if flag else max(0, self.accumulator - 1)
        self.flags.append(flag)
        if self.faulty:
            self.faulty = any(self.flags[-self.k * self.patience :])
            if not self.faulty:
                self.cleared_at = len(self.flags)
        elif sum(self.flags[-(2 * self.k - 1) :]) >= self.k:
            self.faulty = True
            well = None if self.cleared_at is None else len(self.flags) - 1 - self.cleared_at
            relapsed = well is not None and well < 16 * self.k
            self.patience = min(2 * self.patience, 4) if relapsed else 1


@given(
    k=st.integers(1, 4),
    windows=st.lists(st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3), max_size=40).map(
        lambda few: [row for row in few for _ in range(1 + len(few) % 4)]
    ),
    order=st.permutations(range(3)),
)
def test_agrees_with_the_twin_in_any_order_of_components(
    k: int, windows: list[list[bool | None]], order: list[int]
) -> None:
    persistence = Persistence(k)
    twins = [Twin(k) for _ in COMPONENTS]
    names = [COMPONENTS[i] for i in order]
    for w, flags in enumerate(windows):
        rows = persistence.update(names, float(w), verdicts([flags[i] for i in order]))
        for twin, flag in zip(twins, flags, strict=True):
            if flag is not None:
                twin.window(flag, float(w))
        ordered = [twins[i] for i in order]
        assert persistence.accumulator[rows].tolist() == [t.accumulator for t in ordered]
        assert persistence.faulty[rows].tolist() == [t.faulty for t in ordered]
        for got, twin in zip(persistence.since[rows].tolist(), ordered, strict=True):
            assert got == twin.since or not (twin.faulty or twin.begun)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=12), st.integers(0, 12))
def test_goes_on_from_a_saved_state(windows: list[list[bool]], split: int) -> None:
    whole, before, after = Persistence(3), Persistence(3), Persistence(3)
    for w, flags in enumerate(windows[:split]):
        whole.update(COMPONENTS, w, verdicts([*flags]))
        before.update(COMPONENTS, w, verdicts([*flags]))
    after.restore(before.state())
    for w, flags in enumerate(windows[split:], start=split):
        whole.update(COMPONENTS, w, verdicts([*flags]))
        after.update(COMPONENTS, w, verdicts([*flags]))
    assert after.state() == whole.state()


def test_a_component_may_come_later_and_be_forgotten() -> None:
    persistence = Persistence(2)
    persistence.update(COMPONENTS[:1], 0.0, verdicts([True]))
    rows = persistence.update(COMPONENTS[:2], 1.0, verdicts([True, True]))
    assert persistence.accumulator[rows].tolist() == [2, 1]
    assert persistence.faulty[rows].tolist() == [True, False]
    persistence.forget({COMPONENTS[0], "never seen"})
    rows = persistence.update(COMPONENTS[1::-1], 2.0, verdicts([False, False]))
    assert persistence.accumulator[rows].tolist() == [0, 0]
    assert persistence.state()[COMPONENTS[1]]["recent"] == [False, True, False]
    assert persistence.state()[COMPONENTS[0]]["recent"] == [False, False, False]


@pytest.mark.parametrize("k", [1, 3])
def test_hysteresis_needs_k_normal_windows_in_a_row(k: int) -> None:
    persistence = Persistence(k)
    for w in range(k):
        rows = persistence.update(COMPONENTS[:1], w, verdicts([True]))
    assert persistence.faulty[rows][0]
    for w in range(k - 1):
        rows = persistence.update(COMPONENTS[:1], k + w, verdicts([False]))
        assert persistence.faulty[rows][0]
    rows = persistence.update(COMPONENTS[:1], 2 * k, verdicts([False]))
    assert not persistence.faulty[rows][0]


def test_a_component_that_comes_and_goes_keeps_its_second_alarm() -> None:
    persistence = Persistence(3)
    alarms = []
    for w in range(40):
        rows = persistence.update(COMPONENTS[:1], w, verdicts([w % 8 < 4]))
        alarms.append(bool(persistence.faulty[rows][0]))
    assert not alarms[7]
    assert all(alarms[10:])


def test_a_relapse_after_a_long_time_is_a_new_episode() -> None:
    persistence = Persistence(2)
    faulty = []
    for w in range(120):
        rows = persistence.update(COMPONENTS[:1], w, verdicts([w % 60 < 2]))
        faulty.append(bool(persistence.faulty[rows][0]))
    assert [w for w, now in enumerate(faulty) if now] == [1, 2, 61, 62]


def test_an_onset_dates_the_episode_back_but_not_before_the_last_one() -> None:
    persistence = Persistence(2)

    def add(start: float, *flags: bool, onset: float) -> list[float]:
        now = replace(verdicts(list(flags)), onsets={"c0": onset})
        rows = persistence.update(["c0", "c1"][: len(flags)], start, now)
        since: list[float] = persistence.since[rows].tolist()
        return since

    for at in range(4):
        add(at * 60.0, False, False, onset=0.0)
    assert add(240.0, True, True, onset=90.0) == [240.0, 240.0], "it is not faulty yet"
    assert add(300.0, True, True, onset=120.0) == [120.0, 240.0]
    assert add(360.0, True, True, onset=60.0) == [120.0, 240.0], "it stays"
    for at in range(7, 10):
        add(at * 60.0, False, False, onset=60.0)
    assert not persistence.faulty.any()
    for at in range(10, 12):
        since = add(at * 60.0, True, True, onset=60.0)
    assert since == [480.0, 600.0], "the last alarm was cleared in the window from 480 s on"
    restored = Persistence(2)
    restored.restore(persistence.state())
    assert restored.cleared_at.tolist() == persistence.cleared_at.tolist()


def test_an_episode_begins_after_the_last_one() -> None:
    """Although anomalous windows of the last one are among the recent ones when it begins."""
    persistence = Persistence(3)
    since, faulty = [], []
    for at, flag in enumerate([True] * 4 + [False] * 3 + [True] * 2):
        now = replace(verdicts([flag]), clear=np.array([flag]))
        rows = persistence.update(COMPONENTS[:1], 100.0 + at, now)
        faulty.append(bool(persistence.faulty[rows][0]))
        since.append(float(persistence.since[rows][0]))
    assert faulty == [False, True, True, True, True, True, False, False, True]
    assert since[5] == 100.0
    assert since[8] == 107.0


def ratios(times: list[float]) -> list[bool]:
    """Whether a component is faulty after each window, `times` slower and anomalous by its evidence."""
    persistence = Persistence(3)
    faulty = []
    for at, factor in enumerate(times):
        rows = persistence.update(COMPONENTS[:1], 60.0 * at, verdicts([True]), np.log([factor]))
        faulty.append(bool(persistence.faulty[rows[0]]))
    return faulty


def test_two_windows_as_the_peers_clear_although_the_evidence_is_long() -> None:
    faulty = ratios([3.0] * 20 + [1.02, 0.98] + [1.05] * 30)
    assert faulty == [False] * 2 + [True] * 19 + [False] * 31


def test_one_that_recovered_before_it_was_confirmed_is_not_raised() -> None:
    assert not any(ratios([3.0] * 2 + [1.0] * 30))


def test_one_that_is_slow_again_after_its_recovery_is_raised_again() -> None:
    faulty = ratios([3.0] * 10 + [1.0] * 5 + [3.0] * 4)
    assert faulty[-5:] == [False, False, False, True, True]


@pytest.mark.parametrize("cycle", [[3.0, 1.0], [3.0, 1.7], [3.0, 1.0, 1.0, 1.0], [1.5, 1.1, 1.3]])
def test_one_that_is_slow_at_times_stays_one_episode(cycle: list[float]) -> None:
    faulty = ratios(cycle * 20)
    assert sum(not before and now for before, now in pairwise(faulty)) == 1
    assert faulty[-1]


def test_a_window_without_a_ratio_shows_no_recovery() -> None:
    assert ratios([3.0] * 5 + [np.nan] * 10)[-1]


def test_what_showed_a_recovery_is_restored() -> None:
    persistence, again = Persistence(3), Persistence(3)
    for at, factor in enumerate([3.0] * 5 + [1.0]):
        persistence.update(COMPONENTS[:1], 60.0 * at, verdicts([True]), np.log([factor]))
    again.restore(persistence.state())
    rows = again.update(COMPONENTS[:1], 400.0, verdicts([True]), np.log([1.0]))
    assert not again.faulty[rows[0]]


def test_a_component_that_stops_at_times_is_not_cleared_by_the_windows_between() -> None:
    tally = StopTally(6, 2.0, 10.0, 40.0, 7200.0, 0.0)
    told = replace(verdicts([True, True]), severity=np.ones(2), observed=np.ones(2), reference=np.ones(2))
    ratios = judge._log_ratios(replace(told, stops={"b": tally}), ("a", "b"), 1)
    assert ratios is not None
    assert ratios[0] == 0.0
    assert np.isnan(ratios[1])
