"""CounterReadings of one source from the archive's counters, slice after slice of their nominal time.

A slice holds what the archive has of its time at the moment, whenever it came: the order in which rows were
accepted does not matter. Of a file only the row groups are read whose ticks overlap the slice.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive import layout, part_reader
from laggard_aggregator.archive.decode_batches import integers
from laggard_aggregator.archive.layout import DamagedPartError, Part, page_checked_file
from laggard_aggregator.archive.tables import column_of
from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.engine.routing import START_TIME
from laggard_aggregator.windows.interval_metrics import BRIDGE
from laggard_common.errors import ArchiveError

SECOND_NS = 1_000_000_000
GAP_NS = BRIDGE * 15 * SECOND_NS
"""Longest time between two readings whose difference counts: what windows of the default interval bridge."""
MOST_GAP_NS = 600 * SECOND_NS
"""The same for slow samplers, whose gap is BRIDGE of their own intervals."""
MAX_CELLS = 16_000_000
"""Values in memory at a time: slices are made as short as that needs, down to a minute."""
_LISTINGS = 3
_CUMULATIVE = (b"counter", b"histogram")
_OWN = ("node", "component", "name", "stream", "tick", "read_offset_ns")
_NO_INTERVAL = (1,)

Column = NDArray[np.int64] | NDArray[np.float64]


@dataclass(slots=True)
class CounterReadings:
    """N readings in the order of component and tick, no two of one component and tick.

    `component` (N,): numbers of `Components`. `limit_ns`: longest difference that ends here. `values`,
    `known` (N,): by the column of a cumulative field; `started`: START_TIME, 0 where unknown.
    """

    component: IntArray
    tick_ns: IntArray
    read_ns: IntArray
    limit_ns: IntArray
    started: IntArray
    values: dict[str, Column] = field(default_factory=dict)
    known: dict[str, BoolArray] = field(default_factory=dict)

    def only(self, rows: IntArray | BoolArray) -> "CounterReadings":
        """The same of some rows."""
        return CounterReadings(
            self.component[rows],
            self.tick_ns[rows],
            self.read_ns[rows],
            self.limit_ns[rows],
            self.started[rows],
            {name: column[rows] for name, column in self.values.items()},
            {name: column[rows] for name, column in self.known.items()},
        )


class Components:
    """Numbers of components by node and id, and the newest name of each."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []
        self.names: dict[int, tuple[int, str]] = {}
        self._number: dict[tuple[str, str], int] = {}

    def number(self, node: str, component: str) -> int:
        """Number of a component, given at its first use."""
        key = (node, component)
        found = self._number.get(key)
        if found is None:
            found = self._number[key] = len(self.keys)
            self.keys.append(key)
        return found

    def named(self, number: int, tick_ns: int, name: str) -> None:
        """Notes a name as of a tick; of two at once the one later in the alphabet counts."""
        self.names[number] = max(self.names.get(number, (0, "")), (tick_ns, name))

    def ranks(self) -> IntArray:
        """Place of each number in the order of node and component."""
        order = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks


@dataclass(frozen=True, slots=True)
class _Groups:
    """Row groups of a file: ticks of each (G, 2), rows (G,), and the cumulative columns of the file."""

    ticks: IntArray
    rows: IntArray
    fields: tuple[str, ...]
    started: bool


