"""The pass that judges the Darshan logs of finished jobs: table `job_logs`.

Darshan writes a log into the site's folder when a program ends, named by user, program and job. The logs of a
job are judged together, as `laggard mine` does, once the job is over; with a further log, again. A log counts
for a job of its number that ran when it was written and whose user owns the file: any user may write there.
"""

import logging
import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from laggard_aggregator.archive.table import Table, day_of
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.darshan.judged_logs import judged_logs
from laggard_aggregator.jobs.darshan.readers import log_key
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.tables import JOB_LOGS
from laggard_common.errors import InputError
from laggard_common.visible import visible

_log = logging.getLogger(__name__)

KEPT_DAYS: Final = 7
"""Logs that were written earlier are not looked for."""
MAX_LOGS: Final = 64
"""Logs of one job that are judged; the first ones."""
MAX_ENTRIES: Final = 500_000
"""Entries of folders that one pass looks at."""
PASS_SECONDS: Final = 60.0
"""Further jobs are left to the next pass after this time."""
LOG_SECONDS: Final = 60.0
LOG_MEMORY_BYTES: Final = 1 << 30
"""Limits of reading one log in the daemon."""
_LATE_SECONDS: Final = 600.0
"""A log may be written this long after its job's end."""
_NAME: Final = re.compile(r".*_id([0-9]{1,18})[-_].*\.darshan", re.ASCII | re.DOTALL)
_DAEMON: Final = Principal("", Role.ADMIN)
_DAY: Final = 86_400.0
_NO_DAY: Final = (9999, 99, 99)
_IO: Final = (
    *("module", "direction", "bytes", "requests", "files", "critical_files"),
    *("busy_seconds", "busy_lower_seconds", "span_seconds", "mib_per_second", "top_share"),
)
_FINDING: Final = ("direction", "kind", "component", "factor", "share", "text", "advice")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log by its name: `number` of its job, `uid` of its owner, when it was written, and its `key`."""

    path: Path
    number: int
    uid: int
    written: float
    key: int


class LogPass:
    """Judges the logs in the folder `logs`, for the jobs of `index`, into the archive in `directory`."""

    def __init__(self, directory: Path, site: str, index: JobIndex, logs: Path) -> None:
        self._table = Table(directory, "job_logs", site=site)
        self._index, self._logs = index, logs
        self._seen: set[int] | None = None
        """Keys of logs that were judged, from the archive after a start."""
        self._is_warned = False

    def run(self, now_ns: int, go_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Judges the logs that are new; returns the keys of their jobs. Raises LaggardError."""
        now, begun = now_ns / 1e9, time.monotonic()
        if self._seen is None:
            self._seen = set(self._stored(now))
        with InputError.from_os_errors(self._logs):
            logs = list(recent_logs(self._logs, now - KEPT_DAYS * _DAY))
        done = []
        for job, files in self._of_jobs(logs):
            if not go_on() or time.monotonic() - begun > PASS_SECONDS:
                break
            rows = list(log_rows(job, files, now_ns))
            self._table.append_rows(day_of(job["end"]), rows, now_ns, JOB_LOGS)
            self._seen.update(file.key for file in files)
            done.append(job.key)
        return done

    def _stored(self, now: float) -> Iterator[int]:
        first = day_of(now - 2 * KEPT_DAYS * _DAY)
        for table in self._table.scan(["log_key"], first_day=first):
            yield from (key for key in table["log_key"].to_pylist() if key is not None)

    def _is_readable(self, log: LogFile) -> bool:
        """Whether this process may read a log: by default Darshan makes them for their user alone."""
        if os.access(log.path, os.R_OK):
            return True
        if not self._is_warned:
            _log.warning("jobs: Darshan logs cannot be read, such as %s", visible(str(log.path)))
            self._is_warned = True
        return False

    def _of_jobs(self, logs: Iterable[LogFile]) -> list[tuple[VisibleJob, list[LogFile]]]:
        """Jobs that are over and have a log that was not judged, each with all its logs."""
        handled, queries = self._seen or set(), JobQueries(self._index)
        runs: dict[int, list[VisibleJob]] = {}
        jobs: dict[str, tuple[VisibleJob, list[LogFile]]] = {}
        new = {log.number for log in logs if log.key not in handled}
        try:
            for log in sorted(logs, key=lambda log: (log.written, log.path)):
                if log.number not in new:
                    continue
                if log.number not in runs:
                    runs[log.number] = queries.of_number(_DAEMON, log.number)
                for job in runs[log.number]:
                    if is_of_job(log, job) and self._is_readable(log):
                        jobs.setdefault(job.key, (job, []))[1].append(log)
                        break
        finally:
            queries.close()
        return [(job, files) for job, files in jobs.values() if any(f.key not in handled for f in files)]


