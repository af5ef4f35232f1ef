"""Results of one job from the archive: its series and its components.

The day of a job's results is that of its end, so one folder is read, and of its files the row groups that
have the job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Among, Table, Within, day_of, last_revisions
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.tables import OF_JOBS


class JobResults:
    """Results of the jobs of the archive in `directory`. Raises ArchiveError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def series(self, job: VisibleJob) -> list[Row]:
        """Rows of `job_series`, a null element of their lists is a gap.

        Lists are arrays of float64 (T,), NaN in gaps.
        """
        return list(_records(self._rows("job_series", job)))

    def components(self, job: VisibleJob) -> list[Row]:
        """Rows of `job_components`."""
        rows: list[Row] = self._rows("job_components", job).drop_columns(["revision_at"]).to_pylist()
        return rows

    def logs(self, job: VisibleJob) -> list[Row]:
        """Rows of `job_logs` in their order: the verdict on its Darshan logs."""
        rows: list[Row] = self._rows("job_logs", job).sort_by("rank").to_pylist()
        return rows

    def trace_blocks(self, job: VisibleJob) -> Iterator[bytes]:
        """Yields the blocks of `job_traces`."""
        if job["end"] is None:
            return
        traces, day, own = (
            Table(self._directory, "job_traces"),
            day_of(job["end"]),
            Among("job_key", [job.key]),
        )
        last = max(
            (
                at
                for table in traces.scan(["revision_at"], own, first_day=day, last_day=day)
                for at in table["revision_at"].cast(pa.int64()).to_pylist()
            ),
            default=None,
        )
        if last is not None:
            for table in traces.scan(
                ["revision_at", "block"],
                own,
                Within("revision_at", last, last + 1),
                first_day=day,
                last_day=day,
            ):
                yield from table["block"].to_pylist()

    def components_of(self, jobs: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
        """Rows of `job_components` by key, of finished `jobs` that a query gave; each day is read once.

        Nobody's access is checked: for sums over jobs.
        """
        return _by_key(self._of_days("job_components", jobs))

    def whole_series_of(self, jobs: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
        """Rows of `job_series` that are sums over a job's nodes, as `components_of`."""
        tables = self._of_days("job_series", jobs)
        return _by_key(table.filter(pc.is_null(table["node"])) for table in tables)

    def _of_days(self, kind: str, jobs: Iterable[Mapping[str, Any]]) -> Iterator[pa.Table]:
        """Yields the rows of the last revisions of `jobs`, a table for each day on which some ended."""
        days: dict[str, list[str]] = {}
        for job in jobs:
            if job["end"] is not None:
                days.setdefault(day_of(job["end"]), []).append(job["job_key"])
        for day, keys in days.items():
            yield self._of_day(kind, day, keys)

    def _rows(self, kind: str, job: VisibleJob) -> pa.Table:
        """The rows of the last revision."""
        if job["end"] is None:
            return OF_JOBS[kind].empty_table()
        return self._of_day(kind, day_of(job["end"]), [job.key])

    def _of_day(self, kind: str, day: str, keys: Sequence[str]) -> pa.Table:
        """The rows of the last revisions of some jobs that ended on a day."""
        own = Among("job_key", keys)
        return last_revisions(
            Table(self._directory, kind).read(OF_JOBS[kind], own, first_day=day, last_day=day)
        )


def _by_key(tables: Iterable[pa.Table]) -> dict[str, list[Row]]:
    rows_of: dict[str, list[Row]] = {}
    for table in tables:
        for row in _records(table):
            rows_of.setdefault(row["job_key"], []).append(row)
    return rows_of


def _records(table: pa.Table) -> Iterator[Row]:
    """Yields rows; lists are arrays."""
    lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
    for at, row in enumerate(table.drop_columns(lists).to_pylist()):
        yield row | {name: _values(table[name], at) for name in lists}


def _values(column: pa.ChunkedArray, at: int) -> Any:
    value = column[at].values
    if value is None:
        return None
    return np.asarray(value.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
