"""Slow, obvious twin of `jobs/loads/statistics.py`: loops over rows."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from laggard_aggregator.jobs.access.principals import Principal
from tests.naive_jobs_queries import visible

Row = dict[str, Any]
COLUMNS = {"user": "user", "project": "account", "application": "application"}


def _last(rows: list[Row]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        known = found.get(row["job_key"])
        if known is None or row["revision_at"] > known["revision_at"]:
            found[row["job_key"]] = row
    return found


def counted(who: Principal, jobs: list[Row], summaries: list[Row], after: float, before: float) -> list[Row]:
    """The jobs that count, with their amounts."""
    results = _last(summaries)
    found = []
    for key, job in _last(jobs).items():
        end = job["end"]
        if end is None or not after <= end < before or not visible(who, job):
            continue
        own = {name: results.get(key, {}).get(name) or 0.0 for name in AMOUNTS}
        seconds = 0.0 if job["start"] is None else end - job["start"]
        hours = (
            None if job["cpus"] is None and job["start"] is not None else (job["cpus"] or 0) * seconds / 3600
        )
        found.append(job | own | {"core_hours": hours, "volume": own["read_bytes"] + own["written_bytes"]})
    return found


AMOUNTS = ("read_bytes", "written_bytes", "metadata_operations")


def top(
    jobs: list[Row], group: str, order: str, limit: int
) -> list[tuple[str, int, int, float | None, float]]:
    """Name, jobs, non-trivial jobs, core hours and volume of the largest groups."""
    of: dict[str, list[Row]] = defaultdict(list)
    for job in jobs:
        of[job[COLUMNS[group]]].append(job)
    key = {"volume": "volume", "core-hours": "core_hours", "metadata": "metadata_operations"}[order]
    sums = {name: _sum(job[key] for job in of[name]) for name in of}
    ordered = sorted(of, key=lambda name: (sums[name] is None, -(sums[name] or 0.0), name))
    return [
        (
            name,
            len(of[name]),
            sum(job["volume"] > 200e6 for job in of[name]),
            _sum(job["core_hours"] for job in of[name]),
            sum(job["volume"] for job in of[name]),
        )
        for name in ordered[:limit]
    ]


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def classes(jobs: list[Row]) -> list[tuple[int, int, float | None]]:
    """Jobs, non-trivial jobs and their mean bytes read, by class."""
    limits = [-1.0, 1e3, 1e4, 1e5, 1e6, float("inf")]
    found = []
    for low, high in pairwise(limits):
        own = [job for job in jobs if job["core_hours"] is not None and low < job["core_hours"] <= high]
        much = [job["read_bytes"] for job in own if job["volume"] > 200e6]
        found.append((len(own), len(much), sum(much) / len(much) if much else None))
    return found
