"""The pass that merges the traces of finished jobs: table `job_traces`, kept as long as the jobs.

A job's records of all its nodes become blocks once no more are waited for. Until then, and where the
archive's raw data expires before, readers use the documents. A pass that is killed is done again.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, day_of, rows_table
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.rollups.series60 import PassStoppedError
from laggard_aggregator.jobs.tables import JOB_TRACES
from laggard_aggregator.jobs.traces.job_traces import LATE_DAYS, JobTraces
from laggard_aggregator.jobs.traces.merged_block import MAX_RECORDS, merged
from laggard_common.errors import ArchiveError
from laggard_common.wire.trace_document import TRACES

_READER: Final = Principal("", Role.ADMIN)
_MAX_DIGITS: Final = 19


class TracePass:
    """Merges traces of the jobs of `index`, in the archive in `directory`."""

    def __init__(self, directory: Path, site: str, index: JobIndex) -> None:
        self._directory, self._site, self._index = directory, site, index
        self._done: set[str] = set()
        """Days whose documents belong to jobs that were merged; found again after a restart."""
        self._tried: dict[str, str] = {}
        """When other days were last read: a job of theirs runs or is not known yet."""

    def run(self, now_ns: int, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Merges the traces of jobs that are due, while `goes_on()`; returns the number of jobs.

        A day is read once a day until all its jobs are merged. Raises LaggardError, at the end where it is
        about some jobs only.
        """
        now = now_ns / 1e9
        today, last_day = day_of(now), day_of(now - (LATE_DAYS + 1) * 86_400.0)
        days = set(Table(self._directory, "events", TRACES).days(last_day=last_day))
        self._done &= days
        due = sorted(day for day in days - self._done if self._tried.get(day) != today)
        count = 0
        failed: list[Exception] = []
        queries = JobQueries(self._index)
        try:
            for day in due:
                waits, before = False, len(failed)
                for job in self._jobs(queries, day):
                    if job is None or job["end"] is None or day_of(job["end"]) > last_day:
                        waits = True
                        continue
                    try:
                        count += self._merge(queries, job, now_ns, goes_on)
                    except ArchiveError as exc:
                        failed.append(exc)  # tried again in the next pass
                if waits:
                    self._tried[day] = today
                elif len(failed) == before:
                    self._done.add(day)
        except PassStoppedError:
            return count
        finally:
            queries.close()
        if failed:
            raise ArchiveError(str(self._directory), str(failed[0]))
        return count

    def _jobs(self, queries: JobQueries, day: str) -> Iterator[VisibleJob | None]:
        """Yields the jobs with the numbers of a day's documents; None for a number without one."""
        for number in sorted(self._numbers(day)):
            known = number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS
            runs = queries.of_number(_READER, int(number)) if known else []
            yield from runs
            if not runs:
                yield None

    def _numbers(self, day: str) -> set[str]:
        """Numbers of jobs in a day's documents."""
        documents = Table(self._directory, "events", TRACES).scan(["job"], first_day=day, last_day=day)
        return {number for table in documents for number in pc.unique(table["job"]).to_pylist()} - {""}

    def _merge(self, queries: JobQueries, job: VisibleJob, now_ns: int, goes_on: Callable[[], bool]) -> int:
        """Writes the blocks of a job; returns 0 where it has them, or no records.

        Raises PassStoppedError and ArchiveError.
        """
        if next(JobResults(self._directory).trace_blocks(job), None):
            return 0
        tables = JobTraces(self._directory, queries).tables(job)
        rows = self._rows(tables, job, now_ns, goes_on)
        first = next(rows, None)
        if first is None:
            return 0
        traces = Table(self._directory, "job_traces", site=self._site)
        traces.append(day_of(job["end"]), chain([first], rows), now_ns, JOB_TRACES)
        return 1

    def _rows(
        self, tables: Iterator[pa.Table], job: VisibleJob, now_ns: int, goes_on: Callable[[], bool]
    ) -> Iterator[pa.Table]:
        """Yields a table of one row for each block; of the records, one block's are in memory."""
        for records in _regrouped(tables, MAX_RECORDS):
            if not goes_on():
                raise PassStoppedError
            row = {
                "job_key": job["job_key"],
                "revision_at": now_ns,
                "records": records.num_rows,
                "first_ns": pc.min(records["first_ns"]).as_py(),
                "last_ns": pc.max(records["last_ns"]).as_py(),
                "block": merged(records),
            }
            yield rows_table(JOB_TRACES, [row])


def _regrouped(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yields the same rows as tables of `rows`, the last of fewer."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        while sum(block.num_rows for block in waiting) >= rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, rows)
            waiting = [joined.slice(rows)]
    if any(block.num_rows for block in waiting):
        yield pa.concat_tables(waiting)
