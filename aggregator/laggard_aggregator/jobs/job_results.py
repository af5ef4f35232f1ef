"""Results of one job from the archive: its series and its components.

The day of a job's results is that of its end, so one folder is read, and of its files the row groups that
have the job.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.part_reader import set_aside
from laggard_aggregator.jobs.principals import Principal
from laggard_aggregator.jobs.queries import JobQueries, Row
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
        found = []
        for table in self._rows(principal, "job_series", job_key):
            lists = [each.name for each in table.schema if pa.types.is_list(each.type)]
            for at, row in enumerate(table.drop_columns(lists).to_pylist()):
                found.append(row | {name: _values(table[name], at) for name in lists})
        return found

    def components(self, principal: Principal, job_key: str) -> list[Row]:
        """Rows of `job_components`, none of a job that may not be seen."""
        return [
            row
            for table in self._rows(principal, "job_components", job_key)
            for row in table.drop_columns(["revision_at"]).to_pylist()
        ]

    def _rows(self, principal: Principal, kind: str, job_key: str) -> list[pa.Table]:
        """The rows of the last revision. Raises ArchiveError."""
        job = self._queries.job(principal, job_key)
        if job is None or job["end"] is None:
            return []
        day = layout.stamp(int(job["end"] * 1e9))
        date = f"{day[:4]}-{day[4:6]}-{day[6:8]}"
        found = self._of_day(kind, date, job_key)
        if not found:
            return []
        table = pa.concat_tables(found, promote_options="default").unify_dictionaries()
        last = pc.max(table["revision_at"])
        return [table.filter(pc.equal(table["revision_at"], last))]

    def _of_day(self, kind: str, date: str, job_key: str) -> list[pa.Table]:
        sites = layout.folder(self._directory, kind, layout.OWN, date, "").parent
        for _ in range(_LISTINGS):
            found: list[pa.Table] = []
            try:
                for where in sorted(sites.glob("site=*")):
                    for part in layout.parts(where):
                        found += _matching(part, job_key)
            except FileNotFoundError:
                continue  # merged since it was listed
            except layout.DamagedPartError as exc:
                set_aside(exc)
                continue
            except OSError as exc:
                raise ArchiveError(str(sites), exc.strerror or str(exc)) from exc
            return found
        raise ArchiveError(str(sites), "files change faster than they can be read")


def _matching(part: layout.Part, job_key: str) -> list[pa.Table]:
    """Rows of a job in a file; of most row groups the keys alone are read."""
    found = []
    with layout.page_checked_file(part) as file:
        at = file.schema_arrow.names.index("job_key")
        for group in range(file.num_row_groups):
            known = file.metadata.row_group(group).column(at).statistics
            if known is not None and known.has_min_max and not known.min <= job_key <= known.max:
                continue
            keys = file.read_row_group(group, columns=["job_key"], use_threads=False)["job_key"]
            chosen = pc.equal(keys, job_key)
            if pc.any(chosen).as_py():
                found.append(file.read_row_group(group, use_threads=False).filter(chosen))
    return found


def _values(column: pa.ChunkedArray, at: int) -> Any:
    value = column[at].values
    if value is None:
        return None
    return np.asarray(value.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
