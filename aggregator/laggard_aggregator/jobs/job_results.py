"""Results of one job from the archive: its series and its components.

The day of a job's results is that of its end, so one folder is read, and of its files the row groups that
have the job.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.part_reader import set_aside
from laggard_aggregator.jobs.index_reader import Row
from laggard_aggregator.jobs.principals import Principal
from laggard_aggregator.jobs.queries import JobQueries
from laggard_common.errors import ArchiveError

_LISTINGS: Final = 3


class JobResults:
    """Results of the jobs of the archive in `directory`; `queries` decides who may see a job."""

    def __init__(self, directory: Path, queries: JobQueries) -> None:
        self._directory = directory
        self._queries = queries

    def series(self, principal: Principal, job_key: str) -> list[Row]:
        """Rows of `job_series`, a null element of their lists is a gap; none of a job that may not be seen.

        Lists are arrays of float64 (T,), NaN in gaps.
        """
        return [row for table in self._rows(principal, "job_series", job_key) for row in _records(table)]

    def components(self, principal: Principal, job_key: str) -> list[Row]:
        """Rows of `job_components`, none of a job that may not be seen."""
        return [
            row
            for table in self._rows(principal, "job_components", job_key)
            for row in table.drop_columns(["revision_at"]).to_pylist()
        ]

    def trace_blocks(self, principal: Principal, job_key: str) -> Iterator[bytes]:
        """Yields the blocks of `job_traces`, none of a job that may not be seen.

        Raises ArchiveError, and FileNotFoundError or DamagedPartError for a file that changed meanwhile.
        """
        job = self._queries.job(principal, job_key)
        if job is None or job["end"] is None:
            return
        kind, date = "job_traces", _date(job["end"])
        found = self._of_day(kind, date, [job_key], ("revision_at",))
        last = max((pc.max(table["revision_at"]).as_py() for table in found), default=None)
        for part in self._parts(kind, date) if last is not None else ():
            for table in matching(part, [job_key]):
                yield from table.filter(pc.equal(table["revision_at"], last))["block"].to_pylist()

    def of_jobs(self, kind: str, jobs: Sequence[Row]) -> dict[str, list[Row]]:
        """Rows of a kind by key, of finished `jobs` that a query gave; each day's files are read once.

        Nobody's access is checked: for sums over jobs. Raises ArchiveError.
        """
        days: dict[str, list[str]] = {}
        for job in jobs:
            if job["end"] is not None:
                days.setdefault(_date(job["end"]), []).append(job["job_key"])
        found: dict[str, list[Row]] = {}
        for day, keys in days.items():
            for table in self._of_day(kind, day, keys):
                for row in _records(table):
                    found.setdefault(row["job_key"], []).append(row)
        return {key: _last(rows) for key, rows in found.items()}

    def _rows(self, principal: Principal, kind: str, job_key: str) -> list[pa.Table]:
        """The rows of the last revision. Raises ArchiveError."""
        job = self._queries.job(principal, job_key)
        if job is None or job["end"] is None:
            return []
        found = self._of_day(kind, _date(job["end"]), [job_key])
        if not found:
            return []
        table = pa.concat_tables(found, promote_options="default").unify_dictionaries()
        last = pc.max(table["revision_at"])
        return [table.filter(pc.equal(table["revision_at"], last))]

    def _parts(self, kind: str, date: str) -> list[layout.Part]:
        sites = layout.folder(self._directory, kind, layout.OWN, date, "").parent
        return [part for where in sorted(sites.glob("site=*")) for part in layout.parts(where)]

    def _of_day(
        self, kind: str, date: str, keys: Collection[str], columns: Sequence[str] | None = None
    ) -> list[pa.Table]:
        for _ in range(_LISTINGS):
            found: list[pa.Table] = []
            try:
                for part in self._parts(kind, date):
                    found += matching(part, keys, columns=columns)
            except FileNotFoundError:
                continue  # merged since it was listed
            except layout.DamagedPartError as exc:
                set_aside(exc)
                continue
            except OSError as exc:
                raise ArchiveError(str(self._directory), exc.strerror or str(exc)) from exc
            return found
        raise ArchiveError(str(self._directory), "files change faster than they can be read")


def matching(
    part: layout.Part,
    keys: Collection[str],
    column: str = "job_key",
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """Yields rows of some jobs in a file, by row group; of most row groups the keys alone are read.

    `columns`: what to read, None for all. Raises OSError, and DamagedPartError.
    """
    wanted = pa.array(sorted(keys), pa.string())
    with layout.page_checked_file(part) as file:
        at = file.schema_arrow.names.index(column)
        for group in range(file.num_row_groups):
            known = file.metadata.row_group(group).column(at).statistics
            if known is not None and known.has_min_max and not any(known.min <= k <= known.max for k in keys):
                continue
            own = file.read_row_group(group, columns=[column], use_threads=False)[column]
            chosen = pc.is_in(own.cast(pa.string()), wanted)
            if pc.any(chosen).as_py():
                yield file.read_row_group(group, columns=columns, use_threads=False).filter(chosen)


def _records(table: pa.Table) -> Iterator[Row]:
    """Yields rows; lists are arrays."""
    lists = [each.name for each in table.schema if pa.types.is_list(each.type)]
    for at, row in enumerate(table.drop_columns(lists).to_pylist()):
        yield row | {name: _values(table[name], at) for name in lists}


def _last(rows: list[Row]) -> list[Row]:
    """Rows of one job that are of its last revision."""
    last = max(row["revision_at"] for row in rows)
    return [row for row in rows if row["revision_at"] == last]


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _values(column: pa.ChunkedArray, at: int) -> Any:
    value = column[at].values
    if value is None:
        return None
    return np.asarray(value.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
