"""Other people's series and labels: CSV as `laggard diagnose` reads it, and when which component was slow."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.leaderboard.scoring import Fault
from bench.leaderboard.series import METRIC
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.csv_times import TimeColumn
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import NS, Grid
from laggard_common.errors import InputError

UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
LABEL_COLUMNS = ("component", "start", "end")


def read_series(
    paths: Sequence[Path], columns: CsvColumns, settings: DetectSettings, unit: str
) -> list[Grid]:
    """The groups of the files, their first metric in microseconds and called METRIC. Raises InputError."""
    grids = read_grids(paths, columns, settings)
    return [
        replace(grid, metrics={METRIC: UNITS[unit] * next(iter(grid.metrics.values()))}) for grid in grids
    ]


def read_labels(path: Path, grids: Sequence[Grid]) -> list[Fault]:
    """The faults in a CSV file with the columns component, start, end, and group where names repeat.

    Times are epoch seconds or ISO 8601, all in one form; an empty one is the begin or end of the series.
    Raises InputError for a component that no group, or more than one, has.
    """
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in LABEL_COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(str(path), f"no column {', '.join(missing)}")
        rows = list(reader)
    times = TimeColumn(path)
    faults = []
    for number, row in enumerate(rows):
        groups = [
            grid.group
            for grid in grids
            if row["component"] in grid.components and row.get("group") in (None, "", grid.group)
        ]
        if len(groups) != 1:
            problem = "is in no group" if not groups else "is in several groups: name one in a column group"
            raise InputError(str(path), f"data row {number + 1}: {row['component'][:80]!r} {problem}")
        start, end = (_seconds(times, row[name], number) for name in ("start", "end"))
        faults.append(
            Fault(
                groups[0],
                row["component"],
                -np.inf if start is None else start,
                np.inf if end is None else end,
            )
        )
    return faults


def _seconds(times: TimeColumn, text: str | None, number: int) -> float | None:
    return int(times.parse(pa.array([text]), number)[0]) / NS if text else None
