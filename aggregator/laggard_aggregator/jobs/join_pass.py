"""The pass that joins jobs with the archive's counters, once they are over, and again when something comes
later.

A job is due `grace_seconds` after its end, when its metadata changed, and when counters of its time and nodes
come late. `jobs.json` in the archive's folder names the files that were seen and the jobs that wait. It is
written after the results: a pass that is killed is done again with the same results.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.decode_batches import integers
from laggard_aggregator.archive.layout import DamagedPartError, Part, page_checked_file
from laggard_aggregator.archive.part_reader import set_aside
from laggard_aggregator.jobs.accounts import JobAccount, JoinedJob
from laggard_aggregator.jobs.counter_slices import MOST_GAP_NS, sources
from laggard_aggregator.jobs.job_reader import JobsOfTime, read_jobs
from laggard_aggregator.jobs.jobid import JobIdFormat
from laggard_aggregator.jobs.join import Join
from laggard_aggregator.jobs.membership import Occupation, short_name
from laggard_aggregator.jobs.result_parts import write_results
from laggard_aggregator.jobs.summary import coverage_of
from laggard_aggregator.jobs.volumes import SOURCES
from laggard_common.errors import ArchiveError
from laggard_common.segment_log import sync_path

PROGRESS = "jobs.json"
MAX_JOBS = 512
"""Jobs of one scan."""
_MARGIN_NS = MOST_GAP_NS + 60 * 10**9


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """As `[jobs]`: `grace_seconds` after a job's end, `jobid_format` of Lustre, the forwarder of each
    node."""

    grace_seconds: float = 900.0
    jobid_format: str = ""
    served_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Waiting:
    """`seen`: number of the last part by table and day. `jobs`: start and end, in s, of those to be
    joined."""

    seen: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, tuple[float, float | None]] = field(default_factory=dict)

    def add(self, key: str, start: float | None, end: float | None) -> None:
        """Notes a job; one without a start never ran."""
        if start is not None:
            before, until = self.jobs.get(key, (start, end))
            self.jobs[key] = min(before, start), end if end is not None else until


@dataclass(frozen=True, slots=True)
class Joined:
    """Of one pass: jobs that were joined; `waiting`: jobs that are due and were left."""

    jobs: int = 0
    waiting: int = 0


class JoinPass:
    """Joins the jobs of a site in the archive in `directory`. One call of `run` at a time."""

    def __init__(self, directory: Path, site: str, settings: JoinSettings) -> None:
        self.directory, self.site = directory, site
        self._settings = settings
        self._format = JobIdFormat(settings.jobid_format) if settings.jobid_format else None
        self._grace_ns = round(settings.grace_seconds * 1e9)

    def run(self, now_ns: int, raw_days: int, go_on: Callable[[], bool] = lambda: True) -> Joined:
        """Joins the jobs that are due, while `go_on()`. Raises ArchiveError."""
        if not self._days("jobs", layout.OWN):
            return Joined()
        waiting = self._load()
        oldest_ns = now_ns - raw_days * 86_400 * 10**9
        self._note_metadata(waiting, now_ns, oldest_ns)
        self._note_late(waiting)
        self._save(waiting)
        done = 0
        while due := self._due(waiting, now_ns):
            if not go_on():
                break
            batch = due[:MAX_JOBS]
            start_ns = round(min(waiting.jobs[key][0] for key in batch) * 1e9) - _MARGIN_NS
            end_ns = round(max(waiting.jobs[key][1] or 0.0 for key in batch) * 1e9) + _MARGIN_NS
            known = read_jobs(self.directory, self.site, start_ns, end_ns)
            jobs = [known.jobs[key] for key in batch if key in known.jobs]
            if jobs:
                self._write(self.join(known, jobs, go_on), now_ns, raw_days)
            for key in batch:
                waiting.jobs.pop(key)
            done += len(batch)
            self._save(waiting)
        return Joined(done, len(self._due(waiting, now_ns)))

    def join(
        self, known: JobsOfTime, jobs: Sequence[JoinedJob], go_on: Callable[[], bool] = lambda: True
    ) -> list[JobAccount]:
        """Accounts of some of the jobs known."""
        own = {job.key for job in jobs}
        others = [
            Occupation(len(jobs) + each.job, each.node, each.start_ns, each.end_ns)
            for each in known.occupations
            if known.keys[each.job] not in own
        ]
        served_by = self._settings.served_by
        join = Join(self.directory, self.site, jobs, others, format_=self._format, served_by=served_by)
        return join.run(go_on)

    def _due(self, waiting: _Waiting, now_ns: int) -> list[str]:
        """Keys of the jobs that are due, in the order of their ends."""
        found = [
            (end, key)
            for key, (_, end) in waiting.jobs.items()
            if end is not None and end * 1e9 + self._grace_ns <= now_ns
        ]
        return [key for _, key in sorted(found)]

    def _write(self, accounts: Iterable[JobAccount], now_ns: int, raw_days: int) -> None:
        by_day: dict[str, list[JobAccount]] = {}
        oldest = now_ns - (raw_days - 1) * 86_400 * 10**9
        for account in accounts:
            day = _day(account.job.end_ns)
            if account.job.start_ns >= oldest or not self._knew_more(account, day):
                by_day.setdefault(day, []).append(account)
        for day, found in sorted(by_day.items()):
            write_results(self.directory, self.site, day, found, now_ns)

    def _knew_more(self, account: JobAccount, day: str) -> bool:
        """Whether the archive has a summary from when more of the job's counters were there."""
        best = 0.0
        for part in self._parts("job_summaries", layout.OWN, day):
            for row in _read(part, ("job_key", "coverage")):
                if row["job_key"] == account.job.key:
                    best = max(best, row["coverage"] or 0.0)
        return best > coverage_of(account)

    def _note_metadata(self, waiting: _Waiting, now_ns: int, oldest_ns: int) -> None:
        """Notes the jobs of which there are new rows, and those that had a node or an id in common with them.

        Jobs that ended before `oldest_ns` have no counters any more.
        """
        changed: dict[str, tuple[float, float]] = {}
        for kind in ("jobs", "job_nodes"):
            for part in self._new(kind, layout.OWN, waiting):
                for row in _read(part, ("job_key", "start", "end")):
                    key, start, end = row["job_key"], row["start"], row["end"]
                    if start is not None and (end is None or end * 1e9 >= oldest_ns):
                        waiting.add(key, start, end)
                        first, last = changed.get(key, (start, 0.0))
                        changed[key] = min(first, start), max(last, now_ns / 1e9 if end is None else end)
        ordered = sorted(changed, key=lambda key: (changed[key], key))
        for at in range(0, len(ordered), MAX_JOBS):
            batch = frozenset(ordered[at : at + MAX_JOBS])
            start_ns = round(min(changed[key][0] for key in batch) * 1e9) - _MARGIN_NS
            end_ns = round(max(changed[key][1] for key in batch) * 1e9) + _MARGIN_NS
            known = read_jobs(self.directory, self.site, start_ns, end_ns)
            for key in known.neighbours(batch):
                job = known.jobs[key]
                if job.end_ns >= oldest_ns:
                    waiting.add(key, job.start_ns / 1e9, job.end_ns / 1e9)

    def _note_late(self, waiting: _Waiting) -> None:
        """Notes the jobs of which counters came after they may have been joined."""
        late_ns = max(self._grace_ns - _MARGIN_NS, 60 * 10**9)
        for source, site in sources(self.directory):
            if source not in SOURCES or site != self.site:
                continue
            of_servers = SOURCES[source].by_job or SOURCES[source].of_volume
            for part in self._new("counters", source, waiting):
                for first, last, nodes in _late_rows(part, late_ns):
                    of = {short_name(node) for node in nodes}
                    known = read_jobs(self.directory, self.site, first - _MARGIN_NS, last + MOST_GAP_NS)
                    for each in known.occupations:
                        key = known.keys[each.job]
                        if key in known.jobs and (of_servers or short_name(each.node) in of):
                            job = known.jobs[key]
                            waiting.add(key, job.start_ns / 1e9, job.end_ns / 1e9)

    def _new(self, kind: str, source: str, waiting: _Waiting) -> Iterator[Part]:
        """Yields the files of a table that were not seen; then they are. Those that are gone are left for the
        next pass."""
        for day in self._days(kind, source):
            key = f"{kind}/{source}/{day}"
            for part in self._parts(kind, source, day):
                if part.last > waiting.seen.get(key, 0):
                    if not part.path.exists():
                        break
                    yield part
                    waiting.seen[key] = part.last

    def _days(self, kind: str, source: str) -> list[str]:
        try:
            return [day for day, _ in layout.days(self.directory, kind, source, self.site)]
        except OSError as exc:
            raise ArchiveError(str(self.directory), exc.strerror or str(exc)) from exc

    def _parts(self, kind: str, source: str, day: str) -> list[Part]:
        where = layout.folder(self.directory, kind, source, day, self.site)
        try:
            return layout.parts(where)
        except OSError as exc:
            raise ArchiveError(str(where), exc.strerror or str(exc)) from exc

    def _load(self) -> _Waiting:
        """The jobs that wait; none where that cannot be read: then all jobs are joined again."""
        try:
            content = json.loads((self.directory / PROGRESS).read_bytes())
            jobs = {
                str(key): (float(start), None if end is None else float(end))
                for key, (start, end) in content["jobs"].items()
            }
            return _Waiting({str(key): int(last) for key, last in content["seen"].items()}, jobs)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return _Waiting()

    def _save(self, waiting: _Waiting) -> None:
        path, temporary = self.directory / PROGRESS, self.directory / f".{PROGRESS}.tmp"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"seen": waiting.seen, "jobs": waiting.jobs}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_path(self.directory)
        except OSError as exc:
            raise ArchiveError(str(path), exc.strerror or str(exc)) from exc
        finally:
            with suppress(OSError):
                temporary.unlink()


