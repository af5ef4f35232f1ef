"""Jobs with their bandwidth on the critical path and their contributing factors, filtered (IOMiner III-F)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laggard_aggregator.jobs.darshan.engines import LogEngine

_TOLERANCE_US: Final = 5_000_000
"""Largest difference between Slurm's clock and those of nodes."""
FACTOR_COLUMNS: Final = ("small", "nonconsecutive", "collective", "osts", "processes_per_ost", "metadata")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs: `low` <= bytes a second < `high`, processes, and bytes a process, in one direction.

    `jobs`: only these; None: all.
    """

    direction: str
    low: float = 0.0
    high: float = math.inf
    min_processes: int = 0
    min_bytes_per_process: int = 0
    jobs: Sequence[int] | None = None


def intervals_sql(direction: str, jobs: Sequence[int] | None = None, files: str = "darshan_file") -> str:
    """Rows of the intervals of POSIX records in one direction; `jobs`: only of these.

    `files`: the table, or one whose `run` stands for the number of the job.
    """
    key = "job_id" if files == "darshan_file" else "run as job_id"
    of_jobs = "" if jobs is None else f" and job_id in ({', '.join(map(str, map(int, jobs))) or 'null'})"
    return (
        f"select {key}, log, file_id, rank, {direction}_start_us as start_us, {direction}_end_us as end_us "
        f"from {files} where module = 'POSIX' and {direction}s > 0 "
        f"and {direction}_end_us > {direction}_start_us{of_jobs}"
    )


def job_list(engine: LogEngine, wanted: JobFilter, *, factors: bool = True) -> pa.Table:
    """One row a job that fits, slowest first; with its factors, and its nodes where Slurm has them.

    They are those of Slurm's run that the logs share the longest time with, unknown where several, as of two
    clusters, differ.
    """
    direction = wanted.direction
    files, placed = _with_runs(engine, "darshan_file"), _with_runs(engine, "job_ost")
    engine.register("critical_path", engine.critical(intervals_sql(direction, wanted.jobs, files)))
    joined = _FACTORS.format(direction=direction, files=files, placed=placed) if factors else ""
    columns = (
        ", "
        + ", ".join(f"f.{name}" for name in FACTOR_COLUMNS if name not in ("osts", "collective"))
        + ", o.osts, f.collective"
        if factors
        else ""
    )
    joins = "left join factors f on f.run = i.run left join osts o on o.run = i.run" if factors else ""
    written = "written" if direction == "write" else "read"
    high = "" if math.isinf(wanted.high) else f"and i.bytes * 1e6 / b.busy_us < {wanted.high!r}"
    sql = f"""
    with io as (
      select run, sum(bytes_{written}) as bytes, count(*) filter (where {direction}_end_us > {direction}_start_us and {direction}s > 0) as files
      from {files} where module = 'POSIX' group by run
    ), busy as (
      select job_id as run, sum(end_us - start_us) as busy_us, count(*) as critical_files, max(end_us - start_us) as longest_us
      from critical_path group by job_id
    ), jobs as (
      select run, min(job_id) as job_id, min(start_us) as start_us, max(end_us) as end_us, sum(processes) as processes,
             min(application) as application, count(distinct uid) as users
      from job group by run
    ), shared as (
      select j.run, s.node_count,
             least(coalesce(s.end_us, j.end_us), j.end_us) - greatest(s.start_us, j.start_us) as shared_us
      from jobs j join slurm_job s on s.job_id = j.job_id
      where s.start_us <= j.end_us + {_TOLERANCE_US} and coalesce(s.end_us, j.start_us) >= j.start_us - {_TOLERANCE_US}
    ), nodes as (
      select run, case when min(node_count) = max(node_count) then max(node_count) end as node_count
      from (select *, max(shared_us) over (partition by run) as longest_us from shared) l
      where shared_us = longest_us group by run
    ){joined}
    select j.job_id, j.application, j.users, j.start_us, j.end_us, j.processes, n.node_count, i.bytes, b.busy_us,
           i.bytes / 1048576e0 / (b.busy_us / 1e6) as mib_per_second, i.files, b.critical_files,
           b.longest_us * 1e0 / b.busy_us as top_share{columns}
    from io i join busy b on b.run = i.run join jobs j on j.run = i.run
         left join nodes n on n.run = i.run {joins}
    where b.busy_us > 0 and j.processes >= {wanted.min_processes}
      and i.bytes >= {wanted.min_bytes_per_process} * j.processes
      and i.bytes * 1e6 / b.busy_us >= {wanted.low!r} {high}
    order by mib_per_second nulls last, j.job_id nulls last, j.start_us nulls last
    """
    return engine.query(sql)


def _with_runs(engine: LogEngine, table: str) -> str:
    """SQL of a table of logs with the run of its job, which separates jobs that share a number."""
    parted = engine.query("select log, run from log_runs where run <> job_id")
    if not len(parted):
        return f"(select *, job_id as run from {table})"
    engine.register("parted_logs", parted)
    joined = "left join parted_logs p on p.log = t.log"
    return f"(select t.*, coalesce(p.run, t.job_id) as run from {table} t {joined})"


_FACTORS: Final = """, records as (
      select run, log, file_id, rank, {direction}s as requests, small_{direction}s as small_requests,
             consecutive_{direction}s as consecutive, collective_{direction}s as collective, stripe_count,
             meta_time_us, read_time_us + write_time_us + meta_time_us as all_us,
             sum(case when {direction}s > 0 then processes else 0 end)
               over (partition by run, file_id) as processes
      from {files} where module = 'POSIX'
    ), weighted as (
      select r.run, cast(c.end_us - c.start_us as double) as weight,
             small_requests * 1e0 / nullif(requests, 0) as small,
             case when requests > firsts then
               greatest(1e0 - consecutive * 1e0 / (requests - firsts), 0e0) end as nonconsecutive,
             processes * 1e0 / nullif(stripe_count, 0) as processes_per_ost,
             meta_time_us * 1e0 / nullif(all_us, 0) as metadata
      from critical_path c join (
        select *, case when rank < 0 then processes else 1 end as firsts from records
      ) r on r.log = c.log and r.file_id = c.file_id and r.rank = c.rank
    ), factors as (
      select e.run,
             sum(weight * small) / nullif(sum(weight) filter (where small is not null), 0) as small,
             sum(weight * nonconsecutive)
               / nullif(sum(weight) filter (where nonconsecutive is not null), 0) as nonconsecutive,
             sum(weight * processes_per_ost)
               / nullif(sum(weight) filter (where processes_per_ost is not null), 0) as processes_per_ost,
             sum(weight * metadata) / nullif(sum(weight) filter (where metadata is not null), 0) as metadata,
             max(k.collective) as collective
      from weighted e join (
        select run, max(case when collective > 0 then 1 else 0 end) as collective from records group by run
      ) k on k.run = e.run
      group by e.run
    ), osts as (
      select run, count(*) as osts from (select distinct run, mount, ost from {placed}) o group by run
    )"""
