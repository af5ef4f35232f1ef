"""Function profiles through the real pipeline: from counters by function to the server at fault and why."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.settings import OF_FUNCTIONS, DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.groups.topology import Branch, Topology
from laggard_aggregator.ingest.batches import Batch
from tests.support.builders.batches import SECOND, stored
from tests.support.builders.functions import Server, in_order, servers

START = 1_800_000_000 * SECOND
HOG = {"dd/dd/main": 150.0, "dd/kernel/copy_user": 100.0}


def make(functions: DetectSettings = OF_FUNCTIONS, topology: Topology | None = None) -> Machine:
    return Machine(ConfiguredMembership((), functions=functions), topology, lateness_seconds=2.0)


def play(pipeline: Machine, batches: Sequence[Batch]) -> list[Judgement]:
    judged: list[Judgement] = []
    for batch in batches:
        now = batch.received_ns
        for close in pipeline.closes(pipeline.windows.due(now), now):
            judged.extend(pipeline.close(close))
        stored(pipeline, batch)
    return judged


def raised(judged: Sequence[Judgement]) -> list[tuple[str, str]]:
    return [(t.alarm.component, t.alarm.metric) for j in judged for t in j.transitions if t.kind == "raised"]


def test_a_server_with_a_program_that_the_others_lack_is_blamed_and_the_program_named() -> None:
    pipeline = make()
    several = servers(seed=1, extra=HOG, fault_from=300)
    judged = play(pipeline, in_order(*(s.profile(START, 700) for s in several)))
    assert {j.group for j in judged} == {"storage/fnprofile"}
    assert raised(judged) == [("oss-3", "samples")]
    alarm = pipeline.judge.alarms.standing["storage/fnprofile", "oss-3", "samples"]
    assert alarm.level == "node"
    assert [name for name, _ in alarm.causes[:2]] == ["dd/dd/main", "dd/kernel/copy_user"]
    assert START / 1e9 + 240 <= alarm.since <= START / 1e9 + 330
    assert alarm.raised_at <= START / 1e9 + 300 + 150
    assert alarm.observed > 1.5 * alarm.reference


def test_a_server_that_waits_in_one_call_is_blamed_by_time_and_not_by_count() -> None:
    pipeline = make()
    several = servers(seed=2, slow={"gfsd/gfsd/pwrite": 5.0}, fault_from=300)
    judged = play(pipeline, in_order(*(s.trace(START, 700) for s in several)))
    assert {(j.group, j.metric) for j in judged} == {
        ("storage/fntrace", "count"),
        ("storage/fntrace", "time"),
    }
    assert raised(judged) == [("oss-3", "time")]
    alarm = pipeline.judge.alarms.standing["storage/fntrace", "oss-3", "time"]
    assert alarm.causes[0][0] == "gfsd/gfsd/pwrite"


def test_servers_that_do_the_same_are_silent_whatever_they_have_to_do() -> None:
    several = servers(seed=3)
    several[2].busy, several[5].busy = 2.0, 0.5
    judged = play(make(), in_order(*(s.profile(START, 1500) for s in several)))
    assert len(judged) > 40
    assert not raised(judged)


def test_a_server_sampled_at_another_rate_is_compared_in_time() -> None:
    several = servers(seed=4)
    several[1].hz = 250.0
    pipeline = make()
    judged = play(pipeline, in_order(*(s.profile(START, 600) for s in several)))
    assert not raised(judged)
    last = judged[-1].verdicts
    assert last.observed[1] == pytest.approx(np.median(last.observed), rel=0.2)


def test_both_servers_of_a_couplet_blame_the_couplet() -> None:
    topology = Topology([Branch(f"(?:oss-[{n}{n + 1}])/.*", {"couplet": f"c{n}"}) for n in (0, 2, 4, 6)])
    pipeline = make(topology=topology)
    several = servers(seed=5, extra=HOG, faulty=2)
    several[3] = replace(several[3], extra=HOG)
    judged = play(pipeline, in_order(*(s.profile(START, 400) for s in several)))
    assert raised(judged) == [("c2", "samples")]
    (alarm,) = pipeline.judge.alarms.standing.values()
    assert alarm.level == "couplet"
    assert [name for name, _ in alarm.causes[:2]] == ["dd/dd/main", "dd/kernel/copy_user"]
    names = [f"oss-{n}" for n in range(8)]
    assert pipeline.judge.forget(alarm.group, ["oss-7"], names[:7], 0.0) == []
    (ended,) = pipeline.judge.forget(
        alarm.group, ["oss-2"], [n for n in names if n not in ("oss-2", "oss-7")], 0.0
    )
    assert ended.alarm.component == "c2"


def test_compute_nodes_have_no_automatic_group() -> None:
    pipeline = make()
    judged = play(pipeline, in_order(*(s.profile(START, 200, role="compute") for s in servers(seed=6))))
    assert judged == []
    assert pipeline.groups == {}


def test_a_silent_server_is_absent_and_a_restart_of_its_profiler_no_fault() -> None:
    several = servers(seed=7)
    batches = in_order(*(s.profile(START, 900) for s in several))

    def without(batch: Batch) -> bool:
        after = (batch.counters.tick_ns[0] - START) // SECOND
        return batch.schema.node == "oss-1" and 300 < after <= 420

    def begun_again(batch: Batch) -> Batch:
        """The profiler of oss-4 starts over after 600 s; its spool, and so the stream, goes on."""
        if batch.schema.node != "oss-4" or batch.counters.tick_ns[0] <= START + 600 * SECOND:
            return batch
        before = next(
            b for b in batches if b.schema.node == "oss-4" and b.counters.tick_ns[0] == START + 600 * SECOND
        )
        values = batch.counters.values.copy()
        values[:, : before.counters.values.shape[1]] -= before.counters.values
        return replace(batch, counters=replace(batch.counters, values=values))

    pipeline = make()
    judged = play(pipeline, [begun_again(b) for b in batches if not without(b)])
    assert not raised(judged)
    assert pipeline.stores["storage/fnprofile"].counts.resets == 1
    by_end = {round(j.end - START / 1e9): j for j in judged}
    assert {end for end, j in by_end.items() if "oss-1" not in j.components} == {360, 390, 420}
    assert not by_end[450].verdicts.judged[by_end[450].components.index("oss-1")]
    assert by_end[480].verdicts.judged.all()


def test_a_few_servers_are_not_judged_and_it_says_so() -> None:
    judged = play(make(), in_order(*(s.profile(START, 200) for s in servers(seed=8, count=3))))
    assert {j.verdicts.note for j in judged} == {"too few members"}


def test_functions_of_the_site_take_no_share_of_the_false_alarm_budget() -> None:
    pipeline = make()
    play(pipeline, in_order(*(s.profile(START, 100) for s in servers(seed=9))))
    assert pipeline._tests_at_once() == 1


def server_of(names: int) -> Server:
    return Server("oss-1", np.random.default_rng(1), extra={f"p/i/f{n}": 10.0 for n in range(names)})


def test_functions_beyond_a_nodes_room_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.windows.function_store.MAX_NODE_FUNCTIONS", 10)
    pipeline = make()
    play(pipeline, in_order(server_of(20).profile(START, 100)))
    (*_, last) = server_of(20).profile(START, 100)
    assert pipeline.refused == {"functions": len(last.schema.components) - 10}


def test_nodes_beyond_a_groups_room_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.windows.function_store.MAX_SERVERS", 5)
    pipeline = make()
    play(pipeline, in_order(*(s.profile(START, 10) for s in servers(seed=10))))
    assert pipeline.stores["storage/fnprofile"].components == [f"oss-{n}" for n in range(5)]
    assert pipeline.refused["functions"] > 3 * 5
