import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.engine.routes import Route
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule, component_key
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.ingest.dedup_state import sharing
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.metrics.definition import IntArray
from laggard_aggregator.windows.store import GroupStore
from laggard_common.wire.schema import Component
from tests.support.builders.batches import DISKSTATS, SECOND, batch_of, schema_of, stored

START = 1_800_000_000 * SECOND
DETECT = DetectSettings(interval_seconds=1.0, window_samples=60, shift_samples=30)


def run_of_luns(seconds: int, slow: str, slow_from: int) -> Iterator[Batch]:
    """Twelve nodes with a LUN each, five ticks a message; one is three times slower from a second on."""
    chance = np.random.default_rng(1)
    nodes = [f"oss-{n}" for n in range(1, 13)]
    schemas = {node: schema_of(node, ["sda"]) for node in nodes}
    totals = {node: np.zeros(len(DISKSTATS), dtype=np.int64) for node in nodes}
    for begin in range(0, seconds, 5):
        for node in nodes:
            ticks = []
            for second in range(begin, begin + 5):
                ios = int(chance.integers(80, 120))
                service = 5.0 * (3.0 if node == slow and second >= slow_from else 1.0)
                ms = int(ios * service * chance.uniform(0.9, 1.1))
                grown = {"rd_ios": ios, "rd_sectors": ios * 128, "rd_ms": ms, "weighted_ms": ms}
                totals[node] = totals[node] + np.array([grown.get(name, 0) for name in DISKSTATS])
                ticks.append(totals[node])
            yield batch_of(
                schemas[node], np.array(ticks)[:, None, :], START + (begin + 1) * SECOND, seq=begin // 5
            )


def play(pipeline: Machine, batches: Iterator[Batch]) -> tuple[list[Judgement], list[Batch | WindowClose]]:
    """Everything through the pipeline, windows closed by the clock of reception; also what a replay needs."""
    judged: list[Judgement] = []
    record: list[Batch | WindowClose] = []
    for batch in batches:
        now = batch.received_ns
        for close in pipeline.closes(pipeline.windows.due(now), now):
            record.append(close)
            judged.extend(pipeline.close(close))
        record.append(stored(pipeline, batch))
    return judged, record


def make(detect: DetectSettings = DETECT) -> Machine:
    return Machine(ConfiguredMembership((), detect), lateness_seconds=2.0)


def test_the_slow_lun_and_no_other_is_found_from_raw_counters() -> None:
    pipeline = make()
    judged, _ = play(pipeline, run_of_luns(600, slow="oss-7", slow_from=300))
    assert {judgement.group for judgement in judged} == {"storage/diskstats"}
    assert list(pipeline.judge.alarms.standing) == [("storage/diskstats", "oss-7/id-sda", "await")]
    alarm = pipeline.judge.alarms.standing["storage/diskstats", "oss-7/id-sda", "await"]
    assert alarm.observed / alarm.reference == pytest.approx(3.0, rel=0.15)
    assert START / 1e9 + 240 <= alarm.since <= START / 1e9 + 330
    assert pipeline.names["oss-7/id-sda"] == "oss-7/sda"
    assert pipeline.samples == 600 * 12


def test_a_replay_of_batches_and_closes_gives_the_same_judgements() -> None:
    first, record = play(make(), run_of_luns(400, slow="oss-3", slow_from=100))
    again: list[Judgement] = []
    replayed = make()
    for item in record:
        if isinstance(item, WindowClose):
            again.extend(replayed.close(item))
        else:
            assert stored(replayed, item) is item
    assert len(first) == len(again) > 5
    for one, other in zip(first, again, strict=True):
        assert one.components == other.components
        assert one.verdicts.score.tobytes() == other.verdicts.score.tobytes()
        assert one.transitions == other.transitions


DISCARDS = (*DISKSTATS, "dc_ios", "dc_merges", "dc_sectors", "dc_ms")


def steady(seconds: range, components: int, fields: int = len(DISKSTATS), ios: int = 10) -> IntArray:
    """Counters (n, c, f) that all grow by `ios` a second."""
    return np.array([[[ios * s] * fields] * components for s in seconds], dtype=np.int64)


