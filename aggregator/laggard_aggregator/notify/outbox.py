"""Outbox: reported incidents and queued messages of all channels, in SQLite beside journal and snapshots.

A message and the incidents that it reports are written in one transaction before it is sent; its outcome is
written after the destination accepted it. So no message is lost, and one is repeated, with the same id, only
when the process or the connection ends between these two moments.
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
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from laggard_aggregator.files.sqlite import FAILURES
from laggard_aggregator.notify.incidents import Incident
from laggard_common.errors import LaterVersionError, StateError

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

Outcome = Literal["sent", "refused", "expired"]
"""End of a message: accepted, refused for good, or given up after days without the destination."""

NAME = "mail.db"  # from the time when mail was the only channel
_VERSION = 2
_TABLES = """
CREATE TABLE messages (
    channel TEXT NOT NULL, id TEXT NOT NULL, queued_at REAL NOT NULL, recipients TEXT NOT NULL,
    resolves TEXT NOT NULL, outcome TEXT, message BLOB, PRIMARY KEY (channel, id)
);
CREATE TABLE incidents (
    channel TEXT NOT NULL, id TEXT NOT NULL, incident TEXT NOT NULL, message TEXT NOT NULL,
    PRIMARY KEY (channel, id)
);
"""
_NEW = f"""{_TABLES}
CREATE TABLE began (at REAL NOT NULL);
CREATE TABLE timelines (key TEXT PRIMARY KEY, points BLOB NOT NULL);
"""
_FROM_VERSION_1 = f"""{_TABLES}
INSERT INTO messages
    SELECT 'mail', id, queued_at, recipients, '[]', outcome, message FROM mails ORDER BY rowid;
INSERT INTO incidents SELECT 'mail', id, what, mail FROM cases;
ALTER TABLE courses RENAME TO timelines;
DROP TABLE mails;
DROP TABLE cases;
"""  # noqa: S608 - of constants


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message to be sent. `recipients`: those who do not have it yet. `message`: as rendered.

    `resolves`: ids of the messages that raised the incidents which this one resolves.
    """

    id: str
    queued_at: float
    recipients: tuple[str, ...]
    message: bytes
    resolves: tuple[str, ...] = ()


