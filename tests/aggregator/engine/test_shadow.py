"""A shadow detector judges beside the group's own, and nothing but its own verdicts shows it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.checkpoint import capture, restore, rules_of
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.log import snapshot_codec
from laggard_aggregator.log.entries import LogEntry
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.run import open_run
from laggard_aggregator.status.shadows import BOTH, DETECTOR, NEITHER, NOT_COMPARED, SHADOW, compare
from laggard_aggregator.status.view import Status
from laggard_aggregator.web import api
from laggard_aggregator.web.exported_metrics import TABLE
from laggard_aggregator.web.exposition import Exposition, scrape
from laggard_aggregator.web.pages.overview import overview
from laggard_aggregator.web.pages.page_state import StateReader
from laggard_aggregator.web.pages.tables import Query
from tests.support.builders.site import DETECT, NODES, SLOW, START, close, new_core, receive, steps, told
from tests.support.clock import HandClock
from tests.support.window_clock import window_clock

BATCHES = 40
GROUP = "storage/diskstats"
LUNS = tuple(f"oss-{n}/lun" for n in range(1, 13))


def with_shadow(detect: DetectSettings, threshold: float, names: Sequence[str]) -> DetectSettings:
    """With a `cdf` for which every component that differs from its peers at all is anomalous, at 0."""
    thresholds = {"await": dict.fromkeys(names, threshold)}
    return replace(detect, shadow=replace(detect, detector="cdf", thresholds=thresholds))


SHADOWED = with_shadow(DETECT, 0.0, [f"{node}/wwn-{n}" for node in NODES for n in range(3)])


def run(core: Machine, some: Sequence[tuple[list[tuple[str, bytes, int]], int]]) -> list[Judgement]:
    found: list[Judgement] = []
    for messages, now_ns in some:
        receive(core, messages)
        found += close(core, now_ns)
    return found


def shadows(judgements: Sequence[Judgement]) -> list[tuple[object, ...]]:
    return [told(judged.shadow) for judged in judgements if judged.shadow is not None]


def reborn(core: Machine, detect: DetectSettings) -> Machine:
    sections = [snapshot_codec.unpack(snapshot_codec.pack(section)) for section in capture(core, 1, START)]
    other = new_core(detect=detect)
    restore(other, iter(sections), "test")
    return other


def exposed(view: Status) -> list[str]:
    """Series of the exposition."""
    lines = generate_latest(Exposition(scrape(view), TABLE)).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_hours_of_anomalies_of_a_shadow_raise_nothing() -> None:
    """Eight hours of healthy LUNs, which the shadow finds anomalous in nearly every window."""
    detect = with_shadow(DetectSettings(), 0.0, LUNS)
    core = new_core(detect=detect)
    core.judge = judge = Judge({"luns": detect})
    view = Status(core, window_clock(HandClock(START)))
    chance = np.random.default_rng(3)
    found = 0
    for at in range(64):
        values = 5.0 * np.exp(0.1 * chance.standard_normal((len(LUNS), 74)))
        start = START / 1e9 + 450.0 * at
        window = GroupWindow("luns", LUNS, start, start + 900.0, 14, {"await": values})
        (judged,) = judge.evaluate(window)
        view.judged((judged,), window)
        assert judged.transitions == ()
        assert judged.shadow is not None
        assert judged.shadow.transitions == ()
        found += int(judged.shadow.straggler.sum())
    assert found > 50 * len(LUNS), "the shadow would have raised an alarm on every LUN"
    assert judge.alarms.standing == {}
    assert view.alarms() == {}
    assert not view.history.transitions
    assert api.stragglers(StateReader(view).now())["stragglers"] == []
    series = exposed(view)
    assert not [line for line in series if line.startswith(("laggard_alarm", "laggard_component"))]
    assert not [line for line in series if "shadow" in line], "the group is not one of the machine's"
    page = overview(StateReader(view).now(), Query())
    assert page["title"] == "No stragglers"
    assert page["slight_total"] == 0
    assert page["watched_total"] == 0


def test_the_groups_own_verdicts_are_those_without_a_shadow() -> None:
    alone, beside = (
        run(new_core(), list(steps(BATCHES))),
        run(new_core(detect=SHADOWED), list(steps(BATCHES))),
    )
    assert list(map(told, beside)) == list(map(told, alone))
    assert len(shadows(beside)) == len(beside) > 15
    assert shadows(alone) == []
    assert sum(int(j.shadow.straggler.sum()) for j in beside if j.shadow is not None) > 50
    assert [t.alarm.component.partition("/")[0] for j in beside for t in j.transitions] == [SLOW]


def test_a_shadow_judges_as_the_detector_that_it_is() -> None:
    """It has its history of samples, too, which the group's own detector does not need."""
    assert SHADOWED.shadow is not None
    alone = run(new_core(detect=SHADOWED.shadow), list(steps(BATCHES)))
    beside = run(new_core(detect=SHADOWED), list(steps(BATCHES)))
    without_events = [told(replace(judged, transitions=())) for judged in alone]
    assert shadows(beside) == without_events
    assert [t.kind for judged in alone for t in judged.transitions].count("raised") > 5


