"""Ranges of the archive for charts, with bounded work.

Counters are cumulative, so a chart needs one reading near each of its points, however long its range is. Of a
file only the row groups are read whose statistics overlap a point and that have the component's node. The
readings go through a store of the daemon (`windows`), so that metrics, resets, gaps and sums are its own.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from laggard_aggregator.archive import layout, part_reader
from laggard_aggregator.archive.decode_batches import integers, lane
from laggard_aggregator.archive.schemas import column_of
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.store import GroupStore
from laggard_aggregator.windows.sums_store import SumsStore
from laggard_common.errors import InputError

MAX_POINTS = 120
"""Intervals of a chart."""
MAX_PEERS = 256
MAX_STORE_ROWS = 4096
"""Components read for a chart: the members, or those that they are sums of."""
MAX_ROWS = 50_000
"""Rows of results that one question returns."""
READ_SECONDS = 8.0
LATE_SECONDS = 6 * 3600
"""Rows received later than this after their time are not read."""
_AHEAD_SECONDS = 60
"""As `LATE_SECONDS`, for nodes with a clock ahead of the aggregator's."""
NEWEST_SECONDS = 600
"""The last point has the newest reading of this long, as later messages may still be on their way."""
_LISTINGS = 3
_RESULTS = (
    *("run", "ordinal", "group", "metric", "start", "end", "component", "level", "anomalous", "score"),
    *("severity", "observed", "reference", "straggler", "since"),
)
_WINDOWS = ("run", "ordinal", "group", "metric", "start", "end", "components", "judged", "anomalous", "note")
_CLOSES = ("run", "ordinal", "group", "end", "drained", "afresh")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """Values of the components (C,) in N intervals of `step_seconds` that end at `ends` (N,).

    `metrics`, `load`: arrays (C, N) by name, NaN where unknown; `load` as `SourceMetrics.charts`.
    """

    step_seconds: float
    ends: FloatArray
    components: tuple[str, ...]
    metrics: Mapping[str, FloatArray]
    load: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class _Scan:
    """A part of a table: `columns` of the rows whose `time` is in one of the `spans` (n, 2).

    The spans are disjoint and ascending, in the unit of the column. `nodes`: row groups without any of them
    are left out; empty for all.
    """

    kind: str
    source: str
    time: str
    spans: FloatArray | IntArray
    columns: Sequence[str]
    nodes: Set[str] = frozenset()


