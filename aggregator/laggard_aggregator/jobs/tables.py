"""Columns of the tables of jobs in the archive; docs/archive.md explains them.

All are results: derived, never replayed, and of the `source` `laggard` but for `series60`, which has the
source of its counters. Rows are revisions: of several rows of one key (below), the one with the last
`revision_at` counts.
"""

from typing import Final

import pyarrow as pa

from laggard_aggregator.archive.table import TEXT, TIME

_VOLUMES: Final = ("read_bytes", "written_bytes", "metadata_operations")
BUSY_SECONDS: Final = {
    "read_bytes": "read_busy_seconds",
    "written_bytes": "written_busy_seconds",
    "metadata_operations": "metadata_busy_seconds",
}
"""Columns of `job_series` with the seconds in which the amounts of another moved."""


def columns_of(schema: pa.Schema, *names: str) -> pa.Schema:
    """Some columns of a schema."""
    return pa.schema([schema.field(name) for name in names])


def _columns(*columns: tuple[pa.DataType, str], nullable: bool = True) -> list[pa.Field]:
    """Columns in their order, each type with the names of the columns that have it."""
    return [pa.field(name, kind, nullable) for kind, names in columns for name in names.split()]


_KEY: Final = _columns((pa.string(), "job_key"), (TIME, "revision_at"), nullable=False)

JOBS: Final = pa.schema(
    [
        *_KEY,
        *_columns((TEXT, "cluster"), (pa.int64(), "raw_id submit"), (pa.string(), "sluid"), nullable=False),
        *_columns((pa.int32(), "restarts")),
        *_columns((pa.string(), "job"), nullable=False),
        *_columns((pa.int64(), "array_job array_task het_job het_offset")),
        *_columns((TEXT, "user account name application partition state source"), nullable=False),
        *_columns(
            (pa.int64(), "uid exit_code"),
            (pa.float64(), "eligible start end modified"),
            (pa.int64(), "node_count tasks cpus"),
            (pa.bool_(), "exclusive"),
            (pa.string(), "node_list"),
            (pa.bool_(), "doubtful"),
        ),
    ]
)
"""Jobs; the last revision of each job_key counts."""

JOB_NODES: Final = pa.schema(
    [
        *_KEY,
        *_columns((TEXT, "node"), (pa.float64(), "start"), nullable=False),
        *_columns((pa.float64(), "end"), (pa.bool_(), "exclusive")),
        *_columns((pa.bool_(), "doubtful"), (TEXT, "source"), nullable=False),
    ]
)
"""Nodes of jobs. The rows of a job_key's last `revision_at` count together; those of source cgroup apart."""

PATHS: Final = pa.schema(
    [
        *_columns((TEXT, "node"), nullable=False),
        *_columns((TEXT, "forwarder")),
        *_columns((TEXT, "target layer source"), (pa.float64(), "start"), nullable=False),
        *_columns((pa.float64(), "end")),
    ]
)

JOB_SERIES: Final = pa.schema(
    [
        *_KEY,
        *_columns((TEXT, "layer"), nullable=False),
        *_columns((TEXT, "node")),
        *_columns((pa.float64(), "resolution_seconds start"), nullable=False),
        *_columns((pa.list_(pa.float64()), " ".join(_VOLUMES))),
        *_columns((pa.float64(), "reading_seconds")),
        *_columns((pa.list_(pa.float64()), " ".join(BUSY_SECONDS.values()))),
    ]
)
"""A null element is a gap; `node` is null for the sum over the job. `reading_seconds`: mean time between the
readings of the series. `*_busy_seconds`: of each value, in which something moved."""

JOB_COMPONENTS: Final = pa.schema(
    [
        *_KEY,
        *_columns((TEXT, "layer node component direction"), nullable=False),
        *_columns((pa.float64(), "bytes operations latency_seconds coverage")),
        *_columns((pa.bool_(), "shared"), nullable=False),
        *_columns((pa.float64(), "busy_seconds")),
    ]
)
"""`busy_seconds`: of a client known by its traces, which have no latencies: those in which it was active."""

JOB_SUMMARIES: Final = pa.schema(
    [
        *_KEY,
        *_columns(
            (
                pa.float64(),
                " ".join(_VOLUMES)
                + " mean_read_mib_per_second peak_read_mib_per_second mean_written_mib_per_second"
                " peak_written_mib_per_second mib_per_second iops mdops active_seconds core_hours"
                " client_read_bytes client_written_bytes forwarder_read_bytes forwarder_written_bytes"
                " server_read_bytes server_written_bytes amplification unaccounted_ratio coverage",
            ),
            (pa.float64(), "trace_difference"),
            (
                pa.float64(),
                "mib_per_second_error mean_read_mib_per_second_error mean_written_mib_per_second_error"
                " mdops_error",
            ),
            (pa.int64(), "nodes_with_io"),
            (pa.bool_(), "shared"),
            (pa.float64(), "mode_n_n mode_n_m mode_n_1 mode_1_1 mode_unknown"),
        ),
    ]
)

JOB_FINDINGS: Final = pa.schema(
    [
        *_KEY,
        *_columns((TIME, "joined_at"), (TEXT, "verdict"), nullable=False),
        *_columns((pa.float64(), "slowdown"), (pa.string(), "sentence"), (pa.int32(), "rank")),
        *_columns((TEXT, "kind"), (pa.string(), "cause"), (pa.float64(), "factor share")),
        *_columns((pa.string(), "text advice neighbour named")),
    ]
)
"""A row a finding by `rank`, or one without `kind`. `joined_at`: revision of the summary that was judged.

`neighbour`: key of the job that is the cause, and `named`: `text` for those who may see that job.
"""

JOB_TRACES: Final = pa.schema(
    [
        *_KEY,
        *_columns((pa.int64(), "records first_ns last_ns"), (pa.binary(), "block"), nullable=False),
    ]
)
"""A row a block of folded records (`merged_block.py`)."""

JOB_LOGS: Final = pa.schema(
    [
        *_KEY,
        *_columns((TEXT, "record"), (pa.int32(), "rank"), nullable=False),
        *_columns((pa.int64(), "log_key"), (TEXT, "log module direction kind")),
        *_columns((pa.string(), "component text advice"), (pa.float64(), "factor share")),
        *_columns((pa.int64(), "bytes requests files critical_files")),
        *_columns((pa.float64(), "busy_seconds busy_lower_seconds span_seconds mib_per_second top_share")),
    ]
)
"""The verdict on the Darshan logs of a job, by the names of `laggard mine --json`.

A row a `record` (log, io, finding, not_judged), in order by `rank`. `log_key`: number of a log by its path,
size and time.
"""

OF_JOBS: Final = {
    "jobs": JOBS,
    "job_nodes": JOB_NODES,
    "paths": PATHS,
    "job_series": JOB_SERIES,
    "job_components": JOB_COMPONENTS,
    "job_summaries": JOB_SUMMARIES,
    "job_findings": JOB_FINDINGS,
    "job_traces": JOB_TRACES,
    "job_logs": JOB_LOGS,
}
"""Schemas by kind; `series60` has a schema for each source (`series60.py`)."""
