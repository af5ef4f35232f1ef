"""`laggard jobs` and `laggard job`: the jobs of an archive, from the index beside it.

Whoever reads the archive's files reads all of it, so both ask as an administrator.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TextIO

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.jobs.index import JobIndex
from laggard_aggregator.jobs.job_filter import JobSelection
from laggard_aggregator.jobs.principals import Principal, Role
from laggard_aggregator.jobs.queries import JobQueries, Row
from laggard_aggregator.status.formatting import counted, iso, lasting, size
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table
from laggard_common.errors import ConfigError, InputError
from laggard_common.visible import visible

_READER = Principal("", Role.ADMIN)
_COLUMNS = (
    TableColumn("job"),
    TableColumn("user"),
    TableColumn("application"),
    TableColumn("state"),
    TableColumn("nodes", right=True),
    TableColumn("start"),
    TableColumn("lasted", right=True),
    TableColumn("read", right=True, dispensable=2),
    TableColumn("written", right=True, dispensable=1),
)
_SUMMARY = (
    *("read_bytes", "written_bytes", "mean_read_mib_per_second", "peak_read_mib_per_second"),
    *("mean_written_mib_per_second", "peak_written_mib_per_second", "iops", "mdops", "amplification"),
)
_MODES = {
    "N-N": "mode_n_n",
    "N-M": "mode_n_m",
    "N-1": "mode_n_1",
    "1-1": "mode_1_1",
    "unknown": "mode_unknown",
}
_CSV = (
    *("cluster", "job", "raw_id", "user", "account", "name", "application", "state"),
    *("submit", "start", "end", "node_count"),
    *(f"s_{name}" for name in _SUMMARY),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _list(args: argparse.Namespace) -> int:
    """Prints the jobs that the options select, newest first; returns 0. Raises LaggardError."""
    selection = JobSelection(
        user=args.user,
        project=args.project,
        application=args.app,
        state=args.state,
        after=epoch_seconds("--from", args.after),
        before=epoch_seconds("--to", args.before),
        node=args.node,
        component=args.ost,
        finding=args.finding,
        below_history=args.below_history,
    )
    with closing(_queries(args)) as queries:
        jobs = islice(queries.every(_READER, selection), args.limit)
        if args.json:
            _print(json.dumps(_record(queries, job)) for job in jobs)
        elif args.csv:
            _write_csv(jobs, sys.stdout)
        else:
            rows = [_row(job) for job in jobs]
            _print(text_table(_COLUMNS, rows, terminal_width(sys.stdout)) if rows else [_nothing(args)])
    return 0


def _one(args: argparse.Namespace) -> int:
    """Prints a job; returns 0. Raises LaggardError, also where there is none."""
    with closing(_queries(args)) as queries:
        found = queries.find(_READER, args.job)
        if not found:
            raise InputError(str(args.archive), f"has no job {visible(args.job)}")
        if len(found) > 1 and not args.json:
            _print([f"{len(found)} runs of {args.job}, the newest: the others by their keys"])
            _print(f"  {each['job_key']}  {_moment(each['start'])}" for each in found)
        for each in found if args.json else found[:1]:
            _print([json.dumps(_record(queries, each))] if args.json else _details(queries, each))
    return 0


def _queries(args: argparse.Namespace) -> JobQueries:
    ArchiveReader(args.archive)  # reports a folder that is none
    index = JobIndex(args.archive, args.index)
    index.refresh()
    return JobQueries(index)


def epoch_seconds(option: str, text: str) -> float | None:
    """Epoch seconds of an ISO 8601 time, which is UTC without an offset. Raises ConfigError."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as exc:
        raise ConfigError(
            "", [f"{option}: expected a time such as 2026-01-31T10:00, got {text[:40]!r}"]
        ) from exc


def _nothing(args: argparse.Namespace) -> str:
    where = args.archive / "kind=jobs"
    if not where.is_dir():
        return "The archive has no jobs. Add some: laggard jobs import --help"
    return "No job matches."


def _moment(at: float | None) -> str:
    return "-" if at is None else iso(at)


def _lasted(job: Row) -> str:
    return "-" if job["start"] is None or job["end"] is None else lasting(job["end"] - job["start"])


def _row(job: Row) -> tuple[str, ...]:
    return (
        str(job["job"]),
        str(job["user"]),
        str(job["application"]),
        str(job["state"]),
        "-" if job["node_count"] is None else f"{job['node_count']:,}",
        _moment(job["start"]),
        _lasted(job),
        size(job["s_read_bytes"]),
        size(job["s_written_bytes"]),
    )


def _details(queries: JobQueries, job: Row) -> Iterator[str]:
    yield f"Job {job['job']} of {job['user']}: {job['name']} ({job['application']}), {job['state']}"
    nodes = "nodes unknown" if job["node_count"] is None else counted(job["node_count"], "node")
    yield f"  {_moment(job['start'])} to {_moment(job['end'])}, {_lasted(job)}, {nodes}"
    yield f"  key {job['job_key']}, project {job['account'] or '-'}, partition {job['partition'] or '-'}"
    if job["s_read_bytes"] is None and job["s_written_bytes"] is None:
        yield "  Not joined with counters: it runs, or the archive has none of its nodes"
    else:
        coverage = "-" if job["s_coverage"] is None else f"{job['s_coverage']:.0%}"
        yield f"  read {size(job['s_read_bytes'])}, written {size(job['s_written_bytes'])}"
        yield f"  counters cover {coverage} of its time"
    history = queries.history(_READER, job["job_key"])
    if history is not None and job["rate"] is not None:
        yield (
            f"  {job['rate']:.3g} MiB/s, median of {history.runs} runs {history.median:.3g} "
            f"({history.p10:.3g} to {history.p90:.3g})"
        )
    for neighbour in queries.neighbours(_READER, job["job_key"]):
        name = "" if neighbour.job is None else f" ({neighbour.job['job']} of {neighbour.job['user']})"
        yield f"  beside {neighbour.text}{name}"


def _record(queries: JobQueries, job: Row) -> dict[str, Any]:
    modes = {name: job[f"s_{column}"] for name, column in _MODES.items()}
    names = ("cluster", "job", "raw_id", "restarts", "user", "account", "name", "application", "state")
    return {
        **{name: job[name] for name in names},
        **{name: job[name] for name in ("submit", "start", "end")},
        "nodes": [each["name"] for each in queries.nodes(_READER, job["job_key"])],
        "shared": None if job["s_shared"] is None else bool(job["s_shared"]),
        "summary": {**{name: job[f"s_{name}"] for name in _SUMMARY}, "mode": modes},
        "coverage": job["s_coverage"],
        "verdict": "not judged",
        "findings": [],
    }


def _write_csv(jobs: Iterable[Row], output: TextIO) -> None:
    """CSV in which no text is a formula of a spreadsheet."""
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([name.removeprefix("s_") for name in _CSV])
    for job in jobs:
        writer.writerow([_cell(job[name]) for name in _CSV])


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    return visible(f"'{value}" if value.startswith(_FORMULA) else value)


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class JobsCommand:
    """A command on the jobs of an archive."""

    run: Callable[[argparse.Namespace], int]


LIST = JobsCommand(_list)
ONE = JobsCommand(_one)
