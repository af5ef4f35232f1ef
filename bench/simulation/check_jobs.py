"""The invariants of rollups, jobs and mails, by a slow and obvious pass over the rows that the archive has.

- *rollups*: of each hour that is due, the sums by minute are those of the readings.
- *jobs*: each job that ended is in the archive, with the volume that its nodes' counters tell, a verdict on
  that, and its hook's document.
- *mails*: one for each alarm of the slow disk, one when it is cleared, one for each job; a second time only
  where the first one's answer was lost.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.simulation.jobs import CLIENT_SOURCE, PlannedJob
from bench.simulation.processes import SECOND
from bench.simulation.record import SOURCE, Record
from laggard_aggregator.archive.table import Table
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS
from laggard_aggregator.jobs.rollups.rollup_pass import SETTLE_NS
from laggard_aggregator.notify.incidents import digest

if TYPE_CHECKING:
    from bench.simulation.site import Site

_HOUR, _MINUTE = 3600 * SECOND, 60 * SECOND
_SUMS = ("rd_ios", "rd_sectors", "rd_ms", "weighted_ms")
_CLIENT_SUM = "read_bytes_sum"
DOCUMENTS_FIT = 1 << 20
"""A smaller spool drops documents with the samples, counted together."""
_LEAST_STANDING = 5
"""Intervals for which an alarm stands whose mail is expected."""


@dataclass(frozen=True, slots=True)
class _Rise:
    """The rise of counters from one reading of a component to the next."""

    node: str
    component: str
    tick_ns: int
    before_ns: int
    read_ns: int
    amounts: Mapping[str, int]
    known: bool


def check_jobs(site: "Site") -> None:
    """Checks the archive and the mails of a site where nothing is due any more."""
    record, archive = site.record, site.monitor.host.disk.folder / "archive"
    both = archive, site.undamaged
    _check_rollups(record, both, site.monitor.host.now())
    _check_records(record, both)
    if site.plan.spool_bytes >= DOCUMENTS_FIT:
        _check_documents(site, both)
    _check_mails(site)


def _rises(archives: Sequence[Path], source: str, names: Sequence[str]) -> Iterator[_Rise]:
    """Yields the rises between all readings in some archives, by component and time."""
    columns = ["node", "component", "tick", "read_offset_ns"]
    rows: dict[tuple[str, str, int], tuple[int, tuple[int, ...]]] = {}
    order: list[str] = []
    for table in (each for archive in archives for each in Table(archive, "counters", source).scan()):
        fields = [
            name for name in table.column_names if (table.schema.field(name).metadata or {}).get(b"kind")
        ]
        tick = table["tick"].cast("int64").to_pylist()
        read = table["read_offset_ns"].to_pylist()
        values = zip(*(table[name].to_pylist() for name in sorted(fields)), strict=True)
        keys = (table[name].to_pylist() for name in columns[:2])
        for node, component, at, offset, row in zip(*keys, tick, read, values, strict=True):
            reading = (at + offset, row)
            key = node, component, at
            rows[key] = min(rows.get(key, reading), reading)
        order = sorted(fields)
    for (node, component), group in groupby(sorted(rows.items()), key=lambda item: item[0][:2]):
        before: tuple[int, int, tuple[int, ...]] | None = None
        for (_, _, at), (read_ns, row) in group:
            known = (
                before is not None
                and at - before[0] <= MOST_GAP_NS
                and read_ns > before[1]
                and all(new >= old for new, old in zip(row, before[2], strict=True))
            )
            amounts = dict.fromkeys(names, 0)
            if before is not None and known:
                amounts = {name: row[order.index(name)] - before[2][order.index(name)] for name in names}
            yield _Rise(node, component, at, before[1] if before else read_ns, read_ns, amounts, known)
            before = at, read_ns, row


def _minutes(archives: Sequence[Path]) -> defaultdict[tuple[str, str, int], Counter[str]]:
    """The sums of each node, component and minute."""
    sums: defaultdict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for rise in _rises(archives, SOURCE, _SUMS):
        minute = (rise.tick_ns - 1) // _MINUTE * _MINUTE
        sums[rise.node, rise.component, minute] += Counter({"samples": 1, **rise.amounts})
    return sums


def _check_rollups(record: Record, archives: tuple[Path, Path], now: float) -> None:
    """The rollups are those of the readings that the archive has, or had before they were damaged."""
    archive, _ = archives
    expected, before = _minutes([archive]), _minutes(archives)
    stored: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for table in Table(archive, "series60", SOURCE).scan(["node", "component", "minute", "samples", *_SUMS]):
        for row in table.set_column(2, "minute", table["minute"].cast("int64")).to_pylist():
            key = row["node"], row["component"], row["minute"]
            stored[key] += Counter({name: row[name] or 0 for name in ("samples", *_SUMS)})
    due = {key for key in expected if key[2] // _HOUR * _HOUR + _HOUR + SETTLE_NS <= now * SECOND}
    record.counts["minutes in rollups"] += len(due)
    keys = sorted(due | stored.keys())  # a clock that was ahead made other hours due
    wrong = [key for key in keys if stored[key] not in (expected[key], before[key])]
    if _lacks_intervals(archives, SOURCE):
        wrong = [key for key in wrong if stored[key] != Counter(samples=expected[key]["samples"])]
    if wrong:
        node, component, minute = wrong[0]
        record.problem(
            f"rollups: {len(wrong)} minutes differ, such as that of {component} of {node} at "
            f"{minute // SECOND - 1_800_000_000} s: {dict(stored[wrong[0]])}, of {dict(expected[wrong[0]])}"
        )


def _check_records(record: Record, archives: tuple[Path, Path]) -> None:
    archive, _ = archives
    last = {kind: _last(archive, kind) for kind in ("jobs", "job_summaries", "job_findings")}
    readings = [list(_rises(each, CLIENT_SOURCE, [_CLIENT_SUM])) for each in ([archive], archives)]
    record.counts["jobs"] += len(record.jobs)
    for job in record.jobs:
        key = job.key
        row = last["jobs"].get(key)
        if row is None or row["end"] != job.end:
            record.problem(f"jobs: {key} ended at {job.end}, the archive has {row and row['end']}")
            continue
        summary, finding = last["job_summaries"].get(key), last["job_findings"].get(key)
        if summary is None:
            record.problem(f"jobs: {key} was never joined")
            continue
        expected = [_volume(record, job, rises) for rises in readings]
        read = summary["client_read_bytes"] or 0.0
        is_less = _lacks_intervals(archives, CLIENT_SOURCE) and read < max(expected)[0]
        if all(abs(read - volume) > pieces + 1 for volume, pieces in expected) and not is_less:
            volumes = " or ".join(f"{volume:.0f}" for volume, _ in expected)
            record.problem(f"jobs: {key} read {read:.0f} bytes, by its counters {volumes}")
        if finding is None or finding["joined_at"] != summary["revision_at"]:
            record.problem(f"jobs: {key} has no verdict on its last join")


def _lacks_intervals(archives: tuple[Path, Path], source: str) -> bool:
    """Whether files of a source's schemas were damaged: the increments of slow samplers are gaps then."""
    _, undamaged = archives
    return bool(Table(undamaged, "schemas", source).files())


