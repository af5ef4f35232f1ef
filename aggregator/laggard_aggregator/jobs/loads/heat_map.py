"""Heat map of components over time: the load of each, from the archive's rollups.

A cell without a known increment is a gap, never zero.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, Within, day_of
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.jobs.loads.kinds import LoadFields, LoadKind
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, MINUTE_NS, OnNodes, sum_column
from laggard_common.errors import ConfigError

MAX_CELLS: Final = 64_000_000
"""Components times minutes of a map: a day of 44,000."""

Name = tuple[str, str]
"""Node and name of a component; the name is empty for the node itself."""


@dataclass(frozen=True, slots=True)
class LoadMap:
    """Load of N components in T steps; `start`: epoch seconds of the first step.

    `rates` (N, T): bytes or operations a second of the known minutes, NaN in gaps. Of the whole time (N,):
    `latency`, mean seconds of a request, NaN without any; `in_flight`, mean number of requests under way.
    """

    components: tuple[str, ...]
    start: float
    step_seconds: float
    rates: FloatArray
    latency: FloatArray
    in_flight: FloatArray


def heat_map(
    directory: Path,
    kind: LoadKind,
    names: Collection[Name],
    start: float,
    end: float,
    *,
    step_minutes: int = 1,
) -> LoadMap:
    """The load of the components `names` in (start, end]. Raises ConfigError above MAX_CELLS, ArchiveError.

    Components with one label are one row: a target that moved to another server.
    """
    start_ns = round(start * SECOND_NS) // MINUTE_NS * MINUTE_NS
    steps = max(-(-(round(end * SECOND_NS) - start_ns) // (step_minutes * MINUTE_NS)), 1)
    labels = sorted({kind.label(node, name) for node, name in names})
    if len(labels) * steps * step_minutes > MAX_CELLS:
        size = f"{len(labels)} components over {steps * step_minutes} minutes"
        raise ConfigError("", [f"{size} are more than {MAX_CELLS} cells: choose a shorter time"])
    cells = _LoadCells(kind, names, labels, start_ns, steps * step_minutes)
    for source, fields in kind.sources.items():
        _add_rollups(cells, directory, source, fields, {node for node, _ in names})
    rates, latency, in_flight = cells.load(step_minutes)
    return LoadMap(tuple(labels), start_ns / SECOND_NS, step_minutes * 60.0, rates, latency, in_flight)


class _LoadCells:
    """Sums by component and minute, and which of them are known."""

    def __init__(
        self, kind: LoadKind, names: Collection[Name], labels: Sequence[str], start_ns: int, minutes: int
    ) -> None:
        row = {label: at for at, label in enumerate(labels)}
        self._rows: Mapping[Name, int] = {
            (node, "" if kind.has_nodes else name): row[kind.label(node, name)] for node, name in names
        }
        self._has_nodes = kind.has_nodes
        self.start_ns, self.minutes = start_ns, minutes
        self._amounts = np.zeros(len(labels) * minutes, dtype=np.float32)
        self._known: BoolArray = np.zeros(len(labels) * minutes, dtype=np.bool_)
        self._totals = np.zeros((3, len(labels)))

    def rows(self, table: pa.Table) -> IntArray:
        """The row of each of the table's rows, -1 for those that are not of the map."""
        names, codes = coded_names(table, has_nodes=self._has_nodes)
        of_name: IntArray = np.array([self._rows.get(name, -1) for name in names], dtype=np.int64)
        return np.asarray(of_name[codes])

    def add(self, rows: IntArray, minutes: IntArray, sums: FloatArray) -> None:
        """Adds `sums` (4, R): amounts, requests, seconds that these took, and seconds observed."""
        amounts, *totals = sums
        cell = rows * self.minutes + minutes
        self._known[cell] = True
        np.add.at(self._amounts, cell, amounts.astype(np.float32))
        for place, own in enumerate(totals):
            self._totals[place] += np.bincount(rows, own, self._totals.shape[1])

    def load(self, step_minutes: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rates (N, T), mean latencies (N,) and mean numbers of requests under way (N,)."""
        requests, times, seconds = self._totals
        shape = (len(requests), self.minutes // step_minutes, step_minutes)
        known_seconds = 60.0 * self._known.reshape(shape).sum(axis=2)
        amounts = self._amounts.reshape(shape).sum(axis=2, dtype=np.float64)
        return quotient(amounts, known_seconds), quotient(times, requests), quotient(times, seconds)


def _add_rollups(
    cells: _LoadCells, directory: Path, source: str, fields: LoadFields, nodes: Collection[str]
) -> None:
    end_ns = cells.start_ns + cells.minutes * MINUTE_NS
    days = {"first_day": day_of(cells.start_ns / SECOND_NS), "last_day": day_of(end_ns / SECOND_NS)}
    where = OnNodes({short_name(node) for node in nodes}), Within("minute", cells.start_ns, end_ns)
    for table in Table(directory, KIND, source).scan(read_columns(fields), *where, **days):
        rows = cells.rows(table)
        is_known, minute_ns, sums = load_sums(table, fields)
        chosen = (rows >= 0) & is_known
        if chosen.any():
            cells.add(rows[chosen], (minute_ns[chosen] - cells.start_ns) // MINUTE_NS, sums[:, chosen])


def read_columns(fields: LoadFields) -> list[str]:
    """Columns of the rollups that a load is computed from."""
    return ["node", "name", "minute", "seconds", *map(sum_column, fields.names)]


def load_sums(table: pa.Table, fields: LoadFields) -> tuple[BoolArray, IntArray, FloatArray]:
    """Of R rows of rollups which are known (R,), their minutes in ns (R,), and sums (4, R).

    These are amounts, requests, seconds that the requests took, and seconds observed.
    """
    seconds = table["seconds"].to_numpy().astype(np.float64)
    amounts, is_known = _sums(table, fields.amounts)
    requests, _ = _sums(table, fields.requests)
    times, _ = _sums(table, fields.times)
    minute = table["minute"].cast(pa.int64()).to_numpy()
    sums = np.stack([amounts * fields.amount_scale, requests, times * fields.time_scale, seconds])
    return is_known & (seconds > 0), minute, sums


def coded_names(table: pa.Table, *, has_nodes: bool) -> tuple[list[Name], IntArray]:
    """The components of a table, and for each row the place of its own. `has_nodes`: these are nodes."""
    node = _coded(table["node"])
    nodes = node.dictionary.to_pylist()
    if has_nodes:
        return [(name, "") for name in nodes], node.indices.to_numpy().astype(np.int64)
    name = _coded(table["name"])
    names = name.dictionary.to_pylist()
    code = node.indices.to_numpy().astype(np.int64) * len(names) + name.indices.to_numpy()
    codes, inverse = np.unique(code, return_inverse=True)
    return [(nodes[code // len(names)], names[code % len(names)]) for code in codes.tolist()], inverse


def _sums(table: pa.Table, names: Sequence[str]) -> tuple[FloatArray, BoolArray]:
    """Sums (R,) of some fields, and where at least one is known: what never occurred has no counter."""
    sums, known = np.zeros(table.num_rows), np.zeros(table.num_rows, dtype=np.bool_)
    for name in dict.fromkeys(names):
        if name and sum_column(name) in table.column_names:
            column = table[sum_column(name)]
            known |= column.is_valid().to_numpy()
            sums += pc.fill_null(column, 0).to_numpy()
    return sums, known


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.unify_dictionaries().combine_chunks()


def quotient(upper: FloatArray, lower: FloatArray) -> FloatArray:
    """Their quotient, NaN where the lower is 0."""
    quotient: FloatArray = np.divide(upper, lower, out=np.full(upper.shape, np.nan), where=lower > 0)
    return quotient
