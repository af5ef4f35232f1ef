"""Completion of the programs' options in bash and zsh, made from their parsers by shtab.

`python packaging/completion.py DIRECTORY` with a Python that has Laggard, the aggregator's dependencies and
shtab. Below the directory each program has a folder that goes over the root of a system.
"""

import argparse
import sys
from pathlib import Path

import shtab

from laggard_agent.cli import build_parser as agent_parser
from laggard_aggregator.cli.daemon import build_parser as aggregator_parser
from laggard_aggregator.cli.main import COMMANDS
from laggard_common import __version__

PLACES = {"bash": "usr/share/bash-completion/completions/{}", "zsh": "usr/share/zsh/site-functions/_{}"}
"""Where each shell looks for a program's file."""
_BASH, _BASH_OR_FILES = "complete -o bashdefault -F", "complete -o bashdefault -o default -F"
"""Where nothing of its own fits, bash completes a file: the first argument of `laggard mine` may be one."""


def commands_parser() -> argparse.ArgumentParser:
    """The parser of `laggard` with all its subcommands, which itself it loads one at a time."""
    parser = argparse.ArgumentParser(prog="laggard")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command")
    for entry in COMMANDS:
        command = commands.add_parser(entry.name, help=entry.help)
        if entry.verbs:
            verbs = command.add_subparsers(dest="verb")
            for verb in entry.verbs:
                verb.add_arguments(verbs.add_parser(verb.name, help=verb.help))
        entry.add_arguments(command)
    return parser


def files() -> dict[Path, str]:
    """All files by path. Paths are completed where an option takes one."""
    made = {}
    for parser in (agent_parser(), aggregator_parser(), commands_parser()):
        _complete_paths(parser)
        for shell, place in PLACES.items():
            path = Path(parser.prog, place.format(parser.prog))
            made[path] = shtab.complete(parser, shell).replace(_BASH, _BASH_OR_FILES)
    return made


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _complete_paths(sub)
        elif action.type is Path or action.metavar in {"FILE", "DIR"}:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]


def main() -> int:
    """Writes all files below the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Writes the completion of Laggard's programs.")
    parser.add_argument("directory", type=Path)
    folder = parser.parse_args().directory
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
