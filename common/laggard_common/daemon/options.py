"""The parser of every command: errors of one line with a suggestion, and times such as `-12h` as values."""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import Any, NoReturn

from laggard_common.visible import visible

_TIME_AGO = re.compile(r"-\d+[a-z]+", re.ASCII)
_MISSING = re.compile(r"(the following|one of the) arguments .*required")
_INVALID_CHOICE = re.compile(r"(?s)(argument .*?): invalid choice: '(.*)' \(choose from .*\)")


class WrappedHelp(argparse.RawDescriptionHelpFormatter):
    """Wraps the prose around the options, too; lines that begin with a space, such as commands, stay."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002 - none is asked for
        parts = groupby(text.splitlines(), key=lambda line: not line or line.startswith(" "))
        return "\n".join(
            line
            for as_they_are, lines in parts
            for line in (lines if as_they_are else textwrap.wrap(" ".join(lines), width))
        )


class OneLineParser(argparse.ArgumentParser):
    """Prints errors as one line, without the usage, and suggests the option that was meant."""

    _given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with code 2."""
        if _MISSING.match(message) and (unknown := self._unknown_option()):
            message = (
                f"unrecognized arguments: {unknown}"  # the cause: a mistyped option is also a missing one
            )
        wrong = message.removeprefix("unrecognized arguments: ")
        if wrong != message and wrong.startswith("-"):
            message += did_you_mean(wrong.split()[0].partition("=")[0], self._option_string_actions)
        elif choice := _INVALID_CHOICE.fullmatch(message):
            message += did_you_mean(choice[2], self._choices(choice[1]))
        self.exit(2, f"{self.prog}: {visible(message)} (see {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As ArgumentParser does, but `--from -12h` is an option and its value, not two options."""
        self._given = _with_values(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._given, namespace)

    def _unknown_option(self) -> str:
        """The first long option that is unknown and not the beginning of a known one; empty without any."""
        given = takewhile(lambda word: word != "--", self._given)
        named = (word.partition("=")[0] for word in given if word.startswith("--"))
        known = [*self._option_string_actions]
        return next((word for word in named if not any(name.startswith(word) for name in known)), "")

    def _choices(self, argument: str) -> Iterable[str]:
        """The choices of the argument that an error names, as in `argument --by`."""
        names = set(argument.removeprefix("argument ").split("/"))
        for action in self._actions:
            if action.choices and names & {*action.option_strings, action.dest, str(action.metavar)}:
                return map(str, action.choices)
        return ()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean NAME?` with the name most like `word`; empty where none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - of no use without an error

    nearest = get_close_matches(word, known, 1)
    return f", did you mean {nearest[0]}?" if nearest else ""


def _with_values(arguments: Sequence[str]) -> list[str]:
    """The arguments, with a time in the past joined to the long option before it."""
    joined: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return joined + list(arguments[position:])
        before = joined[-1] if joined else ""
        if _TIME_AGO.fullmatch(argument) and before.startswith("--") and "=" not in before:
            joined[-1] = f"{before}={argument}"
        else:
            joined.append(argument)
    return joined
