"""`laggard jobs top`: the users, projects or applications with most I/O, and classes of core hours."""

import argparse
import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from laggard_aggregator.cli.options import whole_number
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.jobs.access.filter import GroupBy
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.engines import ENGINES
from laggard_aggregator.jobs.loads.statistics import ClassRow, JobStatistics, OrderBy, TopRow
from laggard_aggregator.jobs.loads.statistics_engines import open_statistics
from laggard_aggregator.status.formatting import DASH, counted, size
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table
from laggard_common.visible import visible

_READER = Principal("", Role.ADMIN)
_CLASSES = "class"
_DEFAULT_LIMIT = 20
_AMOUNTS = (
    TableColumn("jobs", right=True),
    TableColumn("above 200 MB", right=True),
    TableColumn("core hours", right=True),
)
_TOP = (
    TableColumn("name"),
    *_AMOUNTS,
    TableColumn("read", right=True),
    TableColumn("written", right=True),
    TableColumn("metadata operations", right=True),
)
_OF_CLASSES = (
    TableColumn("core hours of a job"),
    *_AMOUNTS,
    TableColumn("mean read", right=True),
    TableColumn("mean written", right=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = """\
examples:
  laggard jobs top --archive /var/lib/laggard/archive
  laggard jobs top --archive DIR --by application --order metadata --from 2026-01-01 --to 2026-02-01
  laggard jobs top --archive DIR --by class --json
"""
    add = parser.add_argument
    add("--archive", metavar="DIR", type=Path, required=True, help="the aggregator's archive")
    add(
        "--by",
        choices=[*map(str, GroupBy), _CLASSES],
        default="user",
        help=f"groups (default user); {_CLASSES}: classes of core hours as in Beacon",
    )
    add("--order", choices=[*map(str, OrderBy)], default="volume", help="largest first (default volume)")
    add("--from", dest="after", metavar="TIME", default="", help="jobs that ended at this time or later")
    add("--to", dest="before", metavar="TIME", default="", help="jobs that ended before it (ISO 8601, UTC)")
    about = f"most rows (default {_DEFAULT_LIMIT}; with --json: all)"
    add("--limit", metavar="N", type=whole_number, help=about)
    add("--engine", choices=ENGINES, default=ENGINES[0], help="engine (default %(default)s)")
    add("--master", metavar="URL", help="of a Spark cluster; without it, Spark runs on this machine")
    add("--json", action="store_true", help="print records, one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Prints the statistics; returns 0. Raises LaggardError."""
    after, before = epoch_seconds("--from", args.after), epoch_seconds("--to", args.before)
    columns: tuple[TableColumn, ...]
    uncounted = 0
    with closing(open_statistics(args.archive, args.engine, args.master)) as engine:
        statistics = JobStatistics(engine, after or 0.0, 9e15 if before is None else before)
        if args.by == _CLASSES:
            of_class = statistics.classes(_READER)
            rows, columns = [_class_row(load) for load in of_class], _OF_CLASSES
            records = [asdict(load) for load in of_class]
            unknown = statistics.jobs_without_cores(_READER)
        else:
            limit = args.limit or (None if args.json else _DEFAULT_LIMIT)
            of_name = statistics.top(
                _READER, GroupBy(args.by), OrderBy(args.order), None if limit is None else limit + 1
            )
            if limit is not None and len(of_name) > limit:
                del of_name[limit:]
                print(f"Only the {counted(limit, f'largest {args.by}')}: more with --limit", file=sys.stderr)
            rows, columns = [_top_row(load) for load in of_name], _TOP
            records = [asdict(load) for load in of_name]
            unknown = sum(row.jobs_without_cores for row in of_name)
            uncounted = sum(row.jobs_without_counters for row in of_name)
    if uncounted:
        whose = f"The counters of {counted(uncounted, 'job')} are unknown"
        print(f"{whose}: volumes and operations are of the other jobs", file=sys.stderr)
    if args.json:
        lines = [json.dumps({"record": args.by, **record}) for record in records]
    else:
        lines = list(text_table(columns, rows, terminal_width(sys.stdout))) if rows else ["No job matches."]
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    if unknown:
        whose = f"The CPUs of {counted(unknown, 'job')} are unknown"
        print(f"{whose}: core hours are of the other jobs", file=sys.stderr)
    return 0


def _top_row(row: TopRow) -> tuple[str, ...]:
    amounts = (size(row.read_bytes), size(row.written_bytes), _operations(row.metadata_operations))
    return (row.name or "-", *_counts(row), *amounts)


def _operations(count: float | None) -> str:
    return DASH if count is None else f"{count:,.0f}"


def _class_row(row: ClassRow) -> tuple[str, ...]:
    return (row.name, *_counts(row), size(row.mean_read_bytes), size(row.mean_written_bytes))


def _counts(row: TopRow | ClassRow) -> tuple[str, str, str]:
    hours = "-" if row.core_hours is None else f"{row.core_hours:,.0f}"
    return f"{row.jobs:,}", f"{row.non_trivial_jobs:,}", hours
