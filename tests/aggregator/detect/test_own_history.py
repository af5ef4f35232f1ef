"""A group against its own past: synthetic days of eight members, windows of a quarter of an hour."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect import LEVEL_OF_GROUPS as LEVEL
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.own_history import (
    MAX_KEPT,
    MIN_PAST_SECONDS,
    NEW_NORMAL_SECONDS,
    SAMPLED,
    GroupHistory,
)
from laggard_aggregator.detect.settings import DetectSettings

INTERVAL, SAMPLES = 60.0, 15
WINDOW = INTERVAL * SAMPLES
DAY = round(86400 / WINDOW)
SETTINGS = DetectSettings(interval_seconds=INTERVAL, window_samples=SAMPLES, shift_samples=SAMPLES)


def window(
    at: int, factor: float = 1.0, demand: float = 100.0, members: int = 8, seed: int = 1
) -> GroupWindow:
    """The `at`th window: latencies of 5 ms and 10 % of noise, times `factor`."""
    rng = np.random.default_rng((seed, at))
    shape = (members, SAMPLES)
    load = {
        "operations": demand * np.exp(0.1 * rng.standard_normal(shape)),
        "request_bytes": np.full(shape, 65536.0),
        "read_share": np.full(shape, 0.5),
    }
    values = factor * 5.0 * np.exp(0.1 * rng.standard_normal(shape))
    names = tuple(f"oss-{c // 2}/lun{c}" for c in range(members))
    return GroupWindow("luns", names, at * WINDOW, (at + 1) * WINDOW, 0, {"await": values}, load)


def known(days: int = 3) -> GroupHistory:
    """A history of some usual days."""
    history = GroupHistory("await", INTERVAL)
    for at in range(days * DAY):
        history.observe(window(at))
    return history


def flags(history: GroupHistory, windows: list[GroupWindow]) -> list[bool]:
    """Of the windows that were judged whether anomalous."""
    found = [history.observe(each) for each in windows]
    return [bool(verdicts.anomalous[0]) for verdicts in found if verdicts is not None]


def test_twice_as_slow_as_its_past_is_anomalous_with_its_factor() -> None:
    history = known()
    verdicts = history.observe(window(3 * DAY, 2.0))
    assert verdicts is not None
    assert verdicts.anomalous.all()
    assert verdicts.severity[0] == pytest.approx(2.0, rel=0.1)
    assert verdicts.observed[0] == pytest.approx(10.0, rel=0.1)
    assert verdicts.reference[0] == pytest.approx(5.0, rel=0.1)


def test_usual_days_and_a_single_slow_member_are_not() -> None:
    history = known()
    usual = [window(3 * DAY + n) for n in range(DAY)]
    slow = np.array([5.0] + [1.0] * 7)[:, None]
    for n in range(DAY // 2):
        usual[n] = replace(usual[n], metrics={"await": usual[n].metrics["await"] * slow})
    found = flags(history, usual)
    assert len(found) == DAY
    assert not any(found)


def test_without_two_days_of_past_nothing_is_judged() -> None:
    history = GroupHistory("await", INTERVAL)
    first = [history.observe(window(at, 1.0 + (at > DAY))) for at in range(int(MIN_PAST_SECONDS // WINDOW))]
    assert first == [None] * len(first)


def test_more_demand_than_ever_is_compared_with_nothing_and_less_with_the_past() -> None:
    history = known()
    assert history.observe(window(3 * DAY, 2.0, demand=300.0)) is None
    less = history.observe(window(3 * DAY + 1, 2.0, demand=30.0))
    assert less is not None
    assert less.anomalous.all()


def test_a_slow_hour_of_every_day_is_usual_at_that_hour_only() -> None:
    def of(at: int) -> float:
        return 2.0 if at % DAY < DAY // 4 else 1.0

    history = GroupHistory("await", INTERVAL)
    for at in range(6 * DAY):
        history.observe(window(at, of(at)))
    night = [window(6 * DAY + n, 2.0) for n in range(DAY // 4)]
    assert not any(flags(history, night))
    noon = [window(6 * DAY + DAY // 2 + n, 2.0) for n in range(DAY // 8)]
    found = flags(history, noon)
    assert found
    assert all(found)


def test_after_a_week_the_new_level_is_the_usual_one() -> None:
    history = known()
    week = round(NEW_NORMAL_SECONDS / WINDOW)
    found = flags(history, [window(3 * DAY + n, 2.0) for n in range(week + 1)])
    assert all(found)
    after = flags(history, [window(3 * DAY + week + 1 + n, 2.0) for n in range(3 * DAY)])
    assert after
    assert not any(after)


def test_what_is_kept_is_bounded() -> None:
    history = known(days=20)
    assert len(json.dumps(history.state()["kept"])) < 200 * MAX_KEPT
    assert len(history.state()["kept"]) == 5 * MAX_KEPT


def test_a_large_group_is_judged_by_a_part_of_its_members() -> None:
    history = GroupHistory("await", INTERVAL)
    members = 2 * SAMPLED
    for at in range(3 * DAY):
        history.observe(window(at, members=members))
    assert flags(history, [window(3 * DAY, 2.0, members=members)]) == [True]


@pytest.mark.parametrize("side", [0, -1])
def test_metrics_that_are_not_worse_when_larger_are_not_judged(side: int) -> None:
    history = GroupHistory("await", INTERVAL)
    assert all(history.observe(replace(window(at), worse={"await": side})) is None for at in range(3 * DAY))


def test_without_a_demand_nothing_is_judged() -> None:
    history = GroupHistory("await", INTERVAL)
    assert all(history.observe(replace(window(at), load={})) is None for at in range(3 * DAY))


def test_gaps_and_idle_windows_change_nothing() -> None:
    history = known()
    before = history.state()["kept"]
    nothing = {"await": np.full((8, SAMPLES), np.nan)}
    idle = {"await": np.zeros((8, SAMPLES))}
    for n, metrics in enumerate((nothing, idle)):
        assert history.observe(replace(window(3 * DAY + n), metrics=metrics)) is None
    assert history.state()["kept"] == before


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 4 * DAY - 1), factor=st.sampled_from([1.0, 1.4, 2.0, 50.0]))
def test_a_restored_state_goes_on_to_the_bit(cut: int, factor: float) -> None:
    windows = [window(at, factor if at > 3 * DAY else 1.0) for at in range(4 * DAY)]
    one = GroupHistory("await", INTERVAL)
    for each in windows[:cut]:
        one.observe(each)
    other = GroupHistory("await", INTERVAL)
    other.restore(json.loads(json.dumps(one.state())))
    for each in windows[cut : cut + DAY]:
        own, restored = one.observe(each), other.observe(each)
        assert (own is None) == (restored is None)
        if own is not None and restored is not None:
            assert own.score.tobytes() == restored.score.tobytes()
    assert json.dumps(one.state()) == json.dumps(other.state())


def test_a_whole_group_raises_one_alarm_of_its_own_and_clears_it() -> None:
    judge = Judge({"luns": SETTINGS})
    events = []
    for at in range(4 * DAY):
        slow = 3 * DAY <= at < 3 * DAY + 12
        for judged in judge.evaluate(window(at, 2.0 if slow else 1.0)):
            events += [(each.kind, each.alarm.component, each.alarm.level) for each in judged.transitions]
            if at < 3 * DAY:
                assert LEVEL not in judged.levels
        if at == 3 * DAY + 6:  # a restart, and a component that is gone, in the middle
            kept, standing = json.loads(json.dumps(judge.state("luns"))), judge.alarms.state()
            judge = Judge({"luns": SETTINGS})
            judge.restore("luns", kept)
            judge.alarms.restore(standing)
            names = window(0).components
            assert judge.forget("luns", names[:1], names[1:], at * WINDOW) == []
    assert events == [("raised", "luns", LEVEL), ("cleared", "luns", LEVEL)]


def test_a_group_without_enough_peers_is_judged_as_a_whole() -> None:
    judge = Judge({"luns": SETTINGS})
    events = []
    for at in range(3 * DAY + 8):
        for judged in judge.evaluate(window(at, 2.0 if at >= 3 * DAY else 1.0, members=2)):
            events += [(each.kind, each.alarm.component) for each in judged.transitions]
    assert events == [("raised", "luns")]
