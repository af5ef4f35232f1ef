"""CSV tables of the commands under `laggard jobs`: named columns of text and of numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.offline.csv_input import reason
from laggard_common.errors import InputError
from laggard_common.visible import visible

MOST_ROWS = 50_000_000


def read_columns(path: Path, texts: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    """The columns of a CSV file by name: `texts` as lists, `numbers` as float64 arrays, NaN where empty.

    Columns that the file lacks are left out. Raises InputError on a file that is not CSV or has other things
    than numbers in a column of numbers.
    """
    types = {name: pa.string() for name in texts} | {name: pa.float64() for name in numbers}
    with open_input(path) as file:
        try:
            reader = pyarrow.csv.open_csv(
                pa.PythonFile(file, "r"),
                read_options=pyarrow.csv.ReadOptions(use_threads=False),
                convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
            )
            batches, rows = [], 0
            present = reader.schema.names
            doubled = next((n for n in (*texts, *numbers) if list(present).count(n) > 1), None)
            if doubled is not None:
                raise InputError(str(path), f"row 1, the header: more than one column {visible(doubled)!r}")
            wanted = [name for name in (*texts, *numbers) if name in present]
            for batch in reader:
                rows += batch.num_rows
                if rows > MOST_ROWS:
                    raise InputError(str(path), f"more than {MOST_ROWS:,} rows")
                batches.append(batch.select(wanted))
        except pa.ArrowInvalid as exc:
            raise InputError(str(path), reason(exc)) from exc
    table = pa.Table.from_batches(batches, reader.schema.empty_table().select(wanted).schema)
    return {
        name: _array(table.column(name)) if name in numbers else table.column(name).to_pylist()
        for name in wanted
    }


def _array(column: pa.ChunkedArray) -> NDArray[np.float64]:
    values: NDArray[np.float64] = pc.fill_null(column, float("nan")).to_numpy()
    return values


def required(path: Path, columns: dict[str, Any], names: Sequence[str]) -> None:
    """Raises InputError if one of `names` is not in `columns`, or they have no rows."""
    for name in names:
        if name not in columns:
            raise InputError(str(path), f"row 1, the header: no column {visible(name)!r}")
    if not len(columns[names[0]]):
        raise InputError(str(path), "no rows below the header")
