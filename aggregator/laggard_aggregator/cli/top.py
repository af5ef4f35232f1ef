"""`laggard top`: the stragglers of a running aggregator, worst first, live in the terminal."""

import argparse
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laggard_aggregator.cli import client
from laggard_aggregator.cli.client import Client
from laggard_common.errors import ServiceError

REFRESH_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard top`."""
    client.add_arguments(parser)
    parser.add_argument("--once", action="store_true", help="print the ranking once and end")


def run(args: argparse.Namespace) -> int:
    """Shows the ranking until Ctrl-C, or once. Raises ServiceError when the aggregator does not answer."""
    console, aggregator = Console(), client.of(args)
    if args.once:
        console.print(screen(aggregator, time.time()))
        return 0
    stop = threading.Event()  # KeyboardInterrupt may get lost in a destructor
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        with Live(screen(aggregator, time.time()), console=console, auto_refresh=False, screen=True) as live:
            while not stop.wait(REFRESH_SECONDS):
                live.update(screen(aggregator, time.time()), refresh=True)
    finally:
        signal.signal(signal.SIGINT, before)
    return 0


def screen(aggregator: Client, now: float) -> RenderableType:
    """The screen at `now`, epoch seconds, from the aggregator's answers."""
    stragglers = aggregator.get("/api/v1/stragglers")
    groups = aggregator.get("/api/v1/groups")
    try:
        listed = stragglers["stragglers"]
        return Group(ranking(listed, now), *_remarks(listed, groups["groups"]))
    except (KeyError, TypeError) as exc:
        raise ServiceError(f"{aggregator.url}: not a laggard aggregator's answer") from exc


def ranking(stragglers: Sequence[Mapping[str, Any]], now: float) -> Table:
    """The stragglers as a table, in the order given; `now` in epoch seconds."""
    table = Table(title=f"laggard, {_clock(now)}", title_justify="left", expand=False)
    for heading in ("group", "component", "metric"):
        table.add_column(heading, overflow="fold")
    for heading in ("times slower", "own", "peers", "persistence"):
        table.add_column(heading, justify="right")
    for heading in ("since", "alarm"):
        table.add_column(heading)
    for straggler in stragglers:
        # Names come from the network and may look like markup: as Text they are not read as such.
        table.add_row(
            *(Text(str(straggler[key])) for key in ("group", "name", "metric")),
            _number(straggler["severity"]),
            _number(straggler["observed"], straggler["unit"]),
            _number(straggler["reference"], straggler["unit"]),
            str(straggler["persistence"]),
            f"{_clock(straggler['since'])} ({_duration(now - straggler['since'])})",
            _alarm(straggler),
        )
    return table


def _remarks(stragglers: Sequence[object], groups: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Remarks: number of compared components, and groups without a verdict with the reason."""
    live = sum(group["live"] for group in groups)
    lines = [Text(f"{len(stragglers)} stragglers among {live} components in {len(groups)} groups")]
    lines += [Text(f"no verdict on {group['group']}: {group['note']}") for group in groups if group["note"]]
    return lines


def _alarm(straggler: Mapping[str, Any]) -> str:
    if not straggler["alarm"]:
        return "no"
    return "silenced" if straggler["silenced"] else "[bold red]yes[/]"


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return " ".join(filter(None, (f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}", unit)))


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= length:
            return f"{whole / length:.1f} {unit}"
    return f"{whole} s"
