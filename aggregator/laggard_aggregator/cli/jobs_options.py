"""Options of the commands under `laggard jobs`; imports nothing that only their run needs."""

import argparse
from pathlib import Path

from laggard_aggregator.cli import client
from laggard_aggregator.cli.options import whole_number
from laggard_aggregator.jobs.verdict import METHODS
from laggard_aggregator.settings.jobs import JobsTable

DEFAULT_LIMIT = 50
"""Jobs of a list for people; exports are whole."""
_VERBS = """\
examples:
  laggard jobs --archive /var/lib/laggard/archive --user alice
  laggard jobs --archive DIR --node cn-0042 --from 2026-01-31T10:00 --to 2026-01-31T12:00
  laggard jobs --archive DIR --project climate --csv > climate.csv
  laggard jobs --url https://laggard.example.org --token-file ~/.laggard-token

verbs, each with its own --help:
  laggard jobs import    adds job metadata to an archive
  laggard jobs top       users, projects and applications with most I/O
  laggard jobs phases    the I/O phases in a series of a job
  laggard jobs compare   runs of an application judged by their earlier ones
"""
_JOB_EXAMPLES = """\
examples:
  laggard job 4711 --archive /var/lib/laggard/archive
  laggard job 17_3 --archive DIR --json
  scontrol update JobId=4711 AdminComment="$(laggard job 4711 --archive DIR --sentence)"
"""
_PHASES_EXAMPLES = """\
examples:
  laggard jobs phases series.csv
  laggard jobs phases series.csv --time-column ts --write-column bytes_out --json

The file has a row a second, each with the amounts since the row before; any even distance of rows will do.
Rows that are missing are gaps: unknown, never zero. Columns that the file lacks are left out.
"""
_COMPARE_EXAMPLES = """\
examples:
  laggard jobs compare runs.csv
  laggard jobs compare runs.csv --json | jq 'select(.verdict == "slow")'

The file has the columns run,application,nodes,phase,direction,duration_seconds,bytes; runs are in order of
time, the rows of one run are its phases. Each run is judged by the earlier ones of its application and nodes.
"""

_REPORT_EXAMPLES = """\
examples:
  laggard report --archive /var/lib/laggard/archive --from 2026-01-01 --to 2026-02-01 -o january.html
  laggard report --archive DIR --from -7d --json | jq 'select(.record == "slow")'
  laggard report --archive DIR --from -7d --csv january

The file needs no network: it has no scripts, and its pictures are part of it. Jobs count by their end.
"""


def add_jobs_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard jobs`."""
    parser.epilog = _VERBS
    add = parser.add_argument
    _add_archive(parser)
    add("--user", metavar="NAME", default="", help="jobs of this user")
    add("--project", metavar="NAME", default="", help="jobs of this project (Slurm's account)")
    add("--app", metavar="NAME", default="", help="runs of this application")
    add("--state", metavar="STATE", default="", help="jobs in this state, such as failed")
    add("--from", dest="after", metavar="TIME", default="", help="jobs that ended after it (ISO 8601, UTC)")
    add("--to", dest="before", metavar="TIME", default="", help="jobs that were submitted before it")
    add("--node", metavar="NAME", default="", help="jobs that had this node")
    add("--ost", metavar="NAME", default="", help="jobs with I/O on this OST or forwarder")
    add(
        "--finding",
        metavar="KIND",
        default="",
        help="jobs that are slow, or with this finding, such as neighbour",
    )
    add(
        "--below-history",
        metavar="SHARE",
        type=float,
        help="jobs slower than this share of the median of their earlier runs, such as 0.5",
    )
    about = f"at most N jobs, newest first (default {DEFAULT_LIMIT}; with --json and --csv: all)"
    add("--limit", metavar="N", type=whole_number, help=about)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print records, one JSON object a line")
    form.add_argument("--csv", action="store_true", help="print CSV")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard job`."""
    parser.epilog = _JOB_EXAMPLES
    parser.add_argument("job", metavar="ID", help="as the scheduler shows it (42, 17_3, 20+1), or a key")
    _add_archive(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object a run")
    form.add_argument("--sentence", action="store_true", help="print the verdict alone, one line")
    parser.add_argument(
        "--slow-components",
        metavar="METHOD",
        choices=METHODS,
        default="",
        help="show OSTs and forwarders slower than the job's others, whatever its verdict: laggard (the "
        "daemon's detector, the default for slow jobs), below_peak or below_peers (the rules of Beacon)",
    )
    parser.add_argument(
        "--jobid-format",
        metavar="FORMAT",
        type=_jobid_format,
        default="",
        help="with --archive, of a running job: Lustre's jobid_name at this site, such as %%j:%%u:%%H, for "
        "its volumes by job_stats; an aggregator has it in [jobs]",
    )


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard report`."""
    parser.epilog = _REPORT_EXAMPLES
    add = parser.add_argument
    _add_archive(parser)
    add("--from", dest="after", metavar="TIME", required=True, help="begin, such as 2026-01-01 or -7d (UTC)")
    add("--to", dest="before", metavar="TIME", default="", help="end (default: now)")
    add("-o", "--output", metavar="FILE", type=Path, help="write there, and only on success")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the numbers, one JSON object a line")
    form.add_argument(
        "--csv", metavar="DIR", type=Path, help="write the numbers into a folder, a CSV file a table"
    )


def _add_archive(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR", type=Path, help="the aggregator's archive")
    source.add_argument("--url", help=f"ask a running aggregator, such as {client.DEFAULT_URL}")
    client.add_access(parser)
    parser.add_argument(
        "--index",
        metavar="FILE",
        type=Path,
        help="file of the index, made if missing (default: index/jobs.sqlite in the archive)",
    )


def _jobid_format(text: str) -> str:
    for _, problem in JobsTable(jobid_format=text).problems():
        raise argparse.ArgumentTypeError(problem)
    return text


def add_phases_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard jobs phases`."""
    parser.epilog = _PHASES_EXAMPLES
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="CSV, one row a second (also .gz, .xz, .zst)")
    add("--time-column", metavar="NAME", default="time", help="(default %(default)s)")
    add("--read-column", metavar="NAME", default="read_bytes", help="(default %(default)s)")
    add("--write-column", metavar="NAME", default="written_bytes", help="(default %(default)s)")
    add("--metadata-column", metavar="NAME", default="metadata_ops", help="(default %(default)s)")
    add(
        "--method",
        choices=("laggard", "dwt"),
        default="laggard",
        help="dwt: the low-pass wavelet of Beacon and IOSI, for comparison (default %(default)s)",
    )
    add("--json", action="store_true", help="print records, one JSON object a line")


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard jobs compare`."""
    parser.epilog = _COMPARE_EXAMPLES
    parser.add_argument("file", metavar="RUNS", type=Path, help="CSV, one row a phase (also .gz, .xz, .zst)")
    parser.add_argument("--json", action="store_true", help="print records, one JSON object a line")
