"""Hot index of an archive's jobs: an SQLite file for points, lists and neighbours.

All of it is derived: `refresh` adds what the archive has gained, one transaction a file, and an index that is
missing, damaged or of another version is built from the start. Readers work beside the writer (WAL).
Of the revisions of a job the last counts; nodes count with the revision of their job, observed ones always.
"""

import fcntl
import itertools
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from laggard_aggregator.archive.table import Part, Table
from laggard_aggregator.files.sqlite import FAILURES, is_damage
from laggard_aggregator.jobs.index.rows import (
    add_components,
    add_findings,
    add_jobs,
    add_nodes,
    add_summaries,
)
from laggard_aggregator.jobs.index.schema import INDEXES, PAGE_BYTES, TABLES, VERSION
from laggard_common.errors import ArchiveError, InputError

_log = logging.getLogger(__name__)

FILE: Final = "jobs.sqlite"
FOLDER: Final = "index"
BUSY_SECONDS: Final = 30.0
_CACHE_KIB: Final = 65_536

_ADD: Final[dict[str, Callable[[sqlite3.Connection, pa.Table, str], None]]] = {
    "job_nodes": add_nodes,
    "jobs": add_jobs,
    "job_components": add_components,
    "job_summaries": add_summaries,
    "job_findings": add_findings,
}
"""Tables, in the order in which a day is read: a job after its nodes."""
_COLUMNS: Final = {
    "job_nodes": ["job_key", "revision_at", "node", "start", "end", "source"],
    "job_components": ["job_key", "revision_at", "layer", "component"],
}


