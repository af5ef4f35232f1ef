"""The outbox: a folder whose files the agent sends as documents, messages of kind events.

Programs on the node that have something to report (a scheduler's hook, `laggard layers send`) need no broker,
no password and no library: they write `NAME.SOURCE` under a name that begins with a dot, and rename it. A
file is deleted once it is in the spool, on the disk itself. After a crash between the two it is sent twice,
so a document must be one that may come twice.
"""

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import zstandard

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_common.visible import visible
from laggard_common.wire import Kind
from laggard_common.wire.codec import DELTA_ZSTD
from laggard_common.wire.limits import MAX_EVENT_BYTES
from laggard_common.wire.schema import Field, FieldKind, FieldType

_log = logging.getLogger(__name__)

SOURCES = ("jobs", "layer_reports", "layers")
"""Kinds of documents, by the suffix of the file."""
POLL_SECONDS = 2.0
MAX_FILES = 16
"""Files sent at a time; the others wait for the next poll."""

_FIELDS = (Field("content", FieldKind.GAUGE, "bytes", FieldType.U64),)
"""A schema has a field; no counter is ever sent with this one."""


class OutboxFileError(Exception):
    """A file that is not a document; the message gives the reason."""


class NodeOutbox:
    """Sends the files of `directory`, by name.

    `store` spools a document, or returns False where there is no room for it now.
    """

    def __init__(
        self, directory: Path, store: Callable[[EncodedBatch], bool], now_ns: Callable[[], int]
    ) -> None:
        self._directory = directory
        self._store = store
        self._now_ns = now_ns
        self._failure = ""
        self._stuck: dict[tuple[str, int], _Stuck] = {}  # by name and inode number

    @property
    def problem(self) -> str:
        """Why files stay in the folder, in one line; empty when none does."""
        if self._failure or not self._stuck:
            return self._failure
        (name, _), stuck = next(iter(self._stuck.items()))
        others = f", and {len(self._stuck) - 1} more" if len(self._stuck) > 1 else ""
        return f"{visible(name)}: {stuck.reason}{others}"

    def send(self) -> int:
        """Spools and deletes up to MAX_FILES files, on a thread of its own; returns their number.

        A file that is no document is deleted with a WARNING. A file that cannot be read or deleted is one
        WARNING and stays, and those after it are sent; once spooled, it is not spooled again.
        """
        sent = 0
        try:
            with os.scandir(self._directory) as entries:
                names = sorted((e.name, e.inode()) for e in entries if not e.name.startswith("."))
        except OSError as exc:
            self._fail(exc)
            return 0
        self._failure = ""
        self._stuck = {key: stuck for key in names if (stuck := self._stuck.get(key)) is not None}
        new = [key for key in names if key not in self._stuck]
        for key in (*islice(self._stuck.copy(), MAX_FILES), *new[:MAX_FILES]):
            was_stored = self._try(key)
            if was_stored is None:
                break
            sent += was_stored
        return sent

    def _fail(self, exc: OSError) -> None:
        reason = f"{visible(str(exc.filename or self._directory))}: {exc.strerror or exc}"
        if reason != self._failure:
            _log.warning("outbox: %s", reason)
        self._failure = reason

    def _try(self, key: tuple[str, int]) -> bool | None:
        """Spools one file and deletes it; whether it was spooled, None where there is no room."""
        name, _ = key
        path = self._directory / name
        stuck = self._stuck.pop(key, None)  # in the order of attempts
        is_spooled = stuck is not None and stuck.is_spooled
        was_stored, problem = False, ""
        try:
            if not is_spooled:
                try:
                    content = _read(path)
                except OutboxFileError as exc:
                    content, problem = b"", str(exc)
                if content and not self._store(document(path.suffix[1:], content, self._now_ns())):
                    return None
                is_spooled = was_stored = bool(content)
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as exc:
            reason = f"{problem or 'cannot be read or deleted'}: {exc.strerror or exc}"
            if stuck is None or stuck.reason != reason:
                _log.warning("outbox: %s: %s; it stays", visible(name), reason)
            self._stuck[key] = _Stuck(reason, is_spooled)
        else:
            if problem:
                _log.warning("outbox: %s: %s; deleted", visible(name), problem)
        return was_stored


@dataclass(frozen=True, slots=True)
class _Stuck:
    """A file that cannot be read or deleted, for `reason`. `is_spooled`: it only has to be deleted."""

    reason: str
    is_spooled: bool


def document(source: str, content: bytes, now_ns: int) -> EncodedBatch:
    """The document of `content`; its time is `now_ns`."""
    return EncodedBatch(
        source=source,
        dictionary=Dictionary(fields=_FIELDS),
        t0_ns=now_ns,
        dt_ns=0,
        n=1,
        codec=DELTA_ZSTD,
        payload=zstandard.ZstdCompressor(write_content_size=True).compress(content),
        kind=Kind.EVENTS,
    )


def _read(path: Path) -> bytes:
    """The content of a document. Raises OutboxFileError, and OSError for what may pass."""
    if path.suffix[1:] not in SOURCES:
        raise OutboxFileError(f"its name does not end in one of .{', .'.join(SOURCES)}")
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OutboxFileError("is no regular file")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        content = file.read(MAX_EVENT_BYTES + 1)
    if not 0 < len(content) <= MAX_EVENT_BYTES:
        raise OutboxFileError(f"is not between 1 and {MAX_EVENT_BYTES} bytes long")
    return content
