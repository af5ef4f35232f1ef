"""Jobs and their nodes in the archive: appends revisions, one of a key at most, and reads the last ones.

Any number of processes may append: each holds a lock while it compares its records with the archive's and
writes. A job's nodes are written before the job, so that a job in the archive has its nodes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.archive.table import TIME, Table, day_of, last_revisions
from laggard_aggregator.jobs.records.hostlist import expand
from laggard_aggregator.jobs.records.model import JobDataError, ReadReport
from laggard_aggregator.jobs.records.revisions import LastRevisions, revisions
from laggard_aggregator.jobs.tables import JOB_NODES, JOBS
from laggard_common.errors import InputError

MAX_WAITING_ROWS: Final = 250_000
"""Rows that wait in memory for a flush: many days at a time are written as few files."""
NODE_ROWS: Final = 250_000
"""Rows of nodes made at a time."""


class JobStore:
    """The jobs of an archive. `report` counts node lists that cannot be used.

    `added`: revisions written so far. Records that were in a damaged file are written again where they come
    again. Raises ArchiveError and ConfigError.
    """

    def __init__(self, directory: Path, site: str, report: ReadReport | None = None) -> None:
        self._jobs = Table(directory, "jobs", site=site, is_strict=True)
        self._nodes_of_jobs = Table(directory, "job_nodes", site=site)
        self._report = report if report is not None else ReadReport()
        self._known = LastRevisions()
        self._seen: dict[str, int] = {}
        self._damaged: dict[str, int] = {}
        self._waiting: list[pa.Table] = []
        self.added = 0

    def add(self, jobs: pa.Table) -> None:
        """Adds records with the columns of JOBS; writes them when enough wait."""
        if len(jobs):
            self._waiting.append(jobs)
        if sum(map(len, self._waiting)) >= MAX_WAITING_ROWS:
            self.flush()

    def discard(self) -> None:
        """Forgets the records that wait, as those of an input that turned out to be unreadable."""
        self._waiting = []

    def flush(self, now_ns: int | None = None) -> None:
        """Writes the waiting records that are new, or later than the archive's."""
        if not self._waiting:
            return
        jobs = pa.concat_tables(self._waiting).unify_dictionaries()
        now_ns = now_ns if now_ns is not None else int(datetime.now(UTC).timestamp() * 1e9)
        records = revisions(jobs)
        with self._jobs.locked():
            self._read_known(day_of(float(pc.min(jobs["submit"]).as_py())))
            rows, revision_at = self._known.changes(records)
            self._write(jobs.take(pa.array(rows)), revision_at, now_ns)
            known = records[rows]
            known["revision_at"] = revision_at
            self._known.add(known)
        self._waiting = []
        self.added += len(rows)

    def restore_nodes(self, day: str, now_ns: int) -> None:
        """Writes the nodes of the jobs of a day whose rows of kind `job_nodes` are missing."""
        with self._jobs.locked():
            table = Table(self._jobs.directory, "jobs", site=self._jobs.site)
            jobs = last_revisions(table.read(JOBS, first_day=day, last_day=day))
            at = JOBS.get_field_index("doubtful")  # unknown in files of early versions
            jobs = jobs.set_column(at, JOBS.field(at), pc.fill_null(jobs["doubtful"], True))
            self._write_nodes(day, self._without_nodes(day, jobs), now_ns)

    def _without_nodes(self, day: str, jobs: pa.Table) -> pa.Table:
        """Those of the jobs of a day whose nodes the archive lacks."""
        nodes = self._nodes_of_jobs.read(JOB_NODES, first_day=day, last_day=day)
        return jobs.filter(pc.invert(pc.is_in(_revision_keys(jobs), _revision_keys(nodes))))

    def _read_known(self, first_day: str) -> None:
        """Reads the revisions that the archive has, all again where one of its files is damaged."""
        while True:
            if self._jobs.newly_damaged_days(self._damaged):
                self._known, self._seen = LastRevisions(), {}
            try:
                for file in self._jobs.new_since(self._seen, first_day=first_day):
                    for table in file.scan():
                        self._known.add(revisions(_filled(table)))
            except InputError as exc:
                self._jobs.set_aside(exc)
            else:
                return

    def _write(self, jobs: pa.Table, revision_at: NDArray[np.int64], now_ns: int) -> None:
        """Writes rows as parts of the days of their end, else of their start or submission."""
        if not len(jobs):
            return
        times = pa.array(revision_at).cast(TIME)
        jobs = jobs.set_column(JOBS.get_field_index("revision_at"), JOBS.field("revision_at"), times)
        moment = pc.coalesce(jobs["end"], jobs["start"], jobs["submit"].cast(pa.float64()))
        days = np.floor(moment.to_numpy() / 86_400).astype(np.int64)
        order = np.lexsort([jobs["raw_id"].to_numpy(), jobs["submit"].to_numpy(), days])
        bounds = np.flatnonzero(np.diff(days[order], prepend=-1))
        for first, last in zip(bounds, [*bounds[1:], len(order)], strict=True):
            rows = order[first:last]
            of_day = jobs.take(pa.array(rows)).unify_dictionaries()
            day = day_of(float(days[rows[0]]) * 86_400)
            again = day in self._damaged  # jobs with nodes that were not damaged with them
            self._write_nodes(day, self._without_nodes(day, of_day) if again else of_day, now_ns)
            self._seen[day] = self._jobs.append(day, [of_day], now_ns, JOBS).last

    def _write_nodes(self, day: str, jobs: pa.Table, now_ns: int) -> None:
        nodes = self._nodes(jobs)
        first = next(nodes, None)
        if first is not None:
            self._nodes_of_jobs.append(day, chain([first], nodes), now_ns, JOB_NODES)

    def _nodes(self, jobs: pa.Table) -> Iterator[pa.Table]:
        """Yields the nodes of started jobs, a bounded number of rows at a time."""
        started = jobs.filter(pc.and_(pc.is_valid(jobs["start"]), pc.not_equal(jobs["node_list"], "")))
        coded = started["node_list"].combine_chunks().dictionary_encode()
        codes = np.asarray(coded.indices)
        first = _first_jobs(started, codes)
        lists = [
            self._expanded(text, first[code]) if code in first else ()
            for code, text in enumerate(coded.dictionary.to_pylist())
        ]
        counts = np.array([*map(len, lists)], np.int64)[codes] if len(codes) else np.zeros(0, np.int64)
        at = 0
        ends = np.cumsum(counts)
        while at < len(codes):
            before = ends[at - 1] if at else 0
            to = max(int(np.searchsorted(ends, before + NODE_ROWS, "right")), at + 1)
            names = [name for code in codes[at:to] for name in lists[code]]
            if names:
                yield _node_rows(started.slice(at, to - at), counts[at:to], names)
            at = to

    def _expanded(self, text: str, job: str) -> tuple[str, ...]:
        try:
            return expand(text)
        except JobDataError as exc:
            self._report.bad_node_lists += 1
            self._report.name(f"job {job}", "node list", str(exc))
            return ()