class JobIndex:
    """The index of the archive in `directory`; `path`: its file, by default inside the archive's folder."""

    def __init__(self, directory: Path, path: Path | None = None) -> None:
        self.directory = directory
        self.path = path if path is not None else directory / FOLDER / FILE
        self._damaged = self.path.with_suffix(".damaged")
        self._left_out: set[Path] = set()

    def refresh(self, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Adds the archive's new files and drops days that are gone; returns the number of files read.

        It ends early, after a file, when `goes_on` is false; the next one adds the rest. A damaged file of
        the archive is set aside, or left where it cannot be, with a WARNING.

        Raises ArchiveError where the index cannot be written.
        """
        try:
            self.path.parent.mkdir(0o750, parents=True, exist_ok=True)
            with self._locked():
                try:
                    return self._refresh(goes_on)
                except FAILURES as exc:
                    if not is_damage(exc):
                        raise
                    self._remove()
                    return self._refresh(goes_on)
        except (OSError, *FAILURES) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            raise ArchiveError(str(self.path), f"the index of jobs cannot be written: {reason}") from exc

    def connect(self) -> sqlite3.Connection:
        """A connection that only reads. Raises ArchiveError."""
        try:
            db = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
            )
            db.execute("pragma query_only = 1")
            db.execute(f"pragma cache_size = -{_CACHE_KIB}")
            if db.execute("pragma user_version").fetchone()[0] != VERSION:
                db.close()
                raise ArchiveError(str(self.path), "the index of jobs is being built")
        except FAILURES as exc:
            raise ArchiveError(str(self.path), f"the index of jobs cannot be read: {exc}") from exc
        return db

    def report(self, exc: Exception) -> None:
        """Has the next `refresh` build the index again where `exc`, of a reader, says that it is damaged."""
        if is_damage(exc):
            with suppress(OSError):  # of a reader that may not write
                self._damaged.touch()

    def file_number(self) -> int:
        """Number of the present file, another after a rebuild. Raises ArchiveError where there is none."""
        try:
            return self.path.stat().st_ino
        except OSError as exc:
            raise ArchiveError(str(self.path), exc.strerror or str(exc)) from exc

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self._damaged.unlink(missing_ok=True)

    def _refresh(self, goes_on: Callable[[], bool]) -> int:
        if self._damaged.exists() or self._is_outdated():
            self._remove()
        with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
            db.execute(f"pragma page_size = {PAGE_BYTES}")  # of a file that is made now
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.execute(f"pragma cache_size = -{_CACHE_KIB}")
            if not db.execute("pragma user_version").fetchone()[0]:
                db.executescript(f"begin;{TABLES}commit;")
            self._drop_gone(db)
            read = 0
            for table, part in self._new_parts(db):
                if not goes_on():
                    return read
                try:
                    read += self._add(db, table, part)
                except InputError as exc:
                    self._leave_out(table, part, exc)
            db.executescript(f"{INDEXES}pragma user_version = {VERSION};")
            refresh_history(db)
            if read:
                db.execute("pragma optimize = 0x10002")
            return read

    def _leave_out(self, table: Table, part: Part, exc: InputError) -> None:
        try:
            table.set_aside(exc)
        except ArchiveError:  # the archive of another user
            if part.path not in self._left_out:
                _log.warning("index of jobs: %s; its rows are left out", exc)
            self._left_out.add(part.path)

    def _is_outdated(self) -> bool:
        if not self.path.exists():
            return False
        with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as db:
            return db.execute("pragma user_version").fetchone()[0] not in (0, -VERSION, VERSION)

    def _new_parts(self, db: sqlite3.Connection) -> list[tuple[Table, Part]]:
        """The archive's files whose rows are missing here, day by day, nodes before jobs."""
        done: dict[str, set[int]] = {}
        for folder, first, last in db.execute("select folder, first, last from parts"):
            done.setdefault(folder, set()).update(range(first, last + 1))
        new = []
        for order, kind in reversed(list(enumerate(_ADD))):  # jobs are listed before their nodes
            table = Table(self.directory, kind, is_strict=True)
            new += [
                (part.day, order, part.first, table, part)
                for part in table.files()
                if not done.get(self._folder(part), set()).issuperset(range(part.first, part.last + 1))
            ]
        new.sort(key=lambda row: row[:3])
        return [(table, part) for *_, table, part in new]

    def _folder(self, part: Part) -> str:
        return str(part.folder.relative_to(self.directory))

    def _add(self, db: sqlite3.Connection, table: Table, part: Part) -> int:
        """Adds a file's rows and its name in one transaction; returns 0 when it was merged meanwhile."""
        kind = table.kind
        db.execute("begin immediate")
        try:
            with table.opened(part) as file:
                if file is None:
                    return 0
                for rows in file.scan(_COLUMNS.get(kind)):
                    _ADD[kind](db, rows, part.day)
            row = (kind, self._folder(part), part.first, part.last)
            db.execute("insert or replace into parts values (?, ?, ?, ?)", row)
            db.execute("commit")
        finally:
            if db.in_transaction:
                db.execute("rollback")
        return 1

    def _drop_gone(self, db: sqlite3.Connection) -> None:
        """Removes jobs of days that the archive's retention deleted."""
        folders = [row[0] for row in db.execute("select distinct folder from parts where kind = 'jobs'")]
        gone = [folder for folder in folders if not (self.directory / folder).is_dir()]
        for folder in gone:
            day = next(p.removeprefix("date=") for p in Path(folder).parts if p.startswith("date="))
            db.execute("begin immediate")
            jobs = [row[0] for row in db.execute("select id from jobs where day = ?", (day,))]
            for job in jobs:
                _forget(db, job)
            db.execute("delete from parts where folder like ?", (f"%/date={day}/{Path(folder).name}",))
            db.execute("commit")


def _forget(db: sqlite3.Connection, job: int) -> None:
    db.execute("delete from boxes where id in (select id from members where job = ?)", (job,))
    db.execute("delete from members where job = ?", (job,))
    for table in ("stays", "uses", "findings"):
        db.execute(f"delete from {table} where job = ?", (job,))  # noqa: S608 - names of this module
    db.execute(
        "insert or ignore into touched select user, account, application, node_count from jobs where id = ?",
        (job,),
    )
    for table in ("verdicts", "summaries", "jobs", "keys"):
        db.execute(f"delete from {table} where id = ?", (job,))  # noqa: S608 - names of this module


_MIN_RUNS = 5
"""Fewer runs than this have no history."""

_RATES = (
    "select t.user, t.account, t.application, t.node_count, j.id, s.rate from touched t"
    " join jobs j on j.user = t.user and j.account = t.account and j.application = t.application"
    " and j.node_count = t.node_count join summaries s on s.id = j.id where s.rate is not null"
    " order by t.user, t.account, t.application, t.node_count"
)


def refresh_history(db: sqlite3.Connection) -> None:
    """Computes the history of groups whose jobs changed, in one transaction."""
    if db.execute("select 1 from touched limit 1").fetchone() is None:
        return
    db.execute("begin immediate")
    try:
        db.execute(
            "delete from history where (user, account, application, node_count) in (select * from touched)"
        )
        for group, rows in itertools.groupby(db.execute(_RATES), key=lambda row: row[:4]):
            _write(db, group, [(row[4], row[5]) for row in rows])
        db.execute("delete from touched")
        db.execute("commit")
    finally:
        if db.in_transaction:
            db.execute("rollback")


def _write(db: sqlite3.Connection, group: tuple[object, ...], rates: list[tuple[int, float]]) -> None:
    if len(rates) < _MIN_RUNS:
        db.executemany("update summaries set ratio = null where id = ?", ((job,) for job, _ in rates))
        return
    low, median, high = np.quantile([rate for _, rate in rates], [0.1, 0.5, 0.9]).tolist()
    db.execute("insert into history values (?, ?, ?, ?, ?, ?, ?, ?)", (*group, len(rates), low, median, high))
    ratios = ((rate / median if median > 0 else None, job) for job, rate in rates)
    db.executemany("update summaries set ratio = ? where id = ?", ratios)
