"""Simulated sites keep what docs/reliability.md promises, and errors in the code do not.

By default of the 200 sites the first 48, and four of the errors, others in each run.
"""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from bench.simulation.__main__ import first_found, main
from bench.simulation.mutations import MUTATIONS
from bench.simulation.plan import Fault, plan_of
from bench.simulation.simulate import run, simulate
from tests.support.thorough import times

ALL_SEEDS = 200
SEEDS, CHUNK = times(ALL_SEEDS, 48), 8
ONCE_BROKEN = (3713, 3745, 4833, 20225, 23361, 31265, 32433, 40025)
"""Seeds beyond these that found an error."""
TRIES = 100
EVENTS = (
    *("restarts", "lost", "doubled", "delayed", "redelivered", "coalesced"),
    *("alarms raised", "alarms cleared", "windows", "undisturbed runs", "samples lost and counted"),
    *("minutes in rollups", "jobs", "mails", "mails sent again"),
)


@cache
def results_of(seed: int) -> tuple[list[str], Counter[str]]:
    """Broken promises and counts of a seed."""
    outcome = simulate(seed)
    return outcome.problems, outcome.counts


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_sites_with_faults_keep_every_promise(first: int) -> None:
    broken = {seed: results_of(seed)[0] for seed in range(first, first + CHUNK)}
    assert {seed: problems for seed, problems in broken.items() if problems} == {}


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_a_site_that_found_an_error_keeps_every_promise(seed: int) -> None:
    assert results_of(seed)[0] == []


def test_the_sites_have_every_kind_of_event() -> None:
    """Promises about what never happens in a simulation would be worth nothing."""
    missing = set(EVENTS)
    for seed in range(ALL_SEEDS):
        missing -= set(+results_of(seed)[1])
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("name", random.sample(list(MUTATIONS), times(len(MUTATIONS), 4)))
def test_an_error_in_the_code_is_found(name: str) -> None:
    assert first_found(MUTATIONS[name], TRIES) is not None


@pytest.mark.parametrize("seed", [12, 17])
def test_a_seed_has_one_history(seed: int) -> None:
    one, other = simulate(seed), simulate(seed)
    events = [[(e.seconds, e.source, e.text) for e in each.history] for each in (one, other)]
    assert events[0] == events[1]
    assert one.counts == other.counts


def test_an_undisturbed_site_raises_the_slow_disk_and_loses_nothing() -> None:
    plan = replace(plan_of(8), samples=30, faults=())
    outcome = run(plan)
    assert outcome.problems == []
    assert outcome.counts["alarms raised"] == 1
    assert outcome.counts["samples lost and counted"] == 0
    assert outcome.counts["samples"] >= 3 * 30


def test_a_broker_that_is_away_for_long_fills_a_small_spool_which_counts_its_losses() -> None:
    away = (Fault(8.0, "broker down", "", 60.0, 1.0),)
    outcome = run(replace(plan_of(8), samples=80, spool_bytes=1536, faults=away))
    assert outcome.problems == []
    assert outcome.counts["samples lost and counted"] > 0


def test_the_command_prints_the_history_of_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 3: ")
    assert "FAULT" in printed
    assert "all faults are over" in printed


def test_the_command_ends_with_status_1_for_a_broken_promise(capsys: pytest.CaptureFixture[str]) -> None:
    name = "windows follow the host's clock"
    found = first_found(MUTATIONS[name], TRIES)
    assert found is not None
    assert main(["--seed", str(found[0]), "--mutation", name]) == 1
    assert "BROKEN" in capsys.readouterr().out
