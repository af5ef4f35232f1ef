"""`laggard status`: health of the monitoring, standing alarms, operators' decisions."""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from laggard_aggregator.cli import client
from laggard_aggregator.cli.top import ranking
from laggard_common.errors import ServiceError

UNHEALTHY = 1
_MOST_NODES = 20

_EXAMPLES = """\
examples:
  laggard status
  laggard status --check || echo "somebody should look"
  laggard status --json | jq '.stragglers[].name'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard status`."""
    parser.epilog = _EXAMPLES
    client.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 when the aggregator is not ready, or a raised alarm is not silenced",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the status once. Raises ServiceError when the aggregator does not answer."""
    aggregator, now = client.of(args), time.time()
    parts = {
        name: aggregator.get(f"/api/v1/{name}") for name in ("nodes", "groups", "stragglers", "decisions")
    }
    try:
        if args.json:
            print(json.dumps({key: value for part in parts.values() for key, value in part.items()}))
        else:
            _print(parts, now)
        loud = [s for s in parts["stragglers"]["stragglers"] if s["alarm"] and s["silenced"] is None]
        healthy = parts["nodes"]["ready"] and not loud
    except (KeyError, TypeError) as exc:
        raise ServiceError(f"{args.url}: not a laggard aggregator's answer") from exc
    return UNHEALTHY if args.check and not healthy else 0


def _print(parts: Mapping[str, Any], now: float) -> None:
    console = Console()
    nodes, groups = parts["nodes"], parts["groups"]["groups"]
    console.print("ready" if nodes["ready"] else Text("not ready: not connected to the broker", style="bold"))
    for role, counts in nodes["nodes"].items():
        console.print(Text(f"{role} nodes: {', '.join(f'{n} {state}' for state, n in counts.items())}"))
    _print_unhealthy(console, nodes["unwell"])
    live = sum(group["live"] for group in groups)
    console.print(Text(f"{len(groups)} groups compare {live} components"))
    for group in groups:
        if group["note"]:
            console.print(Text(f"no verdict on {group['group']}: {group['note']}"))
    stragglers = parts["stragglers"]["stragglers"]
    console.print(ranking(stragglers, now) if stragglers else "no stragglers")
    for decision in parts["decisions"]["decisions"]:
        console.print(Text(_said(decision)))


def _print_unhealthy(console: Console, unhealthy: Sequence[Mapping[str, Any]]) -> None:
    for node in unhealthy[:_MOST_NODES]:
        why = [node["state"]] if node["state"] != "up" else []
        why += [f"collector {name} fails" for name in node["failing"]]
        console.print(Text(f"  {node['node']}: {', '.join(why) or 'its clock is off'}"))
    if len(unhealthy) > _MOST_NODES:
        console.print(Text(f"  and {len(unhealthy) - _MOST_NODES} more"))


def _said(decision: Mapping[str, Any]) -> str:
    until = "until ended" if decision["until"] is None else f"until {_clock(decision['until'])}"
    comment = f": {decision['comment']}" if decision["comment"] else ""
    done = {"silence": "silenced", "drain": "drained"}.get(decision["kind"], decision["kind"])
    return f"{decision['target']} {done} by {decision['by']} on {_clock(decision['at'])}, {until}{comment}"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
