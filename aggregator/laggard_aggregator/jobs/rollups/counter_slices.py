"""Readings of one source from the archive's counters, slice after slice of their nominal time.

A slice holds all rows of its time that the archive has, whenever they came: the order in which rows were
accepted does not matter. Of a file only the row groups are read whose ticks overlap the slice.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.archive.table import (
    Part,
    Table,
    column_of,
    integers,
    page_checked_file,
    received_day,
)
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.engine.routes import START_TIME
from laggard_aggregator.jobs.rollups.readings import (
    SECOND_NS,
    Column,
    Components,
    CounterReadings,
    sorted_readings,
)
from laggard_aggregator.windows.interval_metrics import BRIDGE

GAP_NS = BRIDGE * 15 * SECOND_NS
"""Longest time between two readings whose difference counts, as windows of the default interval bridge it."""
MOST_GAP_NS = 600 * SECOND_NS
"""The same for slow samplers, whose gap is BRIDGE of their own intervals."""
MAX_CELLS = 2_000_000
"""Values in memory at a time: slices are made as short as that needs, down to a minute."""
_MOST_FOOTERS = 16
_MOST_REACHING = 8
"""Row groups that are kept from one slice for the next."""
_CUMULATIVE = (b"counter", b"histogram")
_ANY = (-(2**62), 2**62)
_OWN = ("node", "component", "stream", "tick", "read_offset_ns")


@dataclass(frozen=True, slots=True)
class _Groups:
    """Row groups of a file: ticks of each (G, 2), rows (G,), and the cumulative columns to read."""

    ticks: IntArray
    rows: IntArray
    fields: tuple[str, ...]
    started: bool


class CounterSlices:
    """The counters of one source and site, by time.

    Damaged files are set aside, and their rows are missing: a gap. Raises ArchiveError where the archive
    cannot be read. `fields`: the cumulative fields to read, without the names of components; None for all.
    """

    def __init__(
        self, directory: Path, source: str, site: str, fields: Collection[str] | None = None
    ) -> None:
        self.directory, self.source, self.site = directory, source, site
        self._table = Table(directory, "counters", source, site)
        self._fields = fields
        self.components = Components()
        self._known: dict[Path, _Groups] = {}
        self._intervals: dict[str, Mapping[str, int]] = {}
        self._reaching: dict[tuple[Path, int], pa.Table] = {}
        self._limited: dict[Path, tuple[pa.Array, IntArray]] = {}
        self._footers: dict[Path, pq.FileMetaData] = {}
        self._chosen: dict[Path, tuple[Container[str], pa.Array, BoolArray]] = {}

    def ends(self, start_ns: int, end_ns: int, step_ns: int) -> Iterator[int]:
        """Yields the ends of slices of (start, end], multiples of `step_ns` after the start.

        Each is as long as MAX_CELLS allow, so that memory is bounded.
        """
        per_step = self._table.unchanged(
            lambda parts: self._cells(parts, start_ns, end_ns, step_ns), _first_day(start_ns)
        )
        held = 0.0
        for at, cells in enumerate(per_step.tolist()):
            if held and held + cells > MAX_CELLS:
                yield start_ns + at * step_ns
                held = 0.0
            held += cells
        yield end_ns

    def _cells(self, parts: Iterable[Part], start_ns: int, end_ns: int, step_ns: int) -> FloatArray:
        """Values to be read for each step, by the statistics of the files."""
        per_step = np.zeros(-(-(end_ns - start_ns) // step_ns))
        for part in parts:
            known = self._groups(part)
            for (first, last), rows in zip(known.ticks.tolist(), known.rows.tolist(), strict=True):
                low, high = (first - start_ns - 1) // step_ns, (last - start_ns - 1) // step_ns
                cells = rows * (len(known.fields) + 4) / (high - low + 1)
                per_step[max(low, 0) : max(high + 1, 0)] += cells
        return per_step

    def read(self, after_ns: int, until_ns: int, nodes: Container[str] | None = None) -> CounterReadings:
        """The readings of (after, until], of some nodes only where told. Raises ArchiveError."""
        before = self._reaching

        def read(parts: Iterable[Part]) -> list[tuple[Part, pa.Table]]:
            self._reaching = {}
            tables = ((part, list(self._tables(part, after_ns, until_ns, nodes, before))) for part in parts)
            return [(part, pa.concat_tables(some)) for part, some in tables if some]

        of_parts = self._table.unchanged(read, _first_day(after_ns))
        return sorted_readings([self._decoded(part, table) for part, table in of_parts])

    def _groups(self, part: Part) -> _Groups:
        known = self._known.get(part.path)
        if known is None:
            with page_checked_file(part) as file:
                names, at = file.schema_arrow.names, file.schema_arrow.names.index("tick")
                groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
                ticks = [_range(group.column(at).statistics) for group in groups]
                known = _Groups(
                    np.array(ticks, dtype=np.int64).reshape(-1, 2),
                    np.array([group.num_rows for group in groups], dtype=np.int64),
                    tuple(
                        field.name
                        for field in file.schema_arrow
                        if _is_cumulative(field) and (self._fields is None or field.name in self._fields)
                    ),
                    column_of(START_TIME) in names,
                )
            self._known[part.path] = known
        return known

    def _tables(
        self,
        part: Part,
        after_ns: int,
        until_ns: int,
        nodes: Container[str] | None,
        before: Mapping[tuple[Path, int], pa.Table],
    ) -> Iterator[pa.Table]:
        """Yields rows of a file by row group; `before`: groups that the slice before has read."""
        known = self._groups(part)
        inside = np.flatnonzero((known.ticks[:, 1] > after_ns) & (known.ticks[:, 0] <= until_ns))
        if not inside.size:
            return
        names = ("name",) if self._fields is None else ()
        columns = [*_OWN, *names, *((column_of(START_TIME),) if known.started else ()), *known.fields]
        with page_checked_file(part, self._footers.get(part.path)) as file:
            if len(self._footers) < _MOST_FOOTERS:
                self._footers[part.path] = file.metadata
            for group in inside.tolist():
                table = before.get((part.path, group))
                if table is None:
                    table = file.read_row_group(group, columns=columns, use_threads=False)
                if known.ticks[group, 1] > until_ns and len(self._reaching) < _MOST_REACHING:
                    self._reaching[part.path, group] = table  # into the next slice
                chosen = np.ones(table.num_rows, dtype=np.bool_)
                if known.ticks[group, 0] <= after_ns or known.ticks[group, 1] > until_ns:
                    tick = integers(table, "tick")
                    chosen = (tick > after_ns) & (tick <= until_ns)
                if nodes is not None:
                    column = table["node"].unify_dictionaries().combine_chunks()
                    chosen &= self._wanted(part, column.dictionary, nodes)[column.indices.to_numpy()]
                if chosen.all():
                    yield table
                elif chosen.any():
                    yield table.filter(pa.array(chosen))

    def _wanted(self, part: Part, names: pa.Array, nodes: Container[str]) -> BoolArray:
        """Which of the names are of `nodes`. Row groups of a file mostly have the same names."""
        known = self._chosen.get(part.path)
        if known is None or known[0] is not nodes or not known[1].equals(names):
            chosen = np.array([name in nodes for name in names.to_pylist()], dtype=np.bool_)
            known = self._chosen[part.path] = (nodes, names, chosen)
        return known[2]

    def _decoded(self, part: Part, table: pa.Table) -> CounterReadings:
        """One table, in its own order."""
        table = table.unify_dictionaries().combine_chunks()
        tick = integers(table, "tick")
        fields = [field for field in table.schema if _is_cumulative(field)]
        values: dict[str, Column] = {}
        known: dict[str, BoolArray] = {}
        for field in fields:
            values[field.name], there = _column(table[field.name])
            if there is not None:
                known[field.name] = there
        started = np.zeros(tick.size, dtype=np.int64)
        if column_of(START_TIME) in table.column_names:
            started = np.asarray(_column(table[column_of(START_TIME)])[0]).astype(np.int64)
        return CounterReadings(
            self._numbers(table, tick),
            tick,
            tick + integers(table, "read_offset_ns"),
            self._limits(part, table),
            started,
            values,
            known,
        )

    def _numbers(self, table: pa.Table, tick: IntArray) -> IntArray:
        """Numbers of the rows' components."""
        node, component = (table[name].chunk(0) for name in ("node", "component"))
        nodes, ids = (column.dictionary.to_pylist() for column in (node, component))
        key = node.indices.to_numpy().astype(np.int64) * len(ids) + component.indices.to_numpy()
        unique, first, inverse = _distinct(key, len(nodes) * len(ids))
        numbers = np.array(
            [self.components.number(nodes[k // len(ids)], ids[k % len(ids)]) for k in unique.tolist()],
            dtype=np.int64,
        )
        if "name" in table.column_names:
            self._note_names(table["name"].chunk(0), tick, numbers, first, inverse)
        return numbers[inverse]

    def _note_names(
        self, name: pa.DictionaryArray, tick: IntArray, numbers: IntArray, first: IntArray, inverse: IntArray
    ) -> None:
        """Notes the newest name of each component of a table; `first`, `inverse` as of np.unique."""
        names, of_row = name.dictionary.to_pylist(), name.indices.to_numpy()
        shown = of_row[first]
        if (shown[inverse] != of_row).any():  # renamed within the table
            for row in np.lexsort((tick, inverse))[np.append(np.diff(np.sort(inverse)) > 0, True)].tolist():
                self.components.named(int(numbers[inverse[row]]), int(tick[row]), names[of_row[row]])
        else:
            latest = np.zeros(first.size, dtype=np.int64)
            np.maximum.at(latest, inverse, tick)
            for number, at, row in zip(numbers.tolist(), latest.tolist(), shown.tolist(), strict=True):
                self.components.named(number, at, names[row])

    def _limits(self, part: Part, table: pa.Table) -> IntArray:
        """Of each row, the longest difference that counts, by the sampling interval of its stream."""
        day = part.day
        column = table["stream"].chunk(0)
        last = self._limited.get(part.path)
        if last is None or not last[0].equals(column.dictionary):
            streams = column.dictionary.to_pylist()
            if day not in self._intervals or not self._intervals[day].keys() >= set(streams):
                self._intervals[day] = self._read_intervals(day)
            known = self._intervals[day]
            limits = [min(max(GAP_NS, BRIDGE * known.get(stream, 0)), MOST_GAP_NS) for stream in streams]
            last = self._limited[part.path] = (column.dictionary, np.array(limits, dtype=np.int64))
        of_row: IntArray = last[1][column.indices.to_numpy()]
        return of_row

    def _read_intervals(self, day: str) -> Mapping[str, int]:
        """Sampling intervals of the streams of a day's schemas."""
        intervals: dict[str, int] = {}
        schemas = Table(self.directory, "schemas", self.source, self.site)
        for table in schemas.scan(["stream", "interval_ns"], first_day=day, last_day=day):
            columns = (table["stream"].to_pylist(), table["interval_ns"].to_pylist())
            for stream, interval in zip(*columns, strict=True):
                intervals[stream] = max(interval, intervals.get(stream, 0))
        return intervals


def _range(known: pq.Statistics | None) -> tuple[int, int]:
    """Least and largest value by statistics, any without them."""
    return (known.min_raw, known.max_raw) if known is not None and known.has_min_max else _ANY


def _first_day(time_ns: int) -> str:
    """The first day whose folder may have rows of this time: a node's clock may be a minute ahead."""
    return received_day(time_ns - 60 * SECOND_NS)


def _distinct(key: IntArray, most: int) -> tuple[IntArray, IntArray, IntArray]:
    """As np.unique with first places and the inverse, of keys below `most`; no sort where it is small."""
    if most > 4 * key.size + 1024:
        return np.unique(key, return_index=True, return_inverse=True)
    first = np.full(most, -1, dtype=np.int64)
    first[key[::-1]] = np.arange(key.size - 1, -1, -1)
    unique = np.flatnonzero(first >= 0)
    place = np.zeros(most, dtype=np.int64)
    place[unique] = np.arange(unique.size)
    return unique, first[unique], place[key]


def _is_cumulative(column: pa.Field) -> bool:
    return (column.metadata or {}).get(b"kind") in _CUMULATIVE


def _column(column: pa.ChunkedArray) -> tuple[Column, BoolArray | None]:
    """Values, 0 where null, and where they are known, None for throughout."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    known = None
    if array.null_count:
        known = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        array = array.fill_null(0)
    values: Column = array.to_numpy(zero_copy_only=False)
    return values, known
