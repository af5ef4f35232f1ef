"""`laggard jobs phases`: the I/O phases in a series of a job."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from laggard_aggregator.cli.jobs_csv import read_columns, required
from laggard_aggregator.files.json_line import line, six_digits
from laggard_aggregator.jobs.verdict.analysis.phases import DIRECTIONS, Phase, find_phases
from laggard_aggregator.jobs.verdict.analysis.rate_series import rate_series
from laggard_aggregator.offline.csv_times import MISSING, TimeColumn
from laggard_aggregator.offline.sample_grid import NS
from laggard_aggregator.status.formatting import counted, figure, lasting, size, zoned
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table
from laggard_common.errors import ConfigError, InputError
from laggard_common.visible import visible

_CLOCK_FROM = 631_152_000
"""1990: earlier times are seconds since the start of the job."""
_COLUMNS = (
    TableColumn("phase"),
    TableColumn("start"),
    TableColumn("duration", right=True),
    TableColumn("amount", right=True),
    TableColumn("rate", right=True, dispensable=1),
    TableColumn("unknown", right=True, dispensable=2),
)


def run(args: argparse.Namespace) -> int:
    """Prints the phases; returns 0 also without any. Raises LaggardError."""
    phases = list(_found(args.file, _names(args), args.time_column, args.method))
    if args.json:
        for phase in phases:
            print(line(record(phase)))
        return 0
    if not phases:
        print("no phases")
        return 0
    for text in text_table(_COLUMNS, [_cells(phase) for phase in phases], terminal_width(sys.stdout)):
        print(text)
    return 0


def record(phase: Phase) -> dict[str, Any]:
    """The phase as JSON has it."""
    return {
        "record": "phase",
        "direction": phase.direction,
        "start": phase.start,
        "end": phase.end,
        "amount": round(phase.amount),
        "unknown_seconds": six_digits(phase.unknown_seconds),
        "busy_seconds": six_digits(phase.busy_seconds),
    }


def _names(args: argparse.Namespace) -> dict[str, str]:
    names = dict(zip(DIRECTIONS, (args.read_column, args.write_column, args.metadata_column), strict=True))
    if len({args.time_column, *names.values()}) < 4:
        raise ConfigError("", ["--time-column, --read-column, ...: expected four different columns"])
    return names


def _found(path: Path, names: dict[str, str], time_column: str, method: str) -> Iterator[Phase]:
    columns = read_columns(path, [time_column], list(names.values()))
    required(path, columns, [time_column])
    if not any(name in columns for name in names.values()):
        wanted = ", ".join(visible(name) for name in names.values())
        raise InputError(str(path), f"row 1, the header: none of the columns {wanted}")
    clock = TimeColumn(path)
    times = clock.parse(pa.array(columns[time_column], pa.string()), 0)
    for remark in clock.remarks():
        if "times begin at" not in remark:
            print(visible(f"laggard jobs phases: {remark}"), file=sys.stderr)
    seconds = np.where(times == MISSING, np.nan, times / NS)
    for direction, name in names.items():
        if name not in columns or not (columns[name] >= 0).any():
            continue
        try:
            series = rate_series(seconds, columns[name])
        except ValueError as exc:
            raise InputError(str(path), f"column {visible(name)!r}: {exc}") from exc
        yield from find_phases(series, direction, method)


def _cells(phase: Phase) -> list[str]:
    duration = phase.end - phase.start
    is_count = phase.direction == "metadata"
    return [
        phase.direction,
        zoned(phase.start) if phase.start > _CLOCK_FROM else f"{phase.start:g} s",
        lasting(duration),
        counted(round(phase.amount), "operation") if is_count else size(phase.amount),
        f"{figure(phase.rate)}/s" if is_count else f"{size(phase.rate)}/s",
        lasting(phase.unknown_seconds) if phase.unknown_seconds else "",
    ]
