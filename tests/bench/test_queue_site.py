"""The site as a queueing network: its laws hold, its counters have every byte, its truth is a difference."""

import json
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from bench.queue_site.counters import CUT_SECONDS, Counted, Traces, tables
from bench.queue_site.hardware import META, READ, SIZES, THREADS, WRITE
from bench.queue_site.kept import Kept
from bench.queue_site.network import Load, Steady, solve
from bench.queue_site.plan import Fault, Phase, Plan, Program, Run, make_plan
from bench.queue_site.score import goals, line, numbers_table, score
from bench.queue_site.simulate import Past, Simulation, keep_moments
from bench.queue_site.truth import Truth, truths

MIB = 1 << 20


def plan(*faults: Fault, runs: int = 5, change: str = "") -> Plan:
    """Runs of one program, one after another; the last one with a change."""
    made = make_plan(SIZES["tiny"], 3)
    phases = (Phase(META, 0, 20_000), Phase(WRITE, MIB, 3000))
    program = Program("p0", 1, 4, phases, 20, 0.010, 0.005, 2, 0)
    made_runs = [
        Run(
            50_001 + at,
            program,
            60 + 400 * at,
            (0, 1, 2, 3, 4),
            (0, 1),
            (1.0,) * 5,
            change if at + 1 == runs else "",
        )
        for at in range(runs)
    ]
    return Plan(made.shape, made.noise, 3600, made_runs, list(faults))


def simulated(planned: Plan) -> Past:
    simulation, moments = Simulation(planned), {0: Simulation(planned)}
    while not simulation.over:
        keep_moments(simulation, moments, simulation.now + 600)
    return Past(planned, simulation.done, simulation.started, moments)


def test_one_class_is_near_exact_mean_value_analysis() -> None:
    service, think, customers = np.array([0.004, 0.002, 0.001]), 0.01, 8
    queue = np.zeros(3)
    for n in range(1, customers + 1):
        residence = service * (1 + queue)
        rate = n / (think + residence.sum())
        queue = rate * residence
    one = np.ones((1, 3))
    load = Load(
        np.array([8.0]), np.array([think]), np.zeros(1), np.array([-1]), one, service[None, :], np.ones(3)
    )  # fmt: skip
    assert solve(load, THREADS).rate[0] == pytest.approx(rate, rel=0.08)


@cache
def followed() -> tuple[Simulation, Counted, Traces]:
    simulation = Simulation(make_plan(SIZES["tiny"], 7))
    counted, traces = Counted(simulation.plan.shape), Traces()
    simulation.follower = counted.follow
    simulation.phase_ended = lambda doing: traces.end(doing, simulation.now)
    while simulation.now < 3000:
        simulation.advance(simulation.now + CUT_SECONDS)
        traces.cut(simulation)
    return simulation, counted, traces


def test_number_in_the_network_is_rate_times_time() -> None:
    simulation, _, _ = followed()
    load, steady = simulation._load, simulation._steady
    assert load is not None
    assert steady is not None
    assert len(load.population) > 3
    in_network = steady.rate * (load.think + steady.at_client + steady.waiting + steady.holding(load))
    np.testing.assert_allclose(in_network, load.population, rtol=1e-3)
    guess = Steady(steady.rate * 0, load.client / 9, steady.waiting * 0, load.service / 9)
    np.testing.assert_allclose(solve(load, THREADS, guess).rate, steady.rate, rtol=1e-3)
    used = (steady.rate[:, None] * load.visits * load.service).sum(axis=0) / load.servers
    assert (used < 1.01).all()
    held = np.bincount(load.pool[load.pool >= 0], (steady.rate * steady.holding(load))[load.pool >= 0])
    assert (held < 1.01 * THREADS).all()


def test_every_byte_is_at_node_forwarder_path_target_and_in_the_traces() -> None:
    simulation, c, traces = followed()
    moved = 0.0
    for doing in simulation.doing:
        for at, phase in enumerate(doing.phases[: doing.at + 1]):
            asked = np.rint(phase.requests * np.array(doing.run.spread))
            moved += float((asked - (doing.left if at == doing.at else 0.0)).sum()) * phase.bytes_
    for done in simulation.done.values():
        for phase in done.run.phases(usual=False):
            moved += float(np.rint(phase.requests * np.array(done.run.spread)).sum()) * phase.bytes_
    assert moved > 1e11
    for place in (c.node, c.forwarder, c.path, c.target):
        assert place[1].sum() == pytest.approx(moved, rel=1e-9)
    assert c.path[0, ..., META].sum() == pytest.approx(c.node[0, :, META].sum())
    assert c.node[2].sum() > c.forwarder[2].sum() > c.target[2].sum()
    records = [record for _, document in traces.parts() for record in document.records]
    data = sum(record.size * record.count for record in records)
    assert data == pytest.approx(moved, rel=1e-3)
    last: dict[tuple[str, str], int] = defaultdict(int)
    for record in records:
        if record.size and record.offset is not None:
            start = last.setdefault((record.node + record.descriptor, record.path), record.offset)
            assert record.offset == start
            last[record.node + record.descriptor, record.path] = record.offset + record.size * record.count


