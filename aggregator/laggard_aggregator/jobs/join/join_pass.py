"""The pass that joins jobs with the archive's counters, once they are over, and again when something comes
later.

A job is joined a moment after its end. It is due `grace_seconds` after it, when its metadata changed, and
when counters of its time and nodes, or its traces, were written later. `jobs.json` in the archive's folder
names the files that were seen and the jobs that wait. It is written after the results: a pass that is killed
is done again with the same results.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from laggard_aggregator.archive.table import (
    Among,
    Range,
    Table,
    day_of,
    integers,
    tables_of,
)
from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.files.atomic_write import replace_durably
from laggard_aggregator.files.kept_json import read_kept
from laggard_aggregator.jobs.join.accounts import JobAccount, JoinedJob
from laggard_aggregator.jobs.join.jobs_of_time import JobsOfTime, read_jobs
from laggard_aggregator.jobs.join.membership import behind
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.server_jobs import JobIdFormat
from laggard_aggregator.jobs.join.summary import component_rows, coverage_of, series_rows, summary_row
from laggard_aggregator.jobs.join.volume_servers import VolumeServers
from laggard_aggregator.jobs.join.volumes import SOURCES
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.records.store import JobStore
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS
from laggard_aggregator.jobs.tables import JOB_COMPONENTS, JOB_SERIES, JOB_SUMMARIES
from laggard_common.wire.trace_document import TRACES

PROGRESS = "jobs.json"
EARLY_NS = 30 * 10**9
"""After a job's end, until its last counters are mostly in the archive: samples, and a flush of 15 s."""
MAX_JOBS = 512
"""Jobs of one scan."""
RESULTS = ("job_series", "job_components", "job_summaries", "job_findings")
"""Kinds that a join makes, or has made; where a file of them is damaged, jobs are joined again."""
_MARGIN_NS = MOST_GAP_NS + 60 * 10**9
"""Longest interval between two readings, with the age of the first."""
_CLOCKS_APART_NS = 60 * 10**9
"""Limit of a row's time after its receipt; beyond it the receiver's clock was behind."""


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """As `[jobs]`: `grace_seconds` after a job's end, `jobid_format` of Lustre, the forwarder of each
    node."""

    grace_seconds: float = 900.0
    jobid_format: str = ""
    served_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Waiting:
    """`seen`: number of the last part by table and day. `damaged`: number of files set aside by table and
    day. `jobs`: start and end, in s, of those to be joined. `received`: when the last row that was seen
    came, by table. `joined_ns`: jobs that ended before it were due in some pass. `early`: those of `jobs`
    that were joined already."""

    seen: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    joined_ns: int = 0
    early: list[str] = field(default_factory=list)

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
        if not self._table("jobs").days():
            return Joined()
        waiting = self._load()
        oldest_ns = now_ns - raw_days * 86_400 * 10**9
        self._note_damaged(waiting, now_ns, oldest_ns)
        self._note_metadata(waiting, now_ns, oldest_ns)
        self._note_late(waiting, now_ns)
        waiting.joined_ns = max(waiting.joined_ns, now_ns - self._grace_ns)
        self._save(waiting)
        done = 0
        while due := self._ended(waiting, now_ns - self._grace_ns):
            if not go_on():
                break
            batch = due[:MAX_JOBS]
            self._join_batch(waiting, batch, now_ns, raw_days, go_on)
            for key in batch:
                waiting.jobs.pop(key)
            waiting.early = [key for key in waiting.early if key in waiting.jobs]
            done += len(batch)
            self._save(waiting)
        return Joined(done, len(self._ended(waiting, now_ns - self._grace_ns)))

    def run_early(self, now_ns: int, raw_days: int, go_on: Callable[[], bool] = lambda: True) -> int:
        """Joins jobs that ended a moment ago, for readers who do not wait until they are due, and then again.

        Those that the last `run` noted, MAX_JOBS at most; returns their number. Raises ArchiveError.
        """
        waiting = self._load()
        ended = self._ended(waiting, now_ns - EARLY_NS)
        batch = [key for key in ended if key not in waiting.early][:MAX_JOBS]
        if batch and go_on():
            self._join_batch(waiting, batch, now_ns, raw_days, go_on)
            waiting.early += batch
            self._save(waiting)
            return len(batch)
        return 0

    def _join_batch(
        self, waiting: _Waiting, batch: Sequence[str], now_ns: int, raw_days: int, go_on: Callable[[], bool]
    ) -> None:
        start_ns = round(min(waiting.jobs[key][0] for key in batch) * 1e9) - _MARGIN_NS
        end_ns = round(max(waiting.jobs[key][1] or 0.0 for key in batch) * 1e9) + _MARGIN_NS
        known = read_jobs(self.directory, self.site, start_ns, end_ns)
        jobs = [known.jobs[key] for key in batch if key in known.jobs]
        if jobs:
            self._write(self.join(known, jobs, go_on), now_ns, raw_days)

    def join(
        self, known: JobsOfTime, jobs: Sequence[JoinedJob], go_on: Callable[[], bool] = lambda: True
    ) -> list[JobAccount]:
        """Accounts of some of the jobs known."""
        own = {job.key for job in jobs}
        others = [
            replace(occupation, job=len(jobs) + occupation.job)
            for occupation in known.occupations
            if known.keys[occupation.job] not in own
        ]
        served_by = self._settings.served_by
        join = Join(self.directory, self.site, jobs, others, format_=self._format, served_by=served_by)
        return join.run(go_on)

    def _ended(self, waiting: _Waiting, before_ns: int) -> list[str]:
        """Keys of the jobs that ended until then, in the order of their ends."""
        ended = [
            (end, key) for key, (_, end) in waiting.jobs.items() if end is not None and end * 1e9 <= before_ns
        ]
        return [key for _, key in sorted(ended)]

    def _write(self, accounts: Iterable[JobAccount], now_ns: int, raw_days: int) -> None:
        by_day: dict[str, list[JobAccount]] = {}
        oldest = now_ns - (raw_days - 1) * 86_400 * 10**9
        for account in accounts:
            day = day_of(account.job.end_ns / 1e9)
            if account.job.start_ns >= oldest or not self._knew_more(account, day):
                by_day.setdefault(day, []).append(account)
        for day, of_day in sorted(by_day.items()):
            write_results(self.directory, self.site, day, of_day, now_ns)

    def _knew_more(self, account: JobAccount, day: str) -> bool:
        """Whether the archive has a summary from when more of the job's counters were there."""
        own = Among("job_key", [account.job.key])
        known = self._table("job_summaries").scan(["coverage"], own, first_day=day, last_day=day)
        best = max((row or 0.0 for table in known for row in table["coverage"].to_pylist()), default=0.0)
        return best > coverage_of(account)

    def _note_damaged(self, waiting: _Waiting, now_ns: int, oldest_ns: int) -> None:
        """Notes the jobs of days of which nodes or results were set aside, if they may have counters.

        The nodes are written again first.
        """
        days = set(self._table("job_nodes").newly_damaged_days(waiting.damaged, "job_nodes/"))
        for day in sorted(days):
            JobStore(self.directory, self.site).restore_nodes(day, now_ns)
        for kind in RESULTS:
            days.update(self._table(kind).newly_damaged_days(waiting.damaged, f"{kind}/"))
        for day in sorted(days):
            start_ns = round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1e9)
            known = read_jobs(self.directory, self.site, start_ns, start_ns + 86_400 * 10**9)
            for key, job in known.jobs.items():
                if day_of(job.end_ns / 1e9) == day and job.start_ns >= oldest_ns:
                    waiting.add(key, job.start_ns / 1e9, job.end_ns / 1e9)

    def _note_metadata(self, waiting: _Waiting, now_ns: int, oldest_ns: int) -> None:
        """Notes the jobs of which there are new rows, and those that had a node or an id in common with them.

        Jobs that ended before `oldest_ns` have no counters any more. Nodes may be there before their job.
        """
        before = dict(waiting.jobs)
        changed: dict[str, tuple[float, float]] = {}
        for kind in ("jobs", "job_nodes"):
            for row in self._new_rows(kind, waiting):
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
            for key in batch.difference(known.keys):
                waiting.jobs.pop(key, None)
            new = {key for key in batch if key not in before or before[key][0] > changed[key][0]}
            volumes = VolumeServers(self.directory, self.site, start_ns, end_ns)
            beyond = [*behind(known.ever, self._settings.served_by), *volumes.behind(known.ever)]
            for key in known.neighbours(batch, new, _MARGIN_NS, beyond):
                job = known.jobs[key]
                if job.end_ns >= oldest_ns:
                    waiting.add(key, job.start_ns / 1e9, job.end_ns / 1e9)

    def _note_late(self, waiting: _Waiting, now_ns: int) -> None:
        """Notes the jobs of which counters or traces were written after they may have been joined."""
        for counters in tables_of(self.directory, "counters"):
            if counters.source in SOURCES and counters.site == self.site:
                fields = SOURCES[counters.source]
                of_servers = fields.by_job or fields.of_volume
                for first, last, nodes in self._late(waiting, counters, ("tick", "node"), now_ns):
                    self._note_of(waiting, first, last, None if of_servers else nodes, None)
        traces = Table(self.directory, "events", TRACES, site=self.site)
        for first, last, numbers in self._late(waiting, traces, ("last_ns", "job"), now_ns):
            self._note_of(waiting, first, last, None, numbers)

    def _late(
        self, waiting: _Waiting, table: Table, columns: tuple[str, str], now_ns: int
    ) -> Iterator[tuple[int, int, frozenset[str]]]:
        """Yields first and last time, and the names, of rows that jobs may have been joined without.

        `columns`: of the time and of the name. Rows that were seen may come again in merged files.
        """
        time, name = columns
        prefix = f"{table.kind}/{table.source}/"
        late = _Late(time, waiting.joined_ns + MOST_GAP_NS, waiting.received.get(prefix, 0))
        for file in table.new_since(waiting.seen, prefix):
            for rows in file.scan([name, time], late):
                times = integers(rows, time)
                yield int(times.min()), int(times.max()), frozenset(rows[name].unique().to_pylist())
        waiting.received[prefix] = min(late.last_ns, now_ns)  # a clock that was ahead hides no later rows

    def _note_of(
        self,
        waiting: _Waiting,
        first_ns: int,
        last_ns: int,
        nodes: Collection[str] | None,
        numbers: Collection[str] | None,
    ) -> None:
        """Notes the jobs of a time that have one of these nodes and numbers; None: any."""
        names = None if nodes is None else {short_name(node) for node in nodes}
        known = read_jobs(self.directory, self.site, first_ns - _MARGIN_NS, last_ns + MOST_GAP_NS)
        for occupation in known.occupations:
            key = known.keys[occupation.job]
            if key not in known.jobs or (names is not None and short_name(occupation.node) not in names):
                continue
            job = known.jobs[key]
            if numbers is None or str(job.raw_id) in numbers:
                waiting.add(key, job.start_ns / 1e9, job.end_ns / 1e9)

    def _new_rows(self, kind: str, waiting: _Waiting) -> Iterator[dict[str, Any]]:
        """Yields key, start and end of the rows of a kind that were not seen; then they are."""
        table = self._table(kind)
        for file in table.new_since(waiting.seen, f"{kind}/{table.source}/"):
            for rows in file.scan(["job_key", "start", "end"]):
                yield from rows.to_pylist()

    def _table(self, kind: str) -> Table:
        return Table(self.directory, kind, site=self.site)

    def _load(self) -> _Waiting:
        """The jobs that wait; none where that is damaged: then all jobs are joined again.

        Raises ArchiveError where it cannot be read.
        """
        return read_kept(self.directory / PROGRESS, _waiting_of, "all jobs are joined again") or _Waiting()

    def _save(self, waiting: _Waiting) -> None:
        content = json.dumps(asdict(waiting))
        replace_durably(self.directory / PROGRESS, content.encode())


