"""Load of forwarders in classes of their peak, and of metadata servers by class of client."""

import math
import random
import secrets
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.loads.component_load import (
    CLASSES,
    GAP,
    component_load,
    load_classes,
    time_share,
)
from laggard_aggregator.jobs.loads.kinds import FORWARDERS, KINDS
from laggard_aggregator.jobs.loads.metadata import MetadataBy, metadata_load
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.settings.aggregator import PeakTable
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.naive_jobs_queries import visible
from tests.support.builders.archives import START_NS
from tests.support.builders.job_tables import EPOCH, job_row, summary_row, write_rows

START = START_NS // MS
WHO = (
    Principal("root", Role.ADMIN),
    Principal("alice", Role.USER),
    Principal("bob", Role.MANAGER, frozenset({"chem"})),
    NOBODY,
)


def test_limits_belong_to_the_class_below() -> None:
    rates = np.array([[0.0, 10.0, 10.1, 50.0, 90.0, 90.1, 120.0, np.nan], [0.0] * 8, [np.nan] * 8])
    classes = load_classes(rates, np.array([100.0, 0.0, 5.0]))
    assert classes.tolist() == [[0, 0, 1, 1, 2, 3, 3, GAP], [0] * 8, [GAP] * 8]
    shares = time_share(classes)
    assert shares[0].tolist() == pytest.approx([2 / 7, 2 / 7, 1 / 7, 2 / 7])
    assert shares[1].tolist() == [1, 0, 0, 0]
    assert all(map(math.isnan, shares[2].tolist()))
    assert len(CLASSES) == shares.shape[1]


def test_forwarders_load_is_that_of_their_counters(tmp_path: Path) -> None:
    value, readings = 0, []
    for second in range(0, 601, 10):
        minute = max(second - 1, 0) // 60
        value += 0 if second == 0 else 10 * 1000 * (minute + 1)
        tick = START + second * 1000
        readings.append(NaiveReading(tick, tick, {"read_bytes_sum": value, "write_bytes_sum": 0}))
    ticks = [reading.tick for reading in readings]
    steady = [
        NaiveReading(tick, tick, {"read_bytes_sum": 10 * 10 * at, "write_bytes_sum": 0})
        for at, tick in enumerate(ticks)
    ]
    received_ns = START_NS + 700 * 10**9
    batches = [
        job_batch("fwd1", "fs", readings, lsn=1, received_ns=received_ns, role="forwarding"),
        job_batch("fwd3", "fs", steady, lsn=1, received_ns=received_ns, role="forwarding"),
    ]
    write_parts(tmp_path, [batches], START_NS)
    RollupPass(tmp_path).run(START_NS + 30 * 3600 * 10**9, 30)
    begin, kind = START / 1000, KINDS[FORWARDERS]
    loads = component_load(tmp_path, kind, begin, begin + 600, up=("fwd2",))
    assert loads.heat.components == ("fwd1", "fwd2", "fwd3")
    assert loads.heat.rates[0].tolist() == [1000.0 * (at + 1) for at in range(10)]
    idle = [0] * 10
    assert loads.classes.tolist() == [[0, 1, 1, 1, 1, 2, 2, 2, 2, 3], [GAP] * 10, idle], "a steady trickle"
    assert loads.largest.tolist() == pytest.approx([10_000.0, math.nan, 10.0], nan_ok=True)
    assert loads.mean.tolist() == pytest.approx([5_500.0, math.nan, 10.0], nan_ok=True)
    assert loads.peak.tolist() == [10_000.0] * 3
    peaks = (PeakTable("fwd1/lustre_client", "throughput", 1e6, source="lustre_client"),)
    known = component_load(tmp_path, kind, begin, begin + 600, peaks=peaks)
    assert known.peak.tolist() == [1e6, 10_000.0]
    assert known.classes.tolist() == [[0] * 10] * 2


RATES = {"a-OST0000": (4_000, 2_000), "a-OST0001": (1_000, 0)}
"""Bytes read and written a second; a request has 100 bytes and takes 20 ms."""


