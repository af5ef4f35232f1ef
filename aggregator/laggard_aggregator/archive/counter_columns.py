"""Converts batches of one source to columns, one row per node, component and tick, without an object per row.

Within a batch a component's ticks are adjacent, so a counter's column is a run of slowly rising numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.archive.schemas import (
    COUNTERS,
    TEXT,
    TIME,
    FieldKey,
    column_of,
    double_column_of,
    field_key,
)
from laggard_aggregator.ingest.batches import Batch
from laggard_common.wire.schema import Component, Field, Schema


@dataclass(slots=True)
class Pending:
    """Unwritten batches of one source. A field with integers and f64 values has two columns."""

    batches: list[Batch] = field(default_factory=list)
    rows: int = 0
    fields: dict[FieldKey, Field] = field(default_factory=dict)
    _schemas: dict[int, Schema] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """Values in the table: every row has every field of any batch."""
        return self.rows * len(self.fields)

    def has_room(self, taken: Batch, most_rows: int, most_cells: int) -> bool:
        """Whether the table with `taken` is not too large."""
        known, new = self.fields, 0
        if id(taken.schema) not in self._schemas:
            new = sum(field_key(field) not in known for field in taken.schema.fields)
        rows = self.rows + taken.counters.tick_ns.size * taken.counters.indexes.size
        return self.rows < most_rows and rows * (len(known) + new) <= most_cells

    def add(self, taken: Batch) -> None:
        """Adds a batch whose schema fits."""
        if id(taken.schema) not in self._schemas:
            self._schemas[id(taken.schema)] = taken.schema
            for field in taken.schema.fields:
                self.fields.setdefault(field_key(field), field)
        self.batches.append(taken)
        self.rows += taken.counters.tick_ns.size * taken.counters.indexes.size

    def table(self, run_ns: int) -> pa.Table:
        """All batches as one table: the columns of COUNTERS, then one per field."""
        batches, counters = self.batches, [taken.counters for taken in self.batches]
        ticks = np.array([block.tick_ns.size for block in counters])
        components = np.array([block.indexes.size for block in counters])
        rows, by_component = ticks * components, np.repeat(ticks, components)
        first_row, first_tick = np.cumsum(by_component) - by_component, np.cumsum(ticks) - ticks
        shift = np.repeat(np.repeat(first_tick, components) - first_row, by_component)
        tick_of = np.arange(self.rows) + shift  # of each row, among the ticks of all batches

        def of_batch(values: list[Any], kind: pa.DataType) -> pa.Array:
            return _repeated(pa.array(values, kind), rows)

        def of_tick(values: list[NDArray[np.generic]], kind: pa.DataType) -> pa.Array:
            return pa.array(np.concatenate(values)[tick_of]).cast(kind)

        idle = [np.arange(block.indexes.size) >= block.indexes.size - block.idle for block in counters]
        columns = [
            of_batch([run_ns] * len(batches), TIME),
            of_batch([taken.lsn for taken in batches], pa.int64()),
            of_batch([taken.schema.node for taken in batches], TEXT),
            of_batch([taken.role for taken in batches], TEXT),
            of_batch([taken.stream.hex() for taken in batches], TEXT),
            of_batch([taken.seq for taken in batches], pa.uint64()),
            of_batch([taken.schema.epoch for taken in batches], pa.uint32()),
            of_batch([block.values.shape[2] for block in counters], pa.uint32()),
            *self._components(by_component),
            of_tick([block.tick_ns for block in counters], TIME),
            of_tick([block.read_ns - block.tick_ns for block in counters], pa.int64()),
            of_batch([taken.received_ns for taken in batches], TIME),
            of_tick([taken.late for taken in batches], pa.bool_()),
            _repeated(pa.array(np.concatenate(idle)), by_component),
            *self._values(),
        ]
        fields = [self._arrow_field(key) for key in self.fields]
        return pa.table(columns, schema=pa.schema([*COUNTERS, *fields]))

    def _components(self, repeats: NDArray[np.int64]) -> Iterator[pa.Array]:
        """Schema index, id and name of each row's component."""
        start: dict[int, int] = {}
        described: list[Component] = []
        for key, schema in self._schemas.items():
            start[key] = len(described)
            described += schema.components
        places = [taken.counters.indexes for taken in self.batches]
        rows = [at + start[id(taken.schema)] for at, taken in zip(places, self.batches, strict=True)]
        chosen = pa.array(np.concatenate(rows))
        yield _repeated(pa.array(np.concatenate(places).astype(np.uint32)), repeats)
        yield _repeated(pa.array([component.id for component in described], TEXT).take(chosen), repeats)
        yield _repeated(pa.array([component.name for component in described], TEXT).take(chosen), repeats)

    def _values(self) -> list[pa.Array]:
        """One column per field; null where a batch, or a component in it, lacks the field."""
        place = {key: at for at, key in enumerate(self.fields)}
        at_of = {key: [place[field_key(f)] for f in schema.fields] for key, schema in self._schemas.items()}
        lanes = np.zeros((len(place), self.rows), dtype=np.int64)
        missing = np.zeros((len(place), self.rows), dtype=np.bool_)
        row = 0
        for taken in self.batches:
            n, c, f = taken.counters.values.shape
            at = at_of[id(taken.schema)][:f]
            rows = slice(row, row + n * c)
            lanes[at, rows] = taken.counters.values.transpose(2, 1, 0).reshape(f, n * c)
            if f < len(place):
                missing[[other for other in range(len(place)) if other not in set(at)], rows] = True
            if taken.counters.present is not None:
                missing[at, rows] = np.repeat(~taken.counters.present.T, n, axis=1)
            row += n * c
        columns = []
        for (_, double), lane, absent in zip(self.fields, lanes, missing, strict=True):
            values = lane.view(np.float64) if double else lane
            columns.append(pa.array(values, mask=absent if absent.any() else None, from_pandas=False))
        return columns

    def _arrow_field(self, key: FieldKey) -> pa.Field:
        """The column of a field. u64 values above 2^63 - 1 wrap around to negative ones; `type` says so."""
        (name, double), field = key, self.fields[key]
        column = column_of(name)
        if double and (name, False) in self.fields:
            column = double_column_of(column)
        meaning = {"kind": field.kind.name.lower(), "unit": field.unit, "type": field.type.name.lower()}
        return pa.field(column, pa.float64() if double else pa.int64(), metadata=meaning)


def _repeated(column: pa.Array, counts: NDArray[np.int64]) -> pa.Array:
    """Each value of `column` as often as `counts`, 1 or more, says."""
    if isinstance(column, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_repeated(column.indices, counts), column.dictionary)
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(np.cumsum(counts), column))
