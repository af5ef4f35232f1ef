"""Decodes counter columns into batches; the inverse of `counter_columns.Pending`."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive.schemas import column_of, double_column_of
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import FieldType, Schema

_U64 = 2**64 - 1

FindSchema = Callable[[int, str, str, int], Schema]
"""The schema of a run, node, stream (hex) and epoch."""


Stamped = tuple[int, Batch]
"""A batch behind the run to which its sequence number belongs, in ns."""


def batches(chunks: Iterable[pa.Table], site: str, find_schema: FindSchema) -> Iterator[Stamped]:
    """Yields the batches in the consecutive `chunks` of one file; a batch may span several chunks."""
    rest: pa.Table | None = None
    for chunk in chunks:
        table = chunk if rest is None else pa.concat_tables([rest, chunk])
        bounds = _bounds(table)
        rest = table.slice(bounds[-1])
        yield from _rebuilt(table.slice(0, bounds[-1]), bounds, site, find_schema)
    if rest is not None and rest.num_rows:
        yield from _rebuilt(rest, [0, rest.num_rows], site, find_schema)


def _bounds(table: pa.Table) -> list[int]:
    """Start rows of batches; the last one may continue in the next chunk."""
    run, ordinal = integers(table, "run"), integers(table, "ordinal")
    changes = np.flatnonzero((ordinal[1:] != ordinal[:-1]) | (run[1:] != run[:-1])) + 1
    return [0, *changes.tolist()]


def _rebuilt(table: pa.Table, bounds: list[int], site: str, find_schema: FindSchema) -> Iterator[Stamped]:
    if not table.num_rows:
        return
    table = table.unify_dictionaries().combine_chunks()
    lanes = _Lanes(table)
    run, ordinal, seq = (integers(table, name) for name in ("run", "ordinal", "seq"))
    epoch, width, received = (integers(table, name) for name in ("epoch", "width", "received"))
    place, tick, offset = (integers(table, name) for name in ("place", "tick", "read_offset_ns"))
    late, idle = (_column(table, name).to_numpy(zero_copy_only=False) for name in ("late", "idle"))
    texts = zip(*(_texts(table, name, bounds[:-1]) for name in ("node", "role", "stream")), strict=True)
    for (first, last), (node, role, stream) in zip(pairwise(bounds), texts, strict=True):
        schema = find_schema(int(run[first]), node, stream, int(epoch[first]))
        other = np.flatnonzero(place[first:last] != place[first])
        n = int(other[0]) if other.size else last - first
        ticks = slice(first, first + n)
        values, present = lanes.batch(schema, int(width[first]), first, last, n)
        yield (
            int(run[first]),
            Batch(
                lsn=int(ordinal[first]),
                site=site,
                role=role,
                stream=bytes.fromhex(stream),
                seq=int(seq[first]) & _U64,
                received_ns=int(received[first]),
                schema=schema,
                counters=Block(
                    indexes=place[first:last:n].astype(np.int64),
                    values=values,
                    present=present,
                    tick_ns=tick[ticks],
                    read_ns=tick[ticks] + offset[ticks],
                    idle=int(idle[first:last:n].sum()),
                ),
                late=late[ticks],
            ),
        )


class _Lanes:
    """All field columns of a table as int64 lanes with their null masks."""

    def __init__(self, table: pa.Table) -> None:
        self._lane = cache(partial(lane, table))
        self._names = frozenset(table.column_names)

    def batch(
        self, schema: Schema, width: int, first: int, last: int, n: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """`values` (n, c, f) and `present` (c, f) of the rows `first` to `last`."""
        c, fields = (last - first) // n, schema.fields[:width]
        values = np.empty((n, c, len(fields)), dtype=np.int64)
        missing = np.zeros((c, len(fields)), dtype=np.bool_)
        for at, field in enumerate(fields):
            name = column_of(field.name)
            if field.type is FieldType.F64 and double_column_of(name) in self._names:
                name = double_column_of(name)
            column, null = self._lane(name)
            values[:, :, at] = column[first:last].reshape(c, n).T
            if null is not None:
                missing[:, at] = null[first:last:n]
        return values, ~missing if missing.any() else None


def lane(table: pa.Table, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """A field's column as int64 lanes, 0 where it is null, and where that is; None without nulls."""
    column = _column(table, name)
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return (column if null is None else column.fill_null(0)).to_numpy().view(np.int64), null


def _texts(table: pa.Table, name: str, rows: list[int]) -> list[str]:
    """A dictionary column at `rows`."""
    texts: list[str] = _column(table, name).take(pa.array(rows)).to_pylist()
    return texts


def _column(table: pa.Table, name: str) -> pa.Array:
    """One column as one array."""
    column = table[name]
    if not column.num_chunks:
        return pa.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of integers or times as int64; uint64 wraps around."""
    column = _column(table, name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return np.asarray(column.to_numpy()).astype(np.int64)
