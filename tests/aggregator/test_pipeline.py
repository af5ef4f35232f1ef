import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine import Engine, Judgement
from laggard_aggregator.groups import ConfiguredMembership
from laggard_aggregator.ingest.taken import TakenBatch, WindowClose
from laggard_aggregator.pipeline import Pipeline, closes
from tests.aggregator.made_batches import DISKSTATS, SECOND, batch_of, schema_of

START = 1_800_000_000 * SECOND
DETECT = DetectSettings(interval_seconds=1.0, window_samples=60, shift_samples=30)


def run_of_luns(seconds: int, slow: str, slow_from: int) -> Iterator[TakenBatch]:
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


def play(
    pipeline: Pipeline, batches: Iterator[TakenBatch]
) -> tuple[list[Judgement], list[TakenBatch | WindowClose]]:
    """Everything through the pipeline, windows closed by the clock of reception; also what a replay needs."""
    judged: list[Judgement] = []
    record: list[TakenBatch | WindowClose] = []
    ordinals = itertools.count(1)
    for batch in batches:
        now = batch.received_ns
        for close in closes(pipeline.due(now), ordinals, pipeline.groups, now):
            record.append(close)
            judged.extend(pipeline.close(close))
        record.append(pipeline.take(batch))
    return judged, record


def make(detect: DetectSettings = DETECT) -> Pipeline:
    return Pipeline(ConfiguredMembership((), detect), Engine({}), lateness_seconds=2.0)


def test_the_slow_lun_and_no_other_is_found_from_raw_counters() -> None:
    pipeline = make()
    judged, _ = play(pipeline, run_of_luns(600, slow="oss-7", slow_from=300))
    assert {judgement.group for judgement in judged} == {"storage/diskstats"}
    assert list(pipeline.engine.alarms.standing) == [("storage/diskstats", "oss-7/id-sda", "await")]
    alarm = pipeline.engine.alarms.standing["storage/diskstats", "oss-7/id-sda", "await"]
    assert alarm.observed / alarm.reference == pytest.approx(3.0, rel=0.15)
    assert START / 1e9 + 240 <= alarm.since <= START / 1e9 + 330
    assert pipeline.shown["oss-7/id-sda"] == "oss-7/sda"
    assert pipeline.samples == 600 * 12


def test_a_replay_of_batches_and_closes_gives_the_same_judgements() -> None:
    first, record = play(make(), run_of_luns(400, slow="oss-3", slow_from=100))
    again: list[Judgement] = []
    replayed = make()
    for item in record:
        if isinstance(item, WindowClose):
            again.extend(replayed.close(item))
        else:
            assert replayed.take(item) is item
    assert len(first) == len(again) > 5
    for one, other in zip(first, again, strict=True):
        assert one.components == other.components
        assert one.verdicts.score.tobytes() == other.verdicts.score.tobytes()
        assert one.transitions == other.transitions
