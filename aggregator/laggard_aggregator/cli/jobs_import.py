"""`laggard jobs import`: job metadata of files into an archive."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from laggard_common.errors import ConfigError, InputError

if TYPE_CHECKING:
    from laggard_aggregator.jobs.records.model import ReadReport

_EXAMPLES = """\
examples:
  SLURM_TIME_FORMAT=%s TZ=UTC sacct -X -P -D -a --noconvert --delimiter=$'\\x1f' -S now-7days \\
      -o JobIDRaw,JobID,Cluster,User,UID,Account,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,\\
NNodes,NCPUS,ExitCode,NodeList,JobName > jobs.txt
  laggard jobs import --sacct jobs.txt --archive /var/lib/laggard/archive
  sacct --json | laggard jobs import --sacct /dev/stdin --archive DIR
  laggard jobs import --pbs /var/spool/pbs/server_priv/accounting/202601* --cluster pbs1 --archive DIR
  flux jobs -a --json > flux.json; laggard jobs import --flux flux.json --cluster elcap --archive DIR

Records that the archive has are not written again: feeding a file twice, or overlapping ones in any order,
changes nothing. Rows that cannot be read are counted and named; docs/jobs.md has the rules.
"""
_FORMATS = {
    "sacct": "sacct -P with its header line, or JSON of sacct and slurmrestd",
    "jsonl": "neutral records, one JSON object a line (docs/jobs.md)",
    "pbs": "PBS accounting logs",
    "flux": "JSON of flux jobs",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    for name, about in _FORMATS.items():
        add(
            f"--{name}",
            metavar="FILE",
            nargs="+",
            action="extend",
            type=Path,
            default=[],
            help=f"{about} (also .gz)",
        )
    add("--archive", metavar="DIR", type=Path, required=True, help="the archive's folder")
    add("--site", metavar="NAME", default="site", help="site in the archive (default %(default)s)")
    add(
        "--cluster",
        metavar="NAME",
        default="cluster",
        help="cluster of records that name none (default %(default)s)",
    )
    add(
        "--controller-start",
        metavar="TIME",
        action="append",
        default=[],
        help="a start of slurmctld (ISO 8601, UTC; may be repeated): ends in the minute after are doubtful",
    )
    add("--json", action="store_true", help="print one JSON object a file")
    add("--timezone", metavar="ZONE", help="zone of times without an offset, such as Europe/Berlin")


_WITHOUT_HEADER = {"jsonl": "JSON Lines with jobs", "pbs": "a PBS accounting log"}
"""Formats without a header: only their lines show that a file is of another kind."""


def run(args: argparse.Namespace) -> int:
    """Imports all files and returns 0. Raises LaggardError, also for a file without a record."""
    from laggard_aggregator.cli.user_times import epoch_seconds
    from laggard_aggregator.jobs.records.local_times import LocalTimes
    from laggard_aggregator.jobs.records.model import ReadReport
    from laggard_aggregator.jobs.records.settle import with_late_ends
    from laggard_aggregator.jobs.records.sources.inputs import job_tables
    from laggard_aggregator.jobs.records.store import JobStore

    files = [(form, path) for form in _FORMATS for path in getattr(args, form)]
    if not files:
        raise ConfigError("", [f"expected an input: {', '.join(f'--{form}' for form in _FORMATS)}"])
    for option, value in (("--cluster", args.cluster), ("--site", args.site)):
        if not (value.isascii() and value.replace("-", "").replace("_", "").replace(".", "").isalnum()):
            raise ConfigError("", [f"{option}: expected letters, digits, - _ and ., got {value!r}"])
    times = LocalTimes(args.timezone)
    starts = [start for text in args.controller_start if (start := epoch_seconds("--controller-start", text))]
    for form, path in files:
        report = ReadReport()
        store = JobStore(args.archive, args.site, report)
        for table in job_tables(path, form, args.cluster, times, report):
            store.add(with_late_ends(table, starts))
            _show_progress(path, report.records)
        store.flush()
        if form in _WITHOUT_HEADER and report.broken and not report.records:
            raise InputError(
                str(path), f"no line is one of {_WITHOUT_HEADER[form]}; {report.named[0].strip()}"
            )
        _print_report(path, report, store.added, as_json=args.json)
    return 0


def _show_progress(path: Path, records: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{path.name[:40]}: {records:,} records", end="", file=sys.stderr, flush=True)


def _print_report(path: Path, report: "ReadReport", added: int, *, as_json: bool) -> None:
    """One line on stdout, and one on stderr for each kind of row that was left out."""
    from laggard_aggregator.files.json_line import line
    from laggard_aggregator.status.formatting import counted
    from laggard_common.visible import visible

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    steps = f", {counted(report.steps, 'step')} left out" if report.steps else ""
    if as_json:
        counts = {"records": report.records, "added": added, "steps": report.steps}
        doubts = {"ambiguous_times": report.ambiguous, "bad_node_lists": report.bad_node_lists}
        print(
            line(
                {
                    "record": "import",
                    "file": str(path),
                    **counts,
                    **doubts,
                    "doubts": report.doubts,
                    "left_out": report.broken,
                }
            )
        )
    else:
        print(visible(f"{path}: {counted(report.records, 'record')}, {added} new or changed{steps}"))
    for reason, count in sorted(report.broken.items()):
        print(visible(f"{path}: {counted(count, 'row')} left out: {reason}"), file=sys.stderr)
    for reason, count in sorted(report.doubts.items()):
        print(visible(f"{path}: {counted(count, 'time')}: {reason}"), file=sys.stderr)
    if report.ambiguous:
        about = "with a local time that occurs twice: marked doubtful"
        print(visible(f"{path}: {counted(report.ambiguous, 'record')} {about}"), file=sys.stderr)
    if report.bad_node_lists:
        whose = "its job has" if report.bad_node_lists == 1 else "their jobs have"
        about = f"that cannot be used: {whose} no nodes"
        print(visible(f"{path}: {counted(report.bad_node_lists, 'node list')} {about}"), file=sys.stderr)
    for named in report.named:
        print(visible(f"{path}: {named}"), file=sys.stderr)