def _filled(jobs: pa.Table) -> pa.Table:
    """Rows of the archive with the columns of JOBS, null where their file lacks one."""
    return pa.concat_tables([JOBS.empty_table(), jobs], promote_options="default").select(JOBS.names)


def _first_jobs(jobs: pa.Table, codes: NDArray[Any]) -> dict[int, str]:
    """The first job with each code that any has."""
    used, first = np.unique(codes, return_index=True)
    return dict(zip(used.tolist(), jobs["job"].take(pa.array(first)).to_pylist(), strict=True))


def _node_rows(jobs: pa.Table, counts: NDArray[np.int64], names: list[str]) -> pa.Table:
    """A row for each node of each job."""
    owner = pa.array(np.repeat(np.arange(len(jobs)), counts))
    columns = {
        name: pa.array(names).dictionary_encode() if name == "node" else jobs[name].take(owner)
        for name in JOB_NODES.names
    }
    return pa.table([columns[field.name] for field in JOB_NODES], schema=JOB_NODES).unify_dictionaries()


def last_nodes(nodes: pa.Table, jobs: pa.Table) -> pa.Table:
    """The rows of kind `job_nodes` that belong to the revisions `jobs`; rows of source cgroup all count."""
    counts = pc.is_in(_revision_keys(nodes), _revision_keys(jobs))
    return nodes.filter(pc.or_(counts, pc.equal(nodes["source"].cast(pa.string()), "cgroup")))


def _revision_keys(rows: pa.Table) -> pa.Array:
    """A text for each row that names its job and revision."""
    revision = rows["revision_at"].cast(pa.int64()).cast(pa.string())
    keys = pc.binary_join_element_wise(rows["job_key"], revision, "\x1f")
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