def test_tables_have_their_components_and_never_fall() -> None:
    _, counted, _ = followed()
    for table in tables(counted, of_compute=True):
        values = table.values()
        assert values.shape == (len(table.nodes), len(table.components[0]), len(table.fields)), table.source
        assert len(table.components) == len(table.nodes)
        assert (values >= 0).all()
        assert (table.values() >= values).all()


def test_nothing_left_out_changes_nothing() -> None:
    past = simulated(plan())
    again = past.io_seconds(frozenset({("own", 50_003)}), {50_003, 50_004})
    assert again == pytest.approx({number: past.done[number].io_seconds for number in (50_003, 50_004)})
    assert {truth.state for truth in truths(past)} == {"healthy"}


@pytest.mark.parametrize("kind", ["ost", "forwarder", "node", "login", "size"])
def test_cause_is_what_makes_the_run_fast_again(kind: str) -> None:
    fault = Fault(kind, 0, {"login": 200, "node": 40}.get(kind, 12), 1650, 3000, 0 if kind == "login" else -1)
    elsewhere = Fault("ost", 2, 9, 1650, 3000)
    past = simulated(plan(elsewhere, fault) if kind != "size" else plan(elsewhere, change="size"))
    *earlier, slow = truths(past)
    assert {truth.state for truth in earlier} == {"healthy"}
    right = ("own", 50_005) if kind == "size" else ("fault", 1)
    assert (slow.state, slow.right) == ("slow", {right})
    assert slow.shares[right] == pytest.approx(1.0, abs=0.1)


def test_score_tells_right_from_innocent() -> None:
    past = simulated(plan(Fault("ost", 2, 9, 1650, 3000), Fault("ost", 0, 12, 1650, 3000)))
    slow = truths(past)[-1]

    def judged(kind: str, cause: str, text: str = "") -> tuple[str, bool]:
        finding = {"kind": kind, "cause": cause, "text": text}
        one = score(slow, {"verdict": "slow", "findings": [finding]}, past.plan)
        assert json.dumps(line(one, {}, past.plan))
        return one.judged, bool(one.innocent)

    assert judged("slow component", "scratch-OST0000") == ("right", False)
    assert judged("slow component", "scratch-OST0002") == ("wrong", True)
    assert judged("neighbour", "job 50002", "job 50002 of u ran with 3 requests") == ("wrong", True)
    assert judged("own change", "mean write") == ("wrong", False)
    assert score(slow, {"verdict": "slow"}, past.plan).judged == "none"
    met = goals([score(truth, {}, past.plan) for truth in truths(past)])
    assert list(met.values()) == [False, True, True]


def test_a_kept_folder_has_plan_and_truth() -> None:
    past = simulated(plan(Fault("ost", 0, 12, 1650, 3000), change="size"))
    raised = [("scratch-OST0000", 1700.0, float("inf")), ("fwd-01/lwfs", 5.0, 9.0)]
    kept = Kept("seed 3", 3, past.plan, truths(past), raised)
    again = Kept.read(kept.json())
    assert (again.plan.runs, again.plan.faults, again.plan.shape) == (
        past.plan.runs, past.plan.faults, past.plan.shape
    )  # fmt: skip
    assert (again.header, again.seed, again.truths, again.raised) == ("seed 3", 3, kept.truths, raised)
    assert json.loads(kept.json())["truths"][-1]["right"], "the slow run has causes"


def test_numbers_are_those_of_the_phases() -> None:
    past = simulated(plan(runs=1))
    (truth,) = truths(past)
    assert isinstance(truth, Truth)
    assert truth.numbers["written_bytes"] == 5 * 3000 * MIB
    assert truth.numbers["mib_per_second"] == pytest.approx(5 * 3000 / truth.done.seconds(WRITE))
    assert truth.numbers["mdops"] == pytest.approx(5 * 20_000 / truth.done.seconds(META))
    assert truth.done.seconds(READ) == 0
    assert "100.0%" in numbers_table([(truth, {"summary": truth.numbers})])
