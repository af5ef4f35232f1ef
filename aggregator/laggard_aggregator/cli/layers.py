"""`laggard layers FILE...`, and its verbs `record`, `send` and `received`."""

import argparse
from pathlib import Path

from laggard_aggregator.cli.options import positive, whole_number

_EXAMPLES = """\
verbs, each with its own --help:
  laggard layers record     record a program or running processes (root)
  laggard layers send       leave a recording in the outbox of this node's agent
  laggard layers received   show the recordings of all nodes in an archive

examples:
  laggard layers recording/                             a folder made by laggard layers record
  laggard layers app.csv perf.txt fiemap.txt --html layers.html
  laggard layers slow/ --healthy good/ --json
  laggard layers trace-*.pfw.gz
  laggard layers /var/run/gluster/*.dump.* before after   statedumps, two copies of /proc/diskstats
  laggard layers events.csv --order application,library,server,syscall

The search is bottom-up: it labels anomalies at the lowest layer and follows them up to the highest layer that
shows them. That layer, or the boundary above it, is a candidate, not a proof.
"""
_RECORD_EXAMPLES = """\
examples:
  laggard layers record -o run1 -- ./solver input.nml
  laggard layers record -o run2 --pid 4711 --pid 4712 --seconds 30

Needs root: it reads tracepoints through tracefs instances of its own. Other users of tracing are not
disturbed, and the program is never ended.
"""

_SEND_EXAMPLES = """\
examples:
  laggard layers record -o run1 -- ./solver input.nml
  laggard layers send run1                              on each node of the run
  laggard layers send run1 --name solver-4711

Matches the requests here, and leaves them with the report in the outbox of this node's agent, which sends
them to the aggregator. Needs [outbox] in agent.toml.
"""
_RECEIVED_EXAMPLES = """\
examples:
  laggard layers received --archive /var/lib/laggard/archive
  laggard layers received --archive /var/lib/laggard/archive run1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "inputs",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a folder with a recording, or its files: perf script or tracefs text, blkparse, strace, "
        "Darshan DXT, DFTracer, a program's own stamps, filefrag -v, events as CSV or Parquet "
        "(also .gz, .xz, .zst); or the counters of a gluster volume",
    )
    add(
        "--healthy",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a healthy recording, or a folder of several: what lies in their range is no anomaly",
    )
    add(
        "--order",
        metavar="A,B,...",
        type=_names,
        default=(),
        help="order of the layers, top first, where their names do not show it",
    )
    add("--html", metavar="FILE", type=Path, help="write the report with a picture, one file without scripts")
    add("--json", action="store_true", help="print records, one JSON object a line")
    add("-o", "--output", metavar="FILE", type=Path, help="write there, and only on success")
    add("--archive", metavar="DIR", type=Path, help="add the matched requests to this archive, too")
    add("--site", metavar="NAME", default="site", help="site in the archive (default %(default)s)")
    add("--node", metavar="NAME", help="node in the archive (default: the recording's, else this host)")


class RecordCommand:
    """`laggard layers record`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""
        _add_record_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Runs the recording and returns its exit code. Raises LaggardError."""
        from laggard_aggregator.layers.record.command import run as recorded

        return recorded(args)


RECORD = RecordCommand()


class SendCommand:
    """`laggard layers send`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""
        parser.epilog = _SEND_EXAMPLES
        add = parser.add_argument
        add("inputs", metavar="FILE", nargs="+", type=Path, help="a recording, as of laggard layers")
        add("--name", metavar="NAME", help="name of the recording (default: of the first FILE)")
        add(
            "--order",
            metavar="A,B,...",
            type=_names,
            default=(),
            help="layers from the top, as of laggard layers",
        )
        add(
            "--outbox",
            metavar="DIR",
            type=Path,
            default=Path("/run/laggard/outbox"),
            help="the agent's [outbox] directory (default %(default)s)",
        )
        add(
            "--max-mib",
            metavar="N",
            type=whole_number,
            default=256,
            help="most to leave there (default %(default)s)",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Leaves the recording in the outbox and returns the exit code. Raises LaggardError."""
        from laggard_aggregator.layers.send import run as sent

        return sent(args)


class ReceivedCommand:
    """`laggard layers received`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""
        parser.epilog = _RECEIVED_EXAMPLES
        add = parser.add_argument
        add("recording", metavar="RECORDING", nargs="?", default="", help="a recording, with its findings")
        add("--archive", metavar="DIR", type=Path, required=True, help="the aggregator's archive")
        add("--json", action="store_true", help="print records, one JSON object a line")
        add("-o", "--output", metavar="FILE", type=Path, help="write there, and only on success")

    def run(self, args: argparse.Namespace) -> int:
        """Prints the recordings and returns the exit code. Raises LaggardError."""
        from laggard_aggregator.layers.received import run as shown

        return shown(args)


SEND = SendCommand()
RECEIVED = ReceivedCommand()


def _add_record_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _RECORD_EXAMPLES
    add = parser.add_argument
    add("-o", "--output", metavar="DIR", type=Path, help="folder of the recording (required)")
    add(
        "--pid",
        metavar="N",
        type=whole_number,
        action="append",
        default=[],
        help="a running process; may be repeated",
    )
    add(
        "--seconds",
        metavar="S",
        type=positive,
        help="end the recording after this time, not the program (default: when the processes end)",
    )
    add("--file", metavar="PATH", action="append", default=[], help="a data file, if it is not open for long")
    add(
        "--file-system",
        action="store_true",
        help="record the file system, too: direct I/O (iomap) and buffered writes (ext4)",
    )
    add(
        "--buffer-kib",
        metavar="N",
        type=whole_number,
        default=8192,
        help="buffer a CPU (default %(default)s)",
    )
    add("--max-mib", metavar="N", type=whole_number, default=1024, help="largest trace (default %(default)s)")
    add("command", metavar="-- COMMAND", nargs=argparse.REMAINDER, help="run and record this")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("expected names of layers, separated by commas")
    return names


def run(args: argparse.Namespace) -> int:
    """Runs the analysis and returns its exit code. Raises LaggardError."""
    from laggard_aggregator.layers.command import run as analyse

    return analyse(args)