class Outbox:
    """The file in `directory`, in memory where that is None. A damaged file is renamed and replaced.

    Methods are for one thread at a time: coroutines call them by `do`. All raise StateError when the file
    cannot be used.
    """

    def __init__(self, directory: Path | None, now: float) -> None:
        """`now`: epoch seconds, kept as `began_at` by a new outbox."""
        self._path = None if directory is None else directory / NAME
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        try:
            self._db = self._opened(now)
        except StateError as exc:
            if self._path is None or isinstance(exc, LaterVersionError):
                raise
            if isinstance(exc.__cause__, sqlite3.OperationalError):
                raise  # a full disk, no permission: the file itself is sound
            aside = self._path.with_suffix(".damaged")
            with suppress(OSError):
                self._path.replace(aside)
            _log.warning("%s: moved to %s; alarms that stand are reported again", exc, aside.name)
            self._db = self._opened(now)

    async def do(self, method: Callable[Concatenate["Outbox", P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a method, called in the outbox's thread after earlier calls; not interrupted."""
        call = partial(method, self, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Closes the file and ends the thread."""
        self._db.close()
        self._thread.shutdown(wait=False)

    @property
    def began_at(self) -> float:
        """When notifications were first configured at this site, epoch seconds."""
        return float(self._execute("SELECT at FROM began")[0][0])

    def open_incidents(self, channel: str) -> list[Incident]:
        """The incidents that the channel reported and that are not resolved."""
        query = "SELECT incident, id, message FROM incidents WHERE channel = ? ORDER BY rowid"
        return self._execute(
            query, channel, make=lambda raw, id_, by: Incident(**json.loads(raw), id=id_, message=by)
        )

    def queue(
        self,
        channel: str,
        message: QueuedMessage,
        opened: Sequence[Incident] = (),
        closed: Sequence[str] = (),
    ) -> None:
        """Adds a message, the incidents that it opens, and removes those it closes (ids), all or nothing.

        A message with the id of an earlier one is not queued again.
        """
        with self._transaction() as db:
            lists = (json.dumps(message.recipients), json.dumps(message.resolves))
            db.execute(
                "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, NULL, ?)",
                (channel, message.id, message.queued_at, *lists, message.message),
            )
            for incident in opened:
                row = asdict(incident)
                id_, by = row.pop("id"), row.pop("message")
                values = (channel, id_, json.dumps(row), by)
                db.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?)", values)
            rows = [(channel, id_) for id_ in closed]
            db.executemany("DELETE FROM incidents WHERE channel = ? AND id = ?", rows)

    def close_incidents(self, channel: str, ids: Sequence[str]) -> None:
        """Removes incidents without a message."""
        with self._transaction() as db:
            rows = [(channel, id_) for id_ in ids]
            db.executemany("DELETE FROM incidents WHERE channel = ? AND id = ?", rows)

    def waiting(self, channel: str) -> list[QueuedMessage]:
        """The channel's messages without an outcome, oldest first."""
        return self._execute(
            "SELECT id, queued_at, recipients, message, resolves FROM messages"
            " WHERE channel = ? AND outcome IS NULL ORDER BY rowid",
            channel,
            make=lambda id_, at, to, message, resolves: QueuedMessage(
                id_, at, tuple(json.loads(to)), message, tuple(json.loads(resolves))
            ),
        )

    def queued_since(self, channel: str, at: float) -> int:
        """How many messages the channel queued after `at`."""
        query = "SELECT count(*) FROM messages WHERE channel = ? AND queued_at > ?"
        return int(self._execute(query, channel, at)[0][0])

    def set_recipients(self, channel: str, id_: str, recipients: Sequence[str]) -> None:
        """Sets who does not have the message yet."""
        update = "UPDATE messages SET recipients = ? WHERE channel = ? AND id = ?"
        self._execute(update, json.dumps(recipients), channel, id_)

    def set_outcome(self, channel: str, id_: str, outcome: Outcome) -> None:
        """Ends the message; its content is deleted."""
        update = "UPDATE messages SET outcome = ?, message = NULL WHERE channel = ? AND id = ?"
        self._execute(update, outcome, channel, id_)

    def prune(self, before: float) -> None:
        """Deletes messages with an outcome that were queued before that time."""
        self._execute("DELETE FROM messages WHERE outcome IS NOT NULL AND queued_at < ?", before)

    def timelines(self) -> dict[str, bytes]:
        """The saved timelines by key."""
        return dict(self._execute("SELECT key, points FROM timelines"))

    def save_timelines(self, timelines: dict[str, bytes]) -> None:
        """Replaces all saved timelines."""
        with self._transaction() as db:
            db.execute("DELETE FROM timelines")
            db.executemany("INSERT INTO timelines VALUES (?, ?)", timelines.items())

    def _execute(self, sql: str, *values: object, make: Callable[..., Any] = lambda *row: row) -> list[Any]:
        """Runs one statement in a transaction; returns `make` of each row."""
        with self._transaction() as db:
            return [make(*row) for row in db.execute(sql, values)]

    def _opened(self, now: float) -> sqlite3.Connection:
        db = None
        try:
            db = sqlite3.connect(self._path or ":memory:", check_same_thread=False)
            _prepare(db, now, self._path)
        except (*FAILURES, LaterVersionError) as exc:
            if db is not None:
                db.close()
            if isinstance(exc, LaterVersionError):
                raise
            raise self._error(exc) from exc
        return db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._db as db:
                yield db
        except (*FAILURES, ValueError, TypeError) as exc:
            raise self._error(exc) from exc

    def _error(self, exc: Exception) -> StateError:
        return StateError(str(self._path or "memory"), f"the outbox is not usable: {exc}"[:300])


def _prepare(db: sqlite3.Connection, now: float, path: Path | None) -> None:
    """Creates or migrates the tables; every commit is on the disk before it returns.

    Raises LaterVersionError, and sqlite3.Error.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise LaterVersionError(str(path))
    db.execute("PRAGMA journal_mode = TRUNCATE")
    db.execute("PRAGMA synchronous = FULL")
    if version not in (0, 1, _VERSION):
        raise sqlite3.DatabaseError(f"it is of version {version}, expected {_VERSION}")
    if version == _VERSION:
        return
    with db:
        db.executescript(f"BEGIN; {_FROM_VERSION_1 if version else _NEW} PRAGMA user_version = {_VERSION};")
        if not version:
            db.execute("INSERT INTO began VALUES (?)", (now,))
