"""Evidence beside alarms: rises of counters, over restarts, gaps, late batches and hostile names."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.engine.node_evidence import KEPT_SECONDS, NodeEvidence
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.metrics.registry import EVIDENCE
from laggard_aggregator.status.node_signs import beside
from laggard_common.wire.schema import Field, FieldKind, Schema
from tests.aggregator.engine.test_machine import DETECT
from tests.support.builders.batches import SECOND, batch_of, schema_of, stored

START = 1_769_853_720  # 10:02 of a day
FIELDS = ("errors", "timeouts", "invalid_dwords", "down")


def schema(
    *names: str, node: str = "oss-1", source: str = "disk_errors", fields: tuple[str, ...] = FIELDS
) -> Schema:
    made = replace(schema_of(node, names, fields), source=source)
    gauges = tuple(Field(f.name, FieldKind.GAUGE) if f.name == "down" else f for f in made.fields)
    return replace(made, fields=gauges)


def batch(of: Schema, at: int, *rows: list[int]) -> Batch:
    """A batch of one tick, so many seconds after the start."""
    return batch_of(of, np.array([rows], dtype=np.int64), (START + at) * SECOND)


def said(evidence: NodeEvidence, name: str = "oss-1/sda", at: int = 600) -> list[str]:
    return [each.text for each in beside(evidence.of("oss-1", START + at), name)]


def test_rises_are_told_in_words() -> None:
    evidence, of = NodeEvidence(), schema("sda", "sdc")
    for at, errors in ((-600, 40), (0, 45), (60, 45), (120, 52)):
        evidence.add(batch(of, at, [errors, 3 * (at > 0), 0, 0], [7, 0, 9 * (at == 120), 0]))
    assert said(evidence) == [
        "12 failed commands, 3 timeouts since 2026-01-31 10:02 UTC: replace it",
        "sdc: 9 invalid dwords on its link since 2026-01-31 10:04 UTC: reseat it, or look at its cable",
    ]
    assert said(evidence, "oss-1/md0")[0].startswith("sda: 12 failed commands")
    assert said(evidence, "oss-1")[1].startswith("sdc: 9 invalid dwords")
    assert evidence.of("oss-2", START) == ()
    assert said(evidence, at=round(KEPT_SECONDS) + 121) == []


def test_first_values_resets_and_late_batches_are_no_events() -> None:
    evidence, of = NodeEvidence(), schema("sda")
    for at, errors in ((0, 90), (60, 95), (120, 2), (30, 1), (180, 2), (60, 95)):
        evidence.add(batch(of, at, [errors, 0, 0, 0]))
    assert [each.count for sign in evidence.of("oss-1", START) for each in sign.events] == [5]


def test_another_stream_of_the_same_disks_goes_on() -> None:
    evidence = NodeEvidence()
    evidence.add(batch(schema("sda", "sdb"), 0, [1, 0, 0, 0], [5, 0, 0, 0]))
    other = schema("sdb", "sdz", fields=("down", "errors"))
    evidence.add(batch(other, 60, [0, 6], [0, 9]))
    assert [(s.component, [e.count for e in s.events]) for s in evidence.of("oss-1", START)] == [("sdb", [1])]


def test_disks_that_exchange_their_names_have_no_new_errors() -> None:
    evidence, of = NodeEvidence(), schema("sda", "sdb")
    one, two = (
        replace(component, id=id_) for component, id_ in zip(of.components, ("w1", "w2"), strict=True)
    )
    evidence.add(batch(replace(of, components=(one, two)), 0, [900, 0, 0, 0], [0, 0, 0, 0]))
    swapped = replace(of, components=(replace(one, id="w2"), replace(two, id="w1")))
    evidence.add(batch(swapped, 60, [0, 0, 0, 0], [901, 0, 0, 0]))
    assert [(s.component, [e.count for e in s.events]) for s in evidence.of("oss-1", START)] == [("sdb", [1])]


def test_states_stand_without_an_event() -> None:
    evidence, of = NodeEvidence(), schema("sda", "sdb")
    evidence.add(batch(of, 0, [0, 0, 0, 1], [0, 0, 0, 0]))
    assert said(evidence) == ["it does not run: replace it"]
    evidence.add(batch(of, 60, [0, 0, 0, 0], [0, 0, 0, 0]))
    assert said(evidence) == []


def test_an_unchanged_minute_keeps_the_node_fresh() -> None:
    evidence, of = NodeEvidence(), schema("sda")
    for day in range(3):
        evidence.add(batch(of, day * round(KEPT_SECONDS), [0, 0, 0, 1]))
    assert said(evidence, at=2 * round(KEPT_SECONDS) + 60) == ["it does not run: replace it"]


def test_what_is_kept_is_one_row_of_a_node_not_the_batch_it_came_in() -> None:
    """A thousand nodes with 60 disks each are 420,000 values of 8 bytes."""
    names = tuple(f"sd{n}" for n in range(60))
    evidence = NodeEvidence()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for node in range(200):
        of = schema(*names, node=f"oss-{node}")
        evidence.add(batch_of(of, np.zeros((300, 60, 4), dtype=np.int64), START * SECOND))
        del of
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert kept < 200 * 60_000  # of which a batch's values would be 576,000


def test_missing_values_are_no_zeros() -> None:
    evidence, of = NodeEvidence(), schema("sda")
    evidence.add(batch(of, 0, [50, 0, 0, 0]))
    gap = batch(of, 60, [0, 0, 0, 0])
    evidence.add(replace(gap, counters=replace(gap.counters, present=np.array([[False, True, True, True]]))))
    evidence.add(batch(of, 120, [51, 0, 0, 0]))
    assert evidence.of("oss-1", START) == ()


@pytest.mark.parametrize("name", ["sd\x1b[31m", "\u202eads", "a" * 250])
def test_hostile_names_are_one_printable_line(name: str) -> None:
    evidence, of = NodeEvidence(), schema(name)
    for at in (0, 60):
        evidence.add(batch(of, at, [at, 0, 0, 0]))
    (line,) = said(evidence)
    assert line.isprintable()
    assert len(line) < 260


def test_a_machine_notes_the_batches_that_it_stores_and_raises_nothing() -> None:
    machine = Machine(ConfiguredMembership((), DETECT), lateness_seconds=2.0)
    lnet = schema("lnet", source="lnet", fields=("drop_count", "nis_down"))
    for at in (0, 60):
        stored(machine, batch(schema("sda"), at, [at, 0, 0, 0]))
        stored(machine, batch(lnet, at, [at // 6, 1]))
    assert [each.text for each in beside(machine.evidence.of("oss-1", START + 60), "oss-1/sda")] == [
        "60 failed commands since 2026-01-31 10:03 UTC: replace it",
        "lnet: a network is down, 10 dropped messages since 2026-01-31 10:03 UTC: "
        "look at its network: lnetctl net show -v 4",
    ]
    assert not machine.judge.alarms.standing
    assert set(EVIDENCE) == {
        "disk_errors",
        "disk_health",
        "lnet",
        "lnet_ni_health",
        "mmpmon",
        "zfs_pool",
        "zfs_vdev",
        "zfs_vdev_state",
    }
