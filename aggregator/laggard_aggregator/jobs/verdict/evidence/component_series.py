"""Reads and writes of a job's OSTs or forwarders by the minute, from the archive's rollups.

OSTs as the clients on the job's nodes and forwarders saw them (`lustre_osc`), else as the servers did;
forwarders by their mounts. Rollups are sorted by node, so of a file only the row groups of these nodes and
minutes are read.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, Within, day_of
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.jobs.join.volumes import targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, MINUTE_NS, OnNodes, sum_column

MINUTE: Final = 60.0
OSTS, FORWARDERS = "OST", "forwarder"
_OST_FIELDS: Final = (
    "read_samples",
    "read_sum",
    "read_bytes_sum",
    "write_samples",
    "write_sum",
    "write_bytes_sum",
)
_FIELDS: Final = {
    "lustre_osc": tuple(name if "bytes" in name else f"ost_{name}" for name in _OST_FIELDS),
    "lustre_ost": _OST_FIELDS,
    "lustre_llite": tuple(name.replace("_samples", "_bytes_samples") for name in _OST_FIELDS),
}
"""Counts, summed times (us) and bytes, of reads and of writes."""
READS, READ_TIME, READ_BYTES, WRITES, WRITE_TIME, WRITTEN_BYTES = range(6)


@dataclass(frozen=True, slots=True)
class ComponentSeries:
    """`sums` (6, C, T) by READS to WRITTEN_BYTES, of C components of `layer` in T minutes; NaN is a gap."""

    layer: str
    names: tuple[str, ...]
    start: float
    sums: FloatArray

    @property
    def rates(self) -> FloatArray:
        """Bytes a second (C, T)."""
        rates: FloatArray = (self.sums[READ_BYTES] + self.sums[WRITTEN_BYTES]) / MINUTE
        return rates

    def latencies(self, count: int) -> FloatArray:
        """Mean times (C, T) in us of the operations of `count`, 0 without any."""
        return _ratio(self.sums[count + 1], self.sums[count])

    def load(self) -> dict[str, FloatArray]:
        """Load as in `GroupWindow`."""
        operations = self.sums[READS] + self.sums[WRITES]
        moved = self.sums[READ_BYTES] + self.sums[WRITTEN_BYTES]
        return {
            "operations": operations,
            "throughput": moved / MINUTE,
            "request_bytes": _ratio(moved, operations),
            "read_share": _ratio(self.sums[READS], operations),
        }


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Nodes and forwarders of a job, targets that the servers saw it use, and its time in seconds."""

    nodes: Collection[str]
    forwarders: Collection[str]
    osts: Collection[str]
    start: float
    end: float


def component_series(directory: Path, job: JobPlaces) -> list[ComponentSeries]:
    """Series of the job's OSTs and of its forwarders, as far as there are any. Raises ArchiveError."""

    def client(node: str, name: str) -> str | None:
        found = targets(name)
        return found.pop() if short_name(node) in clients and len(found) == 1 else None

    def server(_node: str, name: str) -> str | None:
        return name if name in job.osts else None

    def forwarder(node: str, _name: str) -> str | None:
        return behind.get(short_name(node))

    clients = frozenset(short_name(node) for node in (*job.nodes, *job.forwarders))
    behind = {short_name(node): node for node in job.forwarders}
    wanted = [_Rollups("lustre_osc", OSTS, clients, client)]
    if job.osts:
        wanted.append(_Rollups("lustre_ost", OSTS, None, server))
    if behind:
        wanted.append(_Rollups("lustre_llite", FORWARDERS, frozenset(behind), forwarder))
    found: dict[str, ComponentSeries] = {}
    for each in wanted:
        series = None if each.layer in found else each.read(directory, job.start, job.end)
        if series is not None:
            found[each.layer] = series
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Rollups:
    """Rows of a source that `named` gives a component by node and name.

    `nodes`: short names, None for all.
    """

    source: str
    layer: str
    nodes: frozenset[str] | None
    named: Callable[[str, str], str | None]

    def read(self, directory: Path, start: float, end: float) -> ComponentSeries | None:
        """The sums over all rows of a component and minute; None without any."""
        times = int(start // MINUTE) * MINUTE_NS, int(-(-end // MINUTE)) * MINUTE_NS
        sums = _Sums(times[0], (times[1] - times[0]) // MINUTE_NS)
        columns = ["node", "name", "minute", *map(sum_column, _FIELDS[self.source])]
        where = [Within("minute", *times), *(() if self.nodes is None else (OnNodes(self.nodes),))]
        days = {"first_day": day_of(times[0] / 1e9), "last_day": day_of(times[1] / 1e9)}
        for table in Table(directory, KIND, self.source).scan(columns, *where, **days):
            sums.add(table, _FIELDS[self.source], self.named)
        return sums.series(self.layer)


class _Sums:
    """Sums of rollups by component and minute."""

    def __init__(self, start_ns: int, minutes: int) -> None:
        self._start_ns, self._minutes = start_ns, minutes
        self._places: dict[str, int] = {}
        self._found: list[tuple[IntArray, FloatArray]] = []

    def add(self, table: pa.Table, fields: Sequence[str], named: Callable[[str, str], str | None]) -> None:
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

    def series(self, layer: str) -> ComponentSeries | None:
        """The series in the order of names; None without any component."""
        if not self._places:
            return None
        sums = np.zeros((len(_OST_FIELDS), len(self._places) * self._minutes))
        known: BoolArray = np.zeros(sums.shape[1], dtype=np.bool_)
        for cells, values in self._found:
            known[cells] = True
            for row, each in zip(sums, values, strict=True):
                np.add.at(row, cells, each)
        sums[:, ~known] = np.nan
        names = sorted(self._places)
        order = [self._places[name] for name in names]
        shaped = sums.reshape(len(sums), -1, self._minutes)[:, order]
        return ComponentSeries(layer, tuple(names), self._start_ns / SECOND_NS, shaped)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """`above / below`, 0 where `below` is 0, NaN in gaps."""
    empty: FloatArray = np.where(np.isnan(below), np.nan, 0.0)
    return np.divide(above, below, out=empty, where=below > 0)