def end_of(pipeline: Machine, seconds: int, ordinal: int = 10) -> WindowClose:
    (group,) = pipeline.groups
    end = START / 1e9 + seconds
    return WindowClose(ordinal, group, end - 60, end, end)


def rates(pipeline: Machine, seconds: int) -> dict[str, list[float]]:
    """What `throughput` of each component was in the last intervals before `seconds`, oldest first."""
    window = pipeline.seal(end_of(pipeline, seconds))
    assert isinstance(window, GroupWindow)
    found = zip(window.components, window.load["throughput"].tolist(), strict=True)
    return {name: [value for value in values if value == value] for name, values in found}


def test_ticks_that_come_after_their_window_are_flagged_and_skipped() -> None:
    pipeline = make()
    schema = schema_of()
    first = batch_of(schema, steady(range(1, 31), 1), START + SECOND)
    assert stored(pipeline, first) is first
    pipeline.seal(end_of(pipeline, 30))
    late = stored(pipeline, batch_of(schema, steady(range(28, 33), 1), START + 28 * SECOND))
    assert late.late.tolist() == [True, True, True, False, False]
    assert pipeline.stores["storage/diskstats"].counts.late == 3


def test_a_batch_whose_windows_are_closed_changes_nothing_but_the_count_of_late_samples() -> None:
    """As the store would have it: a backlog is not even converted to the group's rows and counters."""
    pipeline = make()
    schema = schema_of(components=("a", "b", "c"))
    stored(pipeline, batch_of(schema, steady(range(1, 31), 3), START + SECOND))
    pipeline.seal(end_of(pipeline, 30))
    store = pipeline.stores["storage/diskstats"]
    before = store.state()
    late = batch_of(schema, steady(range(20, 0, -1), 3), START + 11 * SECOND)
    assert stored(pipeline, late).late.all()
    assert (store.counts.late, store.counts.future, store.counts.resets) == (60, 0, 0)
    assert isinstance(store, GroupStore)
    store.add(late.counters, late.received_ns)
    assert (store.counts.late, store.counts.future, store.counts.resets) == (120, 0, 0)
    np.testing.assert_equal(store.state(), before)


def test_components_may_come_in_any_order_idle_ones_last_and_some_may_be_missing() -> None:
    pipeline = make()
    schema = schema_of(components=("a", "b", "c"))
    values = steady(range(1, 11), 3)
    values[:, 0] *= 2
    stored(pipeline, batch_of(schema, steady(range(1), 3) * 0, START))
    taken = batch_of(schema, values, START + SECOND)
    mixed = replace(taken.counters, indexes=np.array([2, 0, 1], dtype=np.int64), idle=1)
    stored(pipeline, replace(taken, counters=mixed))
    found = rates(pipeline, 30)
    assert found["oss-1/id-c"] == [2 * 2 * 10 * 512.0] * 10
    assert found["oss-1/id-a"] == found["oss-1/id-b"] == [2 * 10 * 512.0] * 10


def test_a_component_without_the_counters_of_a_metric_is_not_compared() -> None:
    pipeline = make()
    taken = batch_of(schema_of(components=("a", "b")), steady(range(1, 11), 2), START + SECOND)
    present = np.ones((2, len(DISKSTATS)), dtype=np.bool_)
    present[1, DISKSTATS.index("rd_ms")] = False
    stored(pipeline, replace(taken, counters=replace(taken.counters, present=present)))
    assert list(rates(pipeline, 30)) == ["oss-1/id-a"]


def test_a_source_without_the_counters_of_a_metric_is_not_compared() -> None:
    pipeline = make()
    stored(pipeline, batch_of(schema_of(fields=("rd_ios", "x")), steady(range(5), 1, 2), START))
    assert pipeline.stores["storage/diskstats"].components == []


def test_a_schema_that_grows_brings_components_and_counters_without_a_spike() -> None:
    pipeline = make()
    stored(pipeline, batch_of(schema_of(), steady(range(1, 11), 1), START + SECOND))
    grown = replace(schema_of(components=("sda", "sdb"), fields=DISCARDS), epoch=2)
    values = steady(range(11, 21), 2, len(DISCARDS))
    values[:, :, len(DISKSTATS) :] += 10**9
    stored(pipeline, batch_of(grown, values, START + 11 * SECOND, seq=1))
    found = rates(pipeline, 30)
    assert found["oss-1/id-sda"] == [10 * 2 * 512.0] * 9 + [10 * 3 * 512.0] * 9
    assert found["oss-1/id-sdb"] == [10 * 3 * 512.0] * 9


