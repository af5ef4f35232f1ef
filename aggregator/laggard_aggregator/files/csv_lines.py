"""CSV in which no text is a formula of a spreadsheet, or acts on a terminal."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from laggard_common.visible import visible

_OPERATORS: Final = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""With the full-width forms, which spreadsheets read alike."""
_CONTROLS: Final = ("\t", "\r")


def csv_lines(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yields lines with their ends: the names of the columns, then the rows; empty cells for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        yield _taken(text)
        writer.writerow([csv_cell(value) for value in row])
    yield _taken(text)


def csv_cell(value: Any) -> Any:
    """A value as a cell has it; a text that a spreadsheet would run gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    is_formula = value.lstrip().startswith(_OPERATORS) or value.startswith(_CONTROLS)
    return visible(f"'{value}" if is_formula else value)


def _taken(text: io.StringIO) -> str:
    line = text.getvalue()
    text.seek(0)
    text.truncate()
    return line
