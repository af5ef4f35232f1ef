"""Heat map of nodes over time: bytes that each read and wrote.

Below a minute the archive's readings are used, as long as it keeps them; from a minute on its rollups. A cell
without a known increment is a gap, never zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, Within, day_of, tables_of
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.jobs.join.volumes import CLIENT, SOURCES, VolumeFields, moved
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.rollups.counter_slices import CounterSlices
from laggard_aggregator.jobs.rollups.increments import IncrementStream
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, MINUTE_NS, OnNodes, sum_column
from laggard_common.errors import ConfigError

MAX_CELLS: Final = 8_000_000
"""Nodes times moments of a map."""


@dataclass(frozen=True, slots=True)
class NodeHeatMap:
    """Amounts (2, N, T) by READ and WRITTEN of N nodes in T steps; NaN is a gap.

    `start`: epoch seconds of the first step.
    """

    nodes: tuple[str, ...]
    start: float
    step_seconds: float
    amounts: FloatArray


def heat_map(
    directory: Path, nodes: Sequence[str], start: float, end: float, step_seconds: float
) -> NodeHeatMap:
    """Nodes times steps of (start, end]. Raises ConfigError above MAX_CELLS, and ArchiveError."""
    step_ns = round(step_seconds * SECOND_NS)
    if step_ns < SECOND_NS:
        raise ConfigError("", [f"step: expected 1 second or more, got {step_seconds}"])
    start_ns, end_ns = round(start * SECOND_NS), round(end * SECOND_NS)
    if step_ns >= MINUTE_NS:
        start_ns -= start_ns % MINUTE_NS
        step_ns -= step_ns % MINUTE_NS
    steps = max(-(-(end_ns - start_ns) // step_ns), 1)
    if len(nodes) * steps > MAX_CELLS:
        raise ConfigError("", [f"step: {len(nodes)} nodes and {steps} steps are more than {MAX_CELLS} cells"])
    cells = _MapCells(nodes, start_ns, step_ns, steps)
    fill = _from_rollups if step_ns >= MINUTE_NS else _from_readings
    fill(cells, directory, start_ns, start_ns + steps * step_ns)
    return NodeHeatMap(tuple(nodes), start_ns / SECOND_NS, step_ns / SECOND_NS, cells.result())


class _MapCells:
    """Sums by node and step, and which of them are known."""

    def __init__(self, nodes: Sequence[str], start_ns: int, step_ns: int, steps: int) -> None:
        self.place = {short_name(node): at for at, node in enumerate(nodes)}
        self._start_ns, self._step_ns, self._steps = start_ns, step_ns, steps
        self._sums = np.zeros((2, len(nodes) * steps))
        self._known: BoolArray = np.zeros(len(nodes) * steps, dtype=np.bool_)
        self._shape = (2, len(nodes), steps)
        self._names = pa.array([], pa.string())
        self._places: IntArray = np.zeros(0, dtype=np.int64)

    def places(self, names: pa.Array) -> IntArray:
        """Rows of nodes, -1 for those that are not of the map. Row groups of a file have the same `names`."""
        if not names.equals(self._names):
            found = [self.place.get(short_name(name), -1) for name in names.to_pylist()]
            self._names, self._places = names, np.array(found, dtype=np.int64)
        return self._places

    def __contains__(self, node: object) -> bool:
        return isinstance(node, str) and short_name(node) in self.place

    def add(self, node: IntArray, until_ns: IntArray, spans: IntArray, moved: FloatArray) -> None:
        """Adds `moved` (2, R) at the steps that end with `until_ns`, evenly over `spans` steps each."""
        last = (until_ns - 1 - self._start_ns) // self._step_ns
        if (spans > 1).any():
            row = np.repeat(np.arange(spans.size), spans)
            back = np.arange(row.size) - np.repeat(np.cumsum(spans) - spans, spans)
            node, last, moved = node[row], last[row] - back, (moved / spans)[:, row]
        inside = (last >= 0) & (last < self._steps)
        if not inside.all():
            node, last, moved = node[inside], last[inside], moved[:, inside]
        cell = node * self._steps + last
        distinct = bool((cell[1:] > cell[:-1]).all())
        first = distinct and not self._known[cell].any()
        self._known[cell] = True
        for sums, each in zip(self._sums, moved, strict=True):
            if first:
                sums[cell] = each
            elif distinct:
                sums[cell] += each
            else:
                np.add.at(sums, cell, each)

    def spans(self, taken_ns: IntArray) -> IntArray:
        """Steps that an increment over this time covers."""
        found: IntArray = np.maximum((taken_ns + self._step_ns // 2) // self._step_ns, 1)
        return found

    def result(self) -> FloatArray:
        """The map, NaN where nothing is known."""
        self._sums[:, ~self._known] = np.nan
        return self._sums.reshape(self._shape)


def _from_readings(cells: _MapCells, directory: Path, start_ns: int, end_ns: int) -> None:
    for table in tables_of(directory, "counters"):
        fields = SOURCES.get(table.source)
        if fields is None or fields.layer != CLIENT:
            continue
        slices = CounterSlices(directory, table.source, table.site, {fields.read, fields.written})
        increments = IncrementStream()
        of: IntArray = np.zeros(0, dtype=np.int64)
        after = start_ns - 2 * SECOND_NS
        for until in slices.ends(after, end_ns, SECOND_NS):
            found = increments.add(slices.read(after, until, cells), until)
            after = until
            if not found.component.size:
                continue
            amounts, known = moved(fields, found)
            rows = slice(None) if known.all() else known
            spans = cells.spans(found.read_ns[rows] - found.before_ns[rows])
            keys = slices.components.keys  # components are only ever added
            of = np.append(of, [cells.place[short_name(node)] for node, _ in keys[of.size :]]).astype(
                np.int64
            )
            cells.add(of[found.component[rows]], found.tick_ns[rows], spans, amounts[:, rows])


def _from_rollups(cells: _MapCells, directory: Path, start_ns: int, end_ns: int) -> None:
    days = {"first_day": day_of(start_ns / 1e9), "last_day": day_of(end_ns / 1e9)}
    where = OnNodes(cells.place), Within("minute", start_ns, end_ns)
    for source, fields in SOURCES.items():
        if fields.layer != CLIENT:
            continue
        columns = ["node", "minute", "seconds", sum_column(fields.read), sum_column(fields.written)]
        for table in Table(directory, KIND, source).scan(columns, *where, **days):
            known = table.filter(pc.greater(table["seconds"], 0))
            if known.num_rows:
                _add_minutes(cells, known, fields)


def _add_minutes(cells: _MapCells, table: pa.Table, fields: VolumeFields) -> None:
    node = table["node"].unify_dictionaries().combine_chunks()
    of = cells.places(node.dictionary)
    until_ns = table["minute"].cast(pa.int64()).to_numpy() + MINUTE_NS
    moved = np.zeros((2, table.num_rows))
    for place, name in enumerate((fields.read, fields.written)):
        if sum_column(name) in table.column_names:
            moved[place] = pc.fill_null(table[sum_column(name)], 0).to_numpy()
    cells.add(of[node.indices.to_numpy()], until_ns, np.ones(table.num_rows, dtype=np.int64), moved)
