"""Statistics over the jobs of an archive: top users, projects and applications, and classes of core hours.

One SQL text for all engines. The condition of access is part of it, as in `queries.py`: jobs that the
principal may not see count nowhere. Jobs count by their end; core hours are those of the metadata, volumes
and operations those of the summaries, zero where a job was not joined with counters.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from laggard_aggregator.jobs.access.filter import GroupBy
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.engines import SqlEngine

NON_TRIVIAL_BYTES: Final = 200e6
"""Volume above which the I/O of a job counts as non-trivial (NSDI '19, section 4)."""
CLASSES: Final = ("0-1K", "1K-10K", "10K-100K", "100K-1000K", "above 1000K")
"""Classes of core hours of the paper's table 3, each with its upper limit."""

REVISIONS: Final = {
    "job_key": "job_key", "revision_at": "revision_at", "user_name": "user", "account": "account",
    "application": "application", "cpus": "cpus", "began": "start", "ended": "end",
}  # fmt: skip
"""Columns of the table `revisions` by those of `jobs`: names that are no words of SQL."""
SUMMARIES: Final = {
    name: name for name in ("job_key", "revision_at", "read_bytes", "written_bytes", "metadata_operations")
}
"""Columns of the table `summaries` by those of `job_summaries`."""


class OrderBy(StrEnum):
    """Amounts that groups are ordered by, largest first."""

    VOLUME = "volume"
    CORE_HOURS = "core-hours"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class TopRow:
    """Jobs of one user, project or application. `non_trivial_jobs`: those above NON_TRIVIAL_BYTES.

    `core_hours`: of the jobs whose CPUs are known, None without any; `jobs_without_cores` counts the others.
    Bytes and operations: of the jobs with counters, None without any; `jobs_without_counters` counts others.
    """

    name: str
    jobs: int
    non_trivial_jobs: int
    core_hours: float | None
    jobs_without_cores: int
    jobs_without_counters: int
    read_bytes: float | None
    written_bytes: float | None
    metadata_operations: float | None


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Jobs of one class of core hours; means are over its non-trivial jobs, None without any.

    Jobs whose CPUs are unknown are in none.
    """

    name: str
    jobs: int
    non_trivial_jobs: int
    core_hours: float
    mean_read_bytes: float | None
    mean_written_bytes: float | None


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """Statistics of the jobs that ended within [after, before)."""

    engine: SqlEngine
    after: float = 0.0
    before: float = 9e15

    def top(
        self, principal: Principal, group: GroupBy, order: OrderBy = OrderBy.VOLUME, limit: int | None = None
    ) -> list[TopRow]:
        """The largest groups, all for None, those of equal amount by name. Raises LaggardError."""
        most = "" if limit is None else f" limit {limit:d}"
        sql = (
            f"{self._jobs(principal)}, grouped as (select {_GROUPS[group]} as name, count(*) as jobs,"  # noqa: S608
            f" {_SUMS} from job group by {_GROUPS[group]})"
            f" select * from grouped order by {_ORDERS[order]} desc, name{most}"
        )
        return [TopRow(**row) for row in self._rows(principal, sql)]

    def total(self, principal: Principal) -> TopRow:
        """All jobs together, without a name. Raises LaggardError."""
        sql = f"{self._jobs(principal)} select '' as name, count(*) as jobs, {_SUMS} from job"  # noqa: S608
        (row,) = self._rows(principal, sql)
        if not row["jobs"]:
            return TopRow("", 0, 0, None, 0, 0, 0.0, 0.0, 0.0)
        return TopRow(**row)

    def largest(self, principal: Principal, limit: int) -> list[str]:
        """Keys of the non-trivial jobs with most bytes, these first. Raises LaggardError."""
        order = f"{_ORDERS[OrderBy.VOLUME]} desc, job_key limit {limit:d}"
        sql = f"{self._jobs(principal)} select job_key from job where non_trivial = 1 order by {order}"  # noqa: S608
        return [str(row["job_key"]) for row in self._rows(principal, sql)]

    def classes(self, principal: Principal) -> list[ClassRow]:
        """All classes of core hours, from the smallest. Raises LaggardError."""
        sql = (
            f"{self._jobs(principal)}, classed as (select *, {_CLASS} as class from job)"  # noqa: S608
            f" select class, count(*) as jobs, {_SUMS},"
            " avg(case when non_trivial = 1 then read_bytes end) as mean_read_bytes,"
            " avg(case when non_trivial = 1 then written_bytes end) as mean_written_bytes"
            " from classed where core_hours is not null group by class"
        )
        row_of = {row.pop("class"): row for row in self._rows(principal, sql)}
        none: dict[str, Any] = {"jobs": 0, "non_trivial_jobs": 0, "core_hours": 0.0}
        none |= {"mean_read_bytes": None, "mean_written_bytes": None}
        return [
            ClassRow(name, **{column: row_of.get(at, none)[column] for column in none})
            for at, name in enumerate(CLASSES)
        ]

    def jobs_without_cores(self, principal: Principal) -> int:
        """Number of jobs whose CPUs are unknown: they are in no class. Raises LaggardError."""
        sql = f"{self._jobs(principal)} select count(*) as jobs from job where core_hours is null"  # noqa: S608
        (row,) = self._rows(principal, sql)
        return int(row["jobs"])

    def _rows(self, principal: Principal, sql: str) -> list[dict[str, Any]]:
        granted = {"granted_users": principal.users, "granted_accounts": principal.accounts}
        for name, names in granted.items():
            self.engine.register(name, pa.table({"name": pa.array(sorted(names), pa.string())}))
        rows: list[dict[str, Any]] = self.engine.query(sql).to_pylist()
        return rows

    def _jobs(self, principal: Principal) -> str:
        """The table `job`: last revisions, and last summaries beside them."""
        granted = "" if principal.sees_all else f" and {_GRANTED}"
        return (
            f"with last_job as ({_LAST.format('revisions')}), last_summary as ({_LAST.format('summaries')}),"  # noqa: S608
            " job as (select j.job_key, j.user_name, j.account, j.application,"
            " case when j.began is null then 0.0"
            " else j.cpus * (j.ended - j.began) / 3600.0 end as core_hours,"
            " s.read_bytes, s.written_bytes, s.metadata_operations,"
            " case when s.job_key is null then 1 else 0 end as lacks_counters,"
            " case when coalesce(s.read_bytes, 0.0) + coalesce(s.written_bytes, 0.0)"
            f" > {NON_TRIVIAL_BYTES} then 1 else 0 end as non_trivial"
            " from last_job j left join last_summary s on s.job_key = j.job_key and s.place = 1"
            f" where j.place = 1 and j.ended >= {self.after!r} and j.ended < {self.before!r}{granted})"
        )


_LAST: Final = "select *, row_number() over (partition by job_key order by revision_at desc) as place from {}"
_GRANTED: Final = (
    "(j.user_name in (select name from granted_users) or j.account in (select name from granted_accounts))"
)
_SUMS: Final = (
    "sum(non_trivial) as non_trivial_jobs, sum(core_hours) as core_hours,"
    " sum(case when core_hours is null then 1 else 0 end) as jobs_without_cores,"
    " sum(lacks_counters) as jobs_without_counters,"
    " sum(read_bytes) as read_bytes, sum(written_bytes) as written_bytes,"
    " sum(metadata_operations) as metadata_operations"
)
_CLASS: Final = (
    "case when core_hours <= 1e3 then 0 when core_hours <= 1e4 then 1 when core_hours <= 1e5 then 2"
    " when core_hours <= 1e6 then 3 else 4 end"
)
_GROUPS: Final = {GroupBy.USER: "user_name", GroupBy.PROJECT: "account", GroupBy.APPLICATION: "application"}
_ORDERS: Final = {
    OrderBy.VOLUME: "coalesce(read_bytes, 0.0) + coalesce(written_bytes, 0.0)",
    OrderBy.CORE_HOURS: "core_hours",
    OrderBy.METADATA: "coalesce(metadata_operations, 0.0)",
}
