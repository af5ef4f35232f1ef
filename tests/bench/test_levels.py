"""The bench of located levels: the times it makes of simulated requests, and its scores."""

from dataclasses import replace

import numpy as np
import pytest

from bench.accuracy.levels import PLAN, Outcome, outcomes, scenarios, table, truth, visible
from bench.accuracy.simulation.closed_loop import Times, run
from bench.accuracy.simulation.plan import PAIRS, REPORTING, TUNING
from bench.accuracy.simulation.scenario import Scenario
from bench.accuracy.simulation.shapes import SHAPES
from bench.accuracy.simulation.simulate import conditions_of
from bench.accuracy.simulation.workloads import WORKLOADS
from tests.support.wait import LONG_TEST_LIMIT_SECONDS


def times_of(fault: str) -> tuple[Scenario, Times]:
    scenario = Scenario(SHAPES["pvfs"], WORKLOADS["iozoner"], fault, 190_003)
    times = Times.of(1, scenario.samples, scenario.shape.luns)
    run([scenario], [conditions_of(scenario)], times)
    return scenario, times


def test_clients_wait_at_least_for_the_servers_and_each_request_is_counted_once() -> None:
    scenario = replace(Scenario(SHAPES["pvfs"], WORKLOADS["iozoner"], "none", 190_003), samples=240)
    times = Times.of(1, scenario.samples, scenario.shape.luns)
    work = run([scenario], [conditions_of(scenario)], times)
    assert (times.seconds.sum(axis=2) >= times.inside - 1e-9).all()
    finished = work.parts[:, : scenario.samples].sum()
    assert times.parts.sum() == pytest.approx(finished, rel=0.02)  # ends at the client, not at the LUN
    assert times.inside.sum() == pytest.approx(work.waited[:, : scenario.samples].sum(), rel=0.02)


def test_a_slow_client_waits_longer_for_every_server_and_no_server_is_slow() -> None:
    scenario, times = times_of("client-slow")
    slow = conditions_of(scenario).faulty_client
    during = slice(120, 420)
    parts, seconds = (each[0, during].sum(axis=(0, 3)) for each in (times.parts, times.seconds))
    mean = seconds / parts
    others = np.delete(mean, slow, axis=0)
    assert (mean[slow] > 1.3 * others.max(axis=0)).all()
    inside = times.inside[0, during].sum(axis=(0, 2)) / parts.sum(axis=0)
    assert inside.max() < 1.6 * inside.min()  # as healthy ones differ


def test_seeds_are_no_other_benchs_and_differ_from_row_to_row() -> None:
    for seeds in (TUNING, REPORTING):
        own = [each.seed for each in scenarios(seeds, 10, "")]
        assert len(set(own)) == len(own) == 10 * len(PLAN)
        assert not {each.seed for pair in PAIRS for each in pair.scenarios(seeds)} & set(own)
        assert set(own) <= set(seeds)


@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
def test_a_lun_and_a_client_are_located() -> None:
    some = [
        each
        for fault in ("lun-slow-4", "client-slow")
        for each in scenarios(TUNING, 1, f"pvfs/{fault}/iozoner")
    ]
    found = outcomes(some)
    assert [each.truth for each in found] == [truth(each, conditions_of(each)) for each in some]
    assert [each.right for each in found] == [True, True]
    assert found[0].alone["await of LUNs"] == found[0].causes
    assert not found[1].alone["await of LUNs"]


def test_a_table_counts_what_is_right() -> None:
    (one, *_) = scenarios(TUNING, 1, "pvfs/lun-slow-2/ddr")
    cause = ("lun", "oss-01/sda")
    alone = {
        name: frozenset[tuple[str, str]]()
        for name in ("await of LUNs", "times of OSTs", "network", "clients")
    }
    right = Outcome(one, cause, frozenset({cause}), frozenset(), alone, before=False, evidence=())
    level = replace(right, causes=frozenset({("server", "oss-01")}))
    more = replace(right, causes=frozenset({cause, ("network", "oss-02")}))
    text = table([right, level, more])
    row = next(line for line in text.splitlines() if line.startswith("| lun-slow-2 (pvfs)"))
    assert [cell.strip() for cell in row.split("|")][2:7] == ["lun", "3", "66.7", "33.3", "0.0"]
    assert "Not right: 2 of 3" in text


def test_unseen_pairs_are_told_apart() -> None:
    seen = {(each.fault, each.workload.name) for each in scenarios(TUNING, 1, "pvfs/") if visible(each)}
    assert ("server-busy", "hpc") not in seen
    assert ("server-cpu", "ddr") not in seen
    assert {("server-busy", "ddr"), ("client-slow", "hpc"), ("lun-slow-1.2", "ddr")} <= seen
