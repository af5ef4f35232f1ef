"""A program's own stamps, one row a request: `submit_ns`, `done_ns`, or the four events.

id,thread,op,file,inode,offset,bytes,submit_ns,done_ns,fd,ret
0,23771,read,data.bin,13,133496832,65536,6233282128731,6233284590020,3,65536
"""

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.files.cut_rows import CutRow
from laggard_aggregator.layers.columns import (
    ABSENT,
    OPERATIONS,
    OTHER,
    LayerRecording,
    NameTable,
    RequestColumns,
    TracedLayer,
    rank_of,
)
from laggard_common.errors import InputError

_LAYERS = {"app": "application", "application": "application", "server": "server", "message": "library"}
_TIMES = ("submit_ns", "done_ns", "admit_ns", "issue_ns", "complt_ns", "callback_ns")
_NUMBERS = ("thread", "offset", "bytes", "fd", "ret", "inode", *_TIMES)
MAX_NAMES = 1 << 20


def header(first: bytes) -> list[str]:
    """Column names of the first line; none where it is no CSV, as in a program."""
    line = first.split(b"\n", 1)[0].decode(errors="replace").strip()
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def matches(first: bytes) -> bool:
    """True for a CSV of requests with their stamps."""
    names = set(header(first))
    return bool(names & {"submit_ns", "admit_ns"}) and {"offset", "bytes"} <= names


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the layer that the file's name tells: `app`, `server`, `message` or its own. Raises InputError."""
    types = {name: pa.int64() for name in _NUMBERS} | {"op": pa.string(), "file": pa.string()}
    table = _table(path, types, recording)
    check_once(path, [name for name in table.column_names if name in (*_NUMBERS, "op", "file")])
    lacking = [name for name in ("op", "offset", "bytes") if name not in table.column_names]
    if lacking:
        raise InputError(str(path), f"lacks the columns {', '.join(lacking)}")
    stem = path.name.split(".", 1)[0].lower()
    name = _LAYERS.get(stem, stem or "application")
    operation = operations(column(table, "op"))
    has_failed = (operation != OTHER) & (_numbers(table, "ret", 0) < 0)
    is_data = (operation != OTHER) & ~has_failed
    stamps = {k: _numbers(table, k, ABSENT) for k in _TIMES}
    count = table.num_rows
    columns = RequestColumns.of(
        count,
        admit=stamps["admit_ns"] if "admit_ns" in table.column_names else stamps["submit_ns"],
        issue=stamps["issue_ns"],
        complt=stamps["complt_ns"],
        callback=stamps["callback_ns"] if "callback_ns" in table.column_names else stamps["done_ns"],
        space=named(column(table, "file"), recording.names, path, count),
        start=_numbers(table, "offset", -1),
        size=_numbers(table, "bytes", 0).clip(0),
        done=_numbers(table, "ret", -1),
        operation=operation,
        thread=_numbers(table, "thread", -1),
        fd=_numbers(table, "fd", -1),
        issues=(stamps["issue_ns"] != ABSENT).astype(np.int32),
    ).where(is_data)
    layer = TracedLayer(
        name, columns, rank_of(name), clock=str(path), stamped=bool((columns.issue != ABSENT).any())
    )
    layer.left_out["other operations"] = int((operation == OTHER).sum())
    if has_failed.any():
        layer.left_out["failed reads and writes"] = int(has_failed.sum())
    recording.layers.append(layer)


def check_once(path: Path, names: Sequence[str]) -> None:
    """Raises InputError for a column of which there are two: neither is sure to be meant."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(str(path), f"has several columns {', '.join(twice)}, expected one of each")


def _table(path: Path, types: dict[str, Any], recording: LayerRecording) -> Any:
    """The CSV as one Arrow table. Raises InputError."""
    try:
        with open_input(path, cut=partial(recording.remark, path)) as file:
            cut = CutRow(path, file)
            table = pacsv.read_csv(
                pa.PythonFile(cut.file, "r"),
                read_options=pacsv.ReadOptions(use_threads=False),
                convert_options=pacsv.ConvertOptions(column_types=types),
            )
    except pa.ArrowException as exc:
        raise InputError(str(path), f"is no CSV of requests: {str(exc).splitlines()[0]}") from None
    recording.remarks += cut.remarks()
    return table


def column(table: Any, name: str) -> Any:
    """The column as one array, or None."""
    if name not in table.column_names:
        return None
    return table.column(name).combine_chunks()


def _numbers(table: Any, name: str, unknown: int) -> NDArray[np.int64]:
    values = column(table, name)
    if values is None:
        return np.full(table.num_rows, unknown, np.int64)
    return np.asarray(pc.fill_null(values, unknown).to_numpy(zero_copy_only=False)).astype(np.int64)


def operations(values: Any) -> NDArray[np.int8]:
    """Codes of operations: `read`, `write` in any case; others `OTHER`."""
    encoded = as_dictionary(values)
    codes = np.array(
        [OPERATIONS.get((text or "").strip().lower(), OTHER) for text in encoded.dictionary.to_pylist()]
        + [OTHER],
        np.int8,
    )
    return codes[indexes(encoded)]


def named(values: Any, names: NameTable, path: Path, count: int) -> NDArray[np.int32]:
    """Indexes of the names in `values`; -1 where there is none. Raises InputError beyond a million names."""
    if values is None:
        return np.full(count, -1, np.int32)
    encoded = as_dictionary(values)
    if len(encoded.dictionary) > MAX_NAMES:
        raise InputError(str(path), f"has more than {MAX_NAMES} names of files")
    texts = [str(text) if text not in (None, "") else None for text in encoded.dictionary.to_pylist()]
    codes = np.array([names.index(text[:4096]) if text else -1 for text in texts] + [-1], np.int32)
    return codes[indexes(encoded)]


def as_dictionary(values: Any) -> Any:
    """Dictionary-encoded strings."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        if pa.types.is_string(values.type.value_type):
            return values
        values = pc.cast(values, values.type.value_type)
    if not pa.types.is_string(values.type):
        values = pc.cast(values, pa.string())
    return values.dictionary_encode()


def indexes(encoded: Any) -> NDArray[np.int64]:
    """Positions in the dictionary; null is -1, the last."""
    return np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
