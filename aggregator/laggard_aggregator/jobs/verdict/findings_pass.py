"""The pass that stores verdicts on jobs: table `job_findings`, once after each join of a job.

A verdict holds for everybody who may see the job; the identity of neighbours is stored apart, for those who
may see them. The index names the jobs whose last join has no verdict; a pass that is killed is done again.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from laggard_aggregator.archive.table import Table, day_of
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.index.schema import FINDING_COLUMNS
from laggard_aggregator.jobs.join.summary import ResultRow
from laggard_aggregator.jobs.rollups.rollup_pass import rolled_until
from laggard_aggregator.jobs.tables import JOB_FINDINGS
from laggard_aggregator.jobs.verdict.judge import JobJudge, RunReport
from laggard_common.visible import visible

_log = logging.getLogger(__name__)

MAX_JOBS: Final = 256
"""Jobs that are judged in one pass at most; the next one goes on."""
OLDEST_NS: Final = 7 * 86_400 * 10**9
"""Joins that are older get no verdict: those of an archive from before there were any."""

REPEATED_NS: Final = 600 * 10**9
"""Jobs judged this shortly before the last verdict of an earlier process are judged again: perhaps
their reports came no further than its memory."""


class FindingsPass:
    """Judges the jobs of `index`, in the archive in `directory`; each report is given to `judged`.

    That of a slow job is given once the rollups of its last hour are part of the evidence. `served_by`: the
    forwarder of each node that has one. After a restart `judged` gets the latest reports again, so it must
    know those that it has.
    """

    def __init__(
        self,
        directory: Path,
        site: str,
        index: JobIndex,
        judged: Callable[[VisibleJob, RunReport], None] | None = None,
        served_by: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._directory, self._site, self._index = directory, site, index
        self._served_by = served_by
        self._judged = judged
        self._seen_ns: int | None = None
        """Until when joined jobs were looked at as neighbours; None before the first pass."""
        self._again: set[str] = set()

    def judge_again(self, keys: Collection[str]) -> None:
        """Has the next pass judge some jobs again, of which there is new evidence."""
        self._again.update(keys)

    def run(self, now_ns: int, go_on: Callable[[], bool] = lambda: True) -> int:
        """Judges the jobs without a verdict, while `go_on()`; returns their number. Raises LaggardError.

        `now_ns`: until when the archive was rolled up; a join that takes long makes it the past.
        Slow ones are judged again once a job beside them was joined, whose load is known from then on, and
        once the rollups of their last hour are there, with the latencies of their path.
        """
        self._index.refresh(go_on)
        queries = JobQueries(self._index)
        try:
            judge = JobJudge(self._directory, queries, self._served_by)
            reports = []
            last_ns = queries.last_join()
            since_ns = queries.last_verdict() if self._seen_ns is None else self._seen_ns
            again = queries.slow_beside(since_ns, MAX_JOBS)
            slow = len(again)
            told = queries.judged(self._again)
            if self._seen_ns is None and self._judged is not None:
                again += queries.judged_since(queries.last_verdict() - REPEATED_NS, MAX_JOBS)
            rolled = queries.slow_before_rollups(now_ns / 1e9, MAX_JOBS)
            new = queries.unjudged(now_ns - OLDEST_NS, MAX_JOBS)
            due = {job["id"]: job for job in (*new, *again, *told, *rolled)}
            self._seen_ns = last_ns if slow < MAX_JOBS else since_ns
            for job in due.values():
                if not go_on():
                    self._seen_ns = since_ns
                    break
                reports.append((job, self._report(judge, job)))
            self._again -= {job.key for job, _ in reports} | self._again - {job.key for job in told}
            self._write(reports, max(now_ns, queries.last_verdict() + 1))  # also after a step of the clock
            for job, report in reports:
                if self._judged is not None and (report.verdict != "slow" or _is_rolled(job, now_ns)):
                    self._judged(job, report)
        finally:
            queries.close()
        if reports:
            self._index.refresh(go_on)
        return len(reports)

    def _report(self, judge: JobJudge, job: VisibleJob) -> RunReport:
        """The verdict on a job; one that fails is not judged, and stops no other. Raises ArchiveError."""
        try:
            return judge.verdict(job)
        except (ArithmeticError, LookupError, ValueError, TypeError) as exc:
            _log.exception("jobs: no verdict on %s", visible(job["job_key"]))
            return RunReport("not judged", f"Not judged: {type(exc).__name__}, see the aggregator's log")

    def _write(self, reports: list[tuple[VisibleJob, RunReport]], now_ns: int) -> None:
        by_day: dict[str, list[ResultRow]] = {}
        for job, report in reports:
            at = job["end"] if job["end"] is not None else now_ns / 1e9
            by_day.setdefault(day_of(at), []).extend(finding_rows(job, report, now_ns))
        findings = Table(self._directory, "job_findings", site=self._site)
        for day, rows in sorted(by_day.items()):
            findings.append_rows(day, rows, now_ns, JOB_FINDINGS)


def _is_rolled(job: VisibleJob, now_ns: int) -> bool:
    return job["end"] is None or job["end"] < rolled_until(now_ns / 1e9)


def finding_rows(job: VisibleJob, report: RunReport, now_ns: int) -> list[ResultRow]:
    """Rows of `job_findings`: one a finding, or one without a kind."""
    own = {
        "job_key": job["job_key"],
        "revision_at": now_ns,
        "joined_at": job["joined_at"],
        "verdict": report.verdict,
        "slowdown": report.factor,
        "sentence": report.sentence,
    }
    names = FINDING_COLUMNS
    rows = [
        {**own, "rank": rank, **{name: getattr(finding, name) for name in names}}
        for rank, finding in enumerate(report.findings)
    ]
    return rows or [{**own, "rank": 0, **dict.fromkeys(names)}]
