"""`laggard report`: jobs, slow components and loads of a time, as one HTML file to hand on."""

import argparse
import json
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from laggard_aggregator.archive.table import check_archive, tables_of
from laggard_aggregator.cli import client
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.status.urls import TimeRange
from laggard_aggregator.web.report.contents import centre_report
from laggard_aggregator.web.report.page import page
from laggard_aggregator.web.report.records import csv_tables, json_lines
from laggard_common.errors import ConfigError, InputError

_READER = Principal("", Role.ADMIN)
_TIMEOUT_SECONDS = 300.0
"""The aggregator makes the whole report before it answers."""


def run(args: argparse.Namespace) -> int:
    """Writes the report; returns 0. Raises LaggardError."""
    made_at = time.time()
    start, end = epoch_seconds("--from", args.after), epoch_seconds("--to", args.before)
    when = TimeRange(start or 0.0, made_at if end is None else end)
    if when.start >= when.end:
        raise ConfigError("", ["--from: expected a time before --to"])
    if args.csv is not None and args.output is not None:
        raise ConfigError("", ["-o: --csv has its own folder"])
    text = _asked(args, when) if args.url else _made(args, when, made_at)
    if args.csv is not None:
        _write_tables(args.csv, text)
    elif args.output is None:
        sys.stdout.write(text)
    else:
        with written(args.output) as file:
            file.write(text)
    return 0


def _has_records(args: argparse.Namespace) -> bool:
    return args.json or args.csv is not None


def _write_tables(folder: Path, lines: str) -> None:
    """Writes a file for each kind of the records, and says which."""
    with InputError.from_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        tables = csv_tables(json.loads(text) for text in lines.splitlines())
    except (ValueError, TypeError, KeyError) as exc:
        raise InputError(str(folder), "the answer has no records of a report") from exc
    for kind, table in tables.items():
        with written(folder / f"{kind}.csv") as file:
            file.write(table)
    print(f"{folder}: {', '.join(f'{kind}.csv' for kind in tables)}")


def _asked(args: argparse.Namespace, when: TimeRange) -> str:
    """The report of the aggregator at `--url`."""
    query = {"from": when.start, "to": when.end, "format": "json" if _has_records(args) else "html"}
    return replace(client.of(args), timeout=_TIMEOUT_SECONDS).text(f"/report?{urlencode(query)}")


def _made(args: argparse.Namespace, when: TimeRange, made_at: float) -> str:
    """The report on `--archive`."""
    check_archive(args.archive)
    index = JobIndex(args.archive, args.index)
    index.refresh()
    with closing(JobQueries(index)) as queries:
        report = centre_report(args.archive, queries, _READER, when, made_at)
    if _has_records(args):
        return json_lines(report)
    sites = sorted({table.site for table in tables_of(args.archive, "jobs")})
    return page(report, ", ".join(sites) or args.archive.name)
