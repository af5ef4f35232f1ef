"""Records of job metadata read from files and bytes."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa

from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.sources.inputs import job_tables, stream_tables
from laggard_aggregator.jobs.tables import JOBS

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "jobs"


def read_table(path: Path, form: str = "sacct", cluster: str = "c1", zone: str | None = None) -> pa.Table:
    """The records of a file, as a table of kind `jobs`."""
    tables = job_tables(path, form, cluster, LocalTimes(zone), ReadReport())
    return pa.concat_tables([JOBS.empty_table(), *tables]).unify_dictionaries()


def read_rows(
    path: Path, form: str = "sacct", cluster: str = "c1", zone: str | None = None
) -> tuple[list[dict[str, Any]], ReadReport]:
    """The records of a file as dictionaries, and the report on it."""
    report = ReadReport()
    tables = job_tables(path, form, cluster, LocalTimes(zone), report)
    return [row for table in tables for row in table.to_pylist()], report


def read_bytes(
    data: bytes, form: str = "sacct", cluster: str = "c1", zone: str | None = None
) -> tuple[list[dict[str, Any]], ReadReport]:
    """The same of bytes."""
    report = ReadReport()
    file: Any = io.BufferedReader(io.BytesIO(data))
    tables = stream_tables(file, form, cluster, LocalTimes(zone), report)
    return [row for table in tables for row in table.to_pylist()], report
