"""The interface of an engine, and the views that all engines have."""

from typing import Protocol

import pyarrow as pa

from laggard_aggregator.jobs.darshan.intervals import critical_path
from laggard_aggregator.jobs.darshan.log_runs import MAX_PAUSE_US
from laggard_aggregator.jobs.darshan.store import MineStore
from laggard_aggregator.jobs.engines import SqlEngine

KERNEL_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("job_id", "log", "file_id", "rank", "start_us", "end_us")]
)
"""Rows of the critical path: the record, and its exclusive time."""


class LogEngine(SqlEngine, Protocol):
    """Runs SQL over a store's tables and the view `job`."""

    name: str

    def critical(self, intervals: str) -> pa.Table:
        """The critical path of each job, KERNEL_SCHEMA, by the kernel.

        `intervals`: SQL of rows with job_id, log, file_id, rank, start_us, end_us.
        """


LOG_RUNS_VIEW = f"""
with marked as (
  select *, case when job_id = 0 or start_us > {MAX_PAUSE_US} + max(end_us) over
           (partition by job_id order by start_us, log rows between unbounded preceding and 1 preceding)
         then 1 else 0 end as is_new
  from darshan_job
), numbered as (
  select *, sum(is_new) over (partition by job_id order by start_us, log rows unbounded preceding) as place,
         sum(is_new) over (partition by job_id) as others
  from marked
)
select *, case when others = 0 then job_id
          else first_value(log) over (partition by job_id, place order by start_us, log) end as run
from numbered
"""  # noqa: S608 - a number of this program
"""Logs with the run of their job, as `jobs_of_logs` parts them: its number where no other job has it, else
the first of its logs."""
JOB_VIEW = """
select job_id, run, uid, min(start_us) as start_us, max(end_us) as end_us, sum(processes) as processes,
       min(application) as application, count(*) as logs, sum(files) as files,
       sum(bytes_read) as bytes_read, sum(bytes_written) as bytes_written,
       sum(reads) as reads, sum(writes) as writes, sum(posix_requests) as posix_requests,
       sum(sequential_reads) as sequential_reads, sum(sequential_writes) as sequential_writes,
       sum(posix_files) as posix_files, sum(mpiio_files) as mpiio_files,
       sum(collective_files) as collective_files
from log_runs group by job_id, run, uid
"""
"""One row a job and user: the logs of one job, one each process or step, put together."""


def critical_rows(rows: pa.Table) -> pa.Table:
    """The kernel over rows of KERNEL_SCHEMA, those of a job together; runs in Spark's workers too."""
    columns = {name: rows[name].to_numpy() for name in KERNEL_SCHEMA.names}
    keys = [columns[name] for name in ("file_id", "rank", "log")]
    path = critical_path(columns["start_us"], columns["end_us"], columns["job_id"], keys)
    chosen = {name: columns[name][path.place] for name in ("job_id", "log", "file_id", "rank")}
    return pa.table({**chosen, "start_us": path.start, "end_us": path.end}, schema=KERNEL_SCHEMA)


def unique_names(table: pa.Table) -> pa.Table:
    """The table with another name, such as `log_1`, for each column whose name an earlier one has."""
    names: list[str] = []
    for name in table.column_names:
        free = name
        number = 0
        while free in names or (number and free in table.column_names):
            number += 1
            free = f"{name}_{number}"
        names.append(free)
    return table.rename_columns(names)


def log_filter(store: MineStore) -> str:
    """SQL condition that leaves out logs that were replaced; empty for none."""
    replaced = sorted(store.replaced_logs())
    return f" where log not in ({', '.join(map(str, replaced))})" if replaced else ""
