"""The results of jobs are the same whatever comes late, in whatever order, and wherever a pass is killed."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.archive import retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.jobs.join.accounts import JoinedJob
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.aggregator.jobs.test_join import SECOND, START, a_job, moving, store_jobs
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS
from tests.support.processes import started

DAY_NS = 86_400 * SECOND
FORMAT = "%j:%u:%H"
_PASS = f"""
import sys
from pathlib import Path
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
print("begins", flush=True)
JoinPass(Path(sys.argv[1]), "site", JoinSettings(jobid_format="{FORMAT}")).run(int(sys.argv[2]), 30)
"""


def drawn_jobs(chance: random.Random) -> list[JoinedJob]:
    """Jobs on three nodes, some at once or short, two under one id each."""
    found = []
    for at in range(chance.randrange(4, 9)):
        start = chance.uniform(0, 1500)
        nodes = chance.sample(["n0", "n1", "n2"], chance.randrange(1, 4))
        length = chance.choice([0.4, 20.0, 300.0, 900.0])
        found.append(a_job(f"c/{at}", start, start + length, *nodes, raw_id=at // 2))
    return found


def drawn_batches(chance: random.Random, jobs: list[JoinedJob]) -> list[Batch]:
    """Clients with a gap and a reset, and the entries of the jobs on a server."""
    batches, lsn = [], 0
    for at in range(3):
        readings = moving(START - 5000, 2700, rate=chance.randrange(1, 10**7))
        gap = chance.randrange(2600)
        kept = readings[:gap] + readings[gap + chance.choice([0, 30, 200]) :]
        reset = chance.randrange(len(kept))
        kept[reset:] = [
            NaiveReading(
                each.tick,
                each.read,
                {name: value // 3 for name, value in each.values.items() if value is not None},
            )
            for each in kept[reset:]
        ]
        for first in range(0, len(kept), 60):
            lsn += 1
            batches.append(job_batch(f"n{at}", "scratch", kept[first : first + 60], lsn=lsn, received_ns=0))
    for job in jobs:
        ms = (job.start_ns - START_NS) // MS + START
        entry = [
            NaiveReading(
                ms + 10_000 * at, ms + 10_000 * at, {"read_bytes_sum": 77 * at, "write_bytes_sum": 0}
            )
            for at in range(1, 20)
        ]
        lsn += 1
        name = f"fs-OST0001:{job.raw_id}:1:{job.held[0][0]}"
        batches.append(job_batch("oss", name, entry, lsn=lsn, received_ns=0, source="lustre_job_ost"))
    return batches


def results(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of the last revision of each job, without that revision's time."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("job_summaries", "job_series", "job_components"):
        by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
        table = ArchiveReader(directory).table(kind)
        rows = table.set_column(1, "revision_at", table["revision_at"].cast("int64")).to_pylist()
        last: dict[str, int] = defaultdict(int)
        for row in rows:
            last[row["job_key"]] = max(last[row["job_key"]], row["revision_at"])
        for row in rows:
            if row.pop("revision_at") == last[row["job_key"]]:
                by_key[row["job_key"]].append(row)
        found[kind] = [row for key in sorted(by_key) for row in by_key[key]]
    return found


def arriving(batches: list[Batch], at_ns: int) -> list[Batch]:
    return [dataclasses.replace(each, received_ns=at_ns + 1000 * place) for place, each in enumerate(batches)]


def in_time(directory: Path, jobs: list[JoinedJob], batches: list[Batch], now_ns: int) -> None:
    write_parts(directory, [arriving(batches, START_NS)], START_NS)
    store_jobs(directory, jobs, START_NS)
    JoinPass(directory, "site", JoinSettings(jobid_format=FORMAT)).run(now_ns, 30)


def killed_pass(directory: Path, now_ns: int, seconds: float) -> None:
    """A pass that is killed some time after it began."""
    command = [sys.executable, "-c", _PASS, str(directory), str(now_ns)]
    with started(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("late_hours", [0, 1, 72])
def test_late_metadata_late_batches_and_kills_change_nothing(tmp_path: Path, late_hours: int) -> None:
    seed = int.from_bytes(os.urandom(4))
    print("seed", seed)
    chance = random.Random(seed)
    jobs = drawn_jobs(chance)
    batches = drawn_batches(chance, jobs)
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    whole.mkdir()
    pieces.mkdir()
    now_ns = START_NS + 4 * DAY_NS
    in_time(whole, jobs, batches, now_ns)
    chance.shuffle(batches)
    cut = chance.randrange(len(batches))
    at_ns = START_NS + 3600 * SECOND
    write_parts(pieces, [arriving(batches[:cut], START_NS)], START_NS)
    some = chance.randrange(len(jobs))
    if some:
        store_jobs(pieces, jobs[:some], at_ns)
    join = JoinPass(pieces, "site", JoinSettings(jobid_format=FORMAT))
    join.run(at_ns + 1, 30)
    at_ns += late_hours * 3600 * SECOND
    late = arriving(batches[cut:], at_ns)
    middle = chance.randrange(len(late) + 1)
    write_parts(pieces, [each for each in (late[:middle], late[middle:]) if each], at_ns)
    store_jobs(pieces, jobs[some:], at_ns)
    killed_pass(pieces, at_ns + 2, chance.random())
    if chance.random() < 0.5:
        retention.compact(pieces, at_ns + 2 * DAY_NS)
    killed_pass(pieces, at_ns + 3, chance.random())
    join.run(now_ns, 30)
    wanted = results(whole)
    assert len(wanted["job_summaries"]) == len(jobs)
    assert results(pieces) == wanted
