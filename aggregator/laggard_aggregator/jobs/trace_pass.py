"""The pass that merges the traces of finished jobs: table `job_traces`, kept as long as the jobs.

A job's records of all its nodes become blocks once no more are waited for. Until then, and where the
archive's raw data expires before, readers use the documents. A pass that is killed is done again.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.part_reader import set_aside
from laggard_aggregator.jobs.index import JobIndex
from laggard_aggregator.jobs.index_reader import Row
from laggard_aggregator.jobs.job_results import JobResults
from laggard_aggregator.jobs.merged_block import MAX_RECORDS, merged
from laggard_aggregator.jobs.principals import Principal, Role
from laggard_aggregator.jobs.queries import JobQueries
from laggard_aggregator.jobs.result_parts import result_table, write_tables
from laggard_aggregator.jobs.series60 import PassStoppedError
from laggard_aggregator.jobs.tables import JOB_TRACES
from laggard_aggregator.jobs.traces import LATE_DAYS, JobTraces
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
        """When other days were read last, as a job of theirs runs, or is not known yet."""

    def run(self, now_ns: int, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Merges the traces of jobs that are due, while `goes_on()`; returns the number of jobs.

        A day is read once a day until all its jobs are merged. Raises LaggardError, at the end where it is
        about some jobs only.
        """
        now = datetime.fromtimestamp(now_ns / 1e9, UTC)
        today, last_day = (each.date().isoformat() for each in (now, now - timedelta(days=LATE_DAYS + 1)))
        try:
            days = {day for day, _ in layout.days(self._directory, "events", TRACES) if day <= last_day}
        except OSError as exc:
            raise ArchiveError(str(self._directory), exc.strerror or str(exc)) from exc
        self._done &= days
        due = sorted(day for day in days - self._done if self._tried.get(day) != today)
        count = 0
        failed: list[Exception] = []
        queries = JobQueries(self._index)
        try:
            for day in due:
                waits, before = False, len(failed)
                for job in self._jobs(queries, day):
                    if job is None or job["end"] is None or _date(job["end"]) > last_day:
                        waits = True
                        continue
                    try:
                        count += self._merge(queries, job, now_ns, goes_on)
                    except (ArchiveError, OSError) as exc:
                        failed.append(exc)  # tried again in the next pass
                if waits:
                    self._tried[day] = today
                elif len(failed) == before:
                    self._done.add(day)
        except (PassStoppedError, FileNotFoundError):  # the latter: merged since it was listed
            return count
        finally:
            queries.close()
        if failed:
            raise ArchiveError(str(self._directory), str(failed[0]))
        return count

    def _jobs(self, queries: JobQueries, day: str) -> Iterator[Row | None]:
        """Yields the jobs with the numbers of a day's documents; None for a number without one."""
        for number in sorted(self._numbers(day)):
            known = number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS
            found = queries.of_number(_READER, int(number)) if known else []
            yield from found
            if not found:
                yield None

    def _numbers(self, day: str) -> set[str]:
        """Numbers of jobs in a day's documents. Raises FileNotFoundError where a file was merged."""
        found: set[str] = set()
        for each, where in layout.days(self._directory, "events", TRACES):
            for part in layout.parts(where) if each == day else ():
                try:
                    with layout.page_checked_file(part) as file:
                        for group in range(file.num_row_groups):
                            jobs = file.read_row_group(group, columns=["job"], use_threads=False)["job"]
                            found.update(pc.unique(jobs).to_pylist())
                except layout.DamagedPartError as exc:
                    set_aside(exc)
        return found - {""}

    def _merge(self, queries: JobQueries, job: Row, now_ns: int, goes_on: Callable[[], bool]) -> int:
        """Writes the blocks of a job; returns 0 where it has them, or no records.

        Raises PassStoppedError, ArchiveError and OSError.
        """
        try:
            if next(JobResults(self._directory, queries).trace_blocks(_READER, job["job_key"]), None):
                return 0
            tables = JobTraces(self._directory, queries).tables(_READER, job)
            rows = self._rows(tables, job, now_ns, goes_on)
            first = next(rows, None)
            if first is None:
                return 0
            where = layout.folder(self._directory, "job_traces", layout.OWN, _date(job["end"]), self._site)
            write_tables(where, JOB_TRACES, chain([first], rows), now_ns)
        except layout.DamagedPartError as exc:
            set_aside(exc)
            raise ArchiveError(str(self._directory), str(exc)) from exc
        return 1

    def _rows(
        self, tables: Iterator[pa.Table], job: Row, now_ns: int, goes_on: Callable[[], bool]
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
            yield result_table(JOB_TRACES, [row])


def _regrouped(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yields the same rows as tables of `rows`, the last of fewer."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        while sum(each.num_rows for each in waiting) >= rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, rows)
            waiting = [joined.slice(rows)]
    if any(each.num_rows for each in waiting):
        yield pa.concat_tables(waiting)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
