"""Decisions change verdicts with a close, and a replay of what was recorded sees the same, to the bit."""

from collections.abc import Callable, Sequence

import pytest

from laggard_aggregator.alarms.alarms import AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision, Overrides
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.log.entries import LogEntry, SweepEntry
from laggard_aggregator.status.view import Status
from tests.support.builders.site import SECOND, START, close, new_core, receive, steps, told
from tests.support.clock import HandClock
from tests.support.window_clock import window_clock

BATCHES = 40
GROUP = "storage/diskstats"
SLOW = ("oss-5/wwn-0", "oss-5/wwn-1")
BEFORE, AFTER = 24, 40
"""The alarm stands at BEFORE."""

Act = Callable[[Machine], None]


def run(core: Machine, acts: dict[int, Act], *, durable: bool = True) -> list[Judgement]:
    found: list[Judgement] = []
    for at, (messages, now_ns) in enumerate(steps(BATCHES)):
        receive(core, messages)
        if at in acts:
            acts[at](core)
        found += close(core, now_ns)
        if durable:
            core.admission.acks.durable(core.sequence.last)
    return found


def drain(core: Machine) -> None:
    core.overrides.add(Decision("drain", "oss-5", "root", 0.0))
    core.overrides.restart("oss-5", [GROUP])


def end(core: Machine) -> None:
    core.overrides.end("drain", "oss-5")


def replaced(core: Machine) -> None:
    core.overrides.restart("oss-5", [GROUP])


def replayed(entries: Sequence[LogEntry]) -> list[Judgement]:
    core = new_core()
    return [j for entry in entries for j in core.replay(entry) if isinstance(j, Judgement)]


def alarms(judged: Sequence[Judgement]) -> list[tuple[str, str]]:
    return [(t.kind, t.alarm.component) for j in judged for t in j.transitions]


def test_without_decisions_the_alarm_stands_by_then() -> None:
    core = new_core()
    run(core, {BEFORE: lambda core: _stands(core, True)})
    _stands(core, True)


def _stands(core: Machine, expected: bool) -> None:
    assert any("oss-5" in key[1] for key in core.judge.alarms.standing) is expected


@pytest.mark.parametrize(
    "acts",
    [{BEFORE: drain}, {BEFORE: drain, 32: end}, {5: drain, 9: end}, {BEFORE: replaced}, {3: replaced}],
)
def test_what_was_recorded_gives_the_same_verdicts(acts: dict[int, Act]) -> None:
    core, entries = new_core(), list[LogEntry]()
    core.record(entries.append)
    judged = run(core, acts)
    assert list(map(told, replayed(entries))) == list(map(told, judged))


def test_a_drained_node_is_absent_and_its_alarm_ends() -> None:
    core = new_core()
    judged = run(core, {BEFORE: drain})
    assert [t.kind for t in core.pop_cleared()] == ["cleared"]
    assert core.pop_cleared() == []
    _stands(core, False)
    last = judged[-1]
    assert not [name for name in last.components if name.startswith("oss-5")]
    assert len(last.components) == 15  # of eight nodes with two disks, one of which got a third


def test_a_parent_goes_when_drains_leave_too_few_of_its_children() -> None:
    def drain_disk(name: str) -> Act:
        def act(core: Machine) -> None:
            core.overrides.add(Decision("drain", name, "root", 0.0))
            core.overrides.restart(name, [GROUP])

        return act

    core = new_core()
    run(core, {25: drain_disk("oss-5/sd0")})
    assert [(t.kind, t.alarm.component) for t in core.pop_cleared()] == [("cleared", "oss-5")]
    assert [key[1] for key in core.judge.alarms.standing] == ["oss-5/wwn-1"]
    core = new_core()
    run(core, {25: drain_disk("oss-5/sd0"), 26: drain_disk("oss-5/sd1")})
    assert not core.judge.alarms.standing


def test_a_node_that_is_slow_after_its_drain_is_found_again() -> None:
    core = new_core()
    judged = run(core, {BEFORE: drain, 28: end})
    raised = [t for j in judged for t in j.transitions if t.kind == "raised"]
    assert len(raised) == 2
    assert raised[1].alarm.since > raised[0].alarm.since
    _stands(core, True)


def test_a_replaced_component_starts_over() -> None:
    core = new_core()
    judged = run(core, {BEFORE: replaced})
    assert [t.kind for t in core.pop_cleared()] == ["cleared"]
    raised = [t for j in judged for t in j.transitions if t.kind == "raised"]
    assert len(raised) == 2, "it is as slow as before, and found as if it were new"


def test_what_is_silent_is_forgotten_and_nothing_else() -> None:
    core, entries = new_core(), list[LogEntry]()
    core.record(entries.append)
    run(core, {})
    now_ns = START + 5 * BATCHES * SECOND
    assert core.forget("oss-5", now_ns, now_ns - 60 * SECOND) == ([], [])
    later_ns = now_ns + 600 * SECOND
    nodes, ended = core.forget("oss-5", later_ns, later_ns - 60 * SECOND)
    assert nodes == ["oss-5"]
    assert [t.kind for t in ended] == ["cleared"]
    assert not [key for key in core.stores[GROUP].components if key.startswith("oss-5")]
    assert len(core.stores[GROUP].components) == 15
    other = new_core()
    told = [
        record for entry in entries for record in other.replay(entry) if isinstance(record, AlarmsCleared)
    ]
    assert [list(each.transitions) for each in told] == [ended]
    assert other.stores[GROUP].components == core.stores[GROUP].components
    assert "oss-5" not in other.admission.nodes
    assert "oss-4" in other.admission.nodes


def test_nothing_is_forgotten_that_is_not_durable() -> None:
    core, entries = new_core(), list[LogEntry]()
    core.record(entries.append)
    run(core, {}, durable=False)
    now_ns = START + 5 * BATCHES * SECOND + 600 * SECOND
    with pytest.raises(ValueError, match="not on the state disk yet"):
        core.forget("oss-5", now_ns, now_ns - 60 * SECOND)
    assert core.sweep(now_ns + 10**9 * SECOND, forget=True) == []
    assert entries[-1] == SweepEntry(core.sequence.last, now_ns + 10**9 * SECOND, forget=False)
    assert "oss-5" in core.admission.nodes
    core.admission.acks.durable(core.sequence.last)
    assert core.forget("oss-5", now_ns, now_ns - 60 * SECOND)[0] == ["oss-5"]


def test_a_book_is_empty_at_first() -> None:
    assert new_core().overrides.state() == Overrides().state()


def test_a_replay_tells_that_an_alarm_ended_with_a_drain() -> None:
    core, entries = new_core(), list[LogEntry]()
    core.record(entries.append)
    run(core, {BEFORE: drain})
    other = new_core()
    told = [
        record for entry in entries for record in other.replay(entry) if isinstance(record, AlarmsCleared)
    ]
    assert [list(each.transitions) for each in told] == [core.pop_cleared()]
    assert [t.kind for t in told[0].transitions] == ["cleared"]


def test_who_looks_sees_an_alarm_end_with_a_drain() -> None:
    core = new_core()
    view = Status(core, window_clock(HandClock(START)))
    view.judged(run(core, {BEFORE: drain}))
    view.alarms_changed(core.pop_cleared())
    assert [t.kind for t in view.history.transitions] == ["raised", "cleared"]
    assert not view.alarms()
