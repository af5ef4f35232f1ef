"""Contents of the report: numbers of the pages and commands about a time, together.

Jobs are those that ended within it.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from laggard_aggregator.jobs.access.filter import GroupBy, JobSelection
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.loads.component_load import component_load
from laggard_aggregator.jobs.loads.kinds import KINDS, known_kinds
from laggard_aggregator.jobs.loads.statistics import ClassRow, JobStatistics, TopRow
from laggard_aggregator.jobs.loads.statistics_engines import open_statistics
from laggard_aggregator.jobs.traces.io_modes import MODES
from laggard_aggregator.jobs.traces.job_traces import JobTraces
from laggard_aggregator.status.urls import TimeRange
from laggard_aggregator.web.pages.component_loads import component_table
from laggard_aggregator.web.pages.tables import Query
from laggard_aggregator.web.report.persistence import PersistenceOrder, persistence
from laggard_common.wire.topics import ROLES

MOST_TRACED: Final = 200
"""Jobs whose traces are read for the modes, those with most bytes."""
MOST_SLOW: Final = 50
MOST_AMPLIFIED: Final = 20
MOST_NAMES: Final = 15
DIRECTIONS: Final = ("read", "write")


@dataclass(frozen=True, slots=True)
class ModeVolume:
    """Bytes that went in one I/O mode in a direction, and in how many jobs."""

    direction: str
    mode: str
    jobs: int
    amount: float


@dataclass(frozen=True, slots=True)
class ModeVolumes:
    """Volumes by mode of the `traced` jobs among the `asked` ones with most bytes.

    `amount`: their bytes by their traces; `of_amount`: bytes of all jobs by counters.
    """

    volumes: tuple[ModeVolume, ...]
    asked: int
    traced: int
    amount: float
    of_amount: float


@dataclass(frozen=True, slots=True)
class LoadSection:
    """Components of a kind with data, `total` of them: `rows` and `axis` as `component_table` has them."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    total: int
    axis: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CentreReport:
    """The report on [start, end), epoch seconds, made at `made_at`.

    `slow` and `amplified`: the jobs that lost most time, and those amplified most; `slow_jobs` and
    `amplified_jobs` count all.
    """

    start: float
    end: float
    made_at: float
    total: TopRow
    modes: ModeVolumes
    classes: Sequence[ClassRow]
    jobs_without_cores: int
    applications: Sequence[TopRow]
    users: Sequence[TopRow]
    slow: Sequence[VisibleJob]
    slow_jobs: int
    amplified: Sequence[VisibleJob]
    amplified_jobs: int
    persistence: PersistenceOrder
    loads: Sequence[LoadSection]


def centre_report(
    directory: Path, queries: JobQueries, reader: Principal, when: TimeRange, made_at: float
) -> CentreReport:
    """The report on the archive in `directory`. `reader`: somebody who sees the site. Raises LaggardError."""
    engine = open_statistics(directory)
    try:
        statistics = JobStatistics(engine, when.start, when.end)
        total = statistics.total(reader)
        classes, without = statistics.classes(reader), statistics.jobs_without_cores(reader)
        applications = statistics.top(reader, GroupBy.APPLICATION, limit=MOST_NAMES)
        users = statistics.top(reader, GroupBy.USER, limit=MOST_NAMES)
        largest = statistics.largest(reader, MOST_TRACED)
    finally:
        engine.close()
    slow = list(_ended(queries, reader, when, "slow"))
    amplified = list(_ended(queries, reader, when, "amplification"))
    return CentreReport(
        when.start,
        when.end,
        made_at,
        total,
        _modes(directory, queries, reader, largest, total),
        classes,
        without,
        applications,
        users,
        heapq.nsmallest(MOST_SLOW, slow, key=lambda job: (-(lost_seconds(job) or 0.0), job.key)),
        len(slow),
        heapq.nsmallest(MOST_AMPLIFIED, amplified, key=lambda job: (-amplification(job), job.key)),
        len(amplified),
        persistence(directory, when.start, when.end),
        list(_loads(directory, when)),
    )


def lost_seconds(job: VisibleJob) -> float | None:
    """Time that a slow job lost: of its active seconds those beyond the expected; None where unknown."""
    times, active = job["slowdown"], job["s_active_seconds"]
    return None if not times or active is None else float(active * (1.0 - 1.0 / times))


def amplification(job: VisibleJob) -> float:
    """Bytes moved for each asked for, by the summary or a finding, as `JobQueries.amplified` has it."""
    factors = [finding["factor"] for finding in job["findings"] if finding["kind"] == "amplification"]
    return max(job["s_amplification"] or 0.0, *(factor or 0.0 for factor in factors), 0.0)


def _ended(queries: JobQueries, reader: Principal, when: TimeRange, finding: str) -> Iterator[VisibleJob]:
    """Yields the jobs with a finding that ended in the time."""
    for job in queries.every(reader, JobSelection(after=when.start, before=when.end, finding=finding)):
        if job["end"] is not None and when.start <= job["end"] < when.end:
            yield job


def _modes(
    directory: Path, queries: JobQueries, reader: Principal, keys: Sequence[str], total: TopRow
) -> ModeVolumes:
    traces = JobTraces(directory, queries)
    jobs: dict[tuple[str, str], int] = defaultdict(int)
    amounts: dict[tuple[str, str], float] = defaultdict(float)
    traced = 0
    for key in keys:
        job = queries.job(reader, key)
        known = traces.modes(job) if job is not None else {}
        traced += bool(known)
        for direction, mode in known.items():
            for name, share in mode.shares.items():
                if share > 0:
                    jobs[direction, name] += 1
                    amounts[direction, name] += mode.size * share
    volumes = [
        ModeVolume(direction, name, jobs[direction, name], amounts[direction, name])
        for direction in DIRECTIONS
        for name in MODES
        if jobs[direction, name]
    ]
    moved = (total.read_bytes or 0.0) + (total.written_bytes or 0.0)
    return ModeVolumes(tuple(volumes), len(keys), traced, sum(amounts.values()), moved)


def _loads(directory: Path, when: TimeRange) -> Iterator[LoadSection]:
    for kind in known_kinds(directory, set(ROLES)):
        loads = component_load(directory, KINDS[kind], when.start, when.end)
        known = int(np.isfinite(loads.mean).sum())
        if known:
            table, axis = component_table(loads, kind, when, Query({}))  # those without data come last
            yield LoadSection(KINDS[kind].title, table.page.items[:known], known, axis)
