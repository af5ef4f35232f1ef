"""Rollups by minute: `series60`, sums of increments of each component.

The minute of an increment is that of its later reading; a minute covers the nominal times (start, start + 60
s], as a window's intervals do. The rows of an hour are a pure function of the readings that the archive has
of it and of the ten minutes before. Rows of one component and minute add up, so where later readings change
an hour, only the difference to the stored rows is added: doing it twice adds nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import TEXT, TIME, Range, Table, Within, day_of
from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS, CounterSlices
from laggard_aggregator.jobs.rollups.increments import Increments, IncrementStream
from laggard_aggregator.jobs.rollups.readings import SECOND_NS

KIND = "series60"
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
PART_ROWS = 262_144
"""Rows of a part, sorted as a whole; an hour with more has several parts of some minutes each."""
LEADING = pa.schema(
    [
        pa.field("node", TEXT, nullable=False),
        pa.field("component", TEXT, nullable=False),
        pa.field("name", TEXT, nullable=False),
        pa.field("minute", TIME, nullable=False),
        pa.field("samples", pa.uint16(), nullable=False),
        pa.field("seconds", pa.float32(), nullable=False),
    ]
)
"""Leading columns; then `f` and `f.max` of each cumulative field `f`."""
_KEY = ("node", "component", "minute")
_ROUNDING_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class RolledHour:
    """`rows` that were added, in `parts` files."""

    rows: int
    parts: int


def sum_column(field: str) -> str:
    """Column of a field's sums; `field` is its column in the counters."""
    return f"field.{field}" if field in LEADING.names or field.endswith(".max") else field


class OnNodes:
    """The condition that rows are of some nodes, by their short names. Rollups are sorted by node."""

    columns = ("node",)

    def __init__(self, nodes: Collection[str]) -> None:
        self._nodes = frozenset(nodes)
        self._ordered = sorted(nodes)
        self._names = pa.array([], pa.string())
        self._own: BoolArray = np.zeros(0, dtype=np.bool_)

    def may_match(self, *ranges: Range) -> bool:
        """Whether some of the names may lie between two names; names in capitals sort otherwise."""
        (known,) = ranges
        if known is None:
            return True
        first, last = known
        at = bisect_left(self._ordered, short_name(first))
        within = at < len(self._ordered) and self._ordered[at] <= last
        return within or not (first + last).islower()

    def rows(self, table: pa.Table) -> BoolArray:
        """The rows of the nodes."""
        node = table["node"].unify_dictionaries().combine_chunks()
        if not node.dictionary.equals(self._names):  # row groups of a file mostly have the same names
            self._names = node.dictionary
            own = [short_name(name) in self._nodes for name in self._names.to_pylist()]
            self._own = np.array(own, dtype=np.bool_)
        chosen: BoolArray = self._own[node.indices.to_numpy()]
        return chosen


class PassStoppedError(Exception):
    """The pass was stopped; the next one does the rest."""


