"""Jobs that still run, by the counters and traces that the archive has of them until now.

They are joined when somebody asks, as a finished job is, over the last hours at most.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from laggard_aggregator.archive.table import tables_of
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.accounts import SECOND_NS, JobAccount, JoinedJob
from laggard_aggregator.jobs.join.jobs_of_time import read_jobs
from laggard_aggregator.jobs.join.membership import Occupation
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.server_jobs import JobIdFormat
from laggard_aggregator.jobs.join.summary import component_rows, series_rows, summary_row
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS
from laggard_aggregator.jobs.tables import JOB_COMPONENTS, JOB_SERIES

MOST_SECONDS: Final = 7200.0
"""Longest time of a running job that is looked at; of a longer one, its last part."""
_FRESH_NS: Final = 20 * SECOND_NS
_MOST_KEPT: Final = 64
_LISTS: Final = ("read_bytes", "written_bytes", "metadata_operations")


@dataclass(frozen=True, slots=True)
class SoFar:
    """I/O of a job from `since` until `until`, in s: rows as those of finished jobs."""

    since: float
    until: float
    series: list[Row]
    components: list[Row]
    summary: Mapping[str, Any]


class RunningJobs:
    """Joins running jobs of the archive in `directory`. For any thread.

    `served_by`: the forwarder of each node that has one. `jobid_format`: of Lustre, empty where unknown.
    """

    def __init__(
        self,
        directory: Path,
        served_by: Mapping[str, str],
        now_ns: Callable[[], int] = time.time_ns,
        jobid_format: str = "",
    ) -> None:
        self._directory, self._served_by, self._now_ns = directory, served_by, now_ns
        self._format = JobIdFormat(jobid_format) if jobid_format else None
        self._lock = Lock()
        self._kept: dict[str, SoFar] = {}

    def of(self, job: VisibleJob) -> SoFar | None:
        """I/O of a running job so far; None before its start and from its end on. Raises ArchiveError."""
        now_ns = self._now_ns()
        if job["end"] is not None or job["start"] is None or job["start"] * SECOND_NS >= now_ns:
            return None
        with self._lock:
            known = self._kept.get(job.key)
            if known is None or now_ns - known.until * SECOND_NS > _FRESH_NS:
                known = self._joined(job, now_ns)
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[job.key] = known
        return known

    def _joined(self, job: VisibleJob, now_ns: int) -> SoFar:
        begun_ns = round(job["start"] * SECOND_NS)
        start_ns = max(begun_ns, now_ns - round(MOST_SECONDS * SECOND_NS))
        account = JobAccount(JoinedJob(job.key, job["raw_id"], start_ns, now_ns, ()))
        for site in sorted({table.site for table in tables_of(self._directory, "jobs")}):
            known = read_jobs(self._directory, site, start_ns - MOST_GAP_NS, now_ns)
            own = [occupation for occupation in known.occupations if known.keys[occupation.job] == job.key]
            if own:
                others = [
                    Occupation(1 + occupation.job, occupation.node, occupation.start_ns, occupation.end_ns)
                    for occupation in known.occupations
                    if known.keys[occupation.job] != job.key
                ]
                held = tuple((held.node, max(held.start_ns, start_ns), now_ns) for held in own)
                joined = JoinedJob(
                    job.key,
                    job["raw_id"],
                    start_ns,
                    now_ns,
                    held,
                    job.get("cpus"),
                    is_last_part=start_ns > begun_ns,
                )
                (account,) = Join(
                    self._directory,
                    site,
                    [joined],
                    others,
                    format_=self._format,
                    served_by=self._served_by,
                ).run()
                break
        series = [
            dict.fromkeys(JOB_SERIES.names) | row | {name: np.array(row[name], np.float64) for name in _LISTS}
            for row in series_rows(account, now_ns)
        ]
        components = [dict.fromkeys(JOB_COMPONENTS.names) | row for row in component_rows(account, now_ns)]
        summary = summary_row(account, now_ns)
        return SoFar(start_ns / SECOND_NS, now_ns / SECOND_NS, series, components, summary)