@pytest.mark.parametrize("crash", [1, 8, 23])
def test_a_shadow_goes_on_from_a_snapshot_and_the_entries_since(crash: int) -> None:
    story = list(steps(BATCHES))
    whole = run(new_core(detect=SHADOWED), story)
    first = new_core(detect=SHADOWED)
    before = run(first, story[:crash])
    second = reborn(first, SHADOWED)
    entries: list[LogEntry] = []
    first.record(entries.append)
    since = run(first, story[crash : crash + 4])
    replayed = [j for entry in entries for j in second.replay(entry) if isinstance(j, Judgement)]
    assert shadows(replayed) == shadows(since)
    after = run(second, story[crash + 4 :])
    assert shadows([*before, *since, *after]) == shadows(whole)
    assert list(map(told, [*before, *since, *after])) == list(map(told, whole))


@pytest.mark.parametrize(("before", "after"), [(DETECT, SHADOWED), (SHADOWED, DETECT)])
def test_a_group_keeps_its_state_when_a_shadow_comes_or_goes(
    before: DetectSettings, after: DetectSettings
) -> None:
    story = list(steps(BATCHES))
    first = new_core(detect=before)
    found = run(first, story[:30])
    assert first.judge.alarms.standing
    second = reborn(first, after)
    assert second.judge.alarms.standing == first.judge.alarms.standing
    assert rules_of(second) != rules_of(first), "a new run begins in the archive"
    found += run(second, story[30:])
    assert list(map(told, found)) == list(map(told, run(new_core(), story)))


def test_a_changed_shadow_starts_without_state() -> None:
    story = list(steps(BATCHES))
    first = new_core(detect=SHADOWED)
    run(first, story[:30])
    changed = with_shadow(DETECT, 1e9, [f"{node}/wwn-{n}" for node in NODES for n in range(3)])
    found = run(reborn(first, changed), story[30:])
    assert not any(j.shadow.straggler.any() for j in found if j.shadow is not None)
    same = run(reborn(first, SHADOWED), story[30:])
    assert any(j.shadow.straggler.any() for j in same[:2] if j.shadow is not None)


def test_a_replaced_component_restarts_in_the_shadow_too() -> None:
    core = new_core(detect=SHADOWED)
    story = list(steps(BATCHES))
    run(core, story[:30])
    gone = f"{NODES[0]}/wwn-0"
    core.overrides.restart(gone, [GROUP])
    judged = next(j for j in run(core, story[30:]) if gone in j.components)
    assert judged.shadow is not None
    place = judged.shadow.components.index(gone)
    assert judged.shadow.persistence[place] <= 1
    assert judged.shadow.persistence.max() > 5


def test_the_archive_has_the_shadows_verdicts_apart_and_replays_them(tmp_path: Path) -> None:
    core = new_core(detect=SHADOWED)
    writer = ArchiveWriter(tmp_path, "site", START)
    writer.groups(core.membership, core.topology, 1.0, 0.0)
    judgements: list[Judgement] = []
    for messages, now_ns in steps(BATCHES):
        for batch in receive(core, messages):
            writer.batch(batch)
        for each in core.closes(core.windows.due(now_ns), now_ns):
            writer.window_close(each)
            for judged in core.close(each):
                writer.judgement(judged)
                judgements.append(judged)
    writer.flush()
    reader = ArchiveReader(tmp_path)
    of_shadows = [j.shadow for j in judgements if j.shadow is not None]
    flagged = {
        (j.end, name)
        for j in of_shadows
        for name, flag in zip(j.components, j.verdicts.judged & j.verdicts.anomalous, strict=True)
        if flag
    }
    rows = [row for row in reader.table("shadow_verdicts").to_pylist() if row["anomalous"]]
    assert {(row["end"], row["component"]) for row in rows} == flagged
    assert len(flagged) > 100
    windows = reader.table("shadow_windows").to_pylist()
    assert [row["anomalous"] for row in windows] == [
        int((j.verdicts.judged & j.verdicts.anomalous).sum()) for j in of_shadows
    ]
    own = {row["component"] for row in reader.table("verdicts").to_pylist()}
    assert own != {row["component"] for row in rows}
    assert {row["component"].partition("/")[0] for row in reader.table("alarms").to_pylist()} == {SLOW}

    def replayed(*, by_shadows: bool) -> list[Judgement]:
        return list(open_run([tmp_path], CsvColumns(), {}, by_shadows=by_shadows).judgements)

    as_was = replayed(by_shadows=False)
    assert list(map(told, as_was)) == list(map(told, judgements))
    assert shadows(as_was) == [], "not judged twice"
    assert [told(replace(j, transitions=())) for j in replayed(by_shadows=True)] == shadows(judgements)


