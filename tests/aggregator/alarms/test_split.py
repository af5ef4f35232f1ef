"""All disks of one of two servers are slow: the server is named, no disk of it."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect import LEVEL_OF_SPLITS
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.topology import Branch, Topology

SETTINGS = DetectSettings(interval_seconds=1.0, window_samples=60, shift_samples=30)
DISKS = tuple(f"oss-{server}/sd{disk}" for server in (1, 2) for disk in "abcdef")


def run(factors: dict[int, float], onset: int, end: int, windows: int, seed: int = 5) -> list[Judgement]:
    """The judgements of twelve disks; those at `factors` are slower from window `onset` to before `end`."""
    rng = np.random.default_rng(seed)
    engine = Judge({"luns": SETTINGS})
    values = 4.0 * np.exp(0.2 * rng.standard_normal((len(DISKS), 60 + 30 * (windows - 1))))
    for row, factor in factors.items():
        values[row, 30 * onset : 30 * end] *= factor
    found: list[Judgement] = []
    for w in range(windows):
        part, start = values[:, 30 * w : 30 * w + 60], 1_760_000_000.0 + 30 * w
        found.extend(engine.evaluate(GroupWindow("luns", DISKS, start, start + 60, 0, {"await": part})))
    return found


def episodes(judgements: list[Judgement]) -> list[tuple[str, str, str]]:
    transitions = [transition for judged in judgements for transition in judged.transitions]
    return [(each.kind, each.alarm.component, each.alarm.level) for each in transitions]


@pytest.mark.parametrize("onset", [0, 12])
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_a_slow_server_of_two_is_named_and_none_of_its_disks(onset: int, seed: int) -> None:
    judgements = run(dict.fromkeys(range(6, 12), 3.0), onset, onset + 30, onset + 60, seed)
    side = "all of oss-2"
    assert episodes(judgements) == [("raised", side, LEVEL_OF_SPLITS), ("cleared", side, LEVEL_OF_SPLITS)]
    raised = next(t.alarm for judged in judgements for t in judged.transitions)
    assert raised.severity == pytest.approx(3.0, rel=0.1)
    assert raised.observed / raised.reference == pytest.approx(raised.severity)
    split = next(judged.split for judged in judgements if judged.split is not None)
    assert (split.attribute, split.value, split.other) == ("node", "oss-2", "oss-1")
    assert (split.members, split.others) == (6, 6)
    last = next(judged.split for judged in reversed(judgements) if judged.split is not None)
    assert last.changed == ("oss-2" if onset else "")
    if onset:
        assert 1_760_000_000.0 + 30 * (onset - 2) <= last.changed_at <= 1_760_000_000.0 + 30 * (onset + 3)
        assert "oss-2 changed at 2025-10-09" in last.text()
    else:
        assert last.text().endswith("peers alone cannot tell which side is normal")


MODELS = {"model": ("A", "B") * 6}


def judgements_of(
    engine: Judge,
    names: tuple[str, ...],
    values: NDArray[np.float64],
    attributes: Mapping[str, tuple[str, ...]],
) -> list[Judgement]:
    """The judgements of values (C, T) in windows of 60 samples, each half a window after the one before."""
    return [
        judged
        for first in range(0, values.shape[1] - 30, 30)
        for judged in engine.evaluate(
            GroupWindow(
                "luns",
                names,
                float(first),
                float(first + 60),
                0,
                {"await": values[:, first : first + 60]},
                attributes=attributes,
            )
        )
    ]


def shared(
    factors: dict[int, float],
    attributes: Mapping[str, tuple[str, ...]],
    names: tuple[str, ...] = DISKS,
    topology: Topology | None = None,
    windows: int = 30,
) -> list[Judgement]:
    """The judgements of disks with attributes; those at `factors` are slower from window 10 on."""
    engine, rng = Judge({"luns": SETTINGS}, topology=topology), np.random.default_rng(5)
    values = 4.0 * np.exp(0.2 * rng.standard_normal((len(names), 60 + 30 * (windows - 1))))
    for row, factor in factors.items():
        values[row, 330:] *= factor
    return judgements_of(engine, names, values, attributes)


def test_half_a_group_of_one_model_is_told_along_it() -> None:
    judgements = shared(dict.fromkeys(range(1, 12, 2), 3.0), MODELS)
    assert episodes(judgements) == [("raised", "all of B", LEVEL_OF_SPLITS)]
    split = judgements[-1].split
    assert split is not None
    assert split.factor == pytest.approx(3.0, rel=0.1)
    assert split.text().startswith(f"all 6 members of model B are {split.factor:.1f} times")
    assert "than those of A; B changed at 1970-01-01 00:0" in split.text()


def test_the_sites_attributes_come_before_the_agents() -> None:
    topology = Topology(
        [Branch(f".*/sd[{disks}]", {"pool": pool}) for disks, pool in (("ace", "p"), ("bdf", "q"))]
    )
    judgements = shared(dict.fromkeys(range(1, 12, 2), 3.0), {"pool": ("x",) * 12}, topology=topology)
    assert episodes(judgements) == [("raised", "all of q", LEVEL_OF_SPLITS)]


def test_a_slow_pool_of_four_is_told_and_none_of_its_disks() -> None:
    """A healthy majority: the four would be blamed one by one."""
    pools = {"pool": tuple(f"pool-{n // 4}" for n in range(12))}
    judgements = shared(dict.fromkeys(range(4, 8), 3.0), pools)
    assert episodes(judgements) == [("raised", "all of pool-1", LEVEL_OF_SPLITS)]


def judged_along(model: tuple[str, ...], factors: NDArray[np.float64], seed: int) -> list[Judgement]:
    """The judgements of DISKS of a model each, `factors` (C, windows) times slower."""
    engine, rng = Judge({"luns": SETTINGS}), np.random.default_rng(seed)
    values = 4.0 * np.exp(0.1 * rng.standard_normal((len(DISKS), 30 * factors.shape[1] + 30)))
    values[:, 30:] *= np.repeat(factors, 30, axis=1)
    return judgements_of(engine, DISKS, values, {"model": model})


@pytest.mark.parametrize("seed", range(4))
def test_those_that_stay_slow_while_their_side_recovers_are_named_at_once(seed: int) -> None:
    factors = np.ones((12, 60))
    factors[6:, 20:40] = factors[8:10, 40:] = 3.0
    judgements = judged_along(("",) * 12, factors, seed)
    assert [event[:2] for event in episodes(judgements[:40])] == [("raised", "all of oss-2")]
    after = episodes(judgements[40:44])
    assert sorted(after) == [
        ("cleared", "all of oss-2", LEVEL_OF_SPLITS),
        ("raised", "oss-2/sdc", "component"),
        ("raised", "oss-2/sdd", "component"),
    ]
    assert episodes(judgements[44:]) == []


@pytest.mark.parametrize("older", [4, 6])
@pytest.mark.parametrize("ill", [0, 11])
def test_members_of_two_generations_are_held_against_their_own(older: int, ill: int) -> None:
    """Whose times differ for good as much as by a fault; the older ones are 1.6 times slower at times."""
    factors = np.ones((12, 100))
    factors[:older] = np.where(np.arange(100) // 20 % 2 == 1, 1.6, 1.2)
    factors[ill, 60:] *= 1.8
    judgements = judged_along(("old",) * older + ("new",) * (12 - older), factors, 3)
    named = {component for _, component, level in episodes(judgements) if level == "component"}
    assert named == {DISKS[ill]}


def test_disks_of_no_attribute_and_single_ones_are_blamed_themselves() -> None:
    pools = {"pool": tuple(f"pool-{n // 4}" for n in range(12))}
    (raised,) = episodes(shared({4: 3.0}, pools))
    assert raised == ("raised", "oss-1/sde", "component")
    unknown = {"pool": ("a", "a", "", "", *("b",) * 8)}
    blamed = episodes(shared(dict.fromkeys(range(1, 4), 3.0), unknown))
    assert {name for _, name, _ in blamed} == {"oss-1/sdb", "oss-1/sdc", "oss-1/sdd"}


def test_a_slow_server_is_blamed_itself_whatever_else_its_disks_share() -> None:
    names = tuple(f"oss-{server}/sd{disk}" for server in range(4) for disk in "abc")
    judgements = shared(
        dict.fromkeys(range(3), 3.0), {"adapter": tuple(name[:5] + "/0" for name in names)}, names
    )
    assert episodes(judgements) == [("raised", "oss-0", "node")]


def test_one_slow_disk_is_no_split() -> None:
    judgements = run({8: 3.0}, 0, 40, 40)
    assert episodes(judgements) == [("raised", "oss-2/sdc", "component")]
    assert all(judged.split is None for judged in judgements)


def test_healthy_servers_raise_nothing() -> None:
    judgements = run({}, 0, 0, 200)
    assert episodes(judgements) == []


def test_it_goes_on_after_a_restart() -> None:
    judgements = run(dict.fromkeys(range(6, 12), 3.0), 0, 20, 20)
    assert episodes(judgements) == [("raised", "all of oss-2", LEVEL_OF_SPLITS)]
    engine, restored = Judge({"luns": SETTINGS}), Judge({"luns": SETTINGS})
    values = 4.0 * np.exp(0.2 * np.random.default_rng(5).standard_normal((len(DISKS), 660)))
    values[6:] *= 3.0
    windows = [
        GroupWindow("luns", DISKS, 30.0 * w, 30.0 * w + 60, 0, {"await": values[:, 30 * w : 30 * w + 60]})
        for w in range(20)
    ]
    for window in windows[:10]:
        engine.evaluate(window)
    restored.restore("luns", engine.state("luns"))
    for window in windows[10:]:
        (expected,), (judged,) = engine.evaluate(window), restored.evaluate(window)
        assert judged.straggler.any()
        assert judged.components == expected.components
        np.testing.assert_array_equal(judged.straggler, expected.straggler)
        np.testing.assert_array_equal(judged.persistence, expected.persistence)


def test_a_disk_that_goes_leaves_the_split() -> None:
    engine = Judge({"luns": SETTINGS})
    values = 4.0 * np.exp(0.2 * np.random.default_rng(5).standard_normal((len(DISKS), 660)))
    values[6:] *= 3.0
    for w in range(20):
        part = values[:, 30 * w : 30 * w + 60]
        engine.evaluate(GroupWindow("luns", DISKS, 30.0 * w, 30.0 * w + 60, 0, {"await": part}))
    assert engine.forget("luns", DISKS[:1], DISKS[1:], 700.0) == []
    (cleared,) = engine.forget("luns", DISKS[6:], DISKS[1:6], 700.0)
    assert cleared.alarm.component == "all of oss-2"
