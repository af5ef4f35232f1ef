"""The verbs of `laggard mine` that work on a store."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.files.csv_lines import csv_lines
from laggard_aggregator.files.json_line import line
from laggard_aggregator.jobs.darshan import records, screen
from laggard_aggregator.jobs.darshan.engines import LogEngine, open_engine
from laggard_aggregator.jobs.darshan.job_list import FACTOR_COLUMNS, JobFilter, job_list
from laggard_aggregator.jobs.darshan.miner import size_bytes
from laggard_aggregator.jobs.darshan.statistics import STATISTICS
from laggard_aggregator.jobs.darshan.store import MineStore
from laggard_aggregator.jobs.darshan.store_build import MineSources, build
from laggard_aggregator.jobs.darshan.stored_job import judge_stored
from laggard_aggregator.status.formatting import counted, plain, zoned
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table
from laggard_common.errors import ConfigError
from laggard_common.visible import visible

PAPER_BYTES_PER_PROCESS = "10MB"
MAX_SKIPPED = 20
"""Lines of skipped files that are printed."""


class MineVerb(NamedTuple):
    """A verb: its function `run`."""

    run: Callable[[argparse.Namespace], int]


def _init(args: argparse.Namespace) -> int:
    if not (args.darshan or args.slurm or args.lmt):
        raise ConfigError("", ["expected a source: --darshan, --slurm or --lmt"])
    sources = MineSources(
        darshan=args.darshan,
        slurm=args.slurm,
        lmt=args.lmt,
        slurm_zone=args.timezone,
        lmt_zone=args.lmt_timezone or args.timezone,
        low_us=_micros("--from", args.low),
        high_us=_micros("--to", args.high),
    )
    readers = args.readers or os.cpu_count() or 1
    if not 1 <= readers <= 256:
        raise ConfigError("", [f"--readers: expected 1-256, got {readers}"])
    report = build(args.store, sources, readers, _progress if sys.stderr.isatty() else None)
    if args.json:
        counts = {name: getattr(report, name) for name in ("read", "converted", "known", "outside")}
        print(line({"record": "init", **counts, "skipped": report.skipped}))
        return 0
    for skipped in report.skipped[:MAX_SKIPPED]:
        print(visible(f"skipped: {skipped}"))
    if len(report.skipped) > MAX_SKIPPED:
        print(f"skipped: {len(report.skipped) - MAX_SKIPPED} more, with --json all of them")
    outside = f", {report.outside} outside of the period" if report.outside else ""
    print(
        f"{counted(report.read, 'file')} read, {report.converted} converted, {report.known} known before, "
        f"{len(report.skipped)} skipped{outside}"
    )
    return 0


def _micros(option: str, text: str | None) -> int | None:
    at = epoch_seconds(option, text)
    return None if at is None else round(at * 1e6)


def _progress(done: int, count: int) -> None:
    print(f"\r{done:,} of {count:,} logs", end="\n" if done == count else "", file=sys.stderr, flush=True)


def _job(args: argparse.Namespace) -> int:
    with closing(_engine(args)) as engine:
        verdict = judge_stored(engine, args.job, args.archive)
        if args.html is not None:
            from laggard_aggregator.jobs.darshan.report import job_report

            with written(args.html) as file:
                file.write(job_report(verdict))
        if args.json:
            for record in records.verdict_records(verdict):
                print(line(record))
        else:
            for text in screen.verdict_lines(verdict, terminal_width(sys.stdout)):
                print(visible(text))
    return 0


def _jobs(args: argparse.Namespace) -> int:
    least = args.min_bytes_per_process or (PAPER_BYTES_PER_PROCESS if args.below else "0")
    wanted = JobFilter(
        args.direction,
        size_bytes(args.above),
        size_bytes(args.below) if args.below else math.inf,
        args.min_procs,
        int(size_bytes(least)),
    )
    with closing(_engine(args)) as engine:
        table = job_list(engine, wanted, factors=args.factors or args.html is not None)
        if args.html is not None:
            from laggard_aggregator.jobs.darshan.report import jobs_report

            with written(args.html) as file:
                file.write(jobs_report(table, wanted))
        _print_table(args, table if args.json or args.csv else _readable(table))
    return 0


def _readable(table: pa.Table) -> pa.Table:
    """The list of jobs in the units of a reader, without columns that no job has."""
    starts = [zoned(micros / 1e6) for micros in table["start_us"].to_pylist()]
    shown = {
        "job": table["job_id"],
        "application": [plain(name or "", 40) for name in table["application"].to_pylist()],
        "start": starts,
        "users": pa.array([count if count > 1 else None for count in table["users"].to_pylist()], pa.int64()),
        "processes": table["processes"],
        "nodes": table["node_count"],
        "GiB": [amount / 2**30 for amount in table["bytes"].to_pylist()],
        "busy s": [micros / 1e6 for micros in table["busy_us"].to_pylist()],
        "MiB/s": table["mib_per_second"],
        "files": table["files"],
        "critical": table["critical_files"],
        "longest": table["top_share"],
        **{name: table[name] for name in FACTOR_COLUMNS if name in table.column_names},
    }
    jobs = pa.table(shown)
    return jobs.select([name for name in jobs.column_names if jobs[name].null_count < max(len(jobs), 1)])


def _stats(args: argparse.Namespace) -> int:
    statistic = STATISTICS[args.statistic]
    with closing(_engine(args)) as engine:
        table = statistic.rows(engine)
        if not args.json and not args.csv:
            print(statistic.title)
        _print_table(args, table)
    return 0


def _query(args: argparse.Namespace) -> int:
    with closing(_engine(args)) as engine:
        _print_table(args, engine.query(args.sql))
    return 0


def _engine(args: argparse.Namespace) -> LogEngine:
    return open_engine(MineStore(args.store), args.engine, args.master)


def _print_table(args: argparse.Namespace, table: pa.Table) -> None:
    for text in _lines(args, table):
        print(text if args.csv or args.json else visible(text))


def _lines(args: argparse.Namespace, table: pa.Table) -> Iterator[str]:
    if args.json:
        yield from map(line, _records(table))
    elif args.csv:
        rows = (row.values() for row in table.to_pylist())
        yield from (text.rstrip("\n") for text in csv_lines(table.column_names, rows))
    else:
        yield from _text_lines(table)


def _text_lines(table: pa.Table) -> list[str]:
    columns = [TableColumn(field.name, right=not pa.types.is_string(field.type)) for field in table.schema]
    rows = [[_shown(value) for value in row.values()] for row in table.to_pylist()]
    return text_table(columns, rows, terminal_width(sys.stdout))


def _records(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows for JSON: numbers also for decimals, None for values that JSON lacks, texts for other types."""
    for row in table.to_pylist():
        yield {name: _plain(value) for name, value in row.items()}


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


init = MineVerb(_init)
job = MineVerb(_job)
jobs = MineVerb(_jobs)
stats = MineVerb(_stats)
query = MineVerb(_query)