def roll_hour(
    slices: CounterSlices,
    hour_ns: int,
    nodes: Collection[str] | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> RolledHour:
    """Adds the rows of the hour from `hour_ns` on, as far as they are not there, of some nodes where told.

    Raises ArchiveError, and PassStoppedError once `go_on()` is false.
    """
    rows = parts = 0
    waiting: list[pa.Table] = []
    for table in _minutes(slices, hour_ns, nodes):
        if not go_on():
            raise PassStoppedError
        waiting.append(table)
        if sum(block.num_rows for block in waiting) >= PART_ROWS:
            rows, parts = rows + _write(slices, hour_ns, waiting), parts + 1
            waiting = []
    if waiting:
        rows, parts = rows + _write(slices, hour_ns, waiting), parts + 1
    return RolledHour(rows, parts)


def _minutes(slices: CounterSlices, hour_ns: int, nodes: Collection[str] | None) -> Iterator[pa.Table]:
    """Yields the rows to be added, slice after slice."""
    increments = IncrementStream()
    after = hour_ns - MOST_GAP_NS
    for until in slices.ends(after, hour_ns, MINUTE_NS):
        increments.add(slices.read(after, until, nodes), until)
        after = until
    for until in slices.ends(hour_ns, hour_ns + HOUR_NS, MINUTE_NS):
        table = rolled(slices, increments.add(slices.read(after, until, nodes), until))
        stored = _stored(slices, after, until, table)
        table = table if stored is None else _difference(table, stored)
        if table.num_rows:
            yield table
        after = until


def rolled(slices: CounterSlices, increments: Increments) -> pa.Table:
    """One row for each component and minute with a reading, sorted."""
    n = increments.tick_ns.size
    minute = (increments.tick_ns - 1) // MINUTE_NS * MINUTE_NS
    begins = np.ones(n, dtype=np.bool_)
    begins[1:] = (increments.component[1:] != increments.component[:-1]) | (minute[1:] != minute[:-1])
    at = np.flatnonzero(begins)
    if not at.size:
        return LEADING.empty_table()
    component = increments.component[at]
    order = np.lexsort((minute[at], slices.components.ranks()[component]))
    seconds = (increments.read_ns - increments.before_ns) / 1e9
    keys = slices.components.keys
    names = slices.components.names
    columns: dict[str, pa.Array] = {
        "node": _texts([keys[number][0] for number in component[order].tolist()]),
        "component": _texts([keys[number][1] for number in component[order].tolist()]),
        "name": _texts([names[number][1] for number in component[order].tolist()]),
        "minute": pa.array(minute[at][order]).cast(TIME),
        "samples": pa.array(np.minimum(np.diff(np.append(at, n)), 65_535)[order].astype(np.uint16)),
        "seconds": pa.array(np.add.reduceat(seconds, at)[order].astype(np.float32)),
    }
    fields = []
    for name, rises in increments.rises.items():
        known = increments.known[name]
        missing = (np.add.reduceat(known.astype(np.int64), at) == 0)[order]
        rates = np.divide(rises, seconds, out=np.zeros(n), where=known)
        columns[sum_column(name)] = pa.array(np.add.reduceat(rises, at)[order], mask=missing)
        columns[f"{sum_column(name)}.max"] = pa.array(
            np.maximum.reduceat(rates, at)[order].astype(np.float32), mask=missing
        )
        kind = pa.float64() if rises.dtype == np.float64 else pa.int64()
        fields += [pa.field(sum_column(name), kind), pa.field(f"{sum_column(name)}.max", pa.float32())]
    return pa.table(list(columns.values()), schema=pa.schema([*LEADING, *fields]))


def _texts(values: list[str]) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode()


def _rollups(slices: CounterSlices) -> Table:
    return Table(slices.directory, KIND, slices.source, slices.site)


def _write(slices: CounterSlices, hour_ns: int, tables: list[pa.Table]) -> int:
    """Writes rows as one part, sorted by component and minute; returns their number. Raises ArchiveError."""
    table = pa.concat_tables(tables, promote_options="default")
    table = pa.table(
        [column.cast(TEXT) if pa.types.is_dictionary(column.type) else column for column in table.columns],
        schema=pa.schema(
            [LEADING.field(field.name) if field.name in LEADING.names else field for field in table.schema]
        ),
    )
    if len(tables) > 1:
        table = table.unify_dictionaries().combine_chunks()
        keys = [table[name].cast(pa.string()) if name != "minute" else table[name] for name in _KEY]
        order = pc.sort_indices(
            pa.table(keys, names=list(_KEY)), sort_keys=[(name, "ascending") for name in _KEY]
        )
        table = table.take(order)
    _rollups(slices).append(day_of(hour_ns / 1e9), [table], hour_ns, table.schema)
    return int(table.num_rows)


def _stored(slices: CounterSlices, after_ns: int, until_ns: int, like: pa.Table) -> pa.Table | None:
    """Stored rows of the minutes from `after_ns` on, before `until_ns`; None without any. Raises
    ArchiveError."""
    day = day_of(after_ns / 1e9)
    stored = list(
        _rollups(slices).scan(None, Within("minute", after_ns, until_ns), first_day=day, last_day=day)
    )
    return pa.concat_tables([like.slice(0, 0), *stored], promote_options="permissive") if stored else None


def _difference(table: pa.Table, stored: pa.Table) -> pa.Table:
    """Rows that make `stored` equal to `table`.

    A minute that has fewer readings now, because files are gone, stays as it is stored.
    """
    names = frozenset(table.schema.names)
    sums = [name for name in table.schema.names if name not in LEADING.names and not _is_rate(name, names)]
    both = pa.concat_tables([_signed(table, sums, 1), _signed(stored, sums, -1)], promote_options="default")
    wanted = [(name, "sum") for name in ("samples", "seconds", "ours", *sums)]
    wanted += [(name, "max") for name in both.column_names if _is_rate(name, names)] + [("name", "max")]
    grouped = both.group_by(list(_KEY), use_threads=False).aggregate(wanted)
    changed = pc.greater(grouped["samples_sum"], 0)
    for name in sums:
        changed = pc.or_(changed, pc.fill_null(pc.not_equal(grouped[f"{name}_sum"], 0), False))
    changed = pc.or_(changed, pc.greater(pc.abs(grouped["seconds_sum"]), _ROUNDING_SECONDS))
    kept = pc.and_(pc.greater(grouped["ours_sum"], 0), pc.greater_equal(grouped["samples_sum"], 0))
    grouped = grouped.filter(pc.and_(changed, kept)).sort_by([(name, "ascending") for name in _KEY])
    columns = []
    for field in table.schema:
        how = "max" if field.name == "name" or _is_rate(field.name, names) else "sum"
        column = grouped[field.name if field.name in _KEY else f"{field.name}_{how}"]
        columns.append(column.cast(TEXT if field.name in ("node", "component", "name") else field.type))
    return pa.table(columns, schema=table.schema)


def _is_rate(name: str, names: Collection[str]) -> bool:
    """Whether a column has the largest rate of another one."""
    return name.endswith(".max") and name.removesuffix(".max") in names


def _signed(table: pa.Table, sums: list[str], sign: int) -> pa.Table:
    """The numbers of `table` as they count in a difference; `ours`: whether a row is of the new rollup."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column = table[name]
        if name in ("node", "component", "name"):
            columns[name] = column.cast(pa.string())
        elif name == "samples":
            columns[name] = pc.multiply(column.cast(pa.int64()), sign)
        elif name == "seconds":
            columns[name] = pc.multiply(column.cast(pa.float64()), float(sign))
        elif name in sums:
            columns[name] = pc.multiply(column, pa.scalar(sign, column.type))
        elif name == "minute" or sign > 0:
            columns[name] = column
    columns["ours"] = pa.chunked_array([pa.array(np.full(table.num_rows, max(sign, 0), dtype=np.int64))])
    return pa.table(columns)