def test_a_component_that_moves_is_one_component_and_no_spike(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELD_NS", "HELD_WAITS"):
        monkeypatch.setattr(f"laggard_aggregator.engine.routing.{name}", 0)
    pipeline = make()
    for at, node in enumerate(("oss-1", "oss-2", "oss-1")):
        schema = schema_of(node, ["ost"], labels={"scope": "site"})
        begin = 10 * at + 1
        values = steady(range(begin, begin + 10), 1) + (10**6 if node == "oss-2" else 0)
        stored(pipeline, batch_of(schema, values, START + begin * SECOND))
    assert rates(pipeline, 60) == {"id-ost": [10 * 2 * 512.0] * 27}
    assert pipeline.names == {"id-ost": "ost"}


def test_a_component_is_taken_over_from_a_node_that_no_longer_sends_it() -> None:
    """Not before a minute; late samples of the former node are left out."""
    pipeline = make()
    of = {node: schema_of(node, ["ost"], labels={"scope": "site"}) for node in ("oss-1", "oss-2")}
    hosts = []
    for seq, (node, begin) in enumerate(
        (("oss-1", 1), ("oss-2", 11), ("oss-2", 69), ("oss-2", 70), ("oss-1", 80))
    ):
        values = steady(range(begin, begin + 10), 1)
        stored(pipeline, batch_of(of[node], values, START + begin * SECOND, seq=seq))
        (store,) = pipeline.stores.values()
        hosts.append(pipeline._routing._origins.nodes_of(store.origins())[0])  # type: ignore[union-attr]
    assert hosts == ["oss-1", "oss-1", "oss-1", "oss-2", "oss-2"]
    assert pipeline.refused == {"claimed": 3}


def test_the_budget_is_shared_over_a_power_of_two_of_series() -> None:
    pipeline = make()
    assert pipeline._tests_at_once() == 1
    names = [f"sd{n}" for n in range(33)]
    stored(pipeline, batch_of(schema_of(components=names), steady(range(1, 6), 33), START + SECOND))
    assert pipeline._tests_at_once() == 64
    window = pipeline.seal(end_of(pipeline, 30))
    assert isinstance(window, GroupWindow)
    assert window.tests_at_once == 64


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.engine.routing.MAX_GROUPS", 2)
    pipeline = make()
    for n in range(4):
        schema = schema_of(f"oss-{n}", labels={"model": f"model-{n}"})
        stored(pipeline, batch_of(schema, steady(range(1, 6), 1), START + SECOND))
    assert (len(pipeline.groups), pipeline.refused) == (2, {"groups": 2})


def test_one_node_takes_neither_all_groups_nor_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.engine.routing.MAX_NODE_GROUPS", 2)
    monkeypatch.setattr("laggard_aggregator.engine.routing.MAX_NODE_ROWS", 5)
    pipeline = make()
    for n in range(4):
        schema = schema_of(components=["a", "b"], labels={"model": f"model-{n}"})
        schema = replace(schema, components=tuple(replace(c, id=f"{c.id}-{n}") for c in schema.components))
        stored(pipeline, batch_of(schema, steady(range(1, 6), 2), START + SECOND))
    assert (len(pipeline.groups), pipeline.refused) == (2, {"groups": 4})
    churned = schema_of(components=["c", "d"], labels={"model": "model-0"})
    stored(pipeline, batch_of(churned, steady(range(1, 6), 2), START + SECOND))
    assert pipeline.refused == {"groups": 4, "rows": 1}
    assert len(pipeline.names) == 5
    other = schema_of("oss-2", labels={"model": "model-9"})
    stored(pipeline, batch_of(other, steady(range(1, 6), 1), START + SECOND))
    assert len(pipeline.groups) == 3
    assert "oss-2/id-sda" in pipeline.names


def test_a_configured_group_finds_room_among_any_number_of_automatic_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laggard_aggregator.engine.routing.MAX_GROUPS", 1)
    own = Rule(PeerGroup("own", "diskstats", "", ("await",), DETECT), re.compile("oss-2/.*"))
    pipeline = Machine(ConfiguredMembership((own,), DETECT), lateness_seconds=2.0)
    for node in ("oss-1", "oss-2"):
        stored(pipeline, batch_of(schema_of(node), steady(range(1, 6), 1), START + SECOND))
    assert list(pipeline.groups) == ["storage/diskstats", "own"]


def test_closes_of_unknown_groups_and_of_windows_long_closed_do_nothing() -> None:
    pipeline = make()
    assert pipeline.close(WindowClose(1, "nobody", 0.0, 60.0, 60.0)) == ()
    stored(pipeline, batch_of(schema_of(), steady(range(1, 6), 1), START + SECOND))
    assert pipeline.close(end_of(pipeline, -600)) == ()


def test_a_forgotten_stream_that_comes_back_with_more_components_does_no_harm() -> None:
    """The same node, stream and epoch, another schema: what was known of one says nothing of the other."""
    pipeline = make()
    values = np.zeros((5, 1, len(DISKSTATS)), dtype=np.int64)
    stored(pipeline, batch_of(schema_of(components=["sda"]), values, START + SECOND))
    more = schema_of(components=["sdb", "sdc", "sdd"])
    stored(pipeline, batch_of(more, np.repeat(values, 3, axis=1), START + 6 * SECOND))
    assert pipeline.stores["storage/diskstats"].components == [f"oss-1/id-sd{x}" for x in "abcd"]


def asked_membership() -> tuple[ConfiguredMembership, list[str]]:
    """The automatic groups, and the names of the components that were asked for so far."""
    asked: list[str] = []

    class Asked(ConfiguredMembership):
        def groups_of(
            self, node: str, role: str, source: str, component: Component, at: float
        ) -> tuple[PeerGroup, ...]:
            asked.append(component.name)
            return super().groups_of(node, role, source, component, at)

    return Asked((), DETECT), asked


def test_a_schema_that_grows_costs_what_it_grew_by() -> None:
    membership, asked = asked_membership()
    pipeline = Machine(membership, lateness_seconds=2.0)
    before = None
    names = ["a", "b", "c", "d"]
    for epoch in range(1, 6):
        grown = replace(schema_of(components=names), epoch=epoch)
        if epoch == 4:  # under another name, and of another class: in another group
            renamed = replace(grown.components[1], name="z", labels=(("model", "other"),))
            grown = replace(grown, components=(grown.components[0], renamed, *grown.components[2:]))
        elif before is not None:
            grown = replace(
                grown, components=(*before.components, *grown.components[len(before.components) :])
            )
        grown, _ = sharing(grown, before)
        values = steady(range(epoch * 5, epoch * 5 + 5), len(names))
        stored(pipeline, batch_of(grown, values, START + epoch * 5 * SECOND, seq=epoch))
        for route in pipeline._routing.routes["oss-1", "diskstats"].routes:
            assert isinstance(route, Route)
            for at, row in enumerate(route.rows.tolist()):
                key = component_key("oss-1", grown.components[at])
                assert row < 0 or route.store.components[row] == key
        of_groups = [
            {at for at, row in enumerate(route.rows.tolist()) if row >= 0}
            for route in pipeline._routing.routes["oss-1", "diskstats"].routes
            if isinstance(route, Route)
        ]
        assert set.union(*of_groups) == set(range(len(names)))
        assert len(of_groups) == (1 if epoch < 4 else 2)
        before = grown
        names.append(f"e{epoch}")
    assert asked == ["a", "b", "c", "d", "e1", "e2", "z", "e3", "e4"]


def test_two_streams_that_take_turns_are_looked_up_once_each() -> None:
    membership, asked = asked_membership()
    pipeline = Machine(membership, lateness_seconds=2.0)
    one, other = schema_of(components=["a", "b"]), replace(schema_of(components=["a"]), stream=b"t" * 16)
    for seconds in range(1, 41, 5):
        for schema in (one, other):
            count = len(schema.components)
            values = steady(range(seconds, seconds + 5), count)
            stored(pipeline, batch_of(schema, values, START + seconds * SECOND))
    assert asked == ["a", "b", "a"]
    assert len(rates(pipeline, 30)["oss-1/id-a"]) == 29
