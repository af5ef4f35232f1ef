"""What came of runs, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.testbed.hotdep.experiments import CONTROL

HEAD = (
    "run",
    "fault",
    "indicted by",
    "delay, s",
    "stripe, ms",
    "false positives",
    "`diagnose`",
    "top functions",
)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a row a run."""
    return "\n".join([_row(*HEAD), "|---" * len(HEAD) + "|", *map(_run, results)])


def _run(result: Mapping[str, Any]) -> str:
    alarms = result["alarms"]
    right = alarms["right"]
    others = ", ".join(_by(alarm) for alarm in alarms["explained"])
    indicted = ", ".join(f"{alarm['component']} {_by(alarm)}" for alarm in right) or "nothing"
    minutes = (result["healthy_seconds"] + result["fault_seconds"]) / 60
    stripes = result["stripe_ms"]
    return _row(
        result["run"],
        result["fault"],
        f"{indicted} (also {others})" if others else indicted,
        ", ".join(f"{alarm['delay_seconds']:.0f}" for alarm in right) or "-",
        f"{stripes['healthy']:g}" + ("" if result["run"] == CONTROL else f", then {stripes['fault']:g}"),
        f"{len(alarms['false'])} in {minutes:.0f} min",
        "the same" if result["diagnose_agrees"] else "differs",
        ", ".join(f"`{cause['name']}`" for alarm in right for cause in alarm["causes"]) or "-",
    )


def _by(alarm: Mapping[str, Any]) -> str:
    return f"`{alarm['source']}` {alarm['metric']}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
