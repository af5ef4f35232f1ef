"""Who was told of what, and what is still to be sent: a small SQLite database beside journal and snapshots.

A mail and the cases that it tells of are written in one transaction, before it is sent; that it was sent is
written after the server took it. So nothing is lost, and a mail is repeated only when the process dies or
the connection breaks between these two moments; it has the same Message-ID then. Methods are for one thread
at a time, and raise StateError when the database cannot be used.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from laggard_aggregator.notify.incidents import Case
from laggard_common.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

Outcome = Literal["sent", "refused", "expired"]
"""How a mail ended: the server took it, will never take it, or was away for too long."""

NAME = "mail.db"
_VERSION = 1
# Column cases.here: written as 1 and not read; earlier versions marked cases of another aggregator with 0.
_TABLES = """
CREATE TABLE began (at REAL NOT NULL);
CREATE TABLE mails (
    id TEXT PRIMARY KEY, queued_at REAL NOT NULL, recipients TEXT NOT NULL, outcome TEXT, message BLOB
);
CREATE TABLE cases (
    id TEXT PRIMARY KEY, what TEXT NOT NULL, told_at REAL NOT NULL, mail TEXT NOT NULL, here INTEGER NOT NULL
);
CREATE TABLE courses (key TEXT PRIMARY KEY, points BLOB NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Queued:
    """A mail that is to be sent. `recipients`: those who do not have it yet. `message`: as it is sent."""

    id: str
    queued_at: float
    recipients: tuple[str, ...]
    message: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """An open case. `mail`: the id of the mail that reported it."""

    id: str
    case: Case
    told_at: float
    mail: str


class Ledger:
    """The database in `directory`, in memory where that is None. What is damaged is put aside."""

    def __init__(self, directory: Path | None, now: float) -> None:
        """`now`: epoch seconds, which is when the site began if there was no ledger before."""
        self._path = None if directory is None else directory / NAME
        try:
            self._db = self._opened(now)
        except StateError as exc:
            if self._path is None or not isinstance(exc.__cause__, sqlite3.DatabaseError):
                raise
            if isinstance(exc.__cause__, sqlite3.OperationalError):
                raise  # a full disk, no permission: what is there is right
            aside = self._path.with_suffix(".damaged")
            with suppress(OSError):
                self._path.replace(aside)
            _log.warning("%s: it is kept as %s; alarms that stand are mailed again", exc, aside.name)
            self._db = self._opened(now)

    def close(self) -> None:
        """Gives the file back."""
        self._db.close()

    @property
    def began_at(self) -> float:
        """When mail was first configured here, epoch seconds."""
        with self._work() as db:
            return float(db.execute("SELECT at FROM began").fetchone()[0])

    def open_cases(self) -> list[Told]:
        """The cases that somebody was told of, and that are not over."""
        with self._work() as db:
            rows = db.execute("SELECT id, what, told_at, mail FROM cases").fetchall()
        return [Told(id_, _case(what), told_at, mail) for id_, what, told_at, mail in rows]

    def queue(self, mail: Queued, told: Sequence[Told], over: Sequence[str] = ()) -> None:
        """Notes, all or nothing, a mail to be sent, the cases that it opens, and the ids of those it closes.

        A mail that was queued before, whatever became of it, is not queued again.
        """
        with self._work() as db:
            db.execute(
                "INSERT OR IGNORE INTO mails VALUES (?, ?, ?, NULL, ?)",
                (mail.id, mail.queued_at, json.dumps(mail.recipients), mail.message),
            )
            rows = [(t.id, json.dumps(asdict(t.case)), t.told_at, t.mail, 1) for t in told]
            db.executemany("INSERT OR REPLACE INTO cases VALUES (?, ?, ?, ?, ?)", rows)
            db.executemany("DELETE FROM cases WHERE id = ?", [(each,) for each in over])

    def close_cases(self, ids: Sequence[str]) -> None:
        """Deletes the cases of these ids; no mail is queued."""
        with self._work() as db:
            db.executemany("DELETE FROM cases WHERE id = ?", [(each,) for each in ids])

    def waiting(self) -> list[Queued]:
        """The mails that are to be sent, oldest first."""
        with self._work() as db:
            rows = db.execute(
                "SELECT id, queued_at, recipients, message FROM mails WHERE outcome IS NULL ORDER BY rowid"
            ).fetchall()
        return [Queued(id_, at, tuple(json.loads(who)), message) for id_, at, who, message in rows]

    def queued_since(self, at: float) -> int:
        """How many mails were queued after `at`."""
        with self._work() as db:
            return int(db.execute("SELECT count(*) FROM mails WHERE queued_at > ?", (at,)).fetchone()[0])

    def still_for(self, mail: str, recipients: Sequence[str]) -> None:
        """Some have the mail now; these do not yet."""
        with self._work() as db:
            db.execute("UPDATE mails SET recipients = ? WHERE id = ?", (json.dumps(recipients), mail))

    def ended(self, mail: str, outcome: Outcome) -> None:
        """Nothing is to be done about the mail any more."""
        with self._work() as db:
            db.execute("UPDATE mails SET outcome = ?, message = NULL WHERE id = ?", (outcome, mail))

    def prune(self, before: float) -> None:
        """Forgets mails that ended and were queued before that time."""
        with self._work() as db:
            db.execute("DELETE FROM mails WHERE outcome IS NOT NULL AND queued_at < ?", (before,))

    def courses(self) -> dict[str, bytes]:
        """What was kept of courses, by their keys."""
        with self._work() as db:
            return dict(db.execute("SELECT key, points FROM courses").fetchall())

    def keep_courses(self, courses: dict[str, bytes]) -> None:
        """Keeps these, and no others."""
        with self._work() as db:
            db.execute("DELETE FROM courses")
            db.executemany("INSERT INTO courses VALUES (?, ?)", courses.items())

    def _opened(self, now: float) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self._path or ":memory:", check_same_thread=False)
        except sqlite3.Error as exc:
            raise self._error(exc) from exc
        try:
            _prepare(db, now)
        except sqlite3.Error as exc:
            db.close()
            raise self._error(exc) from exc
        return db

    @contextmanager
    def _work(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        try:
            with self._db as db:
                yield db
        except (sqlite3.Error, ValueError, TypeError) as exc:
            raise self._error(exc) from exc

    def _error(self, exc: Exception) -> StateError:
        return StateError(str(self._path or "mail"), f"the ledger of mails is not usable: {exc}"[:300])


class SharedLedger:
    """A ledger that coroutines ask in turn, in a thread of its own.

    Who is cancelled does not end what it asked for, and nobody else's question overtakes that.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mail ledger")

    async def do(self, work: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work`, a method of Ledger, says. Raises StateError."""
        asked = partial(work, self._ledger, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    async def leave(self, *, close: bool = True) -> None:
        """Ends the thread after what is under way, and gives the file back unless it is to be kept."""
        if close:
            await self.do(Ledger.close)
        self._thread.shutdown(wait=False)


def _prepare(db: sqlite3.Connection, now: float) -> None:
    """Makes the tables where there are none; every commit is on the disk before it returns."""
    db.execute("PRAGMA journal_mode = TRUNCATE")
    db.execute("PRAGMA synchronous = FULL")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == 0:
        with db:
            db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION};")
            db.execute("INSERT INTO began VALUES (?)", (now,))
    elif version != _VERSION:
        raise sqlite3.DatabaseError(f"it is of version {version}, expected {_VERSION}")


def _case(what: str) -> Case:
    return Case(**json.loads(what))
