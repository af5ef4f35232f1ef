"""The heat map has each increment in its minute, and gaps where nothing is known."""

import math
import random
import secrets
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.loads.heat_map import heat_map
from laggard_aggregator.jobs.loads.kinds import COMPUTE, KINDS
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_common.errors import ConfigError
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading, naive_rises
from tests.support.builders.archives import START_NS
from tests.support.builders.job_tables import component_row, job_row, node_rows, write_rows

START = START_NS // MS
ADMIN = Principal("root", Role.ADMIN)
FIELD = "read_bytes_sum"


def counted(chance: random.Random, seconds: int) -> list[NaiveReading]:
    """Readings a second, some missing, one stretch of ten minutes without any."""
    found, value = [], 0
    for at in range(1, seconds):
        value += chance.randrange(10**6) * 60
        if chance.random() < 0.9 and not 900 < at < 1600:
            tick = START + at * 1000
            found.append(NaiveReading(tick, tick + chance.randrange(200), {FIELD: value}))
    return found


def by_minute(found: list[NaiveReading]) -> dict[int, float]:
    """Increments by minute."""
    sums: dict[int, float] = defaultdict(float)
    for before, after in pairwise(found):
        rises = naive_rises(before, after, 60_000)
        if rises is not None:
            sums[((after.tick - START - 1) // 1000) // 60] += rises[FIELD]
    return sums


def test_cells_are_the_twins(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    of = {node: counted(chance, 2400) for node in ("cn1", "cn2.site", "other")}
    batches = [
        job_batch(node, "fs", found, lsn=at, received_ns=START_NS + 2400 * 10**9)
        for at, (node, found) in enumerate(of.items(), 1)
    ]
    write_parts(tmp_path, [batches], START_NS)
    RollupPass(tmp_path).run(START_NS + 30 * 3600 * 10**9, 30)
    nodes = ("cn1", "cn2.site", "gone")
    for step in (1, 3):
        heat = heat_map(
            tmp_path,
            KINDS[COMPUTE],
            {(node, "") for node in nodes},
            START / 1000,
            START / 1000 + 2400,
            step_minutes=step,
        )
        assert heat.components == nodes
        assert heat.rates.shape == (3, -(-40 // step))
        assert np.isnan(heat.rates[2]).all()
        for place, name in enumerate(nodes[:2]):
            wanted = by_minute(of[name])
            for at, cell in enumerate(heat.rates[place].tolist()):
                known = [wanted[minute] for minute in range(at * step, (at + 1) * step) if minute in wanted]
                expected = sum(known) / (60 * len(known)) if known else math.nan
                assert cell == pytest.approx(expected, nan_ok=True), at


def test_a_map_is_bounded(tmp_path: Path) -> None:
    nodes = {(f"n{at}", "") for at in range(10_000)}
    with pytest.raises(ConfigError, match="choose a shorter time"):
        heat_map(tmp_path, KINDS[COMPUTE], nodes, 0.0, 7 * 86_400.0)


def test_results_of_a_job_are_of_its_last_revision_and_for_those_who_see_it(tmp_path: Path) -> None:
    jobs = [job_row(each) for each in (1, 2)]
    write_rows(tmp_path, "job_nodes", node_rows(jobs[0], ["cn1"]))
    write_rows(tmp_path, "jobs", jobs)
    for revision in (1, 2):
        rows = [{**job, "revision_at": revision} for job in jobs]
        write_rows(tmp_path, "job_components", [component_row(job, f"OST{revision}") for job in rows])
        own = {"layer": "client", "resolution_seconds": 1.0, "start": 0.0}
        names = ("job_key", "revision_at")
        series = [
            {**own, **{name: job[name] for name in names}, "read_bytes": [1.0, None, float(revision)]}
            for job in rows
        ]
        write_rows(tmp_path, "job_series", series)
    index = JobIndex(tmp_path)
    index.refresh()
    queries = JobQueries(index)
    results = JobResults(tmp_path)
    key = jobs[0]["job_key"]
    for who in (ADMIN, Principal("alice", Role.USER)):
        job = queries.job(who, key)
        assert job is not None
        assert [row["component"] for row in results.components(job)] == ["OST2"]
        (row,) = results.series(job)
        assert row["read_bytes"].tolist() == pytest.approx([1.0, math.nan, 2.0], nan_ok=True)
        assert row["written_bytes"] is None
    for who in (NOBODY, Principal("bob", Role.USER)):
        assert queries.job(who, key) is None