def _volume(record: Record, job: PlannedJob, rises: Sequence[_Rise]) -> tuple[float, int]:
    """Bytes that a job read by some rises, and the number of these."""
    volume, pieces = 0.0, 0
    for rise in rises:
        if rise.known and rise.node in job.nodes and (own := _within(rise, job)):
            every = sum(_within(rise, other) for other in record.jobs if rise.node in other.nodes)
            volume += rise.amounts[_CLIENT_SUM] * own / every  # a node without a job does nothing
            pieces += 1
    return volume, pieces


def _within(rise: _Rise, job: PlannedJob) -> int:
    """Nanoseconds of a rise during a job."""
    return max(min(rise.read_ns, job.end * SECOND) - max(rise.before_ns, job.start * SECOND), 0)


def _last(archive: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The last revision of each job."""
    found: dict[str, dict[str, Any]] = {}
    for table in Table(archive, kind).scan():
        for row in table.to_pylist():
            before = found.get(row["job_key"])
            if before is None or row["revision_at"] >= before["revision_at"]:
                found[row["job_key"]] = row
    return found


def _check_documents(site: "Site", archives: tuple[Path, Path]) -> None:
    """A document is there, or was in a file that was damaged: of the archive, or of a spool and counted."""
    record = site.record
    damaged = {fault.whom for fault in site.plan.faults if fault.kind == "bit of the spool flipped"}
    found = {
        content
        for archive in archives
        for table in Table(archive, "events", "jobs").scan(["content"])
        for content in table["content"].to_pylist()
    }
    for job in record.jobs:
        node = job.nodes[0]
        dropped = record.nodes[node].dropped + site.nodes[node].dropped_samples
        is_counted = node in damaged and dropped > 0
        if job.document not in found and not is_counted:
            record.problem(f"lost: the document of job {job.number}, on {job.nodes[0]}")


def _check_mails(site: "Site") -> None:
    record, interval = site.record, site.plan.interval_seconds
    mails = record.mails
    expected = {f"j.{digest(job.key)}": f"job {job.number}" for job in record.jobs}
    raised: dict[str, float] = {}
    for published in record.alarms:
        event, alarm = published.event, published.event.alarm
        if event.kind == "raised" and published.durable and published.latest:
            raised[alarm.component] = event.at
        elif event.kind == "cleared" and alarm.component in raised:
            incident = digest(site.monitor.settings.site, alarm.component, repr(alarm.since))
            if event.at - raised.pop(alarm.component) >= _LEAST_STANDING * interval:
                expected[f"s.{incident}"] = f"the alarm of {alarm.component}"
                expected[f"r.{digest(incident)}"] = f"the end of the alarm of {alarm.component}"
    for id_, about in expected.items():
        if id_ not in mails.accepted:
            record.problem(f"mails: there is none about {about}")
    for id_, times in mails.accepted.items():
        record.counts["mails"] += 1
        record.counts["mails sent again"] += len(times) - 1
        if not id_.startswith(("s.", "r.", "j.")):
            record.problem(f"mails: {id_} is of no known kind")
        unanswered = len(times) - mails.answered[id_]
        killed = sum(
            any(first <= kill <= first + interval for kill in record.kills) for first, _ in pairwise(times)
        )
        if len(times) - 1 > unanswered + killed:
            record.problem(f"mails: {id_} is sent {len(times)} times, {unanswered} of them without an answer")
