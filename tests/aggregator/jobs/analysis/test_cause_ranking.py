"""Causes of a slow phase: ranked, with innocents left out."""

from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.jobs.verdict.analysis.cause_ranking import (
    LEAST_RATIO,
    Neighbour,
    OwnNumber,
    PathStraggler,
    SlowPhase,
    ranked_causes,
)

PHASE = SlowPhase(1000, 1600, 3.0)
STRAGGLER = PathStraggler("OST0042", 900, 1700, 3.1, 0.01, 1 / 8)
USUAL = np.exp(0.2 * np.random.default_rng(2).standard_normal(20))


def neighbour(load: float, kind: str = "n-1 neighbour") -> Neighbour:
    """A neighbour that usually has a fifth of the job's own load."""
    return Neighbour("17", "fwd-3", kind, load, 10.0, 2 * USUAL)


def test_a_straggler_on_the_path() -> None:
    (cause,) = ranked_causes(PHASE, [STRAGGLER], [], [])
    assert (cause.kind, cause.name) == ("straggler", "OST0042")
    assert cause.ratio >= LEAST_RATIO
    assert cause.factor == pytest.approx(3.1)


def test_a_straggler_that_the_job_waits_for_in_a_part_of_its_time() -> None:
    """A brick whose requests take 121 times as long made a job with pauses 2.9 times slower."""
    phase = SlowPhase(0, 60, 2.9)
    (cause,) = ranked_causes(phase, [PathStraggler("b", -6, 140, 121.3, 0.0, 0.25)], [], [])
    assert (cause.kind, cause.component) == ("straggler", "b")


def test_a_sure_load_that_explains_little_comes_after_what_explains_the_factor() -> None:
    """An N-1 writer that was never there makes an OST 1.3 times slower, a forwarder is 3.1 times slower."""
    writer = Neighbour("17", "OST0006", "N-1 bytes", 1.7e8, 0.0, np.zeros(10), slowdown=1.3, by_chance=1.0)
    first, second = ranked_causes(PHASE, [replace(STRAGGLER, component="fwd-2")], [writer], [])
    assert (first.component, second.component) == ("fwd-2", "OST0006")
    assert second.ratio > first.ratio


@pytest.mark.parametrize(
    "innocent",
    [
        PathStraggler("before", 100, 990, 3.1, 0.01, 1 / 8),
        PathStraggler("carries nothing", 900, 1700, 3.1, 0.01, 0.0),
        PathStraggler("always slow", 0, 9000, 3.1, 1.0, 1 / 8),
        PathStraggler("as fast", 900, 1700, 1.0, 0.01, 1 / 8),
    ],
)
def test_innocent_stragglers(innocent: PathStraggler) -> None:
    assert ranked_causes(PHASE, [innocent], [], []) == []


def test_a_neighbour_above_its_history() -> None:
    (cause,) = ranked_causes(PHASE, [], [neighbour(26.0), neighbour(2.2)], [])
    assert (cause.kind, cause.name, cause.component) == ("n-1 neighbour", "17", "fwd-3")
    assert cause.factor == pytest.approx(3, rel=0.1)


def test_a_neighbour_that_always_does_so_is_innocent() -> None:
    usual = Neighbour("17", "fwd-3", "mds flood", 26.0, 10.0, 26 * USUAL)
    assert ranked_causes(PHASE, [], [usual, neighbour(0.0)], []) == []


def test_own_change() -> None:
    requests = OwnNumber("request size", 4096, 1e6 * USUAL, "lower")
    same = OwnNumber("share of N-1", 0.1, 0.1 * USUAL)
    short = OwnNumber("opens", 1e6, USUAL[:3])
    (cause,) = ranked_causes(PHASE, [], [], [requests, same, short])
    assert (cause.kind, cause.name) == ("own change", "request size")
    assert cause.factor > 100


def test_nothing_passes_is_unknown() -> None:
    assert ranked_causes(PHASE, [], [], []) == []


def test_the_order_does_not_depend_on_the_order_of_the_evidence() -> None:
    stragglers = [STRAGGLER, PathStraggler("OST0001", 1300, 1600, 5.0, 0.01, 1 / 8)]
    neighbours = [neighbour(26.0), neighbour(2.0)]
    forward = ranked_causes(PHASE, stragglers, neighbours, [])
    assert forward == ranked_causes(PHASE, stragglers[::-1], neighbours[::-1], [])
    assert len(forward) >= 2


def test_two_causes_at_once() -> None:
    own = OwnNumber("metadata operations", 1.6, USUAL)
    phase = SlowPhase(1000, 1600, 3.3)
    found = ranked_causes(phase, [PathStraggler("OST0042", 900, 1700, 2.0, 0.01, 1 / 8)], [], [own])
    assert {cause.name for cause in found} == {"OST0042", "metadata operations"}


def test_what_a_cause_explains_speaks_no_more_for_another() -> None:
    """A load far above its own history explains a slow phase, unless that is explained already."""
    phase = SlowPhase(1000, 1600, 2.5)
    spread = np.exp(0.3 * np.random.default_rng(3).standard_normal(12))
    weak = Neighbour("18", "fwd-4", "n-1 neighbour", 15.0, 3.0, 5 * spread)
    strong = Neighbour("17", "fwd-3", "n-1 neighbour", 20.0, 10.0, 2 * USUAL)
    assert [cause.name for cause in ranked_causes(phase, [], [weak], [])] == ["18"]
    assert [cause.name for cause in ranked_causes(phase, [], [strong], [])] == ["17"]
    assert [cause.name for cause in ranked_causes(phase, [], [strong, weak], [])] == ["17"]


def test_a_few_values_that_happen_to_be_alike_prove_nothing() -> None:
    alike = Neighbour(
        "17", "fwd-3", "n-1 neighbour", 16.0, 1.0, np.array([9.9, 10.0, 10.1, 10.0, 9.95, 10.0])
    )
    assert ranked_causes(SlowPhase(1000, 1600, 1.6), [], [alike], []) == []


def test_evidence_that_explains_far_too_much_is_no_cause() -> None:
    huge = Neighbour("17", "fwd-3", "n-1 neighbour", 1e30, 1e-9, 1e-9 * USUAL)
    assert ranked_causes(PHASE, [], [huge, huge], []) == []


@pytest.mark.parametrize(
    ("load", "by_chance", "named"),
    [(2157.0, 0.0, ["17"]), (2157.0, 1.0, []), (1000.0, 0.0, [])],
    ids=["never before", "slow now and then", "as before"],
)
def test_a_component_that_became_slow_under_a_load_that_it_never_had(
    load: float, by_chance: float, named: list[str]
) -> None:
    """Loads of an OST vary widely: the largest of ten runs at the usual latency is no proof of innocence."""
    usual = np.array([31.0, 65, 401, 285, 788, 808, 6, 157, 715, 244])
    found = Neighbour(
        "17", "scratch-OST0006", "requests", load, 125.0, usual, slowdown=4.4, by_chance=by_chance
    )
    phase = SlowPhase(1000, 1600, 1.65)
    causes = ranked_causes(phase, [], [found, replace(found, job="18", load=10.0)], [])
    assert [cause.name for cause in causes] == named
