"""The one layer that answers questions about jobs; every question names the principal who asks.

The condition of access is part of each statement, so jobs of others are absent from lists, counts and
searches as if they did not exist, and take no time of their own. The default is to see nothing.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from laggard_aggregator.jobs.access.candidates import AMPLIFICATION
from laggard_aggregator.jobs.access.filter import MAX_PAGE, JobSelection, cursor, position
from laggard_aggregator.jobs.access.lists import JobLists
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.statements import (
    COLUMNS,
    FROM_JOBS,
    HAD_JOB,
    NEIGHBOURS,
    SHARING,
    SLOW_BEFORE_ROLLUPS,
    SLOW_BESIDE,
    WITH_RESULTS,
    access_of,
    excludes,
    grants,
    in_order,
    owner_of,
)
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.index.reader import IndexReader, Row
from laggard_aggregator.jobs.index.schema import (
    FINDING_COLUMNS,
    OPEN_SPAN,
    key_digest,
    tick,
)
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_common.errors import ConfigError

AMPLIFIED: Final = 1.5
"""Bytes moved for each byte that was asked for, above which a job is listed."""
MAX_NEIGHBOURS: Final = 20
_MAX_MATCHES: Final = 50
_BESIDE_SECONDS: Final = 14 * 86_400.0
_COUNT_LIMIT: Final = 1_000_000
_DAEMON: Final = Principal("", Role.ADMIN)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs of one page of a list, newest first; `next_cursor` is empty on the last page."""

    jobs: list[VisibleJob]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Rates (MiB/s, reads and writes) of runs of the same user, project, application and nodes."""

    runs: int
    p10: float
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class JobNeighbour:
    """A job that ran at the same time on the same components. `job`: None where it may not be seen."""

    text: str
    job: Row | None


class JobQueries:
    """Questions about the jobs of an index. Methods may be called from any thread.

    Rows have the columns of the archive's kind `jobs`, and those of its summary with the prefix `s_`.
    """

    def __init__(self, index: JobIndex) -> None:
        self._reader = IndexReader(index)
        self._lists = JobLists(self._reader)

    def close(self) -> None:
        """Closes this thread's connection."""
        self._reader.close()

    def list_jobs(
        self, principal: Principal, selection: JobSelection, limit: int = 50, after: str = ""
    ) -> JobPage:
        """A page of at most `limit` jobs, newest first. Raises CursorError and ConfigError."""
        if not 1 <= limit <= MAX_PAGE:
            raise ConfigError("", [f"limit: expected 1-{MAX_PAGE}, got {limit}"])
        more: dict[str, Any] = {}
        if after:
            at, key = position(principal, selection, after)
            last = self.job(principal, key)
            more = {"at": at, "id": -1 if last is None else last["id"]}  # none: gone, or another's now
        rows = self._lists.newest(principal, selection, more, limit + 1)
        kept = self._with_findings(principal, rows[:limit])
        if len(rows) <= limit:
            return JobPage(kept, "")
        return JobPage(kept, cursor(principal, selection, float(kept[-1]["at"]), kept[-1]["job_key"]))

    def unjudged(self, since_ns: int, limit: int) -> list[VisibleJob]:
        """Jobs that were joined since then and have no verdict on that join, the earliest join first.

        For the daemon's verdicts: nobody's access is checked.
        """
        return self._any_jobs(
            f"select {COLUMNS}, s.revision_at as joined_at from {FROM_JOBS} where s.revision_at >= :since"  # noqa: S608
            " and (v.joined_at is null or v.joined_at < s.revision_at)"
            " order by s.revision_at, j.id limit :most",
            {"since": since_ns, "most": limit},
        )

    def judged(self, keys: Collection[str]) -> list[VisibleJob]:
        """Those of some jobs that have a verdict. For the daemon's verdicts: nobody's access is checked."""
        jobs = []
        for key in keys:
            condition, values = _of_key(key)
            jobs += self._any_jobs(
                f"select {COLUMNS}, s.revision_at as joined_at from {FROM_JOBS}"  # noqa: S608 - own texts
                f" where {condition} and v.joined_at is not null and s.revision_at is not null",
                values,
            )
        return jobs

    def judged_since(self, since_ns: int, limit: int) -> list[VisibleJob]:
        """Those with a verdict of that time or later, the latest first. For the daemon, as `judged`."""
        return self._any_jobs(
            f"select {COLUMNS}, s.revision_at as joined_at from {FROM_JOBS}"  # noqa: S608 - own texts
            " where v.revision_at >= :since and s.revision_at is not null"
            " order by v.revision_at desc, j.id limit :most",
            {"since": since_ns, "most": limit},
        )

    def slow_beside(self, since_ns: int, limit: int) -> list[VisibleJob]:
        """Jobs judged slow before a job was joined, since then, that had run on a component of theirs.

        For the daemon's verdicts, as a job's load is known from its join on: nobody's access is checked.
        """
        values = {"since": since_ns, "at": since_ns / 1e9 - _BESIDE_SECONDS, "most": limit}
        return self._any_jobs(SLOW_BESIDE, values)

    def slow_before_rollups(self, now: float, limit: int) -> list[VisibleJob]:
        """Jobs judged slow before the rollups of their last hour were there, which are now.

        For the daemon's verdicts: nobody's access is checked.
        """
        values = {"now": now, "at": now - _BESIDE_SECONDS, "most": limit}
        return self._any_jobs(SLOW_BEFORE_ROLLUPS, values)

    def last_join(self) -> int:
        """When a job was joined last, in ns; 0 without one."""
        return self._last_revision("summaries")

    def last_verdict(self) -> int:
        """When a job was judged last, in ns; 0 without one."""
        return self._last_revision("verdicts")

    def _last_revision(self, table: str) -> int:
        sql = f"select max(revision_at) as last from {table}"  # noqa: S608 - names of this module
        return int(self._reader.rows(sql, {})[0]["last"] or 0)

    def _any_jobs(self, sql: str, values: dict[str, Any]) -> list[VisibleJob]:
        return [VisibleJob(row, _DAEMON) for row in self._reader.rows(sql, values)]

    def _with_findings(self, principal: Principal, rows: list[Row]) -> list[VisibleJob]:
        """Rows that a principal may see with the `findings` and the sentence of their stored verdicts.

        A finding on a neighbour that the principal may see names it.
        """
        by_id = {row["id"]: row for row in rows}
        names = ", ".join(FINDING_COLUMNS)
        findings = self._reader.rows(
            f"select job, {names} from findings"  # noqa: S608 - names of this module
            " where job in (select value from json_each(:ids)) order by job, rank",
            {"ids": json.dumps(list(by_id))},
        )
        keys = {finding["neighbour"] for finding in findings if finding["neighbour"]}
        readable = {key for key in keys if self._newest_rows(principal, *_of_key(key))}
        for row in rows:
            row["findings"] = []
        for finding in findings:
            row, key, text = by_id[finding.pop("job")], finding.pop("neighbour"), finding.pop("named")
            if key in readable and text:
                row["sentence"] = (row["sentence"] or "").replace(finding["text"], text)
                finding |= {"cause": key, "text": text}
            row["findings"].append(finding)
        return [VisibleJob(row, principal) for row in rows]

    def every(self, principal: Principal, selection: JobSelection) -> Iterator[VisibleJob]:
        """Yields all jobs of a list, newest first, a page at a time: the same rows as its pages."""
        more: dict[str, Any] = {}
        while rows := self._lists.newest(principal, selection, more, MAX_PAGE):
            yield from self._with_findings(principal, rows)
            more = {"at": rows[-1]["at"], "id": rows[-1]["id"]}

    def count(self, principal: Principal, selection: JobSelection) -> int:
        """Number of jobs of a list, counted up to a million."""
        rare = self._lists.count(principal, selection)
        if rare is not None:
            return min(rare, _COUNT_LIMIT)
        conditions, values = selection.sql()
        searches = []
        for access, granted in grants(principal):
            if not excludes(granted, values):
                own = in_order(conditions, {name.rstrip("0123456789") for name in granted})
                searches.append(f"select j.id from {FROM_JOBS} where {' and '.join([*own, access])}")  # noqa: S608
                values |= granted
        if not searches:
            return 0
        sql = f"select count(*) from ({' union '.join(searches)} limit {_COUNT_LIMIT})"  # noqa: S608
        return int(self._reader.rows(sql, values)[0]["count(*)"])

    def job(self, principal: Principal, job_key: str) -> VisibleJob | None:
        """The job of a key; None where there is none that the principal may see."""
        jobs = self._newest_jobs(principal, *_of_key(job_key))
        return jobs[0] if jobs else None

    def find(self, principal: Principal, text: str) -> list[VisibleJob]:
        """Jobs by key, or by the id that the scheduler shows (`42`, `17_3`, `20+1`), newest first."""
        if "/" in text:
            job = self.job(principal, text)
            return [job] if job else []
        shown = self._newest_jobs(principal, "j.job = :key", {"key": text})
        if shown or not (text.isascii() and text.isdecimal() and len(text) < 19):
            return shown
        return self.of_number(principal, int(text))

    def of_number(self, principal: Principal, number: int) -> list[VisibleJob]:
        """Jobs with a number of the scheduler, below 2^63, newest first: runs again, of other clusters."""
        return self._newest_jobs(principal, "j.raw_id = :key", {"key": number})

    def runs_of_number(self, job: VisibleJob) -> list[Row]:
        """Times, and no more, of all jobs of the cluster with this number, also of those of others."""
        return self._reader.rows(
            "select start, end from jobs where raw_id = :number and cluster = :cluster",
            {"number": job["raw_id"], "cluster": job["cluster"]},
        )

    def nodes(self, job: VisibleJob) -> list[Row]:
        """Nodes of a job with the times for which it had them: name, start, end, observed."""
        return self._reader.rows(
            "select n.name, m.start, m.end, m.observed from members m"
            " join nodes n on n.number between m.low and m.high"
            " where m.job = :id and (m.observed or m.revision_at = :revision_at) order by n.number, m.start",
            {"id": job["id"], "revision_at": job["revision_at"]},
        )

    def components(self, job: VisibleJob) -> list[Row]:
        """Components that carried I/O of a job: layer and name."""
        return self._reader.rows(
            "select c.layer, c.name from uses u join components c on c.id = u.component"
            " where u.job = :id order by c.layer, c.name",
            {"id": job["id"]},
        )

    def history(self, job: VisibleJob) -> JobHistory | None:
        """History beside a job; None with too few runs."""
        if job["node_count"] is None:
            return None
        names = ("user", "account", "application", "node_count")
        rows = self._reader.rows(
            "select runs, p10, median, p90 from history where user = :user and account = :account"
            " and application = :application and node_count = :node_count",
            {name: job[name] for name in names},
        )
        return JobHistory(**rows[0]) if rows else None

    def earlier(self, job: VisibleJob, limit: int) -> list[VisibleJob]:
        """Finished runs before a job of the same user, project, application and nodes; oldest first."""
        if job["node_count"] is None or job["start"] is None:
            return []
        names = ("user", "account", "application", "node_count")
        same = " and ".join(f"j.{name} = :own_{name}" for name in names)
        values = {f"own_{name}": job[name] for name in names} | {"start": job["start"], "most": limit}
        order = "j.at < :start and j.end <= :start order by j.at desc, j.id desc limit :most"
        return self._first_jobs(job.principal, f"{same} and {order}", values)[::-1]

    def neighbours(self, job: VisibleJob) -> list[JobNeighbour]:
        """Jobs that shared components or nodes with a job, those with most metadata operations first.

        Jobs that its reader may not see have no name, id or times, and rounded figures.
        """
        if job["start"] is None:
            return []
        end = 9e15 if job["end"] is None else job["end"]
        values = {"id": job["id"], "start": job["start"], "end": end, "revision_at": job["revision_at"]}
        values |= {"from": tick(job["start"]), "to": tick(end), "most": MAX_NEIGHBOURS}
        values["last_span"] = OPEN_SPAN
        rows = self._reader.rows(NEIGHBOURS, values)
        return [
            JobNeighbour(_anonymous(row), row if job.principal.may_see(row["user"], row["account"]) else None)
            for row in rows
        ]

    def sharing(self, job: VisibleJob, start: float, end: float) -> list[Row]:
        """Jobs that used components of a job between `start` and `end`, seconds; those that load most.

        For sums over all jobs: rows of jobs that its reader may not see are among them and not to be shown.
        """
        values = {"id": job["id"], "start": start, "end": end, "last_span": OPEN_SPAN - 1}
        by_id: dict[int, Row] = {}
        for order in ("mdops", "rate"):
            sql, most = SHARING.format(load=order), {"most": MAX_NEIGHBOURS}
            by_id |= {row["id"]: row for row in self._reader.rows(sql, values | most)}
        return list(by_id.values())

    def had_job(self, node: str, start: float, end: float) -> bool:
        """Whether a node, by its name or that without domain, had a job between two times, whoever's."""
        names = {"node": node, "short": short_name(node)}
        values = names | {"start": start, "end": end, "from": tick(start), "to": tick(end)}
        return bool(self._reader.rows(HAD_JOB, values))

    def amplified(self, principal: Principal, limit: int = 50) -> list[Row]:
        """Jobs for which more than 1.5 times the bytes they asked for were moved, worst first.

        By their summary, or by a stored finding, whose factor is that of one direction: `amplification` of a
        row is the larger.
        """
        plus = "" if principal.sees_all else "+"  # keeps the index of all jobs from the choice
        condition = f"{plus}s.amplification > {AMPLIFIED}"
        most = min(limit, MAX_PAGE)
        rows = self._first_rows(principal, condition, f"{plus}s.amplification desc, j.id", {"most": most})
        amplified = {row["id"]: row | {"amplification": row["s_amplification"]} for row in rows}
        for row in self._with_factor(principal, AMPLIFICATION, most):
            amplified[row["id"]] = row | {"amplification": max(row["factor"], row["s_amplification"] or 0.0)}
        return sorted(amplified.values(), key=lambda row: (-row["amplification"], row["id"]))[:most]

    def _with_factor(self, principal: Principal, kind: str, most: int) -> list[Row]:
        """Jobs with a finding of a kind and its `factor`: the newest of each grant, without an order."""
        by_id: dict[int, Row] = {}
        for access, more in grants(principal):
            owner = owner_of(more, {}) or "1"
            newest = f"x.kind = :kind and {owner} and x.factor is not null order by x.at desc limit :most"
            sql = (
                f"select {COLUMNS}, max(i.factor) as factor"  # noqa: S608 - texts of this module
                f" from (select x.job, x.factor from findings x where {newest}) i"
                f" cross join jobs j on j.id = i.job {WITH_RESULTS} where {access} group by j.id"
            )
            values = {"kind": kind, "most": most} | more
            by_id |= {row["id"]: row for row in self._reader.rows(sql, values)}
        return list(by_id.values())

    def metadata_operations(
        self, principal: Principal, column: str, after: float, before: float, since: float
    ) -> list[Row]:
        """Name, jobs and operations of the jobs with one value of a `column`, most operations first.

        Within [after, before): a job's operations are spread evenly over its time. `since`: jobs that began
        earlier do not count.
        """
        access, more = access_of(principal)
        assert column.isidentifier()
        share = "(min(j.end, :before) - max(j.start, :after)) / max(j.end - j.start, 1e-9)"
        return self._reader.rows(
            f"select j.{column} as name, count(*) as jobs, sum(s.metadata_operations * {share}) as operations"  # noqa: S608
            " from jobs j join summaries s on s.id = j.id"
            f" where j.at >= :since and j.at < :before and j.start < :before and j.end > :after and {access}"
            f" and s.metadata_operations > 0 group by j.{column} order by operations desc, name",
            {"after": after, "before": before, "since": since} | more,
        )

    def _newest_rows(self, principal: Principal, condition: str, values: dict[str, Any]) -> list[Row]:
        """The jobs of a condition, newest first."""
        rows = self._first_rows(principal, condition, "j.at desc", {"most": _MAX_MATCHES} | values)
        return sorted(rows, key=lambda row: (row["at"], row["id"]), reverse=True)[:_MAX_MATCHES]

    def _first_rows(
        self, principal: Principal, condition: str, order: str, values: dict[str, Any]
    ) -> list[Row]:
        """The first jobs of a condition, from one search for each user and account that may be seen.

        The indexes have both, so a search does not reach the jobs of others: they cost as much as none.
        """
        by_id: dict[int, Row] = {}
        for access, more in grants(principal):
            where = f"{condition} and {access} order by {order} limit :most"
            sql = f"select {COLUMNS} from {FROM_JOBS} where {where}"  # noqa: S608 - texts of this module
            by_id |= {row["id"]: row for row in self._reader.rows(sql, values | more)}
        return list(by_id.values())

    def _newest_jobs(self, principal: Principal, condition: str, values: dict[str, Any]) -> list[VisibleJob]:
        """The jobs of a condition with their stored findings, newest first."""
        return self._with_findings(principal, self._newest_rows(principal, condition, values))

    def _first_jobs(self, principal: Principal, rest: str, values: dict[str, Any]) -> list[VisibleJob]:
        access, more = access_of(principal)
        sql = f"select {COLUMNS} from {FROM_JOBS} where {access} and {rest}"  # noqa: S608 - texts of this module
        rows = self._reader.rows(sql, {"most": _MAX_MATCHES} | values | more)
        return [VisibleJob(row, principal) for row in rows]


MANY_OPERATIONS: Final = 50.0
"""Metadata operations a second from which they are a job's load, as of a neighbour that is a cause."""
_MB_PER_MIB: Final = 1.048576


def _of_key(job_key: str) -> tuple[str, dict[str, Any]]:
    """Condition on `j`, and its values, that a job has a key."""
    condition = "j.key_digest = :digest and +j.job_key = :key"
    return condition, {"key": job_key, "digest": key_digest(job_key)}


def _anonymous(row: Row) -> str:
    """Load of a job without its identity, to two digits; few metadata operations come with any bytes."""
    operations, rate = row["s_mdops"] or 0.0, row["rate"] or 0.0
    if operations and (operations >= MANY_OPERATIONS or not rate):
        return f"a job with {rounded(operations)} metadata operations a second"
    return f"a job with {rounded(rate * _MB_PER_MIB)} MB a second" if rate else "a job of unknown load"


def rounded(value: float) -> str:
    """A figure of a job that may not be seen, to two digits."""
    return f"{float(f'{value:.2g}'):,.10g}"
