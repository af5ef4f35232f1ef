"""`laggard`: one command; the module of a subcommand is imported on use."""

import argparse
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from laggard_common import __version__
from laggard_common.errors import LaggardError


class OneLineParser(argparse.ArgumentParser):
    """Prints errors as one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class Entry(NamedTuple):
    """A subcommand. `module`: a module or `module:object` with the functions `add_arguments` and `run`."""

    name: str
    module: str
    help: str

    def load(self) -> Any:
        """Imports the subcommand."""
        return pkgutil.resolve_name(self.module)


COMMANDS = (
    Entry("demo", "laggard_aggregator.demo.command", "see a slow LUN found among twelve, on this machine"),
    Entry("diagnose", "laggard_aggregator.cli.diagnose", "find the stragglers in recorded data"),
    Entry("train", "laggard_aggregator.cli.train", "learn thresholds from fault-free data"),
    Entry("top", "laggard_aggregator.cli.top", "live ranking of a running aggregator"),
    Entry("status", "laggard_aggregator.cli.status", "health of the monitoring, raised alarms, decisions"),
    Entry(
        "silence",
        "laggard_aggregator.cli.decisions:silence",
        "judge and show components, but send no notifications",
    ),
    Entry("drain", "laggard_aggregator.cli.decisions:drain", "leave out components under maintenance"),
    Entry(
        "replaced", "laggard_aggregator.cli.decisions:replaced", "let components with new hardware start over"
    ),
    Entry("forget", "laggard_aggregator.cli.decisions:forget", "forget nodes and components that are gone"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `laggard` and returns its exit code: 2 for bad input or options, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    entry = next((e for e in COMMANDS for word in arguments[:1] if e.name == word), None)
    name = f"laggard {entry.name}" if entry else "laggard"
    try:
        module = entry.load() if entry else None
        args = _parser(entry, module).parse_args(arguments)
        assert module is not None  # the parser requires a subcommand
        code: int = module.run(args)
        sys.stdout.flush()
    except LaggardError as exc:
        for line in str(exc).splitlines():
            print(f"{name}: {line}", file=sys.stderr)
        return exc.exit_code
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("laggard_"):
            raise
        extra = "broker" if exc.name.partition(".")[0] == "amqtt" else "aggregator"
        print(f"{name}: {exc.name} is not installed: pip install 'laggard[{extra}]'", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader closed the pipe, as in `laggard diagnose ... | head`; the flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _parser(entry: Entry | None, module: Any) -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="laggard",
        description="Finds the components of a storage system that answer, but more slowly than their peers.",
        epilog="laggard COMMAND --help has each command's options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"laggard {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for each in COMMANDS:
        sub = commands.add_parser(
            each.name,
            help=each.help,
            description=each.help[0].upper() + each.help[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if each is entry and module is not None:
            module.add_arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
