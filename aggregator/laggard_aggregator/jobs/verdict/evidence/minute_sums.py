"""Sums by component and minute from the archive's rollups.

Rollups are sorted by node, so of a file only the row groups of the nodes and minutes asked for are read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, Within, day_of
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, MINUTE_NS, OnNodes, sum_column

MINUTE: Final = 60.0
_MOST_OF_A_MINUTE: Final = 0.5

Named = Callable[[str, str], str | None]
"""The component of a node and name, None for rows that do not count."""
Times = tuple[float, float]


def hull(spans: Iterable[Times]) -> Times:
    """Start of the first of some spans and end of the last one."""
    starts, ends = zip(*spans, strict=True)
    return min(starts), max(ends)


@dataclass(frozen=True, slots=True)
class MinuteSums:
    """`values` (F, C, T) of F fields and C components in T minutes from `start`, seconds; NaN is a gap."""

    names: tuple[str, ...]
    start: float
    values: FloatArray

    def during(self, spans: Sequence[Times]) -> tuple[FloatArray, float]:
        """Sums (F, C) over the minutes that lie mostly in `spans`, or touch them if none does; seconds."""
        minutes = self.start + MINUTE * np.arange(self.values.shape[2])
        covered = np.zeros(minutes.size)
        for start, end in spans:
            covered += np.clip(np.minimum(minutes + MINUTE, end) - np.maximum(minutes, start), 0, MINUTE)
        chosen = covered >= _MOST_OF_A_MINUTE * MINUTE
        if not chosen.any():
            chosen = covered > 0
        sums: FloatArray = np.nansum(self.values[:, :, chosen], axis=2)
        return sums, float(chosen.sum()) * MINUTE


@dataclass(frozen=True, slots=True)
class Rollups:
    """Rows of a source that `named` gives a component. `nodes`: short names, None for all."""

    source: str
    fields: tuple[str, ...]
    named: Named
    nodes: frozenset[str] | None = None

    def read(self, directory: Path, start: float, end: float) -> MinuteSums | None:
        """The sums over all rows of a component and minute; None without any. Raises ArchiveError."""
        times = int(start // MINUTE) * MINUTE_NS, int(-(-end // MINUTE)) * MINUTE_NS
        sums = _Sums(times[0], (times[1] - times[0]) // MINUTE_NS, len(self.fields))
        columns = ["node", "name", "minute", *map(sum_column, self.fields)]
        where = [Within("minute", *times), *(() if self.nodes is None else (OnNodes(self.nodes),))]
        days = {"first_day": day_of(times[0] / 1e9), "last_day": day_of(times[1] / 1e9)}
        for table in Table(directory, KIND, self.source).scan(columns, *where, **days):
            sums.add(table, self.fields, self.named)
        return sums.series()


class _Sums:
    """Sums of rollups by component and minute."""

    def __init__(self, start_ns: int, minutes: int, fields: int) -> None:
        self._start_ns, self._minutes, self._fields = start_ns, minutes, fields
        self._places: dict[str, int] = {}
        self._found: list[tuple[IntArray, FloatArray]] = []

    def add(self, table: pa.Table, fields: Sequence[str], named: Named) -> None:
        """Adds the rows that `named` gives a component."""
        node, name = (table[each].unify_dictionaries().combine_chunks() for each in ("node", "name"))
        count = len(name.dictionary)
        pairs, of_row = np.unique(
            node.indices.to_numpy().astype(np.int64) * count + name.indices.to_numpy(), return_inverse=True
        )
        nodes, components = node.dictionary.to_pylist(), name.dictionary.to_pylist()
        number = np.full(pairs.size, -1)
        for at, pair in enumerate(pairs.tolist()):
            own = named(nodes[pair // count], components[pair % count])
            if own is not None:
                number[at] = self._places.setdefault(own, len(self._places))
        minute = (table["minute"].cast(pa.int64()).to_numpy() - self._start_ns) // MINUTE_NS
        rows = np.flatnonzero((number[of_row] >= 0) & (minute >= 0) & (minute < self._minutes))
        values = np.zeros((len(fields), rows.size))
        for place, field in enumerate(map(sum_column, fields)):
            if field in table.column_names:
                values[place] = pc.fill_null(table[field], 0).to_numpy()[rows]
        self._found.append((number[of_row][rows] * self._minutes + minute[rows], values))

    def series(self) -> MinuteSums | None:
        """The series in the order of names; None without any component."""
        if not self._places:
            return None
        sums = np.zeros((self._fields, len(self._places) * self._minutes))
        known: BoolArray = np.zeros(sums.shape[1], dtype=np.bool_)
        for cells, values in self._found:
            known[cells] = True
            for row, each in zip(sums, values, strict=True):
                np.add.at(row, cells, each)
        sums[:, ~known] = np.nan
        names = sorted(self._places)
        order = [self._places[name] for name in names]
        shaped = sums.reshape(len(sums), -1, self._minutes)[:, order]
        return MinuteSums(tuple(names), self._start_ns / SECOND_NS, shaped)
