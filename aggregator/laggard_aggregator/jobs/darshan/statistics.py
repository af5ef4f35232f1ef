"""First-order statistics (IOMiner III-B to III-E), each one SQL text that DuckDB and Spark answer alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from laggard_aggregator.jobs.darshan.engines import LogEngine
from laggard_aggregator.jobs.darshan.sharing import sharing

_PERCENTILES: Final = tuple(range(0, 101, 5))


@dataclass(frozen=True, slots=True)
class MineStatistic:
    """A statistic: its `title`, and how its rows are computed."""

    title: str
    rows: Callable[[LogEngine], pa.Table]


def _query(sql: str) -> Callable[[LogEngine], pa.Table]:
    return lambda engine: engine.query(sql)


_APPLICATIONS = """
with by_application as (
  select application, count(*) as jobs, sum(bytes_read) as bytes_read, sum(bytes_written) as bytes_written
  from job group by application
), totals as (
  select cast(sum(bytes_read) as double) as all_read, cast(sum(bytes_written) as double) as all_written from by_application
)
select application, jobs, bytes_read, bytes_written,
       bytes_read / nullif(all_read, 0e0) as read_share,
       bytes_written / nullif(all_written, 0e0) as written_share
from by_application cross join totals
order by bytes_read + bytes_written desc nulls last, application limit 10
"""

_READ_RATIO = """
with ratio as (
  select cast(floor(100e0 * bytes_read / (bytes_read + bytes_written)) as bigint) as percent
  from job where bytes_read + bytes_written > 0
)
select least(percent, 99) as bin, count(*) as jobs,
       count(*) filter (where percent = 100) as read_only
from ratio group by least(percent, 99) order by bin nulls last
"""
"""Bin 0 holds the jobs that only write, and those with less than 1 %; `read_only` those that only read."""

_MIDDLEWARE = """
with class as (
  select case when processes = 1 then 1 when processes <= 1024 then 2 when processes <= 8192 then 3 else 4 end as place,
         mpiio_files, collective_files, posix_files
  from job
)
select case place when 1 then 'One' when 2 then 'Small' when 3 then 'Medium' else 'Large' end as size_class,
       count(*) as jobs,
       count(*) filter (where mpiio_files = 0 and posix_files > 0) as posix,
       count(*) filter (where mpiio_files > 0 and collective_files = 0) as mpiio_independent,
       count(*) filter (where collective_files > 0) as mpiio_collective,
       count(*) filter (where mpiio_files = 0 and posix_files = 0) as neither
from class group by place order by place nulls last
"""

_STRIPING = """
with custom as (
  select d.job_id, d.uid, max(f.stripe_count) as widest,
         max(case when f.stripe_size <> 1048576 or f.stripe_count <> 1 then 1 else 0 end) as is_custom
  from darshan_file f join darshan_job d on d.log = f.log
  where f.stripe_count is not null group by d.job_id, d.uid
)
select widest as widest_stripe_count, count(*) as lustre_jobs, sum(is_custom) as custom_jobs,
       sum(is_custom) * 1e0 / sum(count(*)) over () as custom_share
from custom group by widest order by widest nulls last
"""
"""Lustre's default is one stripe of 1 MiB; a first OST that the user chose cannot be told from Lustre's."""


def _sequential(engine: LogEngine) -> pa.Table:
    """Share of sequential POSIX requests (Eq. 3), at percentiles of the jobs; STDIO does not count them."""
    curve = ", ".join(
        f"percentile_cont({percent / 100}) within group (order by share) as p{percent}"
        for percent in _PERCENTILES
    )
    sql = f"""
    with sequential as (
      select (sequential_reads + sequential_writes) * 1e0 / posix_requests as share
      from job where posix_requests > 0
    )
    select count(*) as jobs, {curve} from sequential
    """
    row: dict[str, Any] = engine.query(sql).to_pylist()[0]
    shares = [None if row[f"p{percent}"] is None else float(row[f"p{percent}"]) for percent in _PERCENTILES]
    jobs = [row["jobs"]] * len(_PERCENTILES)
    return pa.table({"percent_of_jobs": list(_PERCENTILES), "sequential_share": shares, "jobs": jobs})


STATISTICS: Final = {
    "applications": MineStatistic(
        "applications with the most I/O, and their share of all (III-C1)", _query(_APPLICATIONS)
    ),
    "sequential": MineStatistic(
        "share of sequential requests that a percentage of jobs stays below (III-C2, Eq. 3)", _sequential
    ),
    "read-ratio": MineStatistic(
        "jobs by bytes read of all bytes, in 100 bins (III-C3, Eq. 4)", _query(_READ_RATIO)
    ),
    "sharing": MineStatistic(
        "I/O modes by volume, and processes a file, of jobs with more than one process (III-D, Eq. 5)",
        sharing,
    ),
    "middleware": MineStatistic(
        "POSIX, MPI-IO and collective MPI-IO by processes: One 1, Small to 1024, Medium to 8192, Large "
        "(III-E)",
        _query(_MIDDLEWARE),
    ),
    "striping": MineStatistic(
        "jobs on Lustre with stripes other than one of 1 MiB (III-B)", _query(_STRIPING)
    ),
}
