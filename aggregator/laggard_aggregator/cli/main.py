"""`laggard`: one command; the module of a subcommand is imported on use."""

import argparse
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from laggard_aggregator.cli.extras import missing_extra_named
from laggard_common import __version__
from laggard_common.daemon import memory
from laggard_common.daemon.command import guarded
from laggard_common.daemon.options import OneLineParser, WrappedHelp, did_you_mean
from laggard_common.visible import visible

_MOST_KEPT_BYTES = 1 << 20
"""Larger free blocks return to the system at once."""


class Entry(NamedTuple):
    """A subcommand. `module`: a module or `module:object` with the function `run`.

    `options`: the function `add_arguments`, where it lies elsewhere, so that `--help` imports no numpy.
    `verbs`: subcommands of its own, named by the next argument.
    """

    name: str
    module: str
    help: str
    options: str = ""
    verbs: tuple["Entry", ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""
        declared: Callable[[argparse.ArgumentParser], None]
        declared = _resolved(self.options) if self.options else self._load().add_arguments
        declared(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Imports and runs the subcommand; returns its exit code."""
        code: int = self._load().run(args)
        return code

    def _load(self) -> Any:
        return _resolved(self.module)

    @property
    def about(self) -> dict[str, Any]:
        """Description of its parser, and how that is printed."""
        description = f"{self.help[0].upper()}{self.help[1:]}."
        return {"description": description, "formatter_class": WrappedHelp}


def _resolved(name: str) -> Any:
    """The module, or the object `module:object`. `pkgutil.resolve_name` alone hides what a module misses."""
    return pkgutil.resolve_name(name if ":" in name else f"{name}:")


def _mine_verb(name: str, about: str) -> Entry:
    options = f"laggard_aggregator.cli.mine_options:add_{name}_options"
    return Entry(name, f"laggard_aggregator.cli.mine_store:{name}", about, options)


COMMANDS = (
    Entry("demo", "laggard_aggregator.demo.command", "see a slow LUN found among twelve, on this machine"),
    Entry(
        "diagnose",
        "laggard_aggregator.cli.diagnose",
        "find the stragglers in recorded data",
        "laggard_aggregator.cli.options:add_diagnose_options",
    ),
    Entry(
        "init",
        "laggard_aggregator.cli.init",
        "configure the aggregator for what a Prometheus server has",
        "laggard_aggregator.cli.options:add_init_options",
    ),
    Entry(
        "train",
        "laggard_aggregator.cli.train",
        "learn thresholds from fault-free data",
        "laggard_aggregator.cli.options:add_train_options",
    ),
    Entry(
        "archive",
        "laggard_aggregator.cli.archive",
        "check the checksums of an archive",
        "laggard_aggregator.cli.options:add_archive_options",
    ),
    Entry(
        "layers",
        "laggard_aggregator.cli.layers",
        "find the layer that delays or serialises I/O",
        verbs=(
            Entry(
                "record",
                "laggard_aggregator.cli.layers:RECORD",
                "record system calls, block queue and devices of a program",
            ),
            Entry("send", "laggard_aggregator.cli.layers:SEND", "send a recording to the site's archive"),
            Entry(
                "received",
                "laggard_aggregator.cli.layers:RECEIVED",
                "recordings that nodes sent, and the candidate of each",
            ),
        ),
    ),
    Entry(
        "mine",
        "laggard_aggregator.cli.mine",
        "say from Darshan logs why a job's I/O was slow",
        "laggard_aggregator.cli.mine_options:add_mine_options",
        (
            _mine_verb("init", "convert Darshan, Slurm and LMT data into a store, each file once"),
            _mine_verb("job", "the verdict on one job of a store"),
            _mine_verb("jobs", "jobs by bandwidth on the critical path, with contributing factors"),
            _mine_verb("stats", "statistics over all jobs of a store"),
            _mine_verb("query", "SQL over a store, on DuckDB or Spark"),
        ),
    ),
    Entry(
        "jobs",
        "laggard_aggregator.cli.jobs_list:LIST",
        "list an archive's jobs, their volumes, phases and verdicts",
        "laggard_aggregator.cli.jobs_options:add_jobs_options",
        (
            Entry(
                "import",
                "laggard_aggregator.cli.jobs_import",
                "add job metadata of Slurm, PBS, Flux or jobs.jsonl to an archive",
            ),
            Entry(
                "top",
                "laggard_aggregator.cli.jobs_top",
                "users, projects and applications by their I/O, and classes of core hours",
            ),
            Entry(
                "phases",
                "laggard_aggregator.cli.jobs_phases",
                "find the I/O phases in a series of a job",
                "laggard_aggregator.cli.jobs_options:add_phases_options",
            ),
            Entry(
                "compare",
                "laggard_aggregator.cli.jobs_compare",
                "compare runs of an application with earlier ones",
                "laggard_aggregator.cli.jobs_options:add_compare_options",
            ),
        ),
    ),
    Entry(
        "job",
        "laggard_aggregator.cli.jobs_list:ONE",
        "show one job: who, where, when, how much I/O, and whether it was slow",
        "laggard_aggregator.cli.jobs_options:add_job_options",
    ),
    Entry(
        "report",
        "laggard_aggregator.cli.report",
        "write an HTML report on slow jobs, slow components and loads",
        "laggard_aggregator.cli.jobs_options:add_report_options",
    ),
    Entry("top", "laggard_aggregator.cli.top", "live ranking of a running aggregator"),
    Entry("status", "laggard_aggregator.cli.status", "health of the monitoring, raised alarms, decisions"),
    Entry(
        "silence",
        "laggard_aggregator.cli.decisions:silence",
        "judge and show components, but send no notifications",
    ),
    Entry("drain", "laggard_aggregator.cli.decisions:drain", "leave out components under maintenance"),
    Entry("comment", "laggard_aggregator.cli.decisions:comment", "note a comment or a ticket on components"),
    Entry(
        "replaced", "laggard_aggregator.cli.decisions:replaced", "let components with new hardware start over"
    ),
    Entry("forget", "laggard_aggregator.cli.decisions:forget", "forget nodes and components that are gone"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `laggard` and returns its exit code: 2 for bad input or options, others as `guarded` has them."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    entry = next((e for e in COMMANDS for word in arguments[:1] if e.name == word), None)
    name = f"laggard {entry.name}" if entry else "laggard"
    verb = next(
        (e for e in (entry.verbs if entry else ()) for word in arguments[1:2] if e.name == word), None
    )
    if verb is not None:
        name, entry, arguments = f"{name} {verb.name}", verb, arguments[1:]
    elif entry is not None and (meant := _verb_meant(entry, arguments[1:2])):
        print(f"{name}: no file and no command {visible(arguments[1])!r}{meant}", file=sys.stderr)
        return 2
    return guarded(name, lambda: _run(entry, arguments, name))


def _verb_meant(entry: Entry, words: Sequence[str]) -> str:
    """A suggestion where the first argument is like a verb of `entry`, and no option or file."""
    word = next(iter(words), "-")
    if word.startswith("-") or os.path.lexists(word):
        return ""
    return did_you_mean(word, (verb.name for verb in entry.verbs))


def _run(entry: Entry | None, arguments: Sequence[str], name: str) -> int:
    if entry is None:
        return _without_command(arguments)
    memory.settle(_MOST_KEPT_BYTES)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # pyarrow's own keeps what is freed
    with missing_extra_named():
        parser = OneLineParser(prog=name, **entry.about)
        entry.add_arguments(parser)
        return entry.run(parser.parse_args(arguments[1:]))


def _without_command(arguments: Sequence[str]) -> int:
    """Prints the help, the version or an error; without any argument the help, as bad usage."""
    overview = _overview()
    if not arguments:
        overview.print_help()
        return 2
    word = arguments[0]
    if not word.startswith("-"):
        overview.error(f"no command {word!r}{did_you_mean(word, (entry.name for entry in COMMANDS))}")
    overview.parse_args(arguments)
    raise AssertionError("the parser requires a subcommand")


def _overview() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="laggard",
        description="Finds the components of a storage system that answer, but more slowly than their peers.",
        epilog="laggard COMMAND --help has each command's options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"laggard {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        commands.add_parser(command.name, help=command.help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
