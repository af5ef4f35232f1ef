"""Options of `laggard mine` and its verbs; imports nothing that only their run needs."""

import argparse
from pathlib import Path

STATISTICS = ("applications", "sequential", "read-ratio", "sharing", "middleware", "striping")
_LOG_EXAMPLES = """\
verbs, each with its own --help:
  laggard mine init     convert Darshan, Slurm and LMT data into a store, each file once
  laggard mine job      the verdict on one job of a store
  laggard mine jobs     jobs by bandwidth and contributing factors
  laggard mine stats    statistics over all jobs
  laggard mine query    SQL over a store

examples:
  laggard mine run.darshan                 the verdict on one log
  laggard mine logs/*.darshan --json       one JSON object a line; logs of one job are judged together
"""
_INIT_EXAMPLES = """\
examples:
  laggard mine init --darshan /darshan --slurm sacct.txt --timezone America/Los_Angeles --store /data/mine
  laggard mine init --darshan /darshan/2026/11 --from 2026-11-01 --to 2026-11-08 --store /data/mine

Run it again after new logs have come: known files are not read again. A log that cannot be read is one line.
"""
_JOB_EXAMPLES = """\
examples:
  laggard mine job 4478544 --store /data/mine
  laggard mine job 4478544 --store /data/mine --html job.html --archive /var/lib/laggard/archive
"""
_JOBS_EXAMPLES = """\
examples:
  laggard mine jobs --write --below 1GiB/s --min-procs 1000 --store /data/mine
  laggard mine jobs --read --factors --html jobs.html --store /data/mine
"""
_STATS_EXAMPLES = """\
examples:
  laggard mine stats applications --store /data/mine
  laggard mine stats sequential --store /data/mine --engine spark --master spark://head:7077
"""
_QUERY_EXAMPLES = """\
examples:
  laggard mine query "select application, sum(bytes_written) from job group by all" --store /data/mine
  laggard mine query "select count(*) from darshan_file" --store /data/mine --engine spark

tables: darshan_job, darshan_file, job_ost, dxt, slurm_job, slurm_step, lmt, lmt_total, and the view job
"""


def add_mine_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard mine LOG...`."""
    parser.epilog = _LOG_EXAMPLES
    add = parser.add_argument
    add("logs", metavar="LOG", nargs="+", type=Path, help="a Darshan log")
    add("--json", action="store_true", help="print one JSON object a line")


def add_init_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard mine init`."""
    parser.epilog = _INIT_EXAMPLES
    add = parser.add_argument
    sources = {
        "--darshan": ("DIR", "a folder of Darshan logs, with those below it, or a log"),
        "--slurm": (
            "FILE",
            "sacct -P with JobIDRaw, Start, End, NodeList; sacct --json; pytokio's JSON",
        ),
        "--lmt": ("FILE", "LMT's database, h5lmt, TOKIO time series (HDF5) or summaries (CSV)"),
    }
    for option, (metavar, text) in sources.items():
        add(option, metavar=metavar, type=Path, nargs="+", action="extend", default=[], help=text)
    _add_store(parser)
    add("--from", metavar="DAY", dest="low", help="only jobs that began then or later (ISO 8601, UTC)")
    add("--to", metavar="DAY", dest="high", help="only jobs that began before")
    add("--timezone", metavar="ZONE", help="zone of times without one, such as America/Los_Angeles")
    add("--lmt-timezone", metavar="ZONE", help="the same of LMT's database (default: --timezone)")
    add("--readers", metavar="N", type=int, help="processes that read logs (default: one a CPU)")
    add("--json", action="store_true", help="print the result as one JSON object")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard mine job`."""
    parser.epilog = _JOB_EXAMPLES
    parser.add_argument("job", metavar="JOB", type=int, help="number of the job")
    _add_store(parser)
    parser.add_argument(
        "--archive", metavar="DIR", type=Path, help="Laggard's archive, for alarms of that time"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a report that needs no network")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    _add_engine(parser)


def add_jobs_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard mine jobs`."""
    parser.epilog = _JOBS_EXAMPLES
    add = parser.add_argument
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument(
        "--write", action="store_const", dest="direction", const="write", help="writes (default)"
    )
    direction.add_argument("--read", action="store_const", dest="direction", const="read", help="reads")
    parser.set_defaults(direction="write")
    add("--below", metavar="RATE", help="bandwidth on the critical path below this, such as 1GiB/s")
    add("--above", metavar="RATE", default="0", help="bandwidth of at least this")
    add("--min-procs", metavar="N", type=int, default=0, help="processes, at least")
    add(
        "--min-bytes-per-process",
        metavar="SIZE",
        help="bytes a process, at least (default: 10MB with --below, as in the paper, else 0)",
    )
    add("--factors", action="store_true", help="with contributing factors")
    add("--html", metavar="FILE", type=Path, help="write parallel coordinates that need no network")
    _add_store(parser)
    _add_format(parser)
    _add_engine(parser)


def add_stats_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard mine stats`."""
    parser.epilog = _STATS_EXAMPLES
    parser.add_argument("statistic", metavar="STATISTIC", choices=STATISTICS, help=", ".join(STATISTICS))
    _add_store(parser)
    _add_format(parser)
    _add_engine(parser)


def add_query_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard mine query`."""
    parser.epilog = _QUERY_EXAMPLES
    parser.add_argument("sql", metavar="SQL", help="one select statement")
    _add_store(parser)
    _add_format(parser)
    _add_engine(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="DIR", type=Path, required=True, help="folder of the store")


def _add_format(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON object a line")
    formats.add_argument("--csv", action="store_true", help="print CSV")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb", help="default %(default)s")
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: this machine)")
