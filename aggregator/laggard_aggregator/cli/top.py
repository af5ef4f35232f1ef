"""`laggard top`: the stragglers of a running aggregator, worst first, live in the terminal."""

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from laggard_aggregator.cli import client
from laggard_aggregator.cli.client import Client
from laggard_aggregator.cli.options import add_local
from laggard_aggregator.files.json_line import line
from laggard_aggregator.status import formatting
from laggard_aggregator.status.text_table import StyledLine, TableColumn, terminal_width, text_table, wrapped
from laggard_common.errors import ServiceError
from laggard_common.visible import visible

REFRESH_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard top`."""
    client.add_arguments(parser)
    add_local(parser)
    parser.add_argument("--once", action="store_true", help="print the ranking once and end")
    parser.add_argument(
        "--json", action="store_true", help="print the stragglers once, one JSON object a line, and end"
    )


def run(args: argparse.Namespace) -> int:
    """Shows the ranking until Ctrl-C, or once. Raises ServiceError when the aggregator does not answer."""
    aggregator = client.of(args)
    if args.json:
        for straggler in _listed(aggregator):
            print(line({"record": "straggler", **straggler}))
        return 0
    from rich.console import Console, Group
    from rich.text import Text

    console = Console()
    if args.once:
        for row in screen(aggregator, time.time(), args.local, terminal_width(sys.stdout)):
            console.print(Text(row.text, row.style), soft_wrap=True)
        return 0
    from rich.live import Live

    def picture() -> Group:
        lines = screen(aggregator, time.time(), args.local, console.width)
        return Group(*(Text(line.text, line.style) for line in lines))

    # Taken while waiting and at no other moment: a KeyboardInterrupt may get lost in a destructor, and a
    # handler that sets an event waits for ever where it interrupts that event's own wait.
    ctrl_c = {signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ctrl_c)
    try:
        with Live(picture(), console=console, auto_refresh=False, screen=True) as live:
            while signal.sigtimedwait(ctrl_c, REFRESH_SECONDS) is None:
                live.update(picture(), refresh=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def screen(aggregator: Client, now: float, local: bool = False, width: int | None = None) -> list[StyledLine]:
    """The screen at `now`, epoch seconds, from the aggregator's answers; times in UTC unless `local`."""
    listed = _listed(aggregator)
    groups = aggregator.get("/api/v1/groups")
    try:
        return [
            StyledLine(f"laggard, {formatting.zoned(now, local)}", "bold"),
            *ranking(listed, now, local, width),
            *(
                StyledLine(line)
                for remark in _remarks(listed, groups["groups"])
                for line in wrapped(remark, width)
            ),
        ]
    except (KeyError, TypeError) as exc:
        raise ServiceError(f"{aggregator.url}: not a laggard aggregator's answer") from exc


def _listed(aggregator: Client) -> list[Mapping[str, Any]]:
    """The stragglers, worst first. Raises ServiceError."""
    try:
        return [{**straggler} for straggler in aggregator.get("/api/v1/stragglers")["stragglers"]]
    except (KeyError, TypeError) as exc:
        raise ServiceError(f"{aggregator.url}: not a laggard aggregator's answer") from exc


_COLUMNS = (
    TableColumn("group", dispensable=4),
    TableColumn("component"),
    TableColumn("metric", dispensable=3),
    TableColumn("times slower", right=True),
    TableColumn("own", right=True, dispensable=6),
    TableColumn("peers", right=True, dispensable=5),
    TableColumn("persistence", right=True, dispensable=7),
    TableColumn("since", dispensable=1),
    TableColumn("for", right=True, dispensable=2),
    TableColumn("alarm"),
)


def ranking(
    stragglers: Sequence[Mapping[str, Any]], now: float, local: bool = False, width: int | None = None
) -> list[StyledLine]:
    """The stragglers as lines of a table, in the order given; none without any. `now` in epoch seconds."""
    rows = [
        (
            *(str(straggler[key]) for key in ("group", "name", "metric")),
            _number(straggler["factor"] or straggler["severity"]),
            _number(straggler["observed"], straggler["unit"]),
            _number(straggler["reference"], straggler["unit"]),
            _number(straggler["persistence"]),
            formatting.zoned(straggler["since"], local),
            _duration(now - straggler["since"]),
            _alarm(straggler),
        )
        for straggler in stragglers
    ]
    styles = ("", *(_STYLES[_alarm(straggler)] for straggler in stragglers))
    table = text_table(_COLUMNS, rows, width) if rows else []
    return [StyledLine(line, style) for line, style in zip_longest(table, styles[: len(table)], fillvalue="")]


_STYLES = {"yes": "bold red", "silenced": "dim", "no": "yellow"}
"""Styles of rows by their alarm."""


def _remarks(stragglers: Sequence[object], groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remarks: number of compared components, and groups without a verdict with the reason."""
    count = formatting.counted(len(stragglers), "straggler") if stragglers else "no stragglers"
    return [f"{count} among {compared(groups)}", *unjudged(groups)]


def compared(groups: Sequence[Mapping[str, Any]]) -> str:
    """The number of components in groups that were judged, and of these groups."""
    live = [group["live"] for group in groups if not group["note"]]
    return f"{formatting.counted(sum(live), 'component')} in {formatting.counted(len(live), 'group')}"


def unjudged(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """The groups without a verdict, each with the reason."""
    return [visible(f"no verdict on {group['group']}: {group['note']}") for group in groups if group["note"]]


def _alarm(straggler: Mapping[str, Any]) -> str:
    if not straggler["alarm"]:
        return "no"
    return "silenced" if straggler["silenced"] else "yes"


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return " ".join(filter(None, (f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}", unit)))


def _duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= length:
            return f"{whole / length:.1f} {unit}"
    return f"{whole} s"
