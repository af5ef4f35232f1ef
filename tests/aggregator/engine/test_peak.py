"""A `[[peak]]` in the machine: beside the groups of peers, through snapshot and archive."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.checkpoint import capture, restore, rules_of
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule
from laggard_aggregator.log import snapshot_codec
from laggard_aggregator.metrics.registry import unit
from laggard_aggregator.notify.report import Comparison
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.run import open_run
from laggard_aggregator.status.view import Status
from laggard_aggregator.web.exposition import scrape
from laggard_aggregator.web.pages.page_state import StateReader
from laggard_aggregator.web.pages.straggler_rows import slow
from tests.support.builders.site import DETECT, NODES, SECOND, START, close, new_core, receive, steps, told
from tests.support.clock import HandClock
from tests.support.window_clock import window_clock

BATCHES = 40
PEAK = 4e7
"""Bytes a second; a disk of the builder reads about a sixth of it, 0.9 of the time busy."""


def with_peak(peak: float = PEAK) -> Machine:
    options = {"peak": peak, "below": 0.3, "minutes": 1.0}
    detect = DetectSettings("peak", 1.0, 20, 10, 1, options=options)
    group = PeerGroup("peak-1", "diskstats", "", ("throughput",), detect)
    membership = ConfiguredMembership((Rule(group, re.compile("oss-1/sd0")),), DETECT)
    return Machine(membership, site="site", lateness_seconds=1.0, forget_ns=10**8 * SECOND)


def run(core: Machine, story: list[tuple[list[tuple[str, bytes, int]], int]]) -> list[Judgement]:
    found: list[Judgement] = []
    for messages, now_ns in story:
        receive(core, messages)
        found += close(core, now_ns)
    return found


def test_the_other_groups_are_judged_as_without_it() -> None:
    story = list(steps(BATCHES))
    beside = run(with_peak(), story)
    of_peers = [told(judged) for judged in beside if judged.group != "peak-1"]
    assert of_peers == list(map(told, run(new_core(), story)))
    mine = [judged for judged in beside if judged.group == "peak-1"]
    assert {judged.components for judged in mine} == {("oss-1/wwn-0",)}
    (event,) = [event for judged in mine for event in judged.transitions]
    assert event.alarm.reference == PEAK
    assert event.at - mine[0].start == pytest.approx(60.0, abs=20.0)
    assert not any(
        event
        for judged in run(with_peak(1e7), story)
        for event in judged.transitions
        if judged.group == "peak-1"
    )


@pytest.mark.parametrize("crash", [3, 20])
def test_goes_on_from_a_snapshot(crash: int) -> None:
    story = list(steps(BATCHES))
    first = with_peak()
    found = run(first, story[:crash])
    sections = [snapshot_codec.unpack(snapshot_codec.pack(section)) for section in capture(first, 1, START)]
    second = with_peak()
    restore(second, iter(sections), "test")
    assert rules_of(second) == rules_of(first) != rules_of(with_peak(1e7))
    found += run(second, story[crash:])
    assert list(map(told, found)) == list(map(told, run(with_peak(), story)))


def test_the_archive_replays_it_and_other_detectors_leave_it_out(tmp_path: Path) -> None:
    core = with_peak()
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
    replayed = list(open_run([tmp_path], CsvColumns(), {}).judgements)
    assert list(map(told, replayed)) == list(map(told, judgements))
    assert "peak-1" in {row["group"] for row in ArchiveReader(tmp_path).table("alarms").to_pylist()}
    by_cdf = open_run([tmp_path], CsvColumns(), {"detector": "cdf"}).judgements
    assert "peak-1" not in {judged.group for judged in by_cdf}


def test_is_said_to_be_below_its_known_peak() -> None:
    core = with_peak()
    view = Status(core, window_clock(HandClock(START)))
    for messages, now_ns in steps(BATCHES):
        receive(core, messages)
        for judged in close(core, now_ns):
            view.judged((judged,))
    (row,) = (each for each in slow(StateReader(view).now()) if each.first.standing.group == "peak-1")
    assert row.claim == (f"{row.factor:.1f}× below its known peak", "")
    assert ", known peak 40,000,000" in row.first.value
    alarm = next(alarm for alarm in view.alarms().values() if alarm.group == "peak-1")
    assert view.reference(alarm) == "known peak"
    others = [replace(alarm, group=name) for name in ("storage/diskstats", "gone")]
    assert [view.reference(other) for other in others] == ["peers", "peers"]
    assert "its known peak 4e+07" in alarm.evidence(view.reference(alarm))
    said = Comparison(
        *("throughput", "peak-1", unit("diskstats", "throughput")),
        *(alarm.observed, alarm.reference, alarm.severity, alarm.severity, alarm.since),
        0,
        "known peak",
    )
    assert said.predicate == f"stays {alarm.severity:.1f} times below its known peak"
    assert scrape(view).groups
    assert NODES
