"""Tables of results as text and JSON lines."""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from laggard_aggregator.status.text_table import TableColumn, text_table


def text_lines(table: pa.Table, width: int | None = None) -> list[str]:
    """A plain table."""
    columns = [TableColumn(each.name, right=not pa.types.is_string(each.type)) for each in table.schema]
    rows = [[_shown(value) for value in row.values()] for row in table.to_pylist()]
    return text_table(columns, rows, width)


def records(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows for JSON: numbers also for decimals, None for values that JSON lacks, texts for other types."""
    for row in table.to_pylist():
        yield {name: _plain(value) for name, value in row.items()}


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)