def _waiting_of(content: Any) -> _Waiting:
    jobs = {
        str(key): (float(start), None if end is None else float(end))
        for key, (start, end) in content["jobs"].items()
    }
    cursor, damaged, received = (
        {str(key): int(number) for key, number in content.get(name, {}).items()}
        for name in ("seen", "damaged", "received")
    )
    early = [str(key) for key in content.get("early", ())]
    return _Waiting(cursor, damaged, jobs, received, int(content.get("joined_ns", 0)), early)


def write_results(directory: Path, site: str, day: str, accounts: Sequence[JobAccount], now_ns: int) -> None:
    """Appends the results of jobs that ended on a day: series and components before summaries."""
    for kind, schema, rows_of in (
        ("job_series", JOB_SERIES, series_rows),
        ("job_components", JOB_COMPONENTS, component_rows),
    ):
        rows = (row for account in accounts for row in rows_of(account, now_ns))
        Table(directory, kind, site=site).append_rows(day, rows, now_ns, schema)
    summaries = (summary_row(account, now_ns) for account in accounts)
    Table(directory, "job_summaries", site=site).append_rows(day, summaries, now_ns, JOB_SUMMARIES)


class _Late:
    """The condition that rows are of a time until `until_ns` and came after `seen_ns`, or so early that a
    clock was wrong. `last_ns`: when the last row came that was looked at."""

    def __init__(self, time: str, until_ns: int, seen_ns: int) -> None:
        self.columns = (time, "received")
        self._until_ns, self._seen_ns = until_ns, seen_ns
        self.last_ns = seen_ns

    def may_match(self, *ranges: Range) -> bool:
        """Whether some row may be of that time and new."""
        time, received = ranges
        if received is not None:
            self.last_ns = max(self.last_ns, received[1])
        if time is None or received is None:
            return True
        is_new, is_early = received[1] >= self._seen_ns, time[1] - received[0] > _CLOCKS_APART_NS
        return bool(time[0] <= self._until_ns and (is_new or is_early))

    def rows(self, table: pa.Table) -> BoolArray:
        """The late rows."""
        time, received = (integers(table, name) for name in self.columns)
        self.last_ns = max(self.last_ns, int(received.max(initial=0)))
        is_new, is_early = received >= self._seen_ns, time - received > _CLOCKS_APART_NS
        late: BoolArray = (time <= self._until_ns) & (is_new | is_early)
        return late
