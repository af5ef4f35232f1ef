"""Manual pages, made from the programs' options and usage and from the sample configurations."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from laggard_agent.cli import build_parser as agent_parser
from laggard_aggregator.cli.daemon import build_parser as aggregator_parser
from laggard_aggregator.cli.main import COMMANDS
from laggard_common import __version__

PROJECT = Path(__file__).parents[1]
EXIT_STATUS = (("0", "Done."), ("1", "It failed."), ("2", "Options or a configuration file are wrong."))
SEE_ALSO = (
    *("laggard(1)", "laggard-agent(8)", "laggard-aggregator(8)", "laggard-ca(8)"),
    *("laggard-agent.toml(5)", "laggard-aggregator.toml(5)"),
)


def escaped(text: str) -> str:
    """`text` so that troff prints it as it is: backslashes, hyphens, and dots or quotes that begin a line."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def daemon_page(parser: argparse.ArgumentParser, configuration: str) -> str:
    """The page of one of the two daemons, section 8."""
    lines = [*_head(parser.prog, 8, parser.description or ""), *_synopsis(parser), *_options(parser)]
    lines += [".SH FILES", ".TP", f".I {escaped('/etc/laggard/' + configuration)}"]
    lines += [f"The configuration, see {_reference(parser.prog + '.toml(5)')}."]
    return _page([*lines, *_examples(parser), *_tail(f"{parser.prog}(8)")])


def commands_page() -> str:
    """The page of `laggard` and all its subcommands, section 1."""
    lines = _head("laggard", 1, "Finds the components of a storage system that are slower than their peers.")
    lines += [".SH SYNOPSIS", ".B laggard", ".I COMMAND", "[options]", ".SH COMMANDS"]
    named = [(f"laggard {entry.name}", entry) for entry in COMMANDS]
    named += [(f"laggard {entry.name} {verb.name}", verb) for entry in COMMANDS for verb in entry.verbs]
    for name, entry in named:
        parser = argparse.ArgumentParser(prog=name, formatter_class=argparse.RawDescriptionHelpFormatter)
        entry.add_arguments(parser)
        lines += [f".SS {escaped(name)}", escaped(entry.help[0].upper() + entry.help[1:]) + "."]
        lines += [*_usage(parser), *_actions(parser), *_verbatim(parser.epilog or "")]
    return _page([*lines, *_tail("laggard(1)")])


def configuration_page(daemon: str, sample: str) -> str:
    """The page of a configuration file, section 5: its sample (`##` explains, `#` shows a default)."""
    lines = _head(f"{daemon}.toml", 5, f"The configuration of {daemon}.")
    lines += [
        ".SH DESCRIPTION",
        "TOML. Unknown keys are errors. Below, lines with ## explain and lines with #",
    ]
    lines += ["show the default."]
    return _page([*lines, *_verbatim(sample), *_tail(f"{daemon}.toml(5)")])


def authority_page(script: str) -> str:
    """The page of laggard-ca, section 8: its usage, then the files that it keeps."""
    (usage,) = re.findall(r"^USAGE='usage: (.*?)'$", script, re.MULTILINE | re.DOTALL)
    commands, _, notes = usage.partition("\n\n")
    lines = _head("laggard-ca", 8, "A certificate authority for one site's broker, aggregators and nodes.")
    lines += [".SH SYNOPSIS", *_verbatim("\n".join(line.strip() for line in commands.splitlines()))]
    lines += [".SH DESCRIPTION", *_verbatim(notes)]
    return _page([*lines, *_tail("laggard-ca(8)")])


def pages() -> dict[str, str]:
    """All pages by file name."""
    made = {
        "laggard-agent.8": daemon_page(agent_parser(), "agent.toml"),
        "laggard-aggregator.8": daemon_page(aggregator_parser(), "aggregator.toml"),
        "laggard.1": commands_page(),
        "laggard-ca.8": authority_page((PROJECT / "deploy/pki/laggard-ca").read_text()),
    }
    for which in ("agent", "aggregator"):
        sample = (PROJECT / "deploy" / f"{which}.toml").read_text()
        made[f"laggard-{which}.toml.5"] = configuration_page(f"laggard-{which}", sample)
    return made


def _head(name: str, section: int, about: str) -> list[str]:
    said = about[0].lower() + about.rstrip(".")[1:]
    return [
        f'.TH "{escaped(name.upper())}" {section} "" "Laggard {__version__}"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(said)}",
    ]


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    yield from _usage(parser)


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (".PP", escaped(usage))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (".SH OPTIONS", *_actions(parser))


def _actions(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        yield from (".TP", f".B {escaped(formatter._format_action_invocation(action))}")
        if action.help:
            yield escaped(formatter._expand_help(action))


def _examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    if parser.epilog:
        yield from (".SH EXAMPLES", *_verbatim(parser.epilog.removeprefix("examples:\n")))


def _verbatim(text: str) -> Iterator[str]:
    if text:
        yield from (".PP", ".nf", escaped(text.rstrip()), ".fi")


def _tail(own: str) -> Iterator[str]:
    if not own.endswith("(5)"):
        yield ".SH EXIT STATUS"
        for status, meaning in EXIT_STATUS:
            yield from (".TP", f".B {status}", meaning)
    yield ".SH SEE ALSO"
    yield ",\n".join(_reference(page) for page in SEE_ALSO if page != own)


def _reference(page: str) -> str:
    name, _, section = page.partition("(")
    return f"\\fB{escaped(name)}\\fR({section}"


def _page(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
