"""`laggard jobs compare`: runs of an application judged by their earlier ones."""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from laggard_aggregator.cli.jobs_csv import read_columns, required
from laggard_aggregator.files.json_line import line, six_digits
from laggard_aggregator.jobs.verdict.analysis.run_history import (
    LEAST_RUNS,
    PhaseKey,
    RunPhases,
    RunVerdict,
    judged,
)
from laggard_aggregator.status.formatting import DASH, factor
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table
from laggard_common.errors import InputError

_TEXTS = ("run", "application", "phase", "direction")
_NUMBERS = ("nodes", "duration_seconds", "bytes")
_COLUMNS = (
    TableColumn("run"),
    TableColumn("verdict"),
    TableColumn("of the expected time", right=True),
    TableColumn("score", right=True, dispensable=1),
    TableColumn("DBSCAN", dispensable=2),
)


def run(args: argparse.Namespace) -> int:
    """Prints the verdict on each run; returns 0 also with slow ones. Raises LaggardError."""
    verdicts = list(judged(read_runs(args.file)))
    if args.json:
        for verdict in verdicts:
            print(line(record(verdict)))
        return 0
    for text in text_table(_COLUMNS, [_cells(verdict) for verdict in verdicts], terminal_width(sys.stdout)):
        print(text)
    if any(verdict.verdict == "too few runs" for verdict in verdicts):
        print(
            f"too few runs: a run is judged by {LEAST_RUNS} or more earlier ones of its application and nodes"
        )
    return 0


def record(verdict: RunVerdict) -> dict[str, Any]:
    """The verdict as JSON has it."""
    return {
        "record": "run",
        "run": verdict.run,
        "verdict": verdict.verdict,
        "factor": six_digits(verdict.factor),
        "score": six_digits(verdict.score),
        "dbscan": verdict.dbscan,
    }


def read_runs(path: Path) -> list[RunPhases]:
    """The runs of a CSV file in the order of their first rows. Raises InputError."""
    columns = read_columns(path, _TEXTS, _NUMBERS)
    required(path, columns, (*_TEXTS, *_NUMBERS))
    for name, least in (("nodes", 1.0), ("duration_seconds", 1e-9), ("bytes", 0.0)):
        values = columns[name]
        wrong = ~((values >= least) & (values < 1e30))
        if wrong.any():
            row = int(wrong.argmax())
            expected = "a number of 0 or more" if not least else "a number above 0"
            raise InputError(str(path), f"column {name!r}: data row {row + 1}: expected {expected}")
    runs: dict[tuple[str, str, int], dict[PhaseKey, tuple[float, float]]] = defaultdict(dict)
    for row, (name, application) in enumerate(zip(columns["run"], columns["application"], strict=True)):
        phases = runs[name, application, int(columns["nodes"][row])]
        key = columns["phase"][row], columns["direction"][row]
        seconds, volume = phases.get(key, (0.0, 0.0))
        seconds += float(columns["duration_seconds"][row])
        phases[key] = seconds, volume + float(columns["bytes"][row])
    return [
        RunPhases(name, application, nodes, {key: (s, max(v, 1.0)) for key, (s, v) in phases.items()})
        for (name, application, nodes), phases in runs.items()
    ]


def _cells(verdict: RunVerdict) -> list[str]:
    return [
        verdict.run,
        verdict.verdict,
        DASH if verdict.factor is None else factor(verdict.factor),
        DASH if verdict.score is None else f"{verdict.score:.1f}",
        verdict.dbscan,
    ]
