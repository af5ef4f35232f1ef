"""Print what came of runs as a Markdown table: `python -m bench.testbed.gluster.report FILE...`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.testbed.gluster.evidence import FIGURES
from bench.testbed.gluster.experiments import CONTROL, EXPERIMENTS

Result = Mapping[str, Any]
SHOWN = {
    CONTROL: ("read latency", "disk await"),
    "brick": ("read latency", "write latency", "disk await"),
    "quota": ("read latency", "write latency", "disk await"),
    "loss-read": ("server retransmits", "read latency"),
    "loss-write": ("retransmits to server", "write latency"),
}


def table(results: Sequence[Result]) -> str:
    """Return two tables: what was blamed, a row a kind of run, and what the counters say."""
    kinds = {name: [r for r in results if r["run"] == name] for name in EXPERIMENTS}
    lines = [
        _row("run", "fault", "found", "blamed", "delay, s", "severity", "false positives", "also", "located")
    ]
    lines.append("|---" * 9 + "|")
    lines += [_blamed(name, runs) for name, runs in kinds.items() if runs]
    lines += ["", _row("run", "figure", "faulty, healthy phase", "faulty, fault", "peers, fault")]
    lines.append("|---" * 5 + "|")
    for name, runs in kinds.items():
        lines += [_figures(name, figure, runs) for figure in SHOWN[name] if runs]
    return "\n".join(lines)


def _blamed(name: str, runs: Sequence[Result]) -> str:
    """Return the row of one kind of run: how many found, by what, how soon."""
    found = [run["alarms"]["right"] for run in runs if run["alarms"]["right"]]
    delays = [min(alarm["delay_seconds"] for alarm in alarms) for alarms in found]
    severities = [max(alarm["severity"] for alarm in alarms) for alarms in found]
    seconds = sum(run["healthy_seconds"] + run["fault_seconds"] for run in runs)
    false = [alarm for run in runs for alarm in run["alarms"]["false"]]
    return _row(
        name,
        runs[0]["fault"],
        "-" if name == CONTROL else f"{len(delays)} of {len(runs)}",
        _kinds(alarm for alarms in found for alarm in alarms) or "nothing",
        _span(delays, "{:.0f}"),
        _span(severities, "{:.1f}"),
        f"{len(false)} in {seconds / 60:.0f} min" + (f": {_kinds(false)}" if false else ""),
        _kinds(alarm for run in runs for alarm in run["alarms"]["explained"]) or "nothing",
        _located(runs),
    )


def _located(runs: Sequence[Result]) -> str:
    """Return how many runs had the right level and component, and the levels that were named."""
    told = [run for run in runs if "located" in run]
    levels = Counter(cause["level"] for run in told for cause in run["located"])
    named = ", ".join(f"{level} ({count})" for level, count in levels.items()) or "nothing"
    return f"{sum(run['located_right'] for run in told)} of {len(told)}: {named}" if told else "-"


def _kinds(alarms: Iterable[Mapping[str, Any]]) -> str:
    """Return the kinds of alarms, level, source and metric, and how many there were of each."""
    kinds = Counter(f"{alarm['level']} by {alarm['source']} {alarm['metric']}" for alarm in alarms)
    return ", ".join(f"{kind} ({count})" for kind, count in kinds.items())


def _figures(name: str, figure: str, runs: Sequence[Result]) -> str:
    """Return the row of one figure: medians over the runs, with the lowest and highest."""

    def of(phase: str, key: str) -> list[float]:
        return [run["figures"][phase][figure][key] for run in runs if figure in run["figures"][phase]]

    peers = of("fault", "peers_lowest") + of("fault", "peers") + of("fault", "peers_highest")
    shown = "{:.3f}" if FIGURES[figure].unit == "%" else "{:.2f}"
    middle = shown.format(median(of("fault", "peers"))) if peers else "-"
    span = f" ({shown.format(min(peers))} to {shown.format(max(peers))})" if peers else ""
    return _row(
        name,
        f"{figure}, {FIGURES[figure].unit}",
        _span(of("healthy", "faulty"), shown),
        _span(of("fault", "faulty"), shown),
        middle + span,
    )


def _span(values: Sequence[float], shown: str) -> str:
    if not values:
        return "-"
    low, middle, high = (shown.format(value) for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the runs of several result files, in their order."""
    return [run for path in paths for run in json.loads(path.read_text())["runs"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 once the table is printed."""
    parser = argparse.ArgumentParser(prog="python -m bench.testbed.gluster.report", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of --output")
    print(table(read(parser.parse_args(arguments).files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
