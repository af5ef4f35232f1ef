"""Members that are slow one after the other: told as maintenance; no alarms where the site says so."""

import re
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.alarms.rotation import FIRST_SECONDS, Rotation, SlowTurn
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings

SETTINGS = DetectSettings(interval_seconds=15.0, window_samples=60, shift_samples=30)
MEMBERS = tuple(f"oss-1/d{n}" for n in range(6))
HOURS, SHIFT = 3600.0, 450.0
TURN = 16
"""Windows of a turn: two hours."""


def run(
    turns: dict[int, tuple[int, int]], windows: int, *, rotating: bool, factor: float = 2.0
) -> list[Judgement]:
    """The judgements of six disks, each slow in its turn, (first, last) window; with a restart half-way."""
    settings = replace(SETTINGS, rotating=rotating)
    engine, rng = Judge({"luns": settings}), np.random.default_rng(3)
    values = 4.0 * np.exp(0.1 * rng.standard_normal((len(MEMBERS), 30 * windows + 30)))
    for member, (first, last) in turns.items():
        values[member, 30 * first : 30 * last] *= factor
    found: list[Judgement] = []
    for w in range(windows):
        if w == windows // 2:
            restored = Judge({"luns": settings})
            restored.restore("luns", engine.state("luns"))
            restored.alarms.restore(engine.alarms.state())
            engine = restored
        part, start = values[:, 30 * w : 30 * w + 60], SHIFT * w
        found.extend(engine.evaluate(GroupWindow("luns", MEMBERS, start, start + 900.0, 0, {"await": part})))
    return found


def raised(judgements: list[Judgement]) -> list[tuple[str, float]]:
    return [(t.alarm.component, t.at) for j in judgements for t in j.transitions if t.kind == "raised"]


IN_TURN = {n: (20 + TURN * n, 20 + TURN * (n + 1)) for n in range(6)}


def test_turns_are_told_and_raise_alarms_unless_the_site_says_that_they_rotate() -> None:
    judgements = run(IN_TURN, 130, rotating=False)
    assert {component for component, _ in raised(judgements)} == set(MEMBERS)
    told = r"6 of 6 members were slow one after the other, each for about 2\.[0-4] hours: maintenance .*"
    assert re.fullmatch(told, judgements[-1].rotation)
    assert judgements[40].rotation == ""


def test_a_rotating_group_has_no_alarm_while_it_moves_on() -> None:
    judgements = run(IN_TURN, 130, rotating=True)
    assert any(judged.straggler.any() for judged in judgements)
    assert raised(judgements) == []


def test_one_that_does_not_move_on_has_an_alarm() -> None:
    stays = 20 + TURN * 4
    judgements = run({**{n: IN_TURN[n] for n in range(4)}, 5: (stays, stays + 60)}, 150, rotating=True)
    ((component, at),) = raised(judgements)
    assert component == MEMBERS[5]
    assert 3.5 * HOURS <= at - SHIFT * stays <= 5.5 * HOURS


def test_one_that_is_worse_than_the_turns_has_an_alarm_at_once() -> None:
    rotation = Rotation()
    for n in range(3):
        begin = 7200.0 * n
        rotation.update(
            MEMBERS, {MEMBERS[n]: SlowTurn(MEMBERS[n], begin, begin + 7000.0, 1.8)}, begin + 7000.0
        )
    begin = 3 * 7200.0
    rotation.update(MEMBERS, {MEMBERS[3]: SlowTurn(MEMBERS[3], begin, begin + 900.0, 1.9)}, begin + 900.0)
    assert rotation.moves_on(MEMBERS[3])
    rotation.update(MEMBERS, {MEMBERS[3]: SlowTurn(MEMBERS[3], begin, begin + 1350.0, 9.0)}, begin + 1350.0)
    assert not rotation.moves_on(MEMBERS[3])


@pytest.mark.parametrize("hours", [1.0, 3.9, 4.1, 30.0])
def test_the_first_turn_may_take_four_hours(hours: float) -> None:
    rotation = Rotation()
    rotation.update(MEMBERS, {MEMBERS[0]: SlowTurn(MEMBERS[0], 0.0, hours * HOURS, 1.8)}, hours * HOURS)
    assert rotation.moves_on(MEMBERS[0]) == (hours * HOURS <= FIRST_SECONDS)


def test_faults_at_once_or_of_other_lengths_are_no_pattern() -> None:
    together, uneven = Rotation(), Rotation()
    slow = {name: SlowTurn(name, 0.0, 7200.0, 1.8) for name in MEMBERS}
    together.update(MEMBERS, slow, 7200.0)
    together.update(MEMBERS, {}, 7200.0)
    begin = 0.0
    for n, hours in enumerate((0.5, 40.0, 2.0, 8.0, 0.5, 16.0)):
        end = begin + hours * HOURS
        uneven.update(MEMBERS, {MEMBERS[n]: SlowTurn(MEMBERS[n], begin, end, 1.8)}, end)
        uneven.update(MEMBERS, {}, end)
        begin = end + 8 * HOURS
    assert (together.text(6), uneven.text(6)) == ("", "")
    assert len(together.finished) == 6


def test_episodes_of_a_replaced_member_are_forgotten() -> None:
    rotation = Rotation()
    rotation.update(MEMBERS, {name: SlowTurn(name, 0.0, 900.0, 2.0) for name in MEMBERS[:2]}, 900.0)
    rotation.update(MEMBERS, {MEMBERS[0]: SlowTurn(MEMBERS[0], 0.0, 1350.0, 2.0)}, 1350.0)
    rotation.forget(MEMBERS[:2])
    assert rotation.state() == {}