def is_of_job(log: LogFile, job: Mapping[str, Any]) -> bool:
    """Whether a log was written by a job that is over: in its time, and by its user."""
    if job["start"] is None or job["end"] is None:
        return False
    if not job["start"] <= log.written <= job["end"] + _LATE_SECONDS:
        return False
    if job["uid"] is not None:
        return bool(job["uid"] == log.uid)
    try:
        return bool(pwd.getpwuid(log.uid).pw_name == job["user"])
    except KeyError:
        return False


def recent_logs(folder: Path, since: float) -> Iterator[LogFile]:
    """Yields the logs below a folder that were written since a time; days of the past are not entered.

    Raises OSError for the folder itself; what cannot be read below it is left out.
    """
    oldest = datetime.fromtimestamp(max(since - _DAY, 0.0), UTC)
    first = (oldest.year, oldest.month, oldest.day)
    waiting: list[tuple[Path, tuple[int, ...]]] = [(folder, ())]
    entries = 0
    while waiting:
        where, day = waiting.pop()
        try:
            with os.scandir(where) as listed:
                for entry in listed:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        below = _below(day, entry.name)
                        if below >= first[: len(below)]:
                            waiting.append((where / entry.name, below))
                    elif (name := _NAME.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except OSError:  # deleted since, or of a file system that fails
                            continue
                        if status.st_mtime >= since:
                            key = log_key(entry.path, status.st_size, status.st_mtime_ns)
                            yield LogFile(Path(entry.path), int(name[1]), status.st_uid, status.st_mtime, key)
        except OSError:
            if where == folder:
                raise


def _below(day: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Year, month and day of a folder, or those that its path has; _NO_DAY of another one."""
    is_number = len(day) < len(_NO_DAY) and name.isascii() and name.isdecimal() and len(name) <= 4
    return (*day, int(name)) if is_number else _NO_DAY


def log_rows(job: VisibleJob, files: list[LogFile], now_ns: int) -> Iterator[dict[str, Any]]:
    """Yields rows of `job_logs`: the logs, and the records of their verdict. Raises ServiceError."""
    from laggard_aggregator.jobs.darshan.records import finding_record, io_record, not_judged_record
    from laggard_aggregator.jobs.darshan.sharing import log_modes

    records: list[dict[str, Any]] = [
        {"record": "log", "log": str(file.path), "log_key": file.key} for file in files
    ]
    for verdict in judged_logs([file.path for file in files[:MAX_LOGS]], 1, LOG_MEMORY_BYTES, LOG_SECONDS):
        if isinstance(verdict, InputError):
            records.append({"record": "not_judged", "kind": Path(verdict.path).name, "text": verdict.reason})
            continue
        if verdict.tables.job_id != job["raw_id"]:
            reason = f"the log is of job {verdict.tables.job_id}"
            records.append({"record": "not_judged", "kind": "job", "text": reason})
            continue
        for direction in verdict.directions:
            io = io_record(verdict, direction)
            records.append({"record": "io", **{name: io[name] for name in _IO}})
        for name, modes in log_modes(verdict.tables).items():
            records += [
                {
                    "record": "mode",
                    "direction": name,
                    "kind": mode,
                    "share": share,
                    "bytes": round(share * modes.size),
                }
                for mode, share in modes.shares.items()
                if share > 0
            ]
        findings = map(finding_record, verdict.findings)
        records += [{"record": "finding", **{key: row[key] for key in _FINDING}} for row in findings]
        left = map(not_judged_record, verdict.not_judged)
        records += [{"record": "not_judged", "kind": gap["what"], "text": gap["reason"]} for gap in left]
    for rank, record in enumerate(records):
        yield {"job_key": job.key, "revision_at": now_ns, "rank": rank, **record}
