"""A verdict as JSON records; docs/mining.md documents the keys."""

from collections.abc import Iterator
from typing import Any

from laggard_aggregator.files.json_line import six_digits
from laggard_aggregator.jobs.darshan.findings import IoFinding, NotJudged
from laggard_aggregator.jobs.darshan.verdict import DirectionVerdict, JobVerdict

_MICROS = 1e6


def verdict_records(verdict: JobVerdict) -> Iterator[dict[str, Any]]:
    """Yields the records of one job: io, critical files, findings, and rules that were not judged."""
    for direction in verdict.directions:
        yield io_record(verdict, direction)
    for direction in verdict.directions:
        yield from _critical_records(verdict, direction)
    yield from map(finding_record, verdict.findings)
    yield from verdict.extra
    yield from map(not_judged_record, verdict.not_judged)


def io_record(verdict: JobVerdict, direction: DirectionVerdict) -> dict[str, Any]:
    """One module and direction."""
    accesses, paths = direction.accesses, verdict.tables.paths
    return {
        "record": "io",
        "log": paths[0],
        "job": verdict.tables.job_id,
        "module": accesses.module,
        "direction": accesses.direction,
        "bytes": direction.bytes,
        "busy_seconds": accesses.busy_us / _MICROS,
        "busy_lower_seconds": direction.lower_us / _MICROS,
        "span_seconds": accesses.span_us / _MICROS,
        "mib_per_second": six_digits(direction.mib_per_second),
        "files": int(accesses.timed.size),
        "critical_files": int(accesses.path.place.size),
        "top_share": six_digits(direction.top_share),
        "slowest_rank_mib_per_second": six_digits(direction.by_slowest),
        "logs": len(paths),
        "requests": int(accesses.requests.sum()),
        "traced": direction.is_traced,
        "untimed_bytes": direction.bytes - int(accesses.bytes[accesses.timed].sum()),
        "factors": {name: six_digits(value) for name, value in direction.factors.record().items()},
    }


def _critical_records(verdict: JobVerdict, direction: DirectionVerdict) -> Iterator[dict[str, Any]]:
    accesses, start = direction.accesses, verdict.tables.start_us
    path = accesses.path
    rows = zip(path.place.tolist(), path.start.tolist(), path.end.tolist(), strict=True)
    for place, begin, end in rows:
        yield {
            "record": "critical_file",
            "job": verdict.tables.job_id,
            "module": accesses.module,
            "direction": accesses.direction,
            "file": accesses.text(place, "name"),
            "rank": int(accesses.rank[place]),
            "start": (begin - start) / _MICROS,
            "end": (end - start) / _MICROS,
            "exclusive_seconds": (end - begin) / _MICROS,
            "factors": {
                name: six_digits(value) for name, value in direction.columns.of_record(place).items()
            },
        }


def finding_record(finding: IoFinding) -> dict[str, Any]:
    """One cause."""
    return {
        "record": "finding",
        "job": finding.job,
        "direction": finding.direction,
        "kind": finding.kind,
        "component": finding.component,
        "factor": six_digits(finding.factor),
        "share": six_digits(finding.share),
        "text": finding.text,
        "advice": finding.advice,
    }


def not_judged_record(gap: NotJudged) -> dict[str, Any]:
    """A rule or module without a verdict."""
    return {"record": "not_judged", "job": gap.job, "what": gap.rule, "reason": gap.reason}
