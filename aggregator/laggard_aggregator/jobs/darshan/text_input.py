"""Text inputs of a store, in lines and portions of rows, so that memory stays bounded."""

import io
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from laggard_aggregator.jobs.records.model import NO_LINE_FEED
from laggard_aggregator.jobs.records.sources.inputs import opened
from laggard_common.errors import InputError

MAX_LINE_CHARS: Final = 1 << 20
_MAX_CHARS: Final = 16 << 30
"""A compressed file that inflates must not fill the disk."""
_ROWS_AT_ONCE: Final = 100_000

Rows = Iterator[tuple[str, pa.Table]]
"""Tables of a store by name, each in portions."""


def file_lines(path: Path, skipped: list[str]) -> Iterator[str]:
    """Yields the lines of a file, also of a compressed one, without their ends. Raises InputError.

    `skipped` gets a line about compressed data that is cut short, and about a last line without a line feed:
    it may lack digits, so it is left out.
    """
    count = 0
    with (
        opened(path, lambda text: skipped.append(f"{path}: {text}")) as plain,
        closing(io.TextIOWrapper(plain, "utf-8", "replace", newline="\n")) as file,
    ):
        while line := file.readline(MAX_LINE_CHARS + 1):
            count += len(line)
            if len(line) > MAX_LINE_CHARS or count > _MAX_CHARS:
                raise InputError(str(path), "no text: it has a line of over 1 MiB, or is over 16 GiB")
            if not line.endswith("\n"):
                skipped.append(f"{path}: {NO_LINE_FEED}, and is left out: {line[:60]!r}")
                return
            yield line.rstrip("\r\n")


def portions(rows: Iterable[tuple[str, dict[str, Any]]], schemas: dict[str, pa.Schema]) -> Rows:
    """Yields rows, each with the name of its table, as tables of 100,000 rows."""
    waiting: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas}
    for name, row in rows:
        waiting[name].append(row)
        if len(waiting[name]) >= _ROWS_AT_ONCE:
            yield name, pa.Table.from_pylist(waiting[name], schema=schemas[name])
            waiting[name] = []
    for name, several in waiting.items():
        yield name, pa.Table.from_pylist(several, schema=schemas[name])
