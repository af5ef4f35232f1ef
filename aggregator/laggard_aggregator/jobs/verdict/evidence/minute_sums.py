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

from laggard_aggregator.archive.table import Table, WithinAny, day_of
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, MINUTE_NS, OnNodes, sum_column

MINUTE: Final = 60.0
_MOST_OF_A_MINUTE: Final = 0.5
_DAY_NS: Final = 86_400 * SECOND_NS

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
class NamedSpan:
    """A time in seconds, and `named`: the components of its rows."""

    times: Times
    named: Named


@dataclass(frozen=True, slots=True)
class Rollups:
    """Fields of a source. `nodes`: short names of those with rows that count, None for all."""

    source: str
    fields: tuple[str, ...]
    nodes: frozenset[str] | None = None

    def read(self, directory: Path, spans: Sequence[NamedSpan]) -> list[MinuteSums | None]:
        """The sums of each span over all rows of a component and minute; None without any.

        The files of a day are read once for all spans. Raises ArchiveError.
        """
        sums = [_Sums(span, len(self.fields)) for span in spans]
        by_day: dict[str, list[_Sums]] = {}
        for series in sums:
            for day in series.days:
                by_day.setdefault(day, []).append(series)
        columns = ["node", "name", "minute", *map(sum_column, self.fields)]
        own = () if self.nodes is None else (OnNodes(self.nodes),)
        for day, wanted in sorted(by_day.items()):
            where = [WithinAny("minute", [series.times_ns for series in wanted]), *own]
            for table in Table(directory, KIND, self.source).scan(
                columns, *where, first_day=day, last_day=day
            ):
                rows = _RollupRows(table, self.fields)
                for series in wanted:
                    series.add(rows)
        return [series.series() for series in sums]


class _RollupRows:
    """Rows of rollups: `pair` of node and name of each row, `minute` in ns, `values` (F, n) of F fields."""

    def __init__(self, table: pa.Table, fields: Sequence[str]) -> None:
        node, name = (table[column].unify_dictionaries().combine_chunks() for column in ("node", "name"))
        count = len(name.dictionary)
        codes, self.pair = np.unique(
            node.indices.to_numpy().astype(np.int64) * count + name.indices.to_numpy(), return_inverse=True
        )
        nodes, names = node.dictionary.to_pylist(), name.dictionary.to_pylist()
        self.pairs = [(nodes[code // count], names[code % count]) for code in codes.tolist()]
        self.minute = table["minute"].cast(pa.int64()).to_numpy()
        self.values: FloatArray = np.zeros((len(fields), table.num_rows))
        for row, field in zip(self.values, map(sum_column, fields), strict=True):
            if field in table.column_names:
                row[:] = pc.fill_null(table[field], 0).to_numpy()


class _Sums:
    """Sums of rollups in a span by component and minute."""

    def __init__(self, span: NamedSpan, fields: int) -> None:
        start, end = span.times
        self.times_ns = int(start // MINUTE) * MINUTE_NS, int(-(-end // MINUTE)) * MINUTE_NS
        self._minutes = (self.times_ns[1] - self.times_ns[0]) // MINUTE_NS
        self._named, self._fields = span.named, fields
        self._places: dict[str, int] = {}
        self._found: list[tuple[IntArray, FloatArray]] = []

    @property
    def days(self) -> list[str]:
        """The days that the span touches."""
        first, last = (int(at // _DAY_NS) for at in self.times_ns)
        return [day_of(day * _DAY_NS / SECOND_NS) for day in range(first, last + 1)]

    def add(self, rows: _RollupRows) -> None:
        """Adds the rows in the span that have a component."""
        minute = (rows.minute - self.times_ns[0]) // MINUTE_NS
        within = np.flatnonzero((minute >= 0) & (minute < self._minutes))
        number = np.full(len(rows.pairs), -1)
        for pair in np.unique(rows.pair[within]).tolist():
            own = self._named(*rows.pairs[pair])
            if own is not None:
                number[pair] = self._places.setdefault(own, len(self._places))
        component = number[rows.pair[within]]
        chosen = within[component >= 0]
        cells = component[component >= 0] * self._minutes + minute[chosen]
        self._found.append((cells, rows.values[:, chosen]))

    def series(self) -> MinuteSums | None:
        """The series in the order of names; None without any component."""
        if not self._places:
            return None
        sums = np.zeros((self._fields, len(self._places) * self._minutes))
        known: BoolArray = np.zeros(sums.shape[1], dtype=np.bool_)
        for cells, values in self._found:
            known[cells] = True
            for row, column in zip(sums, values, strict=True):
                np.add.at(row, cells, column)
        sums[:, ~known] = np.nan
        names = sorted(self._places)
        order = [self._places[name] for name in names]
        shaped = sums.reshape(len(sums), -1, self._minutes)[:, order]
        return MinuteSums(tuple(names), self.times_ns[0] / SECOND_NS, shaped)
