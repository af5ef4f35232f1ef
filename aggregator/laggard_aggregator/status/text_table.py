"""Plain text tables for terminals and pipes: names whole, headings whole, nothing acts on the terminal."""

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from laggard_common.visible import visible

_BETWEEN = "  "


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column. `dispensable`: in a table that is too wide the highest are left out first; 0 always stays."""

    heading: str
    right: bool = False
    dispensable: int = 0


class StyledLine(NamedTuple):
    """A line of text, and its style for `rich` on a terminal."""

    text: str
    style: str = ""


def terminal_width(output: TextIO) -> int | None:
    """Columns of the terminal that `output` is; None if it is a pipe or a file."""
    return shutil.get_terminal_size().columns if output.isatty() else None


def wrapped(line: str, width: int | None) -> list[str]:
    """A line of text in lines of at most `width` columns, the further ones indented; whole for a pipe."""
    if width is None or len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(
        line, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def text_table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int | None = None
) -> list[str]:
    """The lines of a table: the headings, then one a row; after them the headings left out, if any.

    `width`: columns of the terminal; None for a pipe, where all columns are there. Unprintable characters
    are escaped.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - not for the help of commands

    cells = [[column.heading for column in columns], *([visible(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    kept = list(range(len(columns)))
    while width is not None and sum(widths[c] + len(_BETWEEN) for c in kept) - len(_BETWEEN) > width:
        least = max(kept, key=lambda c: columns[c].dispensable)
        if not columns[least].dispensable:
            break
        kept.remove(least)
    lines = [_line([(row[c], widths[c] - cell_len(row[c]), columns[c].right) for c in kept]) for row in cells]
    if len(kept) < len(columns):
        left_out = ", ".join(columns[c].heading for c in range(len(columns)) if c not in kept)
        lines += wrapped(f"(on a wider terminal also: {left_out})", width)
    return lines


def _line(cells: Sequence[tuple[str, int, bool]]) -> str:
    """A line of cells, each a text, the spaces that it lacks, and whether they come before it."""
    padded = (" " * lacking + text if right else text + " " * lacking for text, lacking, right in cells)
    return _BETWEEN.join(padded).rstrip()
