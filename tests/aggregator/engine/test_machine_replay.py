"""A core that goes on from a snapshot and entries is the core that was not interrupted, to the bit."""

from collections.abc import Sequence

import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.engine.checkpoint import capture, restore
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.log import snapshot_codec
from laggard_aggregator.log.entries import LogEntry
from tests.aggregator.engine.test_functions import play
from tests.support.builders.functions import in_order, servers
from tests.support.builders.site import SECOND, START, close, new_core, receive, steps, told

BATCHES = 40


def run(core: Machine, some: Sequence[tuple[list[tuple[str, bytes, int]], int]]) -> list[Judgement]:
    found: list[Judgement] = []
    for at, (messages, now_ns) in enumerate(some):
        receive(core, messages)
        found += close(core, now_ns)
        if at % 7 == 6:
            core.sweep(now_ns)
    return found


def reborn(core: Machine, later: Sequence[LogEntry] = ()) -> tuple[Machine, list[Judgement]]:
    sections = [snapshot_codec.unpack(snapshot_codec.pack(section)) for section in capture(core, 1, START)]
    other = new_core()
    restore(other, iter(sections), "test")
    return other, [j for entry in later for j in other.replay(entry) if isinstance(j, Judgement)]


def test_the_made_site_has_all_that_may_happen() -> None:
    core = new_core()
    judged = run(core, list(steps(BATCHES)))
    assert [t.kind for j in judged for t in j.transitions] == ["raised"]
    counts, stores = core.admission.counts, core.stores["storage/diskstats"].counts
    assert counts.duplicates > BATCHES // 2
    assert stores.late
    assert stores.resets
    assert core.admission.wire_errors == core.admission.refused == {}


@pytest.mark.parametrize("crash", range(1, BATCHES, 6))
def test_it_goes_on_from_a_snapshot(crash: int) -> None:
    story = list(steps(BATCHES))
    whole = run(new_core(), story)
    first = new_core()
    before = run(first, story[:crash])
    second, _ = reborn(first)
    after = run(second, story[crash:])
    assert list(map(told, [*before, *after])) == list(map(told, whole))


@pytest.mark.parametrize("snapshot", [0, 5, 17])
def test_it_goes_on_from_a_snapshot_and_what_was_recorded_since(snapshot: int) -> None:
    story, crash = list(steps(BATCHES)), 26
    whole = run(new_core(), story)
    first = new_core()
    run(first, story[:snapshot])
    sections = capture(first, 1, START)
    entries: list[LogEntry] = []
    first.record(entries.append)
    between = run(first, story[snapshot:crash])
    second = new_core()
    restore(second, iter(map(snapshot_codec.unpack, map(snapshot_codec.pack, sections))), "test")
    replayed = [j for entry in entries for j in second.replay(entry) if isinstance(j, Judgement)]
    assert list(map(told, replayed)) == list(map(told, between))
    second.start_counting()
    after = run(second, story[crash:])
    assert list(map(told, after)) == list(map(told, whole))[-len(after) :]


@pytest.mark.parametrize("crash", [3, 200, 411])
def test_groups_that_are_compared_by_functions_go_on_too(crash: int) -> None:
    def new() -> Machine:
        return Machine(ConfiguredMembership(()), site="site", lateness_seconds=2.0)

    several = servers(seed=1, extra={"dd/dd/main": 150.0}, fault_from=300)
    batches = in_order(*(s.profile(START, 700) for s in several))
    uninterrupted = play(new(), batches)
    first = new()
    before = play(first, batches[:crash])
    sections = [snapshot_codec.unpack(snapshot_codec.pack(section)) for section in capture(first, 1, START)]
    second = new()
    restore(second, iter(sections), "test")
    after = play(second, batches[crash:])
    assert list(map(told, [*before, *after])) == list(map(told, uninterrupted))
    alarms = second.judge.alarms.standing
    assert [(key[1:], alarm.causes[0][0]) for key, alarm in alarms.items()] == [
        (("oss-3", "samples"), "dd/dd/main")
    ]
    assert [t.kind for t in second.forget_components(2**62, {"oss-3"}, 0.0)] == ["cleared"]
    assert second.stores["storage/fnprofile"].components == []


def test_nothing_in_a_snapshot_changes_when_the_core_does() -> None:
    story = list(steps(20))
    core = new_core()
    run(core, story[:10])
    sections = capture(core, 1, START)
    packed = [snapshot_codec.pack(section) for section in sections]
    run(core, story[10:])
    assert [snapshot_codec.pack(section) for section in sections] == packed


def test_a_restart_counts_nothing_twice() -> None:
    story = list(steps(12))
    first = new_core()
    entries: list[LogEntry] = []
    first.record(entries.append)
    run(first, story)
    second = new_core()
    for entry in entries:
        list(second.replay(entry))
    assert second.samples == first.samples
    second.start_counting()
    receive(second, [message for messages, _ in story for message in messages])
    assert second.samples == 0
    assert second.admission.counts.duplicates == sum(
        topic.endswith("data/diskstats") for messages, _ in story for topic, _, _ in messages
    )


def test_what_is_silent_is_forgotten_and_begins_anew() -> None:
    core = new_core(forget_seconds=60)
    story = list(steps(BATCHES))
    run(core, story)
    store = core.stores["storage/diskstats"]
    assert (len(store.components), len(core.admission.nodes)) == (17, 8)
    alarms = core.judge.alarms
    assert len(alarms.standing) == 1
    core.admission.acks.durable(core.sequence.last)
    ended = core.sweep(START + 5 * BATCHES * SECOND + 70 * SECOND, forget=True)
    assert [(t.kind, t.alarm.component, t.alarm.level) for t in ended] == [("cleared", "oss-5", "node")]
    assert alarms.standing == {}
    assert (store.components, len(core.admission.nodes), core.names) == ([], 0, {})
    assert core.admission.acks.messages() == []
