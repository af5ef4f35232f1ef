"""The same code online and offline: what a pipeline judged while it ran, its archive judges again."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.retention import compact, retain
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.errors import InputError
from laggard_common.wire.schema import Component, Schema
from tests.support.builders.batches import DISKSTATS, SECOND, batch_of, next_lsn, schema_of, stored

START_NS = 1_800_000_000 * SECOND
DETECT = DetectSettings(interval_seconds=1.0, window_samples=60, shift_samples=30)
LATENESS_SECONDS = 2.0
SLOW_FROM = 150
SLOW = "oss-3/id-sda"


def counters(seed: int, seconds: int) -> Iterator[Batch]:
    """Eight nodes with two disks each, one of them three times slower after a while; in order of reception.

    Some batches come late or out of order, one node's disk is new after a while (a new epoch), one node is
    rebooted (counters start over), one message lacks a disk, and ticks jitter.
    """
    chance = np.random.default_rng(seed)
    found = [batch for n in range(8) for batch in _node(chance, f"oss-{n}", seconds, slow=n == 3)]
    yield from sorted(found, key=lambda batch: batch.received_ns)


def _node(chance: np.random.Generator, node: str, seconds: int, slow: bool) -> Iterator[Batch]:
    schema = schema_of(node, ["sda", "sdb"])
    totals = np.zeros((2, len(DISKSTATS)), dtype=np.int64)
    for seq, begin in enumerate(range(0, seconds, 5)):
        if node == "oss-5" and begin == 200:
            totals[:] = 0
        if node == "oss-6" and begin == 100:
            schema = _with_third_disk(schema)
            totals = np.vstack([totals, np.zeros((1, len(DISKSTATS)), dtype=np.int64)])
        ticks = np.zeros((5, *totals.shape), dtype=np.int64)
        for tick in range(5):
            service = np.where([slow and begin >= SLOW_FROM, *([False] * (len(totals) - 1))], 15.0, 5.0)
            ios = chance.integers(80, 120, len(totals))
            ms = (ios * service * chance.uniform(0.9, 1.1, len(totals))).astype(np.int64)
            for name, grown in (
                ("rd_ios", ios),
                ("rd_sectors", ios * 128),
                ("rd_ms", ms),
                ("weighted_ms", ms),
            ):
                totals[:, DISKSTATS.index(name)] += grown
            ticks[tick] = totals
        first_ns = START_NS + (begin + 1 + int(node[-1]) % 5) * SECOND
        delay = float(chance.choice([0.1, 0.3, 6.0, 90.0], p=[0.6, 0.3, 0.07, 0.03]))
        taken = batch_of(
            schema,
            ticks,
            first_ns,
            seq=seq,
            received_ns=first_ns + int((4 + delay + chance.random() / 100) * SECOND),
            read_after_ns=(chance.integers(0, 20_000, 5) * 1000).tolist(),
        )
        yield _without_first(taken) if chance.random() < 0.02 else taken


def _with_third_disk(schema: Schema) -> Schema:
    more = (*schema.components, Component("id-sdc", "sdc"))
    return dataclasses.replace(schema, components=more, epoch=schema.epoch + 1)


def _without_first(taken: Batch) -> Batch:
    batch = taken.counters
    less = dataclasses.replace(batch, indexes=batch.indexes[1:], values=batch.values[:, 1:])
    return dataclasses.replace(taken, counters=less)


def run_online(
    directory: Path,
    seed: int,
    seconds: int = 400,
    run_ns: int = START_NS,
    decided: Callable[[WindowClose], WindowClose] = lambda close: close,
) -> list[Judgement]:
    """The judgements of a running aggregator that archives what it takes, with a flush now and then."""
    luns = PeerGroup("luns", "diskstats", "storage", ("await", "tps"), dataclasses.replace(DETECT, confirm=2))
    membership = ConfiguredMembership((Rule(luns, re.compile(r"oss-[0-5]/.*")),), DETECT)
    pipeline = Machine(membership, lateness_seconds=LATENESS_SECONDS)
    writer = ArchiveWriter(directory, "site", run_ns)
    writer.groups(membership, Topology(), LATENESS_SECONDS, 0.0)
    judged: list[Judgement] = []
    for place, offered in enumerate(counters(seed, seconds)):
        due = pipeline.windows.due(offered.received_ns)
        for close in map(decided, pipeline.closes(due, offered.received_ns)):
            writer.window_close(close)
            for judgement in pipeline.close(close):
                writer.judgement(judgement)
                judged.append(judgement)
        writer.batch(stored(pipeline, dataclasses.replace(offered, lsn=next_lsn(pipeline.sequence))))
        if place % 100 == 99:
            writer.flush()
    writer.flush()
    return judged


def plain(judgements: list[Judgement]) -> list[object]:
    """Judgements as plain data that compares by bits: NaN is NaN, 0.0 is not -0.0."""

    def bits(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.tobytes()
        if isinstance(value, dict):
            return {name: bits(each) for name, each in value.items()}
        return repr(value)

    return [bits(dataclasses.asdict(judgement)) for judgement in judgements]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_replay_judges_as_the_running_aggregator_did(tmp_path: Path, seed: int, compacted: bool) -> None:
    online = run_online(tmp_path, seed)
    assert {(j.group, j.metric) for j in online} == {
        ("luns", "await"),
        ("luns", "tps"),
        ("storage/diskstats", "await"),
    }
    raised = [t.alarm for j in online for t in j.transitions if t.kind == "raised"]
    assert [(alarm.component, alarm.metric) for alarm in raised] == [("oss-3/id-sda", "await")]
    if compacted:
        compact(tmp_path, START_NS + 2 * 86_400 * SECOND)
    replay = ArchiveReplay(ArchiveReader(tmp_path))
    shares: list[float] = []
    assert plain(list(replay.judgements(shares.append))) == plain(online)
    assert replay.confirm("luns") == 2
    assert replay.shown["oss-3/id-sda"] == "oss-3/sda"
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("compacted", [False, True])
def test_a_replay_across_a_drain_judges_as_the_running_aggregator_did(
    tmp_path: Path, compacted: bool
) -> None:
    def drained(close: WindowClose) -> WindowClose:
        at = round(close.end - START_NS / 1e9)
        if close.group != "luns" or at not in (300, 330):
            return close
        return dataclasses.replace(close, drained=(SLOW,), restart=(SLOW,) if at == 300 else ())

    online = run_online(tmp_path, 1, 500, decided=drained)
    absent = [j.end - START_NS / 1e9 for j in online if j.group == "luns" and SLOW not in j.components]
    assert set(absent) >= {300, 330}
    raised = [t.alarm.component for j in online for t in j.transitions if t.kind == "raised"]
    assert raised == [SLOW, SLOW], "before the drain, and when it has ended"
    if compacted:
        compact(tmp_path, START_NS + 2 * 86_400 * SECOND)
    assert plain(list(ArchiveReplay(ArchiveReader(tmp_path)).judgements())) == plain(online)


def test_late_ticks_are_archived_flagged_and_left_out_again(tmp_path: Path) -> None:
    run_online(tmp_path, seed=1)
    late = [taken for _, taken in ArchiveReader(tmp_path).batches() if taken.late.any()]
    assert len(late) > 5
    assert not all(taken.late.all() for taken in late), "some batches are late in part only"


def test_each_run_of_the_daemon_starts_afresh(tmp_path: Path) -> None:
    first = run_online(tmp_path, seed=1, seconds=200)
    second = run_online(tmp_path, seed=2, seconds=200, run_ns=START_NS + 1)
    assert plain(list(ArchiveReplay(ArchiveReader(tmp_path)).judgements())) == plain(first + second)


def test_a_run_can_be_replayed_after_its_first_day_was_deleted(tmp_path: Path) -> None:
    run_ns = START_NS - 40 * 86_400 * SECOND  # the daemon has been running for long
    online = run_online(tmp_path, seed=1, run_ns=run_ns)
    retain(tmp_path, START_NS + 86_400 * SECOND, ArchiveTable(raw_days=7))
    reader = ArchiveReader(tmp_path)
    (start,) = reader.runs()
    assert [rule.group.name for rule in start.membership.rules] == ["luns"]
    assert plain(list(ArchiveReplay(reader).judgements())) == plain(online)


def test_other_settings_judge_otherwise(tmp_path: Path) -> None:
    run_online(tmp_path, seed=1)
    deaf = ArchiveReplay(
        ArchiveReader(tmp_path), lambda _, recorded: dataclasses.replace(recorded, confirm=50)
    )
    assert not any(j.straggler.any() for j in deaf.judgements())
    assert deaf.confirm("luns") == 50


def test_an_archive_without_its_groups_says_so(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for place, taken in enumerate(itertools.islice(counters(1, 20), 5)):
        writer.batch(dataclasses.replace(taken, lsn=place))
    writer.flush()
    with pytest.raises(InputError, match="no groups are recorded"):
        list(ArchiveReplay(ArchiveReader(tmp_path)).judgements())
