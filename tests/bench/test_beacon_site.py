"""The generated Beacon site: its truth agrees with its counters, and causes slow whom they are meant for."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from bench.beacon_site.messages import Agents
from bench.beacon_site.pages import SiteTruth, page_numbers
from bench.beacon_site.plan import KINDS, Cause, Plan, make_plan
from bench.beacon_site.score import judge, numbers, numbers_table
from bench.beacon_site.shape import SHAPES, hardware, ost_name
from bench.beacon_site.simulate import Simulation
from bench.beacon_site.tables import tables
from bench.beacon_site.traces import Traces
from bench.beacon_site.truth import Truth, kind_of, truths
from laggard_common import wire

SHAPE = replace(SHAPES["quick"], forwarders=4, warm_up_waves=1, wave_seconds=700, repeats=0)
PARTS = hardware(SHAPE)


def plan() -> Plan:
    return make_plan(SHAPE, 5, PARTS)


def run(simulation: Simulation, traces: Traces | None = None) -> Simulation:
    while not simulation.over:
        simulation.step()
        if traces is not None:
            traces.follow()
    return simulation


@cache
def followed() -> SiteTruth:
    """A site, to the end of a minute."""
    of_site = SiteTruth(Simulation(plan(), PARTS))
    while not of_site.simulation.over or of_site.simulation.now % 60:
        of_site.simulation.step()
        of_site.follow()
    return of_site


@cache
def traced() -> tuple[Simulation, Traces]:
    simulation = Simulation(plan(), PARTS)
    traces = Traces(simulation)
    return run(simulation, traces), traces


def test_every_byte_is_counted_at_node_forwarder_and_ost() -> None:
    simulation, _ = traced()
    c, shape = simulation.counters, simulation.shape
    wanted = sum(p.amount for o in simulation.outcomes.values() for p in o.phases if p.kind != "metadata")
    assert wanted > 1e11
    assert c.node_bytes[: shape.nodes].sum() == pytest.approx(wanted)
    by_forwarder = c.node_bytes[: shape.nodes].reshape(shape.forwarders, -1, 2).sum(axis=1)
    np.testing.assert_allclose(c.forwarder_bytes[: shape.forwarders], by_forwarder)
    np.testing.assert_allclose(c.osc_bytes.sum(axis=1), c.forwarder_bytes)
    by_ost = sum(outcome.by_ost for outcome in simulation.outcomes.values())
    np.testing.assert_allclose(c.osc_bytes.sum(axis=0), by_ost)
    np.testing.assert_allclose(c.mdc_operations.sum(axis=1), c.forwarder_operations)
    assert c.forwarder_operations.sum() == pytest.approx(c.node_operations.sum())


def test_time_is_longer_at_each_layer_above() -> None:
    c = traced()[0].counters
    assert c.node_seconds.sum() > c.forwarder_seconds.sum() > c.osc_seconds.sum() > c.ost_seconds.sum()
    assert (c.ost_seconds >= c.ost_wait_seconds).all()


def test_traces_have_the_volume_of_each_run() -> None:
    simulation, traces = traced()
    moved: dict[str, int] = {}
    for _, document in traces.parts():
        for record in document.records:
            if record.operation in ("read", "write"):
                moved[document.job] = moved.get(document.job, 0) + record.size * record.count
            assert record.first_ns <= record.last_ns
    for number, outcome in simulation.outcomes.items():
        assert moved[str(number)] == round(sum(p.amount for p in outcome.phases if p.kind != "metadata"))


def test_messages_carry_the_counters() -> None:
    simulation, _ = traced()
    agents = Agents(SHAPE, 5, tables(simulation, compute_counters=True))
    schemas = [wire.decode_schema(body) for _, body in agents.schemas()]
    agents.read(simulation.now)
    batches = [wire.decode_envelope(body) for _, body in agents.batches()]
    sources = {(schema.node, schema.source) for schema in schemas}
    assert {(batch.node, batch.source) for batch in batches} <= sources
    assert {batch.source for batch in batches} >= {"lustre_llite", "lustre_osc", "lustre_ost", "lwfs"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_cause_slows_the_run_that_it_is_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.beacon_site.plan.KINDS", (kind,))
    made = make_plan(replace(SHAPE, warm_up_waves=0, repeats=1), 8, PARTS)
    (cause,) = made.causes
    with_cause, without = run(Simulation(made, PARTS)), run(Simulation(made, PARTS, with_causes=False))
    seconds = {number: outcome.io_seconds for number, outcome in without.outcomes.items()}
    found = {truth.run.number: truth for truth in truths(made, with_cause, seconds)}
    assert found[cause.victim].kind == kind
    assert found[cause.victim].slowdown > 1.4
    assert all(truth.kind in (kind, "none", "marginal") for truth in found.values())


def test_a_run_that_others_slow_without_a_cause_counts_for_neither() -> None:
    cause = Cause("slow OST", 1000, 0, 1, 3)
    assert kind_of(1.0, (), 1.1) == "none"
    assert kind_of(1.0, (), 1.2) == "marginal"
    assert kind_of(1.0, (cause,), 1.2) == "marginal"
    assert kind_of(1.5, (cause,), 1.2) == "slow OST"


def test_an_answer_is_right_only_when_it_names_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.beacon_site.plan.KINDS", ("slow OST",))
    made = make_plan(replace(SHAPE, warm_up_waves=0, repeats=1), 8, PARTS)
    (cause,) = made.causes
    with_cause, without = run(Simulation(made, PARTS)), run(Simulation(made, PARTS, with_causes=False))
    seconds = {number: outcome.io_seconds for number, outcome in without.outcomes.items()}
    truth = next(t for t in truths(made, with_cause, seconds) if t.run.number == cause.victim)
    assert cause.target is not None

    def judged(*names: str) -> str:
        findings = [{"kind": "straggler", "cause": name, "text": ""} for name in names]
        return judge(truth, {"verdict": "slow", "findings": findings}, made).judged

    assert judged(ost_name(cause.target)) == "right"
    assert judged(ost_name((cause.target + 1) % SHAPE.osts), ost_name(cause.target)) == "wrong"
    assert judged() == "unknown"


def test_loads_of_the_truth_add_up_to_the_jobs() -> None:
    of_site = followed()
    total = dict(of_site.groups(lambda _: "all"))["all"]
    moved = total["read_bytes"] + total["written_bytes"]
    for kind in ("forwarders", "osts", "compute"):
        loads = dict(of_site.loads(kind))
        assert sum(of["mean"] for of in loads.values()) * 60 * of_site.minutes == pytest.approx(moved)
        shares = [sum(share for name, share in of.items() if "time_" in name) for of in loads.values()]
        assert shares == pytest.approx([1.0] * len(loads))
    by_node, by_target = (of_site.metadata(by) for by in ("nodes", "target"))
    assert by_node["cn-* (compute)"] == pytest.approx(total["metadata_operations"])
    assert by_node["cn-* (compute)"] == pytest.approx(by_node["fwd-* (forwarding)"])
    assert sum(by_target.values()) == pytest.approx(by_node["cn-* (compute)"] + by_node["login-* (compute)"])
    assert sum(of_site.modes().values()) == pytest.approx(moved)


def test_numbers_of_pages_are_held_against_the_truth() -> None:
    of_site = followed()

    def get(path: str) -> bytes:
        page, _, query = path.partition("?")
        kind = query.partition("&")[0].partition("=")[2]
        rows: list[dict[str, Any]] = []
        match page:
            case "/report":
                total = dict(of_site.groups(lambda _: "all"))["all"]
                return json.dumps({"record": "total", **total, "jobs": total["jobs"] + 1}).encode()
            case "/loads":
                rows = [{"component": name, **of} for name, of in of_site.loads(kind)][:-1]
            case "/metadata":
                rows = [{"name": name, "operations": of} for name, of in of_site.metadata(kind).items()]
        return json.dumps({page[1:]: rows}).encode()

    of_pages = page_numbers(get, of_site, of_compute=True)
    assert of_pages["/metadata by nodes operations"].within == 1.0
    assert of_pages["/amplification jobs"].within == 1.0
    assert of_pages["/loads osts mean"].absent == 1
    assert of_pages["/loads osts mean"].within == pytest.approx(1 - 1 / SHAPE.osts)
    assert of_pages["/report total read_bytes"].within == 1.0
    assert of_pages["/report total jobs"].worst > 0
    assert of_pages["/report total amplified_jobs"].absent == 1


def test_stated_errors_of_rates_are_held_against_the_truth() -> None:
    """Ten off with an error of 12 and of 8, and the least rate: below the truth, and above it."""
    (run, *_) = plan().runs
    truth = Truth(run, "none", (), 1.0, {"mib_per_second": 100.0, "mdops": 50.0, "read_bytes": 7.0})
    answers: list[dict[str, Any]] = [
        {"mib_per_second": 110.0, "mib_per_second_error": 12.0},
        {"mib_per_second": 110.0, "mib_per_second_error": 8.0},
        {"mib_per_second": 80.0, "mib_per_second_error": None},
        {"mib_per_second": 102.0, "mib_per_second_error": None},
        {"summary": {"mdops": 49.0, "mdops_error": 2.0, "read_bytes": 7.0}},
    ]
    shown = numbers((truth, answer) for answer in answers)
    assert shown["mib_per_second"].as_stated == [True, False, True, False]
    assert shown["mib_per_second"].absent == 1
    assert shown["mdops"].stated == 1.0
    assert shown["read_bytes"].as_stated == []
    assert "0.500" in numbers_table(shown).splitlines()[1]
