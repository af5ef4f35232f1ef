"""Allocations as the nodes saw them, from archived rows of the collector `cgroup`.

A node's own account is right on shared nodes, without the scheduler's database, and for processes that
outlive the recorded end of their job. While slurmctld is down, an end is late by up to the outage and not
marked as doubtful: a folder stays until slurmctld has taken note of the end. Rows lack the job's submit time,
so runs of jobs are matched to the scheduler's records (`matched`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.jobs.records.model import Allocation, JobKey, JobRevision

COLUMNS = ("node", "component", "tick", "cgroup_id", "seen_since", "uid")
"""Columns of kind `counters` and source `cgroup` that are needed."""
NODE_COLUMNS = ("node", "tick")
"""Columns of source `cgroup_node`: the ticks at which the collector ran."""

CLOCK_SECONDS = 5.0
"""A job may be seen this long before its recorded start, as clocks of nodes differ."""
_MAX_GAP_SECONDS = 3.0
"""Two samples further apart leave the times between them unknown."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """One run of a job on a node, as seen. `raw_id` is 0 where only the SLUID is known.

    `end` is the last time at which it was seen, None while it runs. `doubtful`: the run began or ended while
    nothing was sampled.
    """

    node: str
    raw_id: int
    sluid: str
    uid: int | None
    start: float
    end: float | None
    doubtful: bool


def seen_jobs(rows: pa.Table, node_rows: pa.Table) -> list[SeenJob]:
    """Runs of jobs by node, start and job, from the rows of `cgroup` and `cgroup_node` in any order.

    Rows may be there twice. Rows of one folder (`cgroup_id`) are one run, also across a restart of the agent;
    a folder that was seen to begin later is another one, as after a reboot.
    """
    sampled = _sampled(node_rows)
    if not rows.num_rows:
        return []
    ticks = _seconds(rows["tick"])
    order = np.argsort(ticks, kind="stable")
    values = [rows[name].to_pylist() for name in ("node", "component", "cgroup_id", "seen_since", "uid")]
    runs: dict[tuple[str, str, int], list[_FolderRun]] = defaultdict(list)
    for at in order.tolist():
        node, component, folder, since, uid = (column[at] for column in values)
        known = runs[node, component, folder]
        if not known or (since is not None and since > known[-1].last + CLOCK_SECONDS):
            known.append(_FolderRun(ticks[at], since, ticks[at], uid))
        else:
            known[-1].last = float(ticks[at])
            known[-1].since = since if known[-1].since is None else known[-1].since
    found = (
        _seen(node, component, run, sampled.get(node, np.empty(0)))
        for (node, component, _), several in runs.items()
        for run in several
    )
    return sorted(found, key=lambda seen: (seen.node, seen.start, seen.raw_id, seen.sluid))


@dataclass(slots=True)
class _FolderRun:
    first: float
    since: float | None
    last: float
    uid: int | None


def _seen(agent: str, component: str, run: _FolderRun, sampled: NDArray[np.float64]) -> SeenJob:
    slurm_node, _, job = component.rpartition("/")
    start = run.first if run.since is None else min(run.since, run.first)
    after = sampled[np.searchsorted(sampled, run.last, "right") :]
    before = sampled[: np.searchsorted(sampled, start - 1e-3, "left")]
    doubtful = run.since is None or not before.size or start - before[-1] > _MAX_GAP_SECONDS
    doubtful |= bool(after.size) and after[0] - run.last > _MAX_GAP_SECONDS
    return SeenJob(
        node=slurm_node or agent,
        raw_id=int(job) if job.isdecimal() else 0,
        sluid="" if job.isdecimal() else job,
        uid=run.uid,
        start=float(start),
        end=float(run.last) if after.size else None,
        doubtful=bool(doubtful),
    )


def _sampled(node_rows: pa.Table) -> Mapping[str, NDArray[np.float64]]:
    """Sorted times at which the collector ran, by node."""
    if not node_rows.num_rows:
        return {}
    names, ticks = np.array(node_rows["node"].to_pylist()), _seconds(node_rows["tick"])
    return {str(name): np.unique(ticks[names == name]) for name in np.unique(names)}


def _seconds(ticks: pa.ChunkedArray) -> NDArray[np.float64]:
    return np.asarray(ticks.cast(pa.int64()).to_numpy(), dtype=np.float64) / 1e9


@dataclass(frozen=True, slots=True)
class _JobRecord:
    """A record of the scheduler, from its start, or from its submission where a resize made it."""

    since: float
    start: float
    key: JobKey
    exclusive: bool | None


def matched(
    seen: Iterable[SeenJob], cluster: str, jobs: Iterable[JobRevision]
) -> tuple[list[Allocation], list[SeenJob]]:
    """Allocations of source `cgroup`, and the runs for which `cluster` has no record (yet).

    A run belongs to the last record of its id that started before it was seen, within CLOCK_SECONDS: a
    requeue keeps the id, and processes of a dead node's run may overlap the next one. A resize makes a new
    record with the start of the old one, submitted at the resize; there a run is divided.
    """
    by_id: dict[tuple[int, str], list[_JobRecord]] = defaultdict(list)
    for job in jobs:
        if job.key.cluster == cluster and job.start is not None:
            record = _JobRecord(max(job.start, job.key.submit), job.start, job.key, job.exclusive)
            by_id[job.key.raw_id, ""].append(record)
            if job.key.sluid:
                by_id[0, job.key.sluid].append(record)
    for records in by_id.values():
        records.sort(key=lambda record: (record.since, record.start, record.key))
    found: list[Allocation] = []
    unknown = []
    for run in seen:
        divided = list(_divided(run, by_id[run.raw_id, run.sluid]))
        found += divided
        if not divided:
            unknown.append(run)
    return found, unknown


def _divided(run: SeenJob, records: Sequence[_JobRecord]) -> Iterator[Allocation]:
    """The allocations of a run by record, in order; none without a record."""
    before = [at for at, record in enumerate(records) if record.since <= run.start + CLOCK_SECONDS]
    if not before:
        return
    start, last = run.start, records[before[-1]]
    for record in records[before[-1] + 1 :]:
        is_resize = record.start == last.start
        if not is_resize or (run.end is not None and record.since > run.end - CLOCK_SECONDS):
            break
        yield Allocation(last.key, run.node, start, record.since, "cgroup", last.exclusive, run.doubtful)
        start, last = record.since, record
    yield Allocation(last.key, run.node, start, run.end, "cgroup", last.exclusive, run.doubtful)
