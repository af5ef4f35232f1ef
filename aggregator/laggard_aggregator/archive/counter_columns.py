"""Converts batches of one source to columns, one row per node, component and tick, without an object per row.

Within a batch a component's ticks are adjacent, so a counter's column is a run of slowly rising numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive.tables import COUNTERS, TEXT, TIME, column_of
from laggard_aggregator.ingest.batches import Batch
from laggard_common.wire.schema import Field, FieldType, Schema


@dataclass(slots=True)
class Pool:
    """Distinct strings in order of first use, for a dictionary column."""

    places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int:
        """Index of the string in the dictionary."""
        return self.places.setdefault(text, len(self.places))

    def column(self, places: NDArray[np.int32]) -> pa.DictionaryArray:
        """The dictionary column of rows with these `places`."""
        return pa.DictionaryArray.from_arrays(pa.array(places), pa.array(list(self.places), pa.string()))


@dataclass(slots=True)
class Pending:
    """Unwritten batches of one source; all agree on every field's type."""

    batches: list[Batch] = field(default_factory=list)
    rows: int = 0
    fields: dict[str, Field] = field(default_factory=dict)
    _schemas: dict[int, Schema] = field(default_factory=dict)

    def takes(self, schema: Schema) -> bool:
        """True when the types of `schema` match those of the batches here."""
        if id(schema) in self._schemas:
            return True
        known = self.fields
        return all(f.name not in known or _double(known[f.name]) == _double(f) for f in schema.fields)

    @property
    def cells(self) -> int:
        """Values in the table: every row has every field of any batch."""
        return self.rows * len(self.fields)

    def cells_with(self, taken: Batch) -> int:
        """Value of `cells` after `taken` is added."""
        fields = len(self.fields)
        if id(taken.schema) not in self._schemas:
            fields += sum(each.name not in self.fields for each in taken.schema.fields)
        return fields * (self.rows + taken.counters.tick_ns.size * taken.counters.indexes.size)

    def add(self, taken: Batch) -> None:
        """Adds a batch whose schema fits."""
        if id(taken.schema) not in self._schemas:
            self._schemas[id(taken.schema)] = taken.schema
            for each in taken.schema.fields:
                self.fields.setdefault(each.name, each)
        self.batches.append(taken)
        self.rows += taken.counters.tick_ns.size * taken.counters.indexes.size

    def table(self, run_ns: int) -> pa.Table:
        """All batches as one table: the columns of COUNTERS, then one per field."""
        n = np.array([taken.counters.tick_ns.size for taken in self.batches])
        c = np.array([taken.counters.indexes.size for taken in self.batches])
        counts = n * c
        columns = [
            _repeated([run_ns], np.array([self.rows]), TIME),
            _repeated([taken.lsn for taken in self.batches], counts, pa.int64()),
            _texts([taken.schema.node for taken in self.batches], counts),
            _texts([taken.role for taken in self.batches], counts),
            _texts([taken.stream.hex() for taken in self.batches], counts),
            _repeated(np.array([taken.seq for taken in self.batches], np.uint64), counts, pa.uint64()),
            _repeated([taken.schema.epoch for taken in self.batches], counts, pa.uint32()),
            _repeated([taken.counters.values.shape[2] for taken in self.batches], counts, pa.uint32()),
            *self._components(np.repeat(n, c)),
            *self._ticks(),
            _repeated([taken.received_ns for taken in self.batches], counts, TIME),
            self._tiled([taken.late for taken in self.batches], pa.bool_()),
            pa.array(np.repeat(self._idle(), np.repeat(n, c))),
        ]
        columns += self._values()
        return pa.table(columns, schema=pa.schema([*COUNTERS, *map(arrow_field, self.fields.values())]))

    def _components(self, repeats: NDArray[np.int64]) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Schema index, id and name of each row's component."""
        ids, names = Pool(), Pool()
        known: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
        id_places, name_places = [], []
        for taken in self.batches:
            schema = taken.schema
            if id(schema) not in known:
                known[id(schema)] = (
                    np.array([ids.place(each.id) for each in schema.components], dtype=np.int32),
                    np.array([names.place(each.name) for each in schema.components], dtype=np.int32),
                )
            of_id, of_name = known[id(schema)]
            id_places.append(of_id[taken.counters.indexes])
            name_places.append(of_name[taken.counters.indexes])
        places = np.concatenate([taken.counters.indexes for taken in self.batches])
        return (
            pa.array(np.repeat(places.astype(np.uint32), repeats)),
            ids.column(np.repeat(np.concatenate(id_places), repeats)),
            names.column(np.repeat(np.concatenate(name_places), repeats)),
        )

    def _ticks(self) -> tuple[pa.Array, pa.Array]:
        """Nominal time and reading offset of each row."""
        batches = [taken.counters for taken in self.batches]
        offsets = [batch.read_ns - batch.tick_ns for batch in batches]
        return self._tiled([batch.tick_ns for batch in batches], TIME), self._tiled(offsets, pa.int64())

    def _tiled(self, by_tick: Sequence[NDArray[np.generic]], kind: pa.DataType) -> pa.Array:
        """Repeats the per-tick values of each batch for each of its components."""
        tiled = [
            np.broadcast_to(values, (taken.counters.indexes.size, values.size)).ravel()
            for values, taken in zip(by_tick, self.batches, strict=True)
        ]
        return pa.array(np.concatenate(tiled)).cast(kind)

    def _idle(self) -> NDArray[np.bool_]:
        idle = []
        for taken in self.batches:
            flags = np.zeros(taken.counters.indexes.size, dtype=np.bool_)
            flags[flags.size - taken.counters.idle :] = True
            idle.append(flags)
        return np.concatenate(idle)

    def _values(self) -> list[pa.Array]:
        """One column per field; null where a batch, or a component in it, lacks the field."""
        place = {name: at for at, name in enumerate(self.fields)}
        lanes = np.zeros((len(place), self.rows), dtype=np.int64)
        missing = np.zeros((len(place), self.rows), dtype=np.bool_)
        row = 0
        for taken in self.batches:
            n, c, f = taken.counters.values.shape
            at = [place[each.name] for each in taken.schema.fields[:f]]
            rows = slice(row, row + n * c)
            lanes[at, rows] = taken.counters.values.transpose(2, 1, 0).reshape(f, n * c)
            if f < len(place):
                missing[[other for other in range(len(place)) if other not in set(at)], rows] = True
            if taken.counters.present is not None:
                missing[at, rows] = np.repeat(~taken.counters.present.T, n, axis=1)
            row += n * c
        columns = []
        for each, lane, absent in zip(self.fields.values(), lanes, missing, strict=True):
            values = lane.view(np.float64) if _double(each) else lane
            columns.append(pa.array(values, mask=absent if absent.any() else None, from_pandas=False))
        return columns


def arrow_field(each: Field) -> pa.Field:
    """The column of a field. u64 values above 2^63 - 1 wrap around to negative ones; `type` says so."""
    meaning = {"kind": each.kind.name.lower(), "unit": each.unit, "type": each.type.name.lower()}
    return pa.field(column_of(each.name), pa.float64() if _double(each) else pa.int64(), metadata=meaning)


def _double(each: Field) -> bool:
    return each.type is FieldType.F64


def _repeated(
    values: Iterable[int] | NDArray[np.uint64], counts: NDArray[np.int64], kind: pa.DataType
) -> pa.Array:
    values = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=np.int64)
    return pa.array(np.repeat(values, counts)).cast(kind)


def _texts(texts: Iterable[str], counts: NDArray[np.int64]) -> pa.DictionaryArray:
    pool = Pool()
    places = np.fromiter((pool.place(text) for text in texts), dtype=np.int32)
    return pool.column(np.repeat(places, counts)).cast(TEXT)