@dataclass(slots=True)
class HistoryReader:
    """Answers about ranges of the archive in `directory`, for at most `seconds` after it was made.

    `damaged`: names of files that cannot be read, whose rows are missing. `cut`: whether the time or MAX_ROWS
    did not suffice. Its directory need not exist.
    """

    directory: Path
    site: str
    seconds: float = READ_SECONDS
    damaged: set[str] = field(default_factory=set)
    cut: bool = False
    _until: float = field(init=False)
    _part: str = ""

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def verdicts(self, start: float, end: float, group: str = "", *, under: str = "") -> list[Row]:
        """Rows of the table `verdicts` whose window ends in the range, oldest first.

        `group`: of this group only. `under`: of this component and, if it is a node, those on it.
        """
        span = np.array([[start, end]], dtype=np.float64)
        return self._results(_Scan("verdicts", layout.OWN, "end", span, _RESULTS), group, under)

    def windows(self, start: float, end: float, group: str = "") -> list[Row]:
        """Rows of the table `windows`, of a group or of all, whose window ends in the range, oldest first."""
        span = np.array([[start, end]], dtype=np.float64)
        return self._results(_Scan("windows", layout.OWN, "end", span, _WINDOWS), group)

    def closes(self, start: float, end: float) -> list[Row]:
        """Rows of the table `closes` whose window ends in the range, oldest first."""
        span = np.array([[start, end]], dtype=np.float64)
        return self._results(_Scan("closes", layout.OWN, "end", span, _CLOSES))

    def alarms(self, columns: Sequence[str], start: float, end: float) -> list[Row]:
        """Rows of the table `alarms` whose `at` is in the range, oldest first."""
        span = np.array([[start, end]], dtype=np.float64)
        return self._results(_Scan("alarms", layout.OWN, "at", span, ("run", "ordinal", *columns)))

    def chart(
        self, group: PeerGroup, component: str, peers: Sequence[str], start: float, end: float
    ) -> Chart | None:
        """The metrics and the load of a component and of up to MAX_PEERS `peers`; None without any.

        None too for groups compared by functions, and for a parent such as a node, which has no counters.
        """
        source = SOURCES.get(group.source)
        if source is None:
            return None
        picked = np.unique(np.linspace(0, len(peers) - 1, min(MAX_PEERS, len(peers))).astype(np.int64))
        members = {component, *(peers[at] for at in picked.tolist())}
        interval_ns = round(group.detect.interval_seconds * 1e9)
        step_ns = interval_ns * max(math.ceil((end - start) * 1e9 / (interval_ns * MAX_POINTS)), 1)
        end_ns = round(end * 1e9) // interval_ns * interval_ns
        points = max(-(-(end_ns - round(start * 1e9)) // step_ns), 1)
        ends = end_ns - step_ns * np.arange(points, -1, -1)
        before = np.full(ends.size, min(interval_ns, step_ns))
        before[-1] = min(step_ns, NEWEST_SECONDS * 10**9)
        spans = np.stack([ends - before + 1, ends], axis=1)
        detect = DetectSettings(
            interval_seconds=step_ns / 1e9,
            window_samples=points,
            shift_samples=max(round(group.detect.shift_seconds * 1e9) // step_ns, 1),
        )
        same = PeerGroup(group.name, group.source, group.role, group.metrics, detect)
        drawn = replace(source, load={n: m for n, m in source.charts.items() if n not in group.metrics})
        offset_ns = end_ns % step_ns  # the intervals of a store end at multiples of their length
        begun_ns = end_ns - offset_ns - (points + 1) * step_ns
        store = (
            SumsStore(same, drawn, 1, begun_ns)
            if isinstance(drawn, JoinedMetrics)
            else GroupStore(same, drawn, 1, begun_ns)
        )
        by_node = not isinstance(source, JoinedMetrics) or source.by_node
        nodes = {component.partition("/")[0]} if by_node and "/" in component else set()
        readings = _Readings(store, members, source.counters(group.metrics)[0], offset_ns)
        parts = source.parts if isinstance(source, JoinedMetrics) else {source.source: store.counters}
        for sent, counters in parts.items():
            wanted = [name for name in store.counters if name in counters]
            columns = ["node", "component", "stream", "tick", "read_offset_ns", *map(column_of, wanted)]
            for table in self._row_groups(_Scan("counters", sent, "tick", spans, columns, nodes)):
                try:
                    readings.add(sent, table, spans)
                except (ValueError, IndexError, pa.ArrowException):
                    self.damaged.add(self._part)
        window = store.close(end_ns - offset_ns)
        if window is None or component not in window.components:
            return None
        load = {
            name: values[:, 1:]
            for name, values in window.load.items()
            if readings.has(drawn.load[name].needs)
        }
        return Chart(
            step_seconds=step_ns / 1e9,
            ends=ends[1:] / 1e9,
            components=window.components,
            metrics={name: values[:, 1:] for name, values in window.metrics.items()},
            load=load,
        )

    def _results(self, scan: _Scan, group: str = "", under: str = "") -> list[Row]:
        """The rows of a scan with one span, oldest first."""
        ((start, end),) = scan.spans.tolist()
        results: dict[tuple[Any, ...], Row] = {}  # a part that was merged meanwhile is read twice
        for table in self._row_groups(scan):
            times = table[scan.time]
            chosen = pc.and_(pc.greater_equal(times, start), pc.less_equal(times, end))
            if group:
                chosen = pc.and_(chosen, pc.equal(table["group"].cast(pa.string()), group))
            if under:
                names = table["component"].cast(pa.string())
                on = pc.or_(pc.equal(names, under), pc.starts_with(names, pattern=f"{under}/"))
                chosen = pc.and_(chosen, on)
            rows = table.filter(chosen)
            at = rows.schema.get_field_index("run")
            rows = rows.set_column(at, "run", rows["run"].cast(pa.int64()))
            for row in rows.to_pylist():
                named = (row.get(name) for name in ("group", "metric", "component", "transition"))
                results[row["run"], row["ordinal"], *named] = row
            if len(results) > MAX_ROWS:
                self.cut = True
                break
        return sorted(results.values(), key=lambda row: float(row[scan.time]))

    def _row_groups(self, scan: _Scan) -> Iterator[pa.Table]:
        """Yields the row groups that may have rows of the scan."""
        spans = scan.spans
        unit = 1e9 if spans.dtype.kind == "i" else 1.0
        start, end = float(spans[0, 0]) / unit, float(spans[-1, 1]) / unit
        received = (_stamp(start - _AHEAD_SECONDS), _stamp(end + LATE_SECONDS))
        for day in _days(start - _AHEAD_SECONDS, end + LATE_SECONDS):
            where = layout.folder(self.directory, scan.kind, scan.source, day, self.site)
            done: set[str] = set()
            for _ in range(_LISTINGS):  # a part that was merged meanwhile is in the merged file
                gone = False
                for part in _received(self._parts(where), *received):
                    if part.name in done or self._is_over():
                        continue
                    self._part = part.name
                    try:
                        yield from self._of_part(part.path, scan)
                    except FileNotFoundError:
                        gone = True
                        continue
                    except (OSError, InputError, ValueError, pa.ArrowException):
                        self.damaged.add(part.name)
                    done.add(part.name)
                if not gone:
                    break

    def _parts(self, where: Path) -> list[layout.Part]:
        try:
            return layout.parts(where)
        except OSError:
            self.damaged.add(str(where))
            return []

    def _of_part(self, path: Path, scan: _Scan) -> Iterator[pa.Table]:
        """Reads some row groups: their pages are checked, not the digest of the whole file."""
        spans = scan.spans
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            part_reader.check_format(path, file.schema_arrow)
            names = file.schema_arrow.names
            at, there = names.index(scan.time), [name for name in scan.columns if name in names]
            for group in range(file.num_row_groups):
                known = file.metadata.row_group(group).column(at).statistics
                if known is not None and known.has_min_max:
                    span = int(np.searchsorted(spans[:, 1], known.min_raw))
                    if span == len(spans) or spans[span, 0] > known.max_raw:
                        continue
                if self._is_over():
                    return
                if scan.nodes:
                    of_nodes = file.read_row_group(group, columns=["node"], use_threads=False)["node"]
                    if scan.nodes.isdisjoint(of_nodes.unique().to_pylist()):
                        continue
                yield file.read_row_group(group, columns=there, use_threads=False)

    def _is_over(self) -> bool:
        over = time.monotonic() > self._until
        self.cut |= over
        return over


class _Readings:
    """Readings of the `members` of a store, from tables of counters in the order of acceptance."""

    def __init__(
        self, store: GroupStore, members: Collection[str], required: Collection[str], offset_ns: int
    ) -> None:
        """`required`: counters that a compared component has. `offset_ns`: subtracted from all times."""
        self._store = store
        self._offset_ns = offset_ns
        self._members = members
        self._required = required
        self._streams: dict[str, int] = {}
        self._seen: set[str] = set()

    def has(self, counters: Collection[str]) -> bool:
        """Whether all of `counters` were seen, except for optional ones."""
        return self._seen.issuperset(name for name in counters if name not in self._store.optional)

    def add(self, source: str, table: pa.Table, spans: IntArray) -> None:
        """Stores the newest reading of each member in each span."""
        tick = integers(table, "tick")
        span = np.searchsorted(spans[:, 1], tick)
        inside = (span < len(spans)) & (tick >= spans[np.minimum(span, len(spans) - 1), 0])
        if not inside.any():
            return
        table = table.filter(pa.array(inside)).unify_dictionaries().combine_chunks()
        tick, span = tick[inside], span[inside]
        rows, streams = self._rows(source, table), self._origins(table)
        values, known = self._values(table)
        at = np.flatnonzero((rows >= 0) & known)
        at = at[np.lexsort((tick[at], span[at], rows[at]))]
        newest = np.ones(at.size, dtype=np.bool_)
        newest[:-1] = (rows[at[1:]] != rows[at[:-1]]) | (span[at[1:]] != span[at[:-1]])
        at = at[newest]
        read = tick + integers(table, "read_offset_ns")
        at = at[np.lexsort((streams[at], read[at], tick[at]))]
        same = np.stack([tick[at], read[at], streams[at]])
        for block in np.split(at, np.flatnonzero((same[:, 1:] != same[:, :-1]).any(axis=0)) + 1):
            if block.size:
                when, read_ns = tick[block[:1]] - self._offset_ns, read[block[:1]] - self._offset_ns
                self._store.set_origin(rows[block], int(streams[block[0]]))
                self._store.add(Block(rows[block], values[None, block], None, when, read_ns, 0), int(when[0]))

    def _rows(self, source: str, table: pa.Table) -> IntArray:
        """The store's row of each row of the table, -1 for others than members."""
        node, component = (table[name].chunk(0) for name in ("node", "component"))
        nodes, components = node.dictionary.to_pylist(), component.dictionary.to_pylist()
        pairs = node.indices.to_numpy().astype(np.int64) * len(components) + component.indices.to_numpy()
        distinct, inverse = np.unique(pairs, return_inverse=True)
        keys = [
            self._key(source, nodes[pair // len(components)], components[pair % len(components)])
            for pair in distinct.tolist()
        ]
        store = self._store
        wanted = [key for key in keys if key]
        room = max(MAX_STORE_ROWS - len(store.components), 0)
        row = dict(zip(wanted, store.rows_of(wanted, room).tolist(), strict=True))
        return np.array([row.get(key, -1) for key in keys], dtype=np.int64)[inverse]

    def _key(self, source: str, node: str, component: str) -> str:
        """Key of a component's row in the store, empty for others than members."""
        for own in (f"{node}/{component}", component):
            key = self._store.key(source, own)
            if self._store.names_of(key)[-1] in self._members:
                return key
        return ""

    def _origins(self, table: pa.Table) -> IntArray:
        """A number from 1 for the stream of each row."""
        stream = table["stream"].chunk(0)
        known = self._streams
        numbers = [known.setdefault(name, len(known) + 1) for name in stream.dictionary.to_pylist()]
        origins: IntArray = np.array(numbers, dtype=np.int64)[stream.indices.to_numpy()]
        return origins

    def _values(self, table: pa.Table) -> tuple[IntArray, BoolArray]:
        """The store's counters (rows, counters), 0 where absent, and which rows have all required ones."""
        values = np.zeros((table.num_rows, len(self._store.counters)), dtype=np.int64)
        known = np.ones(table.num_rows, dtype=np.bool_)
        for at, name in enumerate(self._store.counters):
            if (
                column_of(name) in table.column_names
                and table.schema.field(column_of(name)).type == pa.int64()
            ):
                column, null = lane(table, column_of(name))
                values[:, at] = column
                if null is None or not null.all():
                    self._seen.add(name)
            else:
                null = np.ones(table.num_rows, dtype=np.bool_)
            if null is not None and name in self._required:
                known &= ~null
        return values, known


def _stamp(at: float) -> str:
    """A time as file names have it."""
    return datetime.fromtimestamp(max(at, 0.0), UTC).strftime("%Y%m%dT%H%M%SZ")


def _days(start: float, end: float) -> Iterator[str]:
    """The days whose folders may have rows received in the range."""
    day = date.fromisoformat(layout.day_of(round(max(start, 86_400.0) * 1e9)))
    last = date.fromisoformat(layout.day_of(round(end * 1e9)))
    while day <= last:
        yield day.isoformat()
        day += timedelta(days=1)


def _received(parts: Sequence[layout.Part], start: str, end: str) -> Iterator[layout.Part]:
    """The parts that may have rows received in the range: each reaches to the beginning of the next one."""
    for at, part in enumerate(parts):
        if part.opened_at <= end and (part is parts[-1] or parts[at + 1].opened_at >= start):
            yield part