def test_an_osts_load_latency_and_requests_under_way_by_hand(tmp_path: Path) -> None:
    """One target moves to the other server after half of the time; one has no counter of writes."""
    batches: list[Batch] = []
    for half in (0, 1):
        for at, (name, (read, written)) in enumerate(RATES.items()):
            readings = []
            for second in range(300 * half, 300 * half + 301, 10):
                counted = {"read_bytes_sum": read * second, "read_samples": read * second // 100}
                counted["read_sum"] = counted["read_samples"] * 20_000
                if written:
                    counted |= {"write_bytes_sum": written * second, "write_samples": written * second // 100}
                    counted["write_sum"] = counted["write_samples"] * 20_000
                readings.append(NaiveReading(START + second * 1000, START + second * 1000, counted))
            node = f"oss{(at + half * (at == 0)) % 2}"
            received_ns, lsn = START_NS + 700 * 10**9, len(batches) + 1
            batches.append(
                job_batch(
                    node,
                    name,
                    readings,
                    lsn=lsn,
                    received_ns=received_ns,
                    source="lustre_ost",
                    name=name,
                    role="storage",
                )
            )
    write_parts(tmp_path, [batches], START_NS)
    RollupPass(tmp_path).run(START_NS + 30 * 3600 * 10**9, 30)
    loads = component_load(tmp_path, KINDS["osts"], START / 1000, START / 1000 + 900)
    assert loads.heat.components == ("a-OST0000", "a-OST0001")
    rates = loads.heat.rates
    assert rates[0, :10].tolist() == pytest.approx([6_000.0] * 10)
    assert rates[1, :10].tolist() == pytest.approx([1_000.0] * 10)
    assert np.isnan(rates[:, 10:]).all(), "a gap is no idle time"
    assert loads.mean.tolist() == pytest.approx([6_000.0, 1_000.0])
    assert loads.heat.latency.tolist() == pytest.approx([0.02, 0.02])
    assert loads.heat.in_flight.tolist() == pytest.approx([60 * 0.02, 10 * 0.02]), "Little's law"
    assert loads.peak.tolist() == pytest.approx([6_000.0] * 2)
    coarse = component_load(tmp_path, KINDS["osts"], START / 1000 - 86_400, START / 1000 + 86_400)
    assert coarse.heat.step_seconds == 120.0
    known = coarse.heat.rates[0][~np.isnan(coarse.heat.rates[0])]
    assert known.tolist() == pytest.approx([6_000.0] * len(known)), "also where a step is known in part"


def test_metadata_load_equals_a_plain_loop(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    jobs: list[dict[str, Any]] = []
    for raw_id in range(1, 150):
        start = EPOCH + chance.randrange(20_000)
        own = {"user": chance.choice(["alice", "bob", "eve"]), "account": chance.choice(["chem", "bio", ""])}
        row = job_row(raw_id, submit=int(start), start=start, application=chance.choice("xyz"), **own)
        jobs.append(row | {"end": chance.choice([None, start + 60, start + 6000])})
    operations = {row["job_key"]: chance.choice([None, 0.0, 60.0, 90_000.0]) for row in jobs}
    write_rows(tmp_path, "jobs", jobs)
    write_rows(
        tmp_path,
        "job_summaries",
        [summary_row(row, metadata_operations=operations[row["job_key"]]) for row in jobs],
    )
    index = JobIndex(tmp_path)
    index.refresh()
    queries = JobQueries(index)
    after, before = EPOCH + 5000, EPOCH + 9000
    columns = {
        MetadataBy.USER: "user",
        MetadataBy.PROJECT: "account",
        MetadataBy.APPLICATION: "application",
        MetadataBy.JOB: "job_key",
    }
    for who in WHO:
        for group, column in columns.items():
            expected: dict[str, list[float]] = defaultdict(list)
            for row in jobs:
                count = operations[row["job_key"]]
                inside = min(row["end"] or 0.0, before) - max(row["start"], after)
                if count and inside > 0 and visible(who, row):
                    expected[row[column]].append(count * inside / (row["end"] - row["start"]))
            found = metadata_load(queries, who, after, before, group)
            assert {each.name: each.count for each in found} == {k: len(v) for k, v in expected.items()}
            for each in found:
                assert each.operations == pytest.approx(sum(expected[each.name]))
                assert each.operations_per_second == pytest.approx(each.operations / 4000)
            assert [each.operations for each in found] == sorted((e.operations for e in found), reverse=True)
    assert metadata_load(queries, WHO[0], after, after) == []
