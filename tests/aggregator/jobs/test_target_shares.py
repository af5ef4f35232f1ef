"""Shares of OSTs in the work of jobs behind one forwarder, of which no server counts by job."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.jobs.verdict.evidence.target_shares import (
    OST,
    JobsBehind,
    target_shares,
    work_by_field,
)
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.job_tables import EPOCH

MINUTES = 20
EARLY, LATE = np.repeat([1.0, 0.0], MINUTES // 2), np.repeat([0.0, 1.0], MINUTES // 2)
NONE = np.zeros(MINUTES)
A, B = "scratch-OST0000", "scratch-OST0001"


def shares(folder: Path, requests: dict[str, tuple[np.ndarray, np.ndarray]], **jobs: Any) -> dict[str, Any]:
    """Shares by job. `requests`: reads and writes of the forwarder a minute; of jobs bytes in each."""
    ticks = [round(EPOCH * 1000) + 60_000 * minute for minute in range(MINUTES + 1)]
    batches = []
    for at, (ost, both) in enumerate(requests.items(), 1):
        reads, writes = (np.concatenate(([0], np.cumsum(counts))).astype(int).tolist() for counts in both)
        readings = [
            NaiveReading(tick, tick, {"ost_read_samples": reads[n], "ost_write_samples": writes[n]})
            for n, tick in enumerate(ticks)
        ]
        batches.append(
            job_batch(
                *("fwd-1", f"{ost}-osc", readings),
                lsn=at,
                received_ns=ticks[-1] * MS,
                source="lustre_osc",
                interval_ns=60 * 10**9,
            )
        )
    write_parts(folder, [batches], ticks[0] * MS)
    RollupPass(folder).run(ticks[-1] * MS + 3 * 3600 * 10**9, 30)
    own = {"start": EPOCH, "end": EPOCH + 60.0 * MINUTES}
    series = {
        key: {"start": EPOCH, "resolution_seconds": 60.0, "read_bytes": read, "written_bytes": written}
        | {"metadata_operations": None}
        for key, (read, written) in jobs.items()
    }
    behind = {"fwd-1": {key: work_by_field(own, row) for key, row in series.items()}}
    (by_job,) = target_shares(folder, [JobsBehind((own["start"], own["end"]), behind)])
    return {key: by_kind[OST] for key, by_kind in by_job.items()}


def test_reads_and_writes_are_divided_each_for_themselves(tmp_path: Path) -> None:
    """One job reads a few bytes with many requests and then writes many with a few, while the other is at its
    work first: by bytes alone the many requests would be the other's."""
    requests = {A: (6_000 * EARLY, 60 * LATE), B: (NONE, 600 * EARLY)}
    own = shares(tmp_path, requests, mine=(1e8 * EARLY, 1e10 * LATE), other=(NONE, 1e10 * EARLY))
    assert own["mine"] == {A: 1.0}
    assert own["other"] == {B: 1.0}


def test_targets_of_jobs_that_work_at_the_same_times_are_on_the_paths_of_both(tmp_path: Path) -> None:
    """Whose requests they are cannot be told; chance would give all of a target to the one or the other."""
    rng = np.random.default_rng(3)
    noise = [np.rint(600 * EARLY * rng.normal(1.0, 0.03, MINUTES)) for _ in range(2)]
    wave = EARLY * (1 + 0.01 * np.sin(np.arange(MINUTES)))
    requests = {A: (NONE, noise[0]), B: (NONE, noise[1])}
    own = shares(tmp_path, requests, mine=(NONE, 1e9 * EARLY), other=(NONE, 1e9 * wave))
    assert own["mine"] == pytest.approx({A: 0.5, B: 0.5}, abs=0.2)
    assert own["other"] == pytest.approx({A: 0.5, B: 0.5}, abs=0.2)
