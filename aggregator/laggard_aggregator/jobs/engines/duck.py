"""Connections of DuckDB: bounded, and with numbers as Arrow's other engines have them."""

from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

_MEMORY: Final = "1GB"


def open_duck() -> tuple[Any, "TemporaryDirectory[str]"]:
    """A connection in memory, and the folder into which it spills: not the working directory."""
    import duckdb

    spill = TemporaryDirectory(prefix="laggard-duckdb-")
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "temp_directory": spill.name,
        "python_enable_replacements": False,  # a name in SQL never means a variable of Python
    }
    return duckdb.connect(":memory:", config=settings), spill


def narrow(table: pa.Table) -> pa.Table:
    """Sums and counts as int64 where they fit: DuckDB's have 128 bits."""
    for at, field in enumerate(table.schema):
        is_whole = pa.types.is_decimal(field.type) and field.type.scale == 0
        if is_whole or (pa.types.is_integer(field.type) and field.type != pa.int64()):
            with suppress(pa.ArrowInvalid):
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
    return table
