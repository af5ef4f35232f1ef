"""The sides of a group: named when they differ, the right attribute of several, never one member."""

from collections.abc import Callable
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.detect.interface import FloatArray, GroupWindow, Level, Verdicts
from laggard_aggregator.detect.laggard.evidence import HARMLESS_LOG_RATIO
from laggard_aggregator.detect.split import (
    MIN_FACTOR,
    SideHistory,
    Split,
    ahead_of_other_side,
    begin_of,
    find_split,
    ordinary_members,
)


def verdicts(observed: FloatArray) -> Verdicts:
    ones, every = np.ones(observed.size), np.ones(observed.size, dtype=np.bool_)
    return Verdicts(every, ~every, ones, ones, observed, ones)


def level(name: str, of: list[int]) -> Level:
    return Level(name, tuple(f"{name}-{n}" for n in range(max(of) + 1)), np.array(of))


def at(seconds: float) -> Callable[[Split], float]:
    return lambda _split: seconds


def noise(members: int, sigma: float, seed: int) -> FloatArray:
    return np.exp(sigma * np.random.default_rng(seed).standard_normal(members))


sizes = st.integers(4, 32)
sigmas = st.floats(0.03, 0.25)
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("members", [4, 8, 12, 16, 32, 64])
@pytest.mark.parametrize("sigma", [0.03, 0.1, 0.25])
def test_healthy_groups_have_no_sides(members: int, sigma: float) -> None:
    """The rate on members that differ for good by `sigma`: at most 1 in 50 in any group of two servers."""
    servers = [level("node", [2 * m // members for m in range(members)])]
    false = [find_split(verdicts(noise(members, sigma, seed)), servers) for seed in range(400)]
    assert sum(split is not None for split in false) <= 8


@given(sizes, st.floats(0.03, 0.1), st.floats(2.0, 10.0), seeds)
@settings(deadline=None)
def test_the_slower_half_is_named_with_its_factor(half: int, sigma: float, factor: float, seed: int) -> None:
    observed = noise(2 * half, sigma, seed)
    observed[half:] *= factor
    split = find_split(verdicts(observed), [level("node", [0] * half + [1] * half)])
    assert split is not None
    assert (split.value, split.other, split.members, split.others) == ("node-1", "node-0", half, half)
    logs = np.log(observed)
    assert split.factor == pytest.approx(np.exp(np.median(logs[half:]) - np.median(logs[:half])))
    assert find_split(verdicts(1.0 / observed), [level("node", [0] * half + [1] * half)], -1) is not None


@given(sizes, sigmas, seeds)
@settings(deadline=None)
def test_the_attribute_that_parts_them_is_chosen(half: int, sigma: float, seed: int) -> None:
    observed = noise(2 * half, sigma, seed)
    observed[1::2] *= 20.0
    levels = [level("node", [0] * half + [1] * half), level("controller", [0, 1] * half)]
    split = find_split(verdicts(observed), levels)
    assert split is not None
    assert (split.attribute, split.value) == ("controller", "controller-1")
    assert split.factor > MIN_FACTOR


@given(sizes, st.floats(0.03, 0.1), st.floats(1.5, 100.0), seeds)
@settings(deadline=None)
def test_one_slow_member_is_no_side(half: int, sigma: float, factor: float, seed: int) -> None:
    observed = noise(2 * half, sigma, seed)
    observed[0] *= factor
    assert find_split(verdicts(observed), [level("node", [0] * half + [1] * half)]) is None


def test_unknown_values_are_left_out() -> None:
    observed = np.array([1.0, 1.1, 0.9, 1.0, 1.05, np.nan, 3.0, 3.1, 2.9, 3.0, 3.2, 0.0, 1000.0])
    servers = [Level("node", ("oss-1", "oss-2"), np.array([0] * 6 + [1] * 6 + [-1]))]
    split = find_split(verdicts(observed), servers)
    assert split is not None
    assert split.factor == pytest.approx(3.0)
    assert split == Split("node", "oss-2", "oss-1", 5, 5, 3.0, 1.0, split.factor)
    assert split.text() == (
        "all 5 members of node oss-2 are 3.0 times slower than those of oss-1; "
        "peers alone cannot tell which side is normal"
    )
    assert find_split(verdicts(observed), servers, 0) is None


def test_a_member_far_from_its_own_side_is_not_ordinary() -> None:
    observed = np.array([1.0] * 6 + [3.0] * 5 + [9.0])
    servers = [level("node", [0] * 6 + [1] * 6)]
    split = Split("node", "node-1", "node-0", 6, 6, 3.0, 1.0, 3.0)
    assert ordinary_members(verdicts(observed), split, servers).tolist() == [True] * 11 + [False]


@pytest.mark.parametrize(
    ("slow", "fast", "changed"),
    [(3.0, 1.0, "node-1"), (1.0, 1 / 3, "node-0"), (1.8, 0.6, ""), (9.0, 3.0, "")],
)
def test_the_side_that_left_its_level_is_the_one_that_changed(slow: float, fast: float, changed: str) -> None:
    servers, history = [level("node", [0] * 6 + [1] * 6)], SideHistory()
    for window in range(20):
        assert history.observe(None, verdicts(noise(12, 0.05, window)), servers, at(30.0 * window)) is None
    restored = SideHistory()
    restored.restore(history.state())
    observed = noise(12, 0.05, 99) * np.repeat([fast, slow], 6)
    asked = Mock(side_effect=[700.0])
    for _ in range(2):
        split = restored.observe(find_split(verdicts(observed), servers), verdicts(observed), servers, asked)
        assert split is not None
        assert (split.changed, split.changed_at) == (changed, 700.0)
    asked.assert_called_once()


def test_a_side_without_a_past_did_not_change() -> None:
    servers, observed = [level("node", [0] * 6 + [1] * 6)], np.repeat([1.0, 3.0], 6)
    split = find_split(verdicts(observed), servers)
    history = SideHistory()
    for window in range(3):
        history.observe(None, verdicts(np.ones(12)), servers, at(30.0 * window))
    told = history.observe(split, verdicts(observed), servers, at(100.0))
    assert told is not None
    assert told.changed == ""


def test_servers_that_went_are_forgotten() -> None:
    history = SideHistory()
    for name in ("node", "controller"):
        history.observe(None, verdicts(np.ones(12)), [level(name, [0] * 6 + [1] * 6)], at(0.0))
    assert set(history.state()["usual"]) == {"controller/controller-0", "controller/controller-1"}


@pytest.mark.parametrize(("excused", "ahead"), [(0, 0.5), (4, 0.5), (5, 0.0), (6, 0.0)])
def test_a_side_is_ahead_by_what_load_may_not_explain_of_two_members_at_least(
    excused: int, ahead: float
) -> None:
    logs = np.repeat([0.0, 0.5], 6) + np.tile(np.linspace(-0.02, 0.02, 6), 2)
    sure = logs.copy()
    sure[6 : 6 + excused] = 0.0
    pools = [level("pool", [0] * 6 + [1] * 6)]
    sides = ahead_of_other_side(logs, sure, np.ones(12, dtype=np.bool_), pools)
    assert sides.tolist() == pytest.approx([0.0] * 6 + [ahead] * 6)


def test_three_generations_are_held_against_each_other_within_what_is_harmless() -> None:
    logs = np.repeat([0.0, 0.22, 0.45], 5) + np.tile(np.linspace(-0.03, 0.03, 5), 3)
    models = [level("model", [0] * 5 + [1] * 5 + [2] * 5)]
    own = logs - ahead_of_other_side(logs, logs, np.ones(15, dtype=np.bool_), models)
    assert np.ptp(np.median(own.reshape(3, 5), axis=1)) < HARMLESS_LOG_RATIO


@given(sizes, st.floats(0.03, 0.1), st.floats(1.5, 3.0), seeds)
@settings(deadline=None)
def test_one_that_is_ill_hides_no_sides(half: int, sigma: float, factor: float, seed: int) -> None:
    observed = noise(2 * half + 2, sigma, seed)
    observed[half + 1 :] *= 2.0
    observed[0] *= 2.0 * factor
    split = find_split(verdicts(observed), [level("node", [0] * (half + 1) + [1] * (half + 1))])
    assert split is not None
    assert split.value == "node-1"


def window_of(values: FloatArray) -> GroupWindow:
    names = tuple(f"d{at}" for at in range(len(values)))
    return GroupWindow("g", names, 1000.0, 1000.0 + 15.0 * 60, values.shape[1] - 60, {"await": values})


@pytest.mark.parametrize("tick", [0, 7, 30, 55])
@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_sides_came_apart_at_the_tick_at_which_one_became_slow(tick: int, factor: float) -> None:
    values = np.random.default_rng(tick).lognormal(2.0, 0.2, (12, 60))
    values[6:, tick:] *= factor
    values[2, ::3] = np.nan
    split = Split("node", "node-1", "node-0", 6, 6, factor, 1.0, factor)
    began = begin_of(split, window_of(values), "await", [level("node", [0] * 6 + [1] * 6)])
    assert began == pytest.approx(1000.0 + 15.0 * tick, abs=15.0)


def test_sides_without_ticks_came_apart_before_the_window() -> None:
    split = Split("node", "node-1", "node-0", 6, 6, 3.0, 1.0, 3.0)
    levels = [level("node", [0] * 6 + [1] * 6)]
    assert begin_of(split, window_of(np.full((12, 60), np.nan)), "await", levels) == 1000.0
