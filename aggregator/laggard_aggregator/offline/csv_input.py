"""Reads CSV files as peer groups: one row per sample, in any order, columns by name."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import LOADS
from laggard_aggregator.offline.compressed import open_input
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.sample_grid import NS
from laggard_common.errors import InputError

ONE_GROUP = "all"
_BLOCK_BYTES = 1 << 22
_SUFFIXES = (".gz", ".xz", ".zst")
_FIRST_MS, _FIRST_US, _FIRST_NS = 1e11, 1e14, 1e17  # as seconds these would lie after the year 5000


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Which columns to read. `group_by`: a column's name, `file` for one group a file, None for one group."""

    time: str = "ts"
    component: str = "disk_id"
    metrics: tuple[str, ...] = ("latency",)
    load: str | None = None
    group_by: str | None = None

    @property
    def load_name(self) -> str | None:
        """Name of the load for the detectors: throughput, unless its column is named as another load."""
        return self.load if self.load is None or self.load in LOADS else "throughput"

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [*self.metrics, *([self.load] if self.load else [])]

    @property
    def wanted(self) -> list[str]:
        """All columns, each once."""
        by = [self.group_by] if self.group_by not in (None, "file") else []
        return list(dict.fromkeys([self.time, self.component, *self.numbers, *by]))


def read_csv(paths: Sequence[Path], columns: CsvColumns) -> Iterator[Rows]:
    """Yields the samples of each group over all `paths`, ordered by group.

    With `group_by="file"` (files of the same stem are one group) only one group's rows are in memory at a
    time, otherwise all rows are: 16 bytes per row and 8 more per metric and load. Raises InputError on a file
    that is not CSV, lacks a column, or has malformed numbers or times.
    """
    if columns.group_by == "file":
        by_stem = defaultdict(list)
        for path in paths:
            by_stem[stem(path)].append(path)
        for group in sorted(by_stem):
            yield from _rows(by_stem[group], columns, group)
    else:
        yield from _rows(paths, columns, ONE_GROUP)


def stem(path: Path) -> str:
    """The file's name without `.csv` and without the suffix of its compression."""
    name = path.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name.removesuffix(".csv")


def _rows(paths: Iterable[Path], columns: CsvColumns, group: str) -> Iterator[Rows]:
    """The rows of `paths`, as one group or split by the group column."""
    table = pa.Table.from_batches([batch for path in paths for batch in _batches(path, columns)])
    if columns.group_by in (None, "file"):
        yield _group(group, table, columns)
        return
    groups, group_of = distinct(table[columns.group_by])
    split = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    table = table.combine_chunks()
    for name, rows in zip(groups, split, strict=True):
        yield _group(name, table.take(pa.array(rows)), columns)


def _group(group: str, table: pa.Table, columns: CsvColumns) -> Rows:
    """All rows of `table` as one group."""
    names, component = distinct(table[columns.component])
    numbers = {name: np.asarray(table[name].to_numpy(), np.float64) for name in columns.numbers}
    load = columns.load_name
    return Rows(
        group=group,
        components=names,
        component=component,
        time_ns=np.asarray(table[columns.time].to_numpy(), dtype=np.int64),
        metrics={name: numbers[name] for name in columns.metrics},
        load={load: numbers[columns.load]} if load and columns.load else {},
        weight=load if load in ("throughput", "operations") else None,
    )


def distinct(texts: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """The distinct strings of a column in order, and each row's position among them."""
    encoded = pa.concat_arrays(texts.chunks).dictionary_encode()
    place = pc.rank(encoded.dictionary, "ascending").to_numpy() - 1
    return tuple(sorted(encoded.dictionary.to_pylist())), place[encoded.indices.to_numpy()].astype(np.int32)


def _batches(path: Path, columns: CsvColumns) -> Iterator[pa.RecordBatch]:
    """The wanted columns of one file: time as int64 ns, names as strings, numbers as float64, NaN missing."""
    with open_input(path) as file:
        try:
            yield from _parsed(path, pa.PythonFile(file, "r"), columns)
        except pa.ArrowInvalid as exc:
            raise InputError(str(path), _reason(exc)) from exc


def _parsed(path: Path, file: pa.NativeFile, columns: CsvColumns) -> Iterator[pa.RecordBatch]:
    wanted, numbers = columns.wanted, columns.numbers
    types = {name: pa.string() for name in wanted} | {name: pa.float64() for name in numbers}
    reader = pyarrow.csv.open_csv(
        file,
        read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )
    _check_columns(path, reader.schema.names, wanted)
    row = 0
    for batch in reader:
        arrays = []
        for name in wanted:
            array = batch.column(name)
            if name == columns.time:
                array = _times(path, array, row)
            elif name in numbers:
                array = pc.fill_null(array, float("nan"))
            elif array.null_count:
                raise InputError(str(path), f"column {name!r}: empty in data row {row + _first_null(array)}")
            arrays.append(array)
        row += batch.num_rows
        yield pa.RecordBatch.from_arrays(arrays, wanted)
    if not row:
        raise InputError(str(path), "no rows below the header")


def _check_columns(path: Path, present: Sequence[str], wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in present:
            listed = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
            raise InputError(
                str(path), f"no column {name!r}, it has {listed if listed.isprintable() else 'none'}"
            )
        if list(present).count(name) > 1:
            raise InputError(str(path), f"more than one column {name!r}")


def _first_null(array: pa.Array) -> int:
    """Position of the first null, counted from 1."""
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]) + 1


def _times(path: Path, array: pa.Array, row: int) -> pa.Array:
    """Times as ns since the epoch, from numbers or ISO 8601.

    Numbers are seconds, or ms, us or ns where as seconds they would lie after the year 5000. ISO 8601 without
    a zone is UTC.
    """
    if array.null_count:
        raise InputError(str(path), f"time column: empty in data row {row + _first_null(array)}")
    with suppress(pa.ArrowInvalid):
        return _numeric_times(pc.cast(array, pa.float64()))
    for kind in (pa.timestamp("ns", tz="UTC"), pa.timestamp("ns")):
        with suppress(pa.ArrowInvalid):
            return pc.cast(pc.cast(array, kind), pa.int64())
    shown = next((text for text in array.to_pylist() if not text[:1].isdigit()), array[0].as_py())
    raise InputError(str(path), f"time column: expected epoch seconds or ISO 8601, got {shown[:40]!r}")


def _numeric_times(array: pa.Array) -> pa.Array:
    seconds = array.to_numpy()
    largest = float(np.abs(seconds).max(initial=0.0))
    if not largest < 9.2e18:
        raise pa.ArrowInvalid("not a time")
    unit = (
        1 if largest >= _FIRST_NS else 1000 if largest >= _FIRST_US else 10**6 if largest >= _FIRST_MS else NS
    )
    whole = np.floor(seconds)
    return pa.array(whole.astype(np.int64) * unit + np.round((seconds - whole) * unit).astype(np.int64))


def _reason(exc: pa.ArrowInvalid) -> str:
    """pyarrow's reason in one short printable line."""
    text = " ".join(str(exc).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return f"not the CSV expected: {text[:160]}"
