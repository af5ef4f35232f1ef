"""Loads of many components by quarter of an hour, kept in memory by day.

A day of 40,960 nodes is sixty million rows of a minute each: too many to read while a page waits. So the sums
of the latest days stay in memory, and only the files that are new are read.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive.table import day_of, tables_of
from laggard_aggregator.detect.interface import FloatArray, IntArray
from laggard_aggregator.jobs.loads.heat_map import (
    LoadMap,
    Name,
    coded_names,
    load_sums,
    quotient,
    read_columns,
)
from laggard_aggregator.jobs.loads.kinds import KINDS, LoadFields, LoadKind
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, MINUTE_NS, PassStoppedError

QUARTER_MINUTES: Final = 15
QUARTERS: Final = 96
MOST_CELLS: Final = 4_000_000
"""Components times steps of a map: a day of quarters of 41,600."""
MOST_BYTES: Final = 192 << 20
"""Memory of the days that are kept: two and a half days of 40,960 nodes."""
_QUARTER_NS: Final = QUARTER_MINUTES * MINUTE_NS
_DAY_NS: Final = QUARTERS * _QUARTER_NS
_BITS: Final = 1 << np.arange(QUARTER_MINUTES, dtype=np.uint16)
_COUNTS: Final = np.array([at.bit_count() for at in range(1 << QUARTER_MINUTES)], dtype=np.uint8)
"""Number of minutes in a set of them."""


@dataclass(slots=True)
class _DayLoads:
    """Sums of one source and day. `rows`: place of each component; `seen`: files that were read, by site.

    `sums` (4, N, QUARTERS): amounts, requests, seconds that these took, and seconds observed. `minutes`
    (N, QUARTERS): a bit for each known minute.
    """

    start_ns: int
    rows: dict[Name, int] = field(default_factory=dict)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    sums: NDArray[np.float32] = field(default_factory=lambda: np.zeros((4, 0, QUARTERS), np.float32))
    minutes: NDArray[np.uint16] = field(default_factory=lambda: np.zeros((0, QUARTERS), np.uint16))

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return int(self.sums.nbytes + self.minutes.nbytes)

    def add(self, table: pa.Table, fields: LoadFields, *, has_nodes: bool) -> None:
        """Adds rows of rollups."""
        chosen, minute_ns, sums = load_sums(table, fields)
        minute = (minute_ns - self.start_ns) // MINUTE_NS
        chosen &= (minute >= 0) & (minute < QUARTERS * QUARTER_MINUTES)
        if not chosen.any():
            return
        names, codes = coded_names(table, has_nodes=has_nodes)
        rows = self._rows_of(names)[codes][chosen]
        quarter, within = np.divmod(minute[chosen], QUARTER_MINUTES)
        first, last = int(quarter.min()), int(quarter.max()) + 1
        shape = (len(self.rows), last - first)
        cell = rows * shape[1] + quarter - first
        for place, values in enumerate(sums[:, chosen]):
            added = np.bincount(cell, values, shape[0] * shape[1]).reshape(shape)
            self.sums[place, : shape[0], first:last] += added.astype(np.float32)
        known = np.zeros((*shape, QUARTER_MINUTES), dtype=np.bool_)
        known.reshape(-1)[cell * QUARTER_MINUTES + within] = True
        self.minutes[: shape[0], first:last] |= known @ _BITS

    def _rows_of(self, names: list[Name]) -> IntArray:
        """Rows of components, made for new ones."""
        for name in names:
            self.rows.setdefault(name, len(self.rows))
        missing = len(self.rows) - len(self.minutes)
        if missing > 0:
            more = max(missing, len(self.minutes))
            self.sums = np.pad(self.sums, ((0, 0), (0, more), (0, 0)))
            self.minutes = np.pad(self.minutes, ((0, more), (0, 0)))
        return np.array([self.rows[name] for name in names], dtype=np.int64)


class LoadDays:
    """The latest days of the archive in `directory`. For any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._days: OrderedDict[tuple[str, str], _DayLoads] = OrderedDict()
        self._lock = Lock()

    def refresh(self, now_ns: int, go_on: Callable[[], bool]) -> None:
        """Reads the new files of the last 24 hours. Raises ArchiveError, PassStoppedError."""
        known = {table.source for table in tables_of(self._directory, KIND)}
        sources = {source: kind for kind in KINDS.values() for source in kind.sources if source in known}
        for day_ns in range((now_ns - _DAY_NS) // _DAY_NS * _DAY_NS, now_ns, _DAY_NS):
            for source, kind in sources.items():
                with self._lock:
                    self._day(source, kind, day_ns, go_on)

    def load(self, kind: LoadKind, names: Collection[Name], start: float, end: float) -> LoadMap:
        """The load of components in the quarters of hours of [start, end], as `heat_map`.

        A step is one quarter, or as many as keep the map within MOST_CELLS. Raises ArchiveError.
        """
        labels = sorted({kind.label(node, name) for node, name in names})
        place = {label: at for at, label in enumerate(labels)}
        row_of = {
            (node, "" if kind.has_nodes else name): place[kind.label(node, name)] for node, name in names
        }
        start_ns = round(start * SECOND_NS) // _QUARTER_NS * _QUARTER_NS
        quarters = -(-(round(end * SECOND_NS) - start_ns) // _QUARTER_NS)
        merged = max(-(-len(labels) * quarters // MOST_CELLS), 1)
        steps = -(-quarters // merged)
        cells = _QuarterCells.empty(row_of, start_ns, len(labels), steps * merged)
        for day_ns in range(start_ns // _DAY_NS * _DAY_NS, start_ns + quarters * _QUARTER_NS, _DAY_NS):
            for source in kind.sources:
                with self._lock:
                    cells.add(self._day(source, kind, day_ns))
        shape = len(labels), steps, merged
        amounts = cells.amounts.reshape(shape).sum(axis=2)
        minutes = _COUNTS[cells.minutes].reshape(shape).sum(axis=2, dtype=np.float64)
        requests, times, seconds = cells.totals
        return LoadMap(
            tuple(labels),
            start_ns / SECOND_NS,
            merged * QUARTER_MINUTES * 60.0,
            quotient(amounts, 60.0 * minutes),
            quotient(times, requests),
            quotient(times, seconds),
        )

    def _day(
        self, source: str, kind: LoadKind, day_ns: int, go_on: Callable[[], bool] = lambda: True
    ) -> _DayLoads:
        """The sums of a day with all its files."""
        key = source, day_of(day_ns / SECOND_NS)
        day = self._days.pop(key, None) or _DayLoads(day_ns)
        while not self._read_new(day, key, kind, go_on):
            day = _DayLoads(day_ns)
        self._days[key] = day
        while len(self._days) > 1 and sum(day.size for day in self._days.values()) > MOST_BYTES:
            self._days.popitem(last=False)
        return day

    def _read_new(
        self, day: _DayLoads, key: tuple[str, str], kind: LoadKind, go_on: Callable[[], bool]
    ) -> bool:
        """Adds the files that are new; False where one has rows that were read already, too."""
        source, date = key
        fields = kind.sources[source]
        for table in tables_of(self._directory, KIND):
            if table.source != source:
                continue
            cursor = day.seen.setdefault(table.site, {})
            for opened in table.new_since(cursor, first_day=date):
                if opened.part.day != date:
                    break
                if opened.part.first <= cursor.get(date, 0):
                    return False
                if not go_on():
                    raise PassStoppedError
                for rows in opened.scan(read_columns(fields)):
                    day.add(rows, fields, has_nodes=kind.has_nodes)
        return True


@dataclass(slots=True)
class _QuarterCells:
    """A map of N components in Q quarters: `amounts` and `minutes` (N, Q) as of a day, `totals` (3, N)."""

    row_of: Mapping[Name, int]
    start_ns: int
    amounts: FloatArray
    minutes: NDArray[np.uint16]
    totals: FloatArray

    @classmethod
    def empty(cls, row_of: Mapping[Name, int], start_ns: int, count: int, quarters: int) -> "_QuarterCells":
        shape = count, quarters
        return cls(row_of, start_ns, np.zeros(shape), np.zeros(shape, np.uint16), np.zeros((3, count)))

    def add(self, day: _DayLoads) -> None:
        """Adds the quarters of a day that are of the map."""
        rows = np.array([self.row_of.get(name, -1) for name in day.rows], dtype=np.int64)
        own = np.flatnonzero(rows >= 0)
        offset = (day.start_ns - self.start_ns) // _QUARTER_NS
        first, last = max(-offset, 0), min(self.amounts.shape[1] - offset, QUARTERS)
        if not own.size or first >= last:
            return
        into = slice(first + offset, last + offset)
        if np.array_equal(rows, np.arange(len(self.amounts))):  # views are cheaper than copies
            count = len(rows)
            self.amounts[:, into] += day.sums[0, :count, first:last]
            self.minutes[:, into] |= day.minutes[:count, first:last]
            self.totals += day.sums[1:, :count, first:last].sum(axis=2, dtype=np.float64)
            return
        mine = rows[own]
        np.add.at(self.amounts[:, into], mine, day.sums[0, own, first:last])
        np.bitwise_or.at(self.minutes[:, into], mine, day.minutes[own, first:last])
        for place in range(3):
            of_row = day.sums[1 + place, own, first:last].sum(axis=1, dtype=np.float64)
            self.totals[place] += np.bincount(mine, of_row, self.totals.shape[1])
