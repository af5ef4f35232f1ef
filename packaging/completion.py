"""Completion of the programs' options in bash and zsh, made from their parsers by shtab."""

import argparse
from pathlib import Path

import shtab

from laggard_agent.cli import build_parser as agent_parser
from laggard_aggregator.cli.daemon import build_parser as aggregator_parser
from laggard_aggregator.cli.main import COMMANDS
from laggard_common import __version__

PLACES = {"bash": "bash-completion/completions/{}", "zsh": "zsh/site-functions/_{}"}
"""Where each shell looks for a program's file, below `share`."""
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
    """All files by path below `share`. Paths are completed where an option takes one."""
    made = {}
    for parser in (agent_parser(), aggregator_parser(), commands_parser()):
        _complete_paths(parser)
        for shell, place in PLACES.items():
            script = shtab.complete(parser, shell).replace(_BASH, _BASH_OR_FILES)
            made[Path(place.format(parser.prog))] = script
    return made


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _complete_paths(sub)
        elif action.type is Path or action.metavar in {"FILE", "DIR"}:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
