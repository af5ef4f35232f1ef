"""Components slow within a job, from rollups: by the detector, or by Beacon's rules on request."""

import asyncio
import json
import random
import secrets
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.jobs.verdict import BELOW_PEAK, BELOW_PEERS
from laggard_aggregator.jobs.verdict.evidence.component_series import (
    READ_BYTES,
    WRITE_TIME,
    WRITES,
    WRITTEN_BYTES,
    ComponentSeries,
    JobPlaces,
    component_series,
)
from laggard_aggregator.jobs.verdict.evidence.slow_parts import slow_parts
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.aggregator.jobs.test_job_verdict import GIB, archive_of, usual, verdict_on
from tests.aggregator.jobs.test_neighbour_cause import PRINCIPALS, asked
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS
from tests.support.builders.job_tables import component_row, node_rows, write_rows

MIB = 2**20
OSTS = [f"scratch-OST004{at}" for at in range(8)]
SLOW = OSTS[2]


def readings(
    rng: np.random.Generator, start_ms: int, minutes: int, latency_us: float, prefix: str = "ost_"
) -> list[NaiveReading]:
    """Cumulative counters of an OST that gets 600 writes of 1 MiB a minute."""
    count = time = 0
    found = []
    for minute in range(minutes + 1):
        tick = start_ms + 60_000 * minute
        moved = count * MIB
        values = {
            f"{prefix}write_samples": count,
            f"{prefix}write_sum": time,
            "write_bytes_sum": moved,
            "write_bytes_samples": count,
        }
        found.append(NaiveReading(tick, tick + 5, values))
        rise = int(rng.poisson(600))
        count += rise
        time += int(rise * latency_us * rng.gamma(100, 0.01))
    return found


def add_clients(folder: Path, start: float, minutes: int, slow: float, node: str = "cn-1") -> None:
    """Rollups of a node's OSCs; writes on SLOW take so many times as long."""
    rng, start_ms = np.random.default_rng(5), round(start * 1000)
    batches = [
        job_batch(
            node,
            f"{ost}-osc-ffff8801",
            readings(rng, start_ms, minutes, 5000 * (slow if ost == SLOW else 1)),
            lsn=at,
            received_ns=(start_ms + minutes * 60_000) * MS,
            source="lustre_osc",
            interval_ns=60 * 10**9,
            name=f"{ost}-osc",
        )
        for at, ost in enumerate(OSTS, 1)
    ]
    write_parts(folder, [batches], start_ms * MS)
    RollupPass(folder).run(start_ms * MS + 30 * 3600 * 10**9, 30)


def judged(folder: Path, slow: float) -> list[dict[str, Any]]:
    jobs = archive_of(folder, [*usual(np.random.default_rng(3)), 930.0])
    add_clients(folder, jobs[-1]["start"], 60, slow)
    return jobs


def test_an_ost_slower_than_the_jobs_others_is_the_cause(tmp_path: Path) -> None:
    jobs = judged(tmp_path, 3.0)
    found = verdict_on(tmp_path, jobs[-1])
    (cause,) = found.findings
    assert (cause.kind, cause.cause) == ("slow component", SLOW)
    assert cause.factor == pytest.approx(3, rel=0.15)
    assert cause.share == pytest.approx(1 / 8, rel=0.1)
    others = "as long as on the 7 other OSTs of the job, and it carried 1"
    assert f"{SLOW} was slow in this job: its writes took " in found.sentence
    assert others in found.sentence


def test_osts_alike_are_no_cause(tmp_path: Path) -> None:
    jobs = judged(tmp_path, 1.0)
    assert verdict_on(tmp_path, jobs[-1]).sentence.endswith("no cause is known")


