"""Reads CSV files as peer groups: one row per sample, in any order, columns by name."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.files.cut_rows import CutRow
from laggard_aggregator.offline.checked_values import CheckedValues
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.csv_times import MISSING, TimeColumn
from laggard_aggregator.offline.regrid import Rows
from laggard_common.errors import InputError

ONE_GROUP = "all"
_BLOCK_BYTES = 1 << 20
_SUFFIXES = (".gz", ".xz", ".zst")
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars"}


def read_csv(
    paths: Sequence[Path],
    columns: CsvColumns,
    remarks: list[str] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Rows]:
    """Yields the samples of each group over all `paths`, ordered by group.

    With `group_by="file"` (files of the same stem are one group) only one group's rows are in memory at a
    time, otherwise all rows are: 12 bytes per row and 8 more per metric and load. Values that are negative
    or absurd are missing, and `remarks` gets a line on them; `advance` gets the bytes read, each time. Raises
    InputError on a file that is not CSV, lacks a column, or has malformed numbers or times.
    """
    reader = _CsvReader(columns, [] if remarks is None else remarks, advance)
    if columns.group_by == "file":
        by_stem = defaultdict(list)
        for path in paths:
            by_stem[stem(path)].append(path)
        for group in sorted(by_stem):
            yield from reader.rows(by_stem[group], group)
    else:
        yield from reader.rows(paths, ONE_GROUP)


def stem(path: Path) -> str:
    """The file's name without `.csv` and without the suffix of its compression."""
    name = path.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name.removesuffix(".csv")


