"""Options of the commands under `laggard jobs`; imports nothing that only their run needs."""

import argparse
from pathlib import Path

from laggard_common.errors import ConfigError

_VERBS = """\
verbs, each with its own --help:
  laggard jobs import    adds job metadata to an archive
  laggard jobs phases    the I/O phases in a series of a job
  laggard jobs compare   runs of an application judged by their earlier ones
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


def add_jobs_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard jobs`."""
    parser.epilog = _VERBS


def run(_: argparse.Namespace) -> int:
    """Raises ConfigError: the verbs have commands of their own."""
    raise ConfigError("", ["expected a verb: import, phases or compare"])


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