class CounterSlices:
    """The counters of one source and site, by time.

    Damaged files are set aside, and what they held is missing: a gap. Raises ArchiveError where the archive
    cannot be read.
    """

    def __init__(self, directory: Path, source: str, site: str) -> None:
        self.directory, self.source, self.site = directory, source, site
        self.components = Components()
        self._known: dict[Path, _Groups] = {}
        self._intervals: dict[str, Mapping[str, int]] = {}

    def parts(self, first_day: str) -> list[Part]:
        """The files of the days from `first_day` on. Raises ArchiveError."""
        try:
            days = layout.days(self.directory, "counters", self.source, self.site)
            return [part for day, where in days if day >= first_day for part in layout.parts(where)]
        except OSError as exc:
            raise ArchiveError(str(self.directory), exc.strerror or str(exc)) from exc

    def span(self, part: Part) -> tuple[int, int] | None:
        """First and last tick of a file, None where it is gone, damaged or empty."""
        found = self._groups(part)
        return (
            None
            if found is None or not found.rows.size
            else (int(found.ticks[:, 0].min()), int(found.ticks[:, 1].max()))
        )

    def ends(self, start_ns: int, end_ns: int, step_ns: int) -> Iterator[int]:
        """Yields the ends of slices of (start, end], multiples of `step_ns` after the start.

        Each is as long as MAX_CELLS allow, so that memory is bounded.
        """
        per_step = np.zeros(-(-(end_ns - start_ns) // step_ns))
        for part in self.parts(_first_day(start_ns)):
            found = self._groups(part)
            if found is None:
                continue
            for (first, last), rows in zip(found.ticks.tolist(), found.rows.tolist(), strict=True):
                low, high = (first - start_ns - 1) // step_ns, (last - start_ns - 1) // step_ns
                cells = rows * (len(found.fields) + 4) / (high - low + 1)
                per_step[max(low, 0) : max(high + 1, 0)] += cells
        held = 0.0
        for at, cells in enumerate(per_step.tolist()):
            if held and held + cells > MAX_CELLS:
                yield start_ns + at * step_ns
                held = 0.0
            held += cells
        yield end_ns

    def read(self, after_ns: int, until_ns: int, nodes: Collection[str] | None = None) -> CounterReadings:
        """The readings of (after, until], of some nodes only where told. Raises ArchiveError."""
        for _ in range(_LISTINGS):
            found: list[tuple[Part, pa.Table]] = []
            try:
                for part in self.parts(_first_day(after_ns)):
                    found += [(part, table) for table in self._tables(part, after_ns, until_ns, nodes)]
            except FileNotFoundError:
                continue  # merged since it was listed
            except DamagedPartError as exc:
                self._known.pop(exc.part.path, None)
                part_reader.set_aside(exc)
                continue
            except OSError as exc:
                raise ArchiveError(str(exc.filename or self.directory), exc.strerror or str(exc)) from exc
            return self._sorted([self._decoded(part, table) for part, table in found])
        raise ArchiveError(str(self.directory), "files change faster than they can be read")

    def _groups(self, part: Part) -> _Groups | None:
        known = self._known.get(part.path)
        if known is None:
            try:
                with page_checked_file(part) as file:
                    names, at = file.schema_arrow.names, file.schema_arrow.names.index("tick")
                    groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
                    ticks = [group.column(at).statistics for group in groups]
                    if any(each is None for each in ticks):
                        raise DamagedPartError(part, "it has no statistics of ticks")
                    known = _Groups(
                        np.array([(each.min_raw, each.max_raw) for each in ticks], dtype=np.int64).reshape(
                            -1, 2
                        ),
                        np.array([group.num_rows for group in groups], dtype=np.int64),
                        tuple(each.name for each in file.schema_arrow if _is_cumulative(each)),
                        column_of(START_TIME) in names,
                    )
            except FileNotFoundError:
                return None
            except (DamagedPartError, ValueError):
                return None  # `read` sets it aside, or the archive's own check does
            except OSError as exc:
                raise ArchiveError(str(part.path), exc.strerror or str(exc)) from exc
            self._known[part.path] = known
        return known

    def _tables(
        self, part: Part, after_ns: int, until_ns: int, nodes: Collection[str] | None
    ) -> Iterator[pa.Table]:
        known = self._groups(part)
        if known is None:
            if part.path.exists():
                with page_checked_file(part) as file:  # raises what is wrong with it
                    file.read_row_group(0, columns=["tick"])
            return
        inside = np.flatnonzero((known.ticks[:, 1] > after_ns) & (known.ticks[:, 0] <= until_ns))
        if not inside.size:
            return
        started = (column_of(START_TIME),) if known.started else ()
        with page_checked_file(part) as file:
            for group in inside.tolist():
                table = file.read_row_group(
                    group, columns=[*_OWN, *started, *known.fields], use_threads=False
                )
                tick = integers(table, "tick")
                chosen = (tick > after_ns) & (tick <= until_ns)
                if nodes is not None:
                    column = table["node"].unify_dictionaries().combine_chunks()
                    wanted = np.array(
                        [name in nodes for name in column.dictionary.to_pylist()], dtype=np.bool_
                    )
                    chosen &= wanted[column.indices.to_numpy()]
                if chosen.all():
                    yield table
                elif chosen.any():
                    yield table.filter(pa.array(chosen))

    def _decoded(self, part: Part, table: pa.Table) -> CounterReadings:
        """One table, in its own order."""
        table = table.unify_dictionaries().combine_chunks()
        tick = integers(table, "tick")
        fields = [each for each in table.schema if _is_cumulative(each)]
        values: dict[str, Column] = {}
        known: dict[str, BoolArray] = {}
        for each in fields:
            values[each.name], known[each.name] = _column(table[each.name])
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
        node, component, name = (table[each].chunk(0) for each in ("node", "component", "name"))
        nodes, ids, names = (each.dictionary.to_pylist() for each in (node, component, name))
        key = node.indices.to_numpy().astype(np.int64) * len(ids) + component.indices.to_numpy()
        unique, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        numbers = np.array(
            [self.components.number(nodes[k // len(ids)], ids[k % len(ids)]) for k in unique.tolist()]
        )
        of_row = name.indices.to_numpy()
        shown = of_row[first]
        if (shown[inverse] != of_row).any():  # renamed within the table
            for row in np.lexsort((tick, inverse))[np.append(np.diff(np.sort(inverse)) > 0, True)].tolist():
                self.components.named(int(numbers[inverse[row]]), int(tick[row]), names[of_row[row]])
        else:
            latest = np.zeros(unique.size, dtype=np.int64)
            np.maximum.at(latest, inverse, tick)
            for number, at, row in zip(numbers.tolist(), latest.tolist(), shown.tolist(), strict=True):
                self.components.named(number, at, names[row])
        return numbers[inverse].astype(np.int64)

    def _limits(self, part: Part, table: pa.Table) -> IntArray:
        """Of each row, the longest difference that counts, by the sampling interval of its stream."""
        day = part.folder.parent.name.removeprefix("date=")
        column = table["stream"].chunk(0)
        streams = column.dictionary.to_pylist()
        if day not in self._intervals or not self._intervals[day].keys() >= set(streams):
            self._intervals[day] = self._read_intervals(day)
        known = self._intervals[day]
        limits = [min(max(GAP_NS, BRIDGE * known.get(each, 0)), MOST_GAP_NS) for each in streams]
        of_row: IntArray = np.array(limits, dtype=np.int64)[column.indices.to_numpy()]
        return of_row

    def _read_intervals(self, day: str) -> Mapping[str, int]:
        """Sampling intervals of the streams of a day's schemas."""
        found: dict[str, int] = {}
        where = layout.folder(self.directory, "schemas", self.source, day, self.site)
        try:
            for part in layout.parts(where):
                try:
                    with page_checked_file(part) as file:
                        table = file.read(["stream", "interval_ns"])
                except (FileNotFoundError, DamagedPartError):
                    continue
                for stream, interval in zip(
                    table["stream"].to_pylist(), table["interval_ns"].to_pylist(), strict=True
                ):
                    found[stream] = max(interval, found.get(stream, 0))
        except OSError as exc:
            raise ArchiveError(str(where), exc.strerror or str(exc)) from exc
        return found

    def _sorted(self, found: list[CounterReadings]) -> CounterReadings:
        joined = joined_readings(found)
        rows = np.lexsort((joined.tick_ns, joined.component))
        component, tick = joined.component[rows], joined.tick_ns[rows]
        again = (component[1:] == component[:-1]) & (tick[1:] == tick[:-1])
        if again.any():  # sent or written twice; the order of arrival does not decide
            ties = [joined.values[name] for name in sorted(joined.values)]
            rows = np.lexsort((*ties, joined.read_ns, joined.tick_ns, joined.component))
            rows = rows[np.insert(~again, 0, True)]
        return joined.only(rows)


def joined_readings(found: list[CounterReadings]) -> CounterReadings:
    """Rows of several, in this order, with the columns of all."""
    if not found:
        none = np.zeros(0, dtype=np.int64)
        return CounterReadings(none, none, none, none, none)
    if len(found) == 1:
        return found[0]
    names = dict.fromkeys(name for each in found for name in each.values)
    sizes = [each.tick_ns.size for each in found]
    values: dict[str, Column] = {}
    known: dict[str, BoolArray] = {}
    for name in names:
        values[name] = np.concatenate(
            [each.values.get(name, np.zeros(n, dtype=np.int64)) for each, n in zip(found, sizes, strict=True)]
        )
        known[name] = np.concatenate(
            [each.known.get(name, np.zeros(n, dtype=np.bool_)) for each, n in zip(found, sizes, strict=True)]
        )
    return CounterReadings(
        np.concatenate([each.component for each in found]),
        np.concatenate([each.tick_ns for each in found]),
        np.concatenate([each.read_ns for each in found]),
        np.concatenate([each.limit_ns for each in found]),
        np.concatenate([each.started for each in found]),
        values,
        known,
    )


def sources(directory: Path) -> list[tuple[str, str]]:
    """Source and site of every table of counters. Raises ArchiveError."""
    try:
        found = layout.days(directory, "counters")
    except OSError as exc:
        raise ArchiveError(str(directory), exc.strerror or str(exc)) from exc
    return sorted(
        {(where.parts[-3].removeprefix("source="), where.name.removeprefix("site=")) for _, where in found}
    )


def _first_day(time_ns: int) -> str:
    """The first day whose folder may have rows of this time: a node's clock may be a minute ahead."""
    return layout.day_of(max(time_ns - 60 * SECOND_NS, layout.DAY_OPENS_NS))


def _is_cumulative(column: pa.Field) -> bool:
    return (column.metadata or {}).get(b"kind") in _CUMULATIVE


def _column(column: pa.ChunkedArray) -> tuple[Column, BoolArray]:
    """Values, 0 where null, and where they are known."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    known = np.ones(len(array), dtype=np.bool_)
    if array.null_count:
        known = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        array = array.fill_null(0)
    values: Column = array.to_numpy(zero_copy_only=False)
    return values, known
