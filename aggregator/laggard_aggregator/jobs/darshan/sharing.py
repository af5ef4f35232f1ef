"""Sharing of files (IOMiner III-D): the I/O modes of the jobs of a store, by the rules for traces."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from laggard_aggregator.jobs.darshan.engines import LogEngine
from laggard_aggregator.jobs.darshan.job_tables import JobTables
from laggard_aggregator.jobs.traces.io_modes import FileAccess, ModeShares, io_modes, main_mode

_FILES: Final = """
with of_log as (
  select d.job_id, d.run, d.uid, f.log, f.file_id, f.rank, min(f.name) as name, max(f.processes) as processes,
         sum(f.bytes_read) as bytes_read, sum(f.bytes_written) as bytes_written
  from darshan_file f join log_runs d on d.log = f.log
  where f.module in ('POSIX', 'STDIO') and not (f.name like '<%' and f.name like '%>')
  group by d.job_id, d.run, d.uid, f.log, f.file_id, f.rank
)
select o.*, j.processes as of_job
from of_log o join job j on j.job_id = o.job_id and j.run = o.run and j.uid = o.uid
where j.processes > 1 order by o.job_id, o.run, o.uid
"""
"""A row a file and its process, or its record that all processes of a log have in common; the standard
streams (`<STDOUT>`) are no files."""
_STREAM: Final = re.compile("<.*>", re.DOTALL)
_SCHEMA: Final = pa.schema(
    [
        ("pattern", pa.string()),
        ("jobs", pa.int64()),
        *((name, pa.float64()) for name in ("share", "least_ratio", "largest_ratio")),
    ]
)


def sharing(engine: LogEngine) -> pa.Table:
    """Jobs by the mode of nine tenths of their bytes; ratios of processes to files."""
    ratios: dict[str, list[float]] = {}
    rows = (row for batch in engine.query(_FILES).to_batches(10_000) for row in batch.to_pylist())
    for _, group in groupby(rows, lambda row: (row["job_id"], row["run"], row["uid"])):
        files = list(group)
        processes = files[0]["of_job"]
        mode = main_mode(io_modes(_accesses(files), processes))
        ratios.setdefault(mode, []).append(processes / len({row["file_id"] for row in files}))
    total = sum(map(len, ratios.values()))
    shared = [
        {
            "pattern": mode,
            "jobs": len(of_mode),
            "share": len(of_mode) / total,
            "least_ratio": min(of_mode),
            "largest_ratio": max(of_mode),
        }
        for mode, of_mode in sorted(ratios.items())
    ]
    return pa.Table.from_pylist(shared, _SCHEMA)


def log_modes(tables: JobTables) -> dict[str, ModeShares]:
    """I/O modes by direction of a job by its logs."""
    columns = ["module", "log", "rank", "file_id", "name", "processes", "bytes_read", "bytes_written"]
    rows = [
        row
        for row in tables.files.select(columns).to_pylist()
        if row["module"] in ("POSIX", "STDIO") and not _STREAM.fullmatch(row["name"] or "")
    ]
    return io_modes(_accesses(rows), tables.processes)


def _accesses(files: list[Mapping[str, Any]]) -> Iterator[FileAccess]:
    for row in files:
        for direction, column in (("read", "bytes_read"), ("write", "bytes_written")):
            if row[column]:
                rank = f"{row['log']}:{row['rank']}"
                name = row["name"] or f"#{row['file_id']}"
                yield FileAccess(rank, name, direction, int(row[column]), row["processes"])
