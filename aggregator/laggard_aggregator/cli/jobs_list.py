"""`laggard jobs` and `laggard job`: the jobs of an archive, or those that an aggregator shows its asker."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from laggard_aggregator.cli.jobs_options import DEFAULT_LIMIT
from laggard_aggregator.cli.jobs_source import AskArchive, Asker, AskServer, Record
from laggard_aggregator.jobs.show import job_lines, mode_text, trace_text
from laggard_aggregator.jobs.verdict import BELOW_PEAK, BELOW_PEERS, LAGGARD
from laggard_aggregator.status.formatting import (
    counted,
    factor,
    lasting,
    minute,
    rate,
    rate_within,
    size,
    within,
    zoned,
)
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table, wrapped
from laggard_common.errors import InputError
from laggard_common.visible import visible

_COLUMNS = (
    TableColumn("job"),
    TableColumn("user", dispensable=2),
    TableColumn("application", dispensable=3),
    TableColumn("state", dispensable=4),
    TableColumn("nodes", right=True, dispensable=7),
    TableColumn("start", dispensable=1),
    TableColumn("lasted", right=True),
    TableColumn("read", right=True, dispensable=6),
    TableColumn("written", right=True, dispensable=5),
    TableColumn("verdict"),
)


_SHOWN_PHASES = 20
MIB = 2**20
_NEEDS = {
    LAGGARD: "the detector saw none, or had fewer than 18 minutes or 4 components",
    BELOW_PEAK: "none stayed below 30% of the peak for an hour, or fewer than 4 had I/O",
    BELOW_PEERS: "none had a peak below half the others', or fewer than 4 had I/O",
}


def _list(args: argparse.Namespace) -> int:
    """Prints the jobs that the options select, newest first; returns 0. Raises LaggardError."""
    asker: Asker = AskServer(args) if args.url else AskArchive(args)
    with closing(asker):
        is_export = args.json or args.csv
        jobs = _cut(asker.jobs(args), args.limit or (None if is_export else DEFAULT_LIMIT))
        if args.json:
            _print(json.dumps(job) for job in jobs)
        elif args.csv:
            sys.stdout.writelines(job_lines(jobs))
        else:
            rows = [_row(job) for job in jobs]
            _print(text_table(_COLUMNS, rows, terminal_width(sys.stdout)) if rows else [asker.nothing])
    return 0


def _cut(jobs: Iterator[Record], limit: int | None) -> Iterator[Record]:
    """Yields at most `limit` jobs, all for None; a line on stderr says where there are more."""
    yield from islice(jobs, limit)
    if next(jobs, None) is not None:
        print(f"Only the {counted(limit or 0, 'newest job')}: more with --limit", file=sys.stderr)


def _one(args: argparse.Namespace) -> int:
    """Prints a job; returns 0. Raises LaggardError, also where there is none."""
    asker: Asker = AskServer(args) if args.url else AskArchive(args)
    with closing(asker):
        runs = asker.runs(args.job, args.slow_components)
        if not runs:
            raise InputError(asker.name, f"has no job {visible(args.job)}")
        if args.sentence:
            _print([str(runs[0]["sentence"])])
            return 0
        if args.json:
            _print(json.dumps(run) for run in runs)
            return 0
        if len(runs) > 1:
            _print([f"{len(runs)} runs of {args.job}, the newest: the others by their keys"])
            _print(f"  {run['key']}  {_moment(run['start'])}" for run in runs)
        width = terminal_width(sys.stdout)
        for line in _details(runs[0], args.slow_components):
            _print(wrapped(line, width))
    return 0


def _moment(at: float | None) -> str:
    return "-" if at is None else zoned(at)


def _lasted(job: Record) -> str:
    return "-" if job["start"] is None or job["end"] is None else lasting(job["end"] - job["start"])


def _verdict(job: Record) -> str:
    """The verdict, with the component that was slow within a job that was not slow as a whole."""
    slow = (
        f"{finding['cause']} slow, {factor(finding['factor'])}"
        for finding in job["findings"][:1]
        if finding["kind"] == "slow component" and job["verdict"] != "slow"
    )
    return "; ".join((job["verdict"], *slow))


def _row(job: Record) -> tuple[str, ...]:
    return (
        str(job["job"] or job["raw_id"]),
        job["user"] or "-",
        job["application"] or "-",
        str(job["state"]),
        "-" if job["node_count"] is None else f"{job['node_count']:,}",
        "-" if job["start"] is None else minute(job["start"]),
        _lasted(job),
        size(job["summary"]["read_bytes"]),
        size(job["summary"]["written_bytes"]),
        _verdict(job),
    )


def _rate(mib: float, error: float | None) -> str:
    return rate_within(MIB * mib, None if error is None else MIB * error)


def _at_rate(summary: Record, name: str) -> str:
    mean = f"mean_{name}_mib_per_second"
    return f" at {_rate(summary[mean], summary[f'{mean}_error'])}" if summary[mean] else ""


def _details(job: Record, method: str = "") -> Iterator[str]:
    owner = f" of {job['user']}" if job["user"] else ""
    application = f" ({job['application']})" if job["application"] else ""
    yield f"Job {job['job'] or job['raw_id']}{owner}: {job['name'] or 'no name'}{application}, {job['state']}"
    nodes = "nodes unknown" if job["node_count"] is None else counted(job["node_count"], "node")
    yield f"  {_moment(job['start'])} to {_moment(job['end'])}, {_lasted(job)}, {nodes}"
    yield f"  key {job['key']}, project {job['account'] or '-'}, partition {job['partition'] or '-'}"
    yield f"  {job['sentence']}"
    said = " ".join((job["sentence"], *(finding["text"] for finding in job["findings"])))
    if (slow := job.get("slow_components", "")) and slow not in said:
        yield f"  slow in this job: {slow}"
    if method and all(finding["kind"] != "slow component" for finding in job["findings"]):
        yield f"  no slow component by {method}: {_NEEDS[method]}"
    for finding in job["findings"]:
        text = "" if finding["text"] in job["sentence"] else f"{finding['text']}. "
        yield f"    {text}{finding['advice']}"
    read, written = job["summary"]["read_bytes"], job["summary"]["written_bytes"]
    if read is None and written is None:
        yield "  Not joined with counters: the archive has none of its nodes, or not yet"
    else:
        coverage = "-" if job["coverage"] is None else f"{job['coverage']:.0%}"
        at_read, at_written = (_at_rate(job["summary"], name) for name in ("read", "written"))
        yield f"  read {size(read)}{at_read}, written {size(written)}{at_written}"
        yield f"  I/O mode by volume: {mode_text(job['summary']['mode'])}"
        yield f"  counters or traces cover {coverage} of its time"
        if differs := trace_text(job.get("trace_difference")):
            yield f"  {differs}"
    history = job["history"]
    if history is not None and job["mib_per_second"] is not None:
        yield (
            f"  rate of its I/O {_rate(job['mib_per_second'], job['mib_per_second_error'])}, median of "
            f"{counted(history['runs'], 'other run')} {rate(MIB * history['median'])} "
            f"({rate(MIB * history['p10'])} to {rate(MIB * history['p90'])})"
        )
    for io in (job.get("darshan") or {}).get("io", ()):
        at = "-" if io["mib_per_second"] is None else rate(MIB * io["mib_per_second"])
        what = f"{io['module']} {io['direction']} {size(io['bytes'])}"
        yield f"  Darshan: {what} at {at}, {counted(io['files'], 'file')}"
    for phase in job["phases"][:_SHOWN_PHASES]:
        amount = (
            counted(round(phase["amount"]), "operation")
            if phase["direction"] == "metadata"
            else size(phase["amount"])
        )
        measured = phase["amount"] / phase["busy_seconds"], phase["rate_error"]
        at = within(*measured, "a second") if phase["direction"] == "metadata" else rate_within(*measured)
        took = lasting(phase["busy_seconds"])
        yield f"  {phase['direction']} {amount}, {_moment(phase['start'])}, for {took}, {at}"
    if len(job["phases"]) > _SHOWN_PHASES:
        yield f"  and {len(job['phases']) - _SHOWN_PHASES} more phases: --json"
    for neighbour in job["neighbours"]:
        owner = f" of {neighbour['user']}" if neighbour["user"] else ""
        name = f" (job {neighbour['job'] or neighbour['key']}{owner})" if neighbour["key"] else ""
        yield f"  beside {neighbour['load']}{name}"


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class JobsCommand:
    """A command on jobs."""

    run: Callable[[argparse.Namespace], int]


LIST = JobsCommand(_list)
ONE = JobsCommand(_one)
