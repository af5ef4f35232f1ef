"""Follows the trace logs of `[traces] files` and sends their folded records as documents of source `traces`.

A log is read in parts of READ_BYTES, or all that there is after `send_seconds`; each part is one document, or
some where it has many records. A document names the bytes of the log that it covers, so a document that is
sent again after a crash is recognised. Positions are kept in `traces.json`, beside the spool.
"""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePath

from laggard_agent.collectors.interface import regular_file
from laggard_agent.sampling.batcher import EncodedBatch
from laggard_agent.settings import TracesSettings
from laggard_agent.tools.iotrace.fold import fold
from laggard_agent.tools.iotrace.marks import Mark, Marks
from laggard_agent.tools.iotrace.trace_log import LogLine, TraceLog
from laggard_agent.transport.outbox import document
from laggard_common.clock import Clock
from laggard_common.errors import CollectError
from laggard_common.visible import visible
from laggard_common.wire.trace_document import TRACES, TraceDocument, encode_document, fits
from laggard_common.wire.trace_records import Folded

_log = logging.getLogger(__name__)

STATE = "traces.json"
MAX_LOGS = 256
READ_BYTES = 256 * 1024
MOST_READ_BYTES = 8 * READ_BYTES
"""Bytes that one call of `read` parses, over all logs."""

_MOST_STRANGE_LINES = 10_000
_LEAVING_NS = 10 * 10**9
"""Time in which late writers of a deleted or renamed log are waited for."""


@dataclass(frozen=True, slots=True)
class _TracePart:
    """Bytes of a log up to `end`, and their document, None where they have no record."""

    end: Mark
    batch: EncodedBatch | None


class TraceFollower:
    """Follows logs. `directory`: for the positions.

    `read` and `send` may run on different threads, one at a time.
    """

    def __init__(
        self, settings: TracesSettings, node: str, directory: Path, procfs: Path, clock: Clock
    ) -> None:
        self._settings = settings
        self._node = node
        self._procfs = procfs
        self._clock = clock
        self._patterns = [_Pattern(pattern) for pattern in settings.files]
        self._logs: dict[str, TraceLog] = {}
        self._leaving: list[TraceLog] = []
        self._parts: deque[_TracePart] = deque()
        self._marks = Marks(directory / STATE, node)
        self._turns = count(1)
        self._failures: dict[str, str] = {}

    def read(self) -> None:
        """Parses the next parts of the logs, at most MOST_READ_BYTES; none while parts wait to be sent."""
        if self._parts:
            return
        self._follow_new()
        budget = MOST_READ_BYTES
        for log in sorted(self._open_logs(), key=lambda log: log.turn):
            before = budget
            try:
                budget = self._read(log, budget)
            except OSError as exc:
                log.is_at_end = True
                self._warn_once(str(log.path), exc.strerror or str(exc))
            if budget < READ_BYTES <= before:
                log.turn = next(self._turns)
        self._close_left()

    def send(self, store: Callable[[EncodedBatch], bool]) -> int:
        """Spools the documents that are ready, while `store` has room; returns their number."""
        sent = 0
        moved = False
        while self._parts:
            part = self._parts[0]
            if part.batch is not None and not store(part.batch):
                break
            sent += part.batch is not None
            self._marks.put(part.end)
            moved = True
            self._parts.popleft()
        if moved:
            self._save()
        return sent

    # -- logs

    def _follow_new(self) -> None:
        """Opens new logs, and lets go of those whose path is gone or another file."""
        present = self._present()
        left = [path for path, log in self._logs.items() if path not in present or not _is_same(log)]
        for path in left:
            log = self._logs.pop(path)
            log.is_leaving = True
            log.due_ns = self._clock.monotonic_ns() + _LEAVING_NS
            self._leaving.append(log)
        new = [path for path in present if path not in self._logs and self._open(path, present[path])]
        if new or left:
            self._save()

    def _present(self) -> dict[str, str]:
        """At most MAX_LOGS paths that match, followed ones first, and the job of each."""
        jobs: dict[str, str] = {}
        for pattern in self._patterns:
            try:
                pattern.refresh()
                self._failures.pop(pattern.text, None)
            except OSError as exc:
                self._warn_once(pattern.text, exc.strerror or str(exc))
            for path in pattern.paths:
                if path.isprintable():
                    jobs.setdefault(path, pattern.job_of(path))
                else:
                    self._warn_once(path, "its name is not printable")
        if len(jobs) <= MAX_LOGS:
            return jobs
        self._warn_once("", f"{len(jobs)} logs match, {MAX_LOGS} are followed")
        return dict(sorted(jobs.items(), key=lambda item: item[0] not in self._logs)[:MAX_LOGS])

    def _open(self, path: str, job: str) -> bool:
        """Follows the log at `path`, from its saved mark on; a renamed log is continued."""
        try:
            with regular_file(Path(path), os.O_NOFOLLOW) as (opened, status):
                file = (status.st_dev, status.st_ino)
                known = next((log for log in self._open_logs() if log.file == file), None)
                if known is not None:
                    return self._goes_on_at(known, path, job)
                mark = self._marks.of(file)
                if mark is None or not mark.follows(opened) or (not mark.at and mark.job != job):
                    mark = Mark(*file, since_ns=self._clock.wall_ns(), job=job, path=path)
                fd = os.dup(opened)
        except (OSError, CollectError) as exc:
            self._warn_once(path, getattr(exc, "strerror", None) or str(exc))
            return False
        self._failures.pop(path, None)
        self._marks.put(mark)
        s = self._settings
        self._logs[path] = TraceLog(
            Path(path), fd, mark, job=job, format_name=s.format, node=self._node, procfs=self._procfs
        )
        return True

    def _goes_on_at(self, log: TraceLog, path: str, job: str) -> bool:
        """Whether a log that left its path is now at `path`; False for a second name of a log."""
        if not log.is_leaving:
            return False
        self._leaving.remove(log)
        log.rename(Path(path), job)
        self._logs[path] = log
        return True

    def _open_logs(self) -> list[TraceLog]:
        return [*self._leaving, *self._logs.values()]

    def _close_left(self) -> None:
        """Closes logs that left and were read to their end; beyond MAX_LOGS also those that left first."""
        now_ns = self._clock.monotonic_ns()
        excess = len(self._leaving) - MAX_LOGS
        for at, log in enumerate(list(self._leaving)):
            if at < excess or (log.is_at_end and now_ns >= log.due_ns):
                log.close()
                self._leaving.remove(log)
        if excess > 0:
            self._warn_once("", f"more than {MAX_LOGS} deleted logs are not read to their end")

    # -- records

    def _read(self, log: TraceLog, budget: int) -> int:
        """Reads parts of a log that are due; returns the rest of `budget`."""
        now_ns = self._clock.monotonic_ns()
        if log.was_truncated():
            self._marks.put(log.restart(self._clock.wall_ns()))
            self._save()
        log.is_at_end = False
        due = log.is_leaving or now_ns >= log.due_ns
        while budget >= READ_BYTES:
            behind = log.behind_bytes()
            if not behind or (behind < READ_BYTES and not due):
                log.is_at_end = not behind
                break
            before = log.position
            self._add(log, log.read(READ_BYTES))
            if log.position == before:
                log.is_at_end = True
                break
            budget -= log.position - before
            if not log.is_leaving:
                log.due_ns = now_ns + round(self._settings.send_seconds * 1e9)
        if log.reader is not None and not log.reader.records and log.reader.lines > _MOST_STRANGE_LINES:
            self._warn_once(str(log.path), "has no record of an I/O trace in its first lines")
        return budget

    def _add(self, log: TraceLog, lines: Sequence[LogLine]) -> None:
        start = log.ready_at
        for end, tail, records in _parts(lines):
            batch = None
            if records:
                content = TraceDocument(log.job, log.name, self._marks.session, start, end, records)
                start = end
                batch = document(TRACES, encode_document(content), self._clock.wall_ns())
            self._parts.append(_TracePart(log.mark_at(end, tail), batch))
            log.ready_at = end

    def _save(self) -> None:
        try:
            self._marks.save({log.file for log in self._open_logs()}, self._clock.wall_ns())
        except OSError as exc:
            self._warn_once(STATE, exc.strerror or str(exc))

    def _warn_once(self, path: str, reason: str) -> None:
        if self._failures.get(path) != reason and len(self._failures) < MAX_LOGS:
            self._failures[path] = reason
            _log.warning("traces: %s: %s", visible(path) or "files", reason)


