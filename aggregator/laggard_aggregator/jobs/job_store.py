"""Jobs and their nodes in the archive: appends revisions, one of a key at most, and reads the last ones.

Any number of processes may append: each holds a lock while it compares its records with the archive's and
writes. A job's nodes are written before the job, so that a job in the archive has its nodes.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.tables import TIME
from laggard_aggregator.jobs.metadata.hostlist import expand
from laggard_aggregator.jobs.metadata.report import ReadReport
from laggard_aggregator.jobs.metadata.revisions import LastRevisions, revisions
from laggard_aggregator.jobs.model import JobDataError
from laggard_aggregator.jobs.tables import JOB_NODES, JOBS
from laggard_common.errors import ArchiveError, ConfigError, InputError

MAX_WAITING_ROWS: Final = 250_000
"""Rows that wait in memory for a flush: many days at a time are written as few files."""
NODE_ROWS: Final = 250_000
"""Rows of nodes made at a time."""


class JobStore:
    """The jobs of an archive. `report` counts node lists that cannot be used.

    `added`: revisions written so far. Raises ArchiveError and ConfigError.
    """

    def __init__(self, directory: Path, site: str, report: ReadReport | None = None) -> None:
        self._directory = directory
        self._site = site
        self._report = report if report is not None else ReadReport()
        self._known = LastRevisions()
        self._seen: dict[Path, list[layout.Part]] = {}
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
        stamp = layout.stamp(now_ns if now_ns is not None else int(datetime.now(UTC).timestamp() * 1e9))
        found = revisions(jobs)
        _check_owner(self._directory)
        with self._locked():
            self._refresh(_day(float(pc.min(jobs["submit"]).as_py())))
            rows, revision_at = self._known.changes(found)
            self._write(jobs.take(pa.array(rows)), revision_at, stamp)
            known = found[rows]
            known["revision_at"] = revision_at
            self._known.add(known)
        self._waiting = []
        self.added += len(rows)

    def _write(self, jobs: pa.Table, revision_at: NDArray[np.int64], stamp: str) -> None:
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
            day = _day(float(days[rows[0]]) * 86_400)
            nodes = self._nodes(of_day)
            first_nodes = next(nodes, None)
            if first_nodes is not None:
                self._part("job_nodes", day, stamp, _chain(first_nodes, nodes))
            self._part("jobs", day, stamp, iter([of_day]))

    def _part(self, kind: str, day: str, stamp: str, tables: Iterator[pa.Table]) -> None:
        where = layout.folder(self._directory, kind, layout.OWN, day, self._site)
        number = layout.next_part(where)
        path = layout.write_part(
            where, stamp, (number, number), JOBS if kind == "jobs" else JOB_NODES, tables
        )
        if kind == "jobs" and where in self._seen:
            self._seen[where].append(layout.Part(where, path.name, number, number))

    def _nodes(self, jobs: pa.Table) -> Iterator[pa.Table]:
        """Yields the nodes of started jobs, a bounded number of rows at a time."""
        started = jobs.filter(pc.and_(pc.is_valid(jobs["start"]), pc.not_equal(jobs["node_list"], "")))
        coded = started["node_list"].combine_chunks().dictionary_encode()
        codes = np.asarray(coded.indices)
        lists = [self._expanded(text) for text in coded.dictionary.to_pylist()]
        counts = (
            np.array([len(each) for each in lists], np.int64)[codes] if len(codes) else np.zeros(0, np.int64)
        )
        at = 0
        ends = np.cumsum(counts)
        while at < len(codes):
            before = ends[at - 1] if at else 0
            to = max(int(np.searchsorted(ends, before + NODE_ROWS, "right")), at + 1)
            names = [name for code in codes[at:to] for name in lists[code]]
            if names:
                yield _node_rows(started.slice(at, to - at), counts[at:to], names)
            at = to

    def _expanded(self, text: str) -> tuple[str, ...]:
        try:
            return expand(text)
        except JobDataError as exc:
            self._report.bad_node_lists += 1
            self._report.name(0, "node list", str(exc))
            return ()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes from writing jobs. Raises ArchiveError."""
        where = self._directory / "kind=jobs"
        try:
            layout.make_folder(where)
            with (where / ".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as exc:
            raise ArchiveError(str(where), exc.strerror or str(exc)) from exc

    def _refresh(self, first_day: str) -> None:
        """Reads the revisions of parts that are new since the last time, from `first_day` on."""
        for day, where in layout.days(self._directory, "jobs", layout.OWN, self._site):
            if day < first_day:
                continue
            parts = layout.parts(where)
            while (part := self._next_unseen(where, parts)) is not None:
                try:
                    self._known.add(revisions(_read(part)))
                except FileNotFoundError:  # merged since it was listed
                    parts = layout.parts(where)
                else:
                    self._seen[where].append(part)
            self._seen[where] = parts

    def _next_unseen(self, where: Path, parts: list[layout.Part]) -> layout.Part | None:
        """The first of `parts` whose rows were not seen, in it or in the parts that it merged."""
        seen = self._seen.setdefault(where, [])
        numbers = {number for each in seen for number in range(each.first, each.last + 1)}
        unseen = (part for part in parts if not numbers.issuperset(range(part.first, part.last + 1)))
        return next(unseen, None)


def _read(part: layout.Part) -> pa.Table:
    """The rows of a part with the columns of JOBS. Raises InputError for a damaged one."""
    try:
        with layout.checked_file(part) as file:
            table = file.read()
    except layout.DamagedPartError as exc:
        raise InputError(str(part.path), f"damaged: {exc.reason}") from exc
    missing = [each for each in JOBS if each.name not in table.column_names]
    for each in missing:
        table = table.append_column(each, pa.nulls(len(table), each.type))
    return table.select(JOBS.names)


def _node_rows(jobs: pa.Table, counts: NDArray[np.int64], names: list[str]) -> pa.Table:
    """A row for each node of each job."""
    owner = pa.array(np.repeat(np.arange(len(jobs)), counts))
    columns = {
        each.name: pa.array(names).dictionary_encode() if each.name == "node" else jobs[each.name].take(owner)
        for each in JOB_NODES
    }
    return pa.table([columns[each.name] for each in JOB_NODES], schema=JOB_NODES).unify_dictionaries()


def _chain(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from others


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _check_owner(directory: Path) -> None:
    """Raises ConfigError for another user's archive: its retention could not delete the files again."""
    try:
        owner = directory.stat().st_uid
    except FileNotFoundError:
        return
    except OSError as exc:
        raise ArchiveError(str(directory), exc.strerror or str(exc)) from exc
    if owner != os.geteuid():
        raise ConfigError(
            "", [f"--archive: {directory} belongs to user {owner}: run this command as that user"]
        )


def last_revisions(jobs: pa.Table) -> pa.Table:
    """The rows of a table of kind `jobs` that count: of each key the one with the last `revision_at`."""
    if not len(jobs):
        return jobs
    keys = jobs["job_key"].combine_chunks().dictionary_encode()
    codes = np.asarray(
        keys.indices if not isinstance(keys, pa.ChunkedArray) else keys.combine_chunks().indices
    )
    times = jobs["revision_at"].cast(pa.int64()).to_numpy()
    order = np.lexsort([times, codes])
    is_last = np.ones(len(order), bool)
    is_last[:-1] = codes[order][1:] != codes[order][:-1]
    return jobs.take(pa.array(np.sort(order[is_last])))


def last_nodes(nodes: pa.Table, jobs: pa.Table) -> pa.Table:
    """The rows of kind `job_nodes` that belong to the revisions `jobs`; rows of source cgroup all count."""
    own = jobs.select(["job_key", "revision_at"])
    keys = [
        pc.binary_join_element_wise(
            each["job_key"], each["revision_at"].cast(pa.int64()).cast(pa.string()), "\x1f"
        )
        for each in (nodes, own)
    ]
    counts = pc.is_in(keys[0], keys[1].combine_chunks() if isinstance(keys[1], pa.ChunkedArray) else keys[1])
    return nodes.filter(pc.or_(counts, pc.equal(nodes["source"].cast(pa.string()), "cgroup")))