def test_metrics_count_where_both_agree() -> None:
    core = new_core(detect=SHADOWED)
    view = Status(core, window_clock(HandClock(START)))
    counted = np.zeros(BOTH + 1, dtype=np.int64)
    for judged in run(core, list(steps(BATCHES))):
        view.judged((judged,))
        counted += np.bincount(compare(judged)[1], minlength=BOTH + 1)
    assert judged.shadow is not None
    name = f'laggard_shadow_verdicts_total{{agrees="%s",anomalous="%s",detector="cdf",group="{GROUP}"}} %.1f'
    series = exposed(view)
    for agrees, anomalous, state in (
        ("yes", "no", NEITHER),
        ("yes", "yes", BOTH),
        ("no", "yes", SHADOW),
        ("no", "no", DETECTOR),
    ):
        assert name % (agrees, anomalous, counted[state]) in series
    assert counted[SHADOW] > 100
    assert counted[DETECTOR], "the node is blamed in place of its disks"
    stragglers = [line for line in series if line.startswith("laggard_shadow_stragglers")]
    own, other = (
        {name for name, flag in zip(each.components, each.straggler, strict=True) if flag}
        for each in (judged, judged.shadow)
    )
    both, only = len(own & other), len(other - own)
    assert stragglers == [
        f'laggard_shadow_stragglers{{agrees="yes",detector="cdf",group="{GROUP}"}} {both:.1f}',
        f'laggard_shadow_stragglers{{agrees="no",detector="cdf",group="{GROUP}"}} {only:.1f}',
    ]
    assert only > 5
    components = {line.partition('component="')[2].partition('"')[0] for line in series}
    assert {name.partition("/")[0] for name in components if name} <= {SLOW}
    view.adopt(core, ())
    assert not [line for line in exposed(view) if line.startswith("laggard_shadow_verdicts_total")]


def test_what_was_replayed_is_not_counted_again() -> None:
    core = new_core(detect=SHADOWED)
    view = Status(core, window_clock(HandClock(START)))
    view.adopt(core, run(core, list(steps(BATCHES))))
    assert view.counters().shadow_verdicts == {}
    assert view.history.shadow_columns(GROUP, "await"), "but shown"


def test_states_of_components_and_of_parents_that_only_one_blames() -> None:
    (judged, *_) = run(new_core(detect=SHADOWED), list(steps(10)))
    shadow = judged.shadow
    assert shadow is not None
    size = len(judged.components)

    def flags(anomalous: Sequence[int], unjudged: Sequence[int] = ()) -> dict[str, Any]:
        return {
            "judged": np.array([at not in unjudged for at in range(size + 1)]),
            "anomalous": np.array([at in anomalous for at in range(size + 1)]),
        }

    own = replace(
        judged,
        components=(*judged.components, "oss-1"),
        levels=(*judged.levels, "node"),
        verdicts=replace(judged.verdicts, **flags([0, 1, 3], unjudged=[3])),
    )
    other = replace(
        own,
        components=(*judged.components, "oss-2"),
        verdicts=replace(judged.verdicts, **flags([1, 2, size])),
    )
    names, state = compare(replace(own, shadow=other))
    assert names == (*judged.components, "oss-1", "oss-2")
    assert state.tolist()[:5] == [DETECTOR, BOTH, SHADOW, NOT_COMPARED, NEITHER]
    assert state.tolist()[size:] == [NOT_COMPARED, SHADOW]