def _parts(lines: Sequence[LogLine]) -> Iterator[tuple[int, int, Sequence[Folded]]]:
    """End, checksum and folded records of parts of `lines`, in order; halves where no document holds all."""
    if not lines:
        return
    folded = list(fold(record for line in lines for record in line.records))
    if fits(folded) or len(lines) == 1:
        yield lines[-1].end, lines[-1].tail, folded
    else:
        half = len(lines) // 2
        yield from _parts(lines[:half])
        yield from _parts(lines[half:])


def _is_same(log: TraceLog) -> bool:
    try:
        status = log.path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # of a network file system, for a while
        return True
    return (status.st_dev, status.st_ino) == log.file


class _Pattern:
    """A pattern of `[traces] files`. `paths`: those that matched last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.paths: list[str] = []
        # pathlib refuses `**` within a name, and a name of it alone matches all folders below.
        self._glob = re.sub(r"\*+", "*", str(PurePath(text)).lstrip("/").replace("{job}", "*"))
        expression = re.escape("/" + str(PurePath(text)).lstrip("/"))
        for wildcard, meant in ((r"\*", "[^/]*?"), (r"\?", "[^/]"), (r"\{job\}", "(?P<job>[1-9][0-9]{0,9})")):
            expression = expression.replace(wildcard, meant)
        self._expression = re.compile(expression)

    def refresh(self) -> None:
        """Looks again. Raises OSError, and keeps `paths` then."""
        self.paths = sorted(map(str, Path("/").glob(self._glob)))

    def job_of(self, path: str) -> str:
        """The number of the job in a path, empty without one."""
        match = self._expression.fullmatch(path)
        return (match.groupdict().get("job") or "") if match else ""