def _late_rows(part: Part, late_ns: int) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Yields first tick, last tick and nodes of rows that came `late_ns` after their time, or later."""
    try:
        with page_checked_file(part) as file:
            names = file.schema_arrow.names
            for group in range(file.num_row_groups):
                found = file.metadata.row_group(group)
                tick, received = (found.column(names.index(name)).statistics for name in ("tick", "received"))
                if tick is not None and received is not None and received.max_raw - tick.min_raw < late_ns:
                    continue
                table = file.read_row_group(group, columns=["node", "tick", "received"], use_threads=False)
                ticks = integers(table, "tick")
                late = integers(table, "received") - ticks >= late_ns
                if late.any():
                    nodes = table["node"].filter(pa.array(late)).unique().to_pylist()
                    yield int(np.min(ticks[late])), int(np.max(ticks[late])), frozenset(nodes)
    except FileNotFoundError:
        return
    except DamagedPartError as exc:
        set_aside(exc)
    except OSError as exc:
        raise ArchiveError(str(part.path), exc.strerror or str(exc)) from exc


def _read(part: Part, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    try:
        with page_checked_file(part) as file:
            rows: list[dict[str, Any]] = file.read(list(columns), use_threads=False).to_pylist()
            return rows
    except FileNotFoundError:
        return []
    except DamagedPartError as exc:
        set_aside(exc)
        return []
    except OSError as exc:
        raise ArchiveError(str(part.path), exc.strerror or str(exc)) from exc


def _day(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date().isoformat()
