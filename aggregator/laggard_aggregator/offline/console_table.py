"""Prints findings as a table."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laggard_aggregator.offline.findings import Finding, Findings

WIDTH = 110
"""Columns of a table written to a file or a pipe."""


def console_for(output: TextIO) -> Console:
    """Console on `output`: as wide as the terminal; without a terminal WIDTH columns and no colours."""
    return Console(file=output) if output.isatty() else Console(file=output, width=WIDTH, color_system=None)


def print_findings(
    console: Console, findings: Findings, found: Sequence[Finding], names: Mapping[str, str]
) -> None:
    """Prints the components with an alarm, worst first, and a summary; `names`: current names."""
    ranked = sorted(
        (f for f in found if f.anomalous_windows),
        key=lambda f: (not f.straggler, -f.persistence, -f.anomalous_windows, f.group, f.component),
    )
    shown = [f for f in ranked if f.straggler or f.first_alarm is not None]
    if shown:
        console.print(_table(shown, names))
        for f in shown:
            for metric, causes in f.causes.items():
                name = names.get(f.component, f.component)
                console.print(Text(f"{f.group} {name}: what differs most in {metric}"))
                for cause, amount in causes:
                    console.print(Text(f"  {amount:12.6g}  {cause}"), soft_wrap=True)
    groups = len({f.group for f in found})
    stragglers = sum(f.straggler for f in found)
    console.print(
        Text(
            f"{stragglers} stragglers, {len(shown)} components with an alarm, {len(ranked)} ever anomalous, "
            f"of {len(found)} in {groups} groups; {findings.windows} windows"
        )
    )
    for note, windows in sorted(findings.notes.items()):
        console.print(Text(f"{windows} windows not judged: {note}"))


def window_line(record: Mapping[str, Any]) -> str:
    """One window of one component as a line of text."""
    severity = record["severity"]
    return (
        f"{_time(record['start'])} - {_time(record['end'])}  {record['group']} {record['component']} "
        f"{record['metric']}: score {record['score']:.2f}, "
        f"{'' if severity is None else f'{severity:.2f} x its peers, '}"
        f"{'ANOMALOUS' if record['anomalous'] else 'normal'}\n"
    )


def _table(shown: Sequence[Finding], names: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("group", "component", "straggler"):
        table.add_column(name, overflow="fold")
    for name in ("x its peers", "score", "anomalous", "persistence"):
        table.add_column(name, justify="right")
    table.add_column("first alarm (UTC)", no_wrap=True)
    for f in shown:
        table.add_row(
            Text(f.group),
            Text(names.get(f.component, f.component)),
            Text("yes", style="bold red") if f.straggler else Text("no"),
            "" if math.isnan(f.severity) else f"{f.severity:.2f}",
            f"{f.score:.2f}",
            f"{f.anomalous_windows}/{f.windows}",
            str(f.persistence),
            "" if f.first_alarm is None else _time(f.first_alarm),
        )
    return table


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