def test_the_methods_are_reachable_by_option_and_parameter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = archive_of(tmp_path, [300.0])
    add_clients(tmp_path, jobs[0]["start"], 60, 3.0)
    JobIndex(tmp_path).refresh()
    key, archive = jobs[0]["job_key"], str(tmp_path)
    assert main(["job", key, "--archive", archive]) == 0
    assert "was slow in this job" not in capsys.readouterr().out
    assert main(["job", key, "--archive", archive, "--slow-components", "laggard", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"] == "too few runs"
    assert [(each["kind"], each["cause"]) for each in record["findings"]] == [("slow component", SLOW)]
    for method in ("below_peak", "below_peers"):
        assert main(["job", key, "--archive", archive, "--slow-components", method]) == 0
        assert "was slow in this job" not in capsys.readouterr().out
    path = f"/api/v1/jobs/{key.replace('/', '%2F')}"
    page = f"/jobs/{key.replace('/', '%2F')}?slow_components=laggard"
    urls = [path, f"{path}?slow_components=laggard", f"{path}?slow_components=x", page]
    plain, found, wrong, shown = asyncio.run(asked(tmp_path, PRINCIPALS["user"], urls))
    assert SLOW not in {each["cause"] for each in plain.json()["jobs"][0]["findings"]}
    assert SLOW in {each["cause"] for each in found.json()["jobs"][0]["findings"]}
    assert wrong.status_code == 400
    assert "was slow in this job" in shown.text
    (other,) = asyncio.run(asked(tmp_path, PRINCIPALS["nobody"], urls[1:2]))
    assert other.status_code == 404


def test_sums_over_nodes_are_those_of_the_readings(tmp_path: Path) -> None:
    """Two nodes of the job and one of another, odd names, and only the job's minutes."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    start_ms, minutes = START_NS // MS, 30
    batches, expected = [], np.zeros((2, minutes))
    for at, node in enumerate(("cn1", "CN2.site", "cn3"), 1):
        found = readings(rng, start_ms, minutes, 1000.0)
        kept = [each for each in found if chance.random() < 0.9]
        batches.append(
            job_batch(
                node, "s-OST0001-osc-ffff8801", kept, lsn=at, received_ns=START_NS + 3600 * 10**9,
                source="lustre_osc", interval_ns=60 * 10**9, name="s-OST0001-osc",
            )
        )  # fmt: skip
        if node != "cn3":
            for before, after in pairwise(kept):
                if after.tick - before.tick > 4 * 60_000:
                    continue  # more than four intervals: a gap
                minute = (after.tick - 1 - start_ms) // 60_000
                for row, name in enumerate(("ost_write_samples", "write_bytes_sum")):
                    expected[row, minute] += (after.values[name] or 0) - (before.values[name] or 0)
    write_parts(tmp_path, [batches], START_NS)
    RollupPass(tmp_path).run(START_NS + 30 * 3600 * 10**9, 30)
    start = START_NS / 1e9
    (series,) = component_series(tmp_path, JobPlaces({"CN1", "cn2"}, set(), set(), start, start + 1800))
    assert (series.layer, series.names, series.start) == ("OST", ("s-OST0001",), start)
    sums = np.nan_to_num(series.sums[[WRITES, WRITTEN_BYTES], 0])
    assert sums == pytest.approx(expected)


def test_servers_are_used_without_clients_and_forwarders_by_their_mounts(tmp_path: Path) -> None:
    rng, start_ms = np.random.default_rng(9), START_NS // MS
    late = START_NS + 3600 * 10**9
    batches = [
        job_batch(
            f"oss{at}", OSTS[at], readings(rng, start_ms, 40, 5000.0 * (3 if at == 2 else 1), ""), lsn=at + 1,
            received_ns=late, source="lustre_ost", interval_ns=60 * 10**9,
        )
        for at in range(6)
    ] + [
        job_batch(
            f"fwd{at}", "fs", readings(rng, start_ms, 40, 900.0, ""), lsn=at + 10, received_ns=late,
            source="lustre_llite", interval_ns=60 * 10**9,
        )
        for at in range(4)
    ]  # fmt: skip
    write_parts(tmp_path, [batches], START_NS)
    RollupPass(tmp_path).run(START_NS + 30 * 3600 * 10**9, 30)
    start = START_NS / 1e9
    places = JobPlaces({"cn1"}, {f"FWD{at}" for at in range(4)}, set(OSTS[:5]), start, start + 2400)
    osts, forwarders = component_series(tmp_path, places)
    assert osts.names == tuple(OSTS[:5])
    assert [each.component for each in slow_parts(osts)] == [SLOW]
    assert forwarders.names == ("FWD0", "FWD1", "FWD2", "FWD3")
    assert list(slow_parts(forwarders)) == []


def series(rates: np.ndarray) -> ComponentSeries:
    sums = np.zeros((6, *rates.shape))
    sums[READ_BYTES] = rates * 60
    sums[WRITE_TIME] = np.nan
    return ComponentSeries("OST", tuple(f"OST{at}" for at in range(len(rates))), 0.0, sums)


def test_the_rules_of_beacon_by_name() -> None:
    rates = np.full((5, 100), 100.0 * MIB)
    rates[3] = 25 * MIB
    (found,) = slow_parts(series(rates), BELOW_PEAK)
    assert (found.component, found.peers) == ("OST3", 4)
    assert found.factor == pytest.approx(4.0)
    assert found.text == "it stayed below 30 % of the peak of the job's OSTs, 105 MB/s, for an hour"
    (found,) = slow_parts(series(rates), BELOW_PEERS)
    assert found.component == "OST3"
    assert found.factor == pytest.approx(4.0)
    assert found.text == "its peak in the last 1 h was 25% of the others' mean peak"
    assert list(slow_parts(series(rates[:, :59]), BELOW_PEAK)) == []
    for method in (BELOW_PEAK, BELOW_PEERS):
        assert list(slow_parts(series(rates[:3]), method)) == []


def test_a_job_without_rollups_has_none(tmp_path: Path) -> None:
    jobs = archive_of(tmp_path, [300.0])
    write_rows(tmp_path, "job_nodes", node_rows(jobs[0], ["cn-2"]))
    write_rows(tmp_path, "job_components", [component_row(jobs[0], OSTS[0]) | {"bytes": GIB}])
    places = JobPlaces({"cn-1"}, set(), {OSTS[0]}, jobs[0]["start"], jobs[0]["end"])
    assert component_series(tmp_path, places) == []
