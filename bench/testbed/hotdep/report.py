"""Print what came of runs as a Markdown table: `python -m bench.testbed.hotdep.report FILE...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.testbed.gluster.report import read
from bench.testbed.hotdep.experiments import CONTROL, EXPERIMENTS

HEAD = (
    "run",
    "blamed by",
    "delay, s",
    "also",
    "names the fault",
    "stripe, ms",
    "false positives",
    "`diagnose`",
)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a row a run."""
    return "\n".join([_row(*HEAD), "|---" * len(HEAD) + "|", *map(_run, results)])


def _run(result: Mapping[str, Any]) -> str:
    alarms = result["alarms"]
    right, false = alarms["right"], [f"{alarm['component']} {_by(alarm)}" for alarm in alarms["false"]]
    minutes = (result["healthy_seconds"] + result["fault_seconds"]) / 60
    stripes = result["stripe_ms"]
    return _row(
        result["run"],
        ", ".join(f"{alarm['component']} {_by(alarm)}" for alarm in right) or "nothing",
        ", ".join(f"{alarm['delay_seconds']:.0f}" for alarm in right) or "-",
        ", ".join(_by(alarm) for alarm in alarms["explained"]) or "nothing",
        ", ".join(_named(EXPERIMENTS[result["run"]].names, alarm["causes"]) for alarm in right) or "-",
        f"{stripes['healthy']:.1f}" + ("" if result["run"] == CONTROL else f", then {stripes['fault']:.1f}"),
        f"{len(false)} in {minutes:.1f} min" + (f": {', '.join(false)}" if false else ""),
        "the same" if result["diagnose_agrees"] else "differs",
    )


def _named(names: tuple[str, ...], causes: Sequence[Mapping[str, Any]]) -> str:
    """Return the first function that tells what is wrong, and its place among those that an alarm names."""
    for place, cause in enumerate(causes, 1):
        if cause["name"].startswith(names):
            return f"`{cause['name']}`, place {place}"
    return "nothing"


def _by(alarm: Mapping[str, Any]) -> str:
    return f"`{alarm['source']}` {alarm['metric']}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 once the table is printed."""
    parser = argparse.ArgumentParser(prog="python -m bench.testbed.hotdep.report", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of --output")
    print(table(read(parser.parse_args(arguments).files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