class Labels:
    """Strings of a column as codes; after the last batch they are ordered."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def encode(self, texts: pa.Array) -> NDArray[np.int32]:
        """A code for each of `texts`."""
        encoded = texts.dictionary_encode()
        codes = [self._codes.setdefault(t, len(self._codes)) for t in encoded.dictionary.to_pylist()]
        encoded_rows: NDArray[np.int32] = np.array(codes, np.int32)[encoded.indices.to_numpy()]
        return encoded_rows

    def ordered(self, codes: NDArray[np.int32]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """The strings in order, and the codes as positions among them."""
        names = tuple(sorted(self._codes))
        place = np.empty(len(names), np.int32)
        place[[self._codes[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        return names, place[codes]


class _Growing:
    """An array that grows in place, so that there is never a second copy of it."""

    def __init__(self, dtype: Any) -> None:
        self._values = np.empty(0, dtype)
        self._size = 0

    def append(self, more: NDArray[Any]) -> None:
        """Adds `more` at the end."""
        size = self._size + more.size
        if size > self._values.size:
            self._values.resize(max(size, self._values.size * 5 // 4), refcheck=False)
        self._values[self._size : size] = more
        self._size = size

    def whole(self) -> NDArray[Any]:
        """The array; nothing is added afterwards."""
        self._values.resize(self._size, refcheck=False)
        return self._values


class _CsvReader:
    def __init__(self, columns: CsvColumns, remarks: list[str], advance: Callable[[int], None]) -> None:
        self._columns = columns
        self._remarks = remarks
        self._advance = advance

    def rows(self, paths: Iterable[Path], group: str) -> Iterator[Rows]:
        """The rows of `paths`, as one group or split by the group column."""
        columns = self._columns
        components, groups = Labels(), Labels()
        times, component, group_of = _Growing(np.int64), _Growing(np.int32), _Growing(np.int32)
        numbers = {name: _Growing(np.float64) for name in columns.numbers}
        by = columns.group_by if columns.group_by != "file" else None
        for path in paths:
            for batch in self._batches(path):
                times.append(batch[columns.time])
                component.append(components.encode(batch[columns.component]))
                if by is not None:
                    group_of.append(groups.encode(batch[by]))
                for name, column in numbers.items():
                    column.append(batch[name])
        names, places = components.ordered(component.whole())
        metrics = {name: numbers[name].whole() for name in columns.metrics}
        load = {columns.load_name: numbers[columns.load].whole()} if columns.load else {}
        whole = Rows(
            group=group,
            components=names,
            component=places,
            time_ns=times.whole(),
            metrics=metrics,
            load={name: values for name, values in load.items() if name},
            weight=columns.load_name if columns.load_name in ("throughput", "operations") else None,
        )
        if by is None:
            yield whole
            return
        every, group_at = groups.ordered(group_of.whole())
        counts = np.bincount(group_at, minlength=len(every))
        split = np.split(np.argsort(group_at, kind="stable"), np.cumsum(counts)[:-1])
        for name, rows in zip(every, split, strict=True):
            yield whole.part(name, rows)

    def _batches(self, path: Path) -> Iterator[Mapping[str, Any]]:
        """The wanted columns of a file: time as int64 ns, names as arrow strings, numbers as float64."""
        with open_input(path, self._advance, lambda text: self._remarks.append(f"{path}: {text}")) as file:
            try:
                yield from self._parsed(path, CutRow(path, file))
            except pa.ArrowInvalid as exc:
                raise InputError(str(path), reason(exc)) from exc

    def _parsed(self, path: Path, cut: CutRow) -> Iterator[Mapping[str, Any]]:
        columns = self._columns
        numbers = columns.numbers
        types = {name: pa.string() for name in columns.wanted} | {name: pa.float64() for name in numbers}
        reader = pyarrow.csv.open_csv(
            pa.PythonFile(cut.file, "r"),
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
        present = reader.schema.names
        _check_columns(path, present, columns.wanted)
        clock = TimeColumn(path, columns.zone)
        checks = {name: CheckedValues(path, name, complete=True) for name in numbers}
        row = 0
        for batch in reader:
            arrays = {name: batch.column(name) for name in columns.wanted}
            parsed: dict[str, Any] = {}
            for name, array in arrays.items():
                if name == columns.time:
                    parsed[name] = clock.parse(array, row)
                elif name in checks:
                    values = pc.fill_null(array, float("nan")).to_numpy(zero_copy_only=False)
                    parsed[name] = checks[name].checked(values, row)
                elif array.null_count:
                    first = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
                    raise InputError(str(path), f"column {name!r}: empty in data row {row + first + 1}")
                else:
                    parsed[name] = array
            row += batch.num_rows
            yield _within(parsed, columns.time)
        if not row:
            raise InputError(str(path), "no rows below the header")
        checked = (remark for check in checks.values() for remark in check.remarks())
        self._remarks += [*clock.remarks(), *cut.remarks(), *checked]


def _within(batch: dict[str, Any], time: str) -> dict[str, Any]:
    """The rows of `batch` whose time is one."""
    inside = batch[time] != MISSING
    if inside.all():
        return batch
    mask = pa.array(inside)
    return {n: v.filter(mask) if isinstance(v, pa.Array) else v[inside] for n, v in batch.items()}


def _check_columns(path: Path, present: Sequence[str], wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in present:
            listed = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
            for separator, called in _SEPARATORS.items():
                if len(present) == 1 and separator in present[0]:
                    raise InputError(str(path), f"row 1, the header: separated by {called}, expected commas")
            raise InputError(str(path), f"row 1, the header: no column {name!r}, it has {listed}")
        if list(present).count(name) > 1:
            raise InputError(str(path), f"row 1, the header: more than one column {name!r}")


def reason(exc: pa.ArrowInvalid) -> str:
    """pyarrow's reason in one short line. Its rows count the header."""
    text = " ".join(str(exc).split())
    if match := re.fullmatch(r"In CSV column #(\d+): Row #(\d+): CSV conversion error[^:]*: (.*)", text):
        column, row, problem = match.groups()
        return f"column {int(column) + 1}: data row {int(row) - 1}: {problem[:160]}"
    if match := re.fullmatch(r"CSV parse error: Row #\d+: Expected 1 columns, got \d+: (.*)", text):
        for separator, called in _SEPARATORS.items():
            if separator in match[1]:
                return f"row 1, the header: separated by {called}, expected commas"
    if match := re.fullmatch(r"CSV parse error: Row #(\d+): (.*)", text):
        return f"data row {int(match[1]) - 1}: {match[2][:160]}"
    return f"not the CSV expected: {text[:160]}"
