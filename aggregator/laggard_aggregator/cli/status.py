"""`laggard status`: health of the monitoring, standing alarms, operators' decisions."""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from laggard_aggregator.cli import client
from laggard_aggregator.cli.options import add_local
from laggard_aggregator.cli.top import compared, ranking, unjudged
from laggard_aggregator.status import formatting
from laggard_aggregator.status.text_table import terminal_width, wrapped
from laggard_common.errors import ServiceError
from laggard_common.visible import visible

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
    add_local(parser)
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 when the aggregator is not ready, its archive, journal, windows, clock or "
        "notifications or an agent's outbox are in trouble, or a raised alarm is not silenced",
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
            print(*map(visible, _lines(parts, now, args.local)), sep="\n")
        loud = [s for s in parts["stragglers"]["stragglers"] if s["alarm"] and s["silenced"] is None]
        healthy = parts["nodes"]["ready"] and not parts["nodes"].get("failing") and not loud
    except (KeyError, TypeError) as exc:
        raise ServiceError(f"{args.url}: not a laggard aggregator's answer") from exc
    return UNHEALTHY if args.check and not healthy else 0


def _lines(parts: Mapping[str, Any], now: float, local: bool) -> Iterator[str]:
    width = terminal_width(sys.stdout)
    for line in _health(parts):
        yield from wrapped(line, width)
    table = ranking(parts["stragglers"]["stragglers"], now, local, width)
    yield from (line.text for line in table) if table else ["no stragglers"]
    for line in _located(parts["stragglers"]["stragglers"]):
        yield from wrapped(line, width)
    for decision in parts["decisions"]["decisions"]:
        yield from wrapped(_decision(decision, local), width)


def _health(parts: Mapping[str, Any]) -> Iterator[str]:
    nodes, groups = parts["nodes"], parts["groups"]["groups"]
    failing = nodes.get("failing", {}).values()
    ready = "ready" if nodes["ready"] else "not ready: not connected to the broker"
    yield f"{ready}, but in trouble:" if failing and nodes["ready"] else ready
    yield from (f"  {problem}" for problem in failing)
    for role, counts in nodes["nodes"].items():
        yield f"{role} nodes: {', '.join(f'{n} {state}' for state, n in counts.items())}"
    yield from _unhealthy(nodes["unwell"])
    yield f"compared: {compared(groups)}"
    yield from unjudged(groups)


def _located(stragglers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each located cause, in the order of the stragglers."""
    evidence_of: dict[tuple[str, str], str] = {}
    for row in stragglers:
        if row.get("located_level"):
            evidence_of.setdefault((row["located_level"], row["located_name"]), row["evidence"])
    for (level, name), evidence in evidence_of.items():
        signs, _, place = evidence.rpartition(": ")
        # A name as a whole: `oss-1` begins those of its components.
        shown = re.sub(rf" of {re.escape(name)}(?![^ ,])", "", signs)
        yield f"located: {level} {name}: {place} ({shown})"


def _unhealthy(unhealthy: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for node in unhealthy[:_MOST_NODES]:
        why = [node["state"]] if node["state"] != "up" else []
        why += [f"collector {name} fails" for name in node["failing"]]
        yield f"  {node['node']}: {', '.join(why) or 'its clock is off'}"
    if len(unhealthy) > _MOST_NODES:
        yield f"  and {len(unhealthy) - _MOST_NODES} more"


def _decision(decision: Mapping[str, Any], local: bool) -> str:
    end = decision["until"]
    until = ", until ended" if end is None else f", until {formatting.zoned(end, local)}"
    said = " ".join(filter(None, (decision["comment"], decision.get("ticket"))))
    comment = f": {said}" if said else ""
    kind = decision["kind"]
    done = {"silence": "silenced", "drain": "drained", "comment": "commented"}.get(kind, kind)
    at = formatting.zoned(decision["at"], local)
    if kind == "comment" and end is None:
        until = ""
    return f"{decision['target']} {done} by {decision['by']} on {at}{until}{comment}"
