"""Statements to the hot index of jobs, by a connection of each thread."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from laggard_aggregator.files.sqlite import FAILURES
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.rollups.rollup_pass import rolled_until
from laggard_common.errors import ArchiveError

Row = dict[str, Any]


class IndexReader:
    """Reads the index of `index`. Methods may be called from any thread."""

    def __init__(self, index: JobIndex) -> None:
        self._index = index
        self._local = threading.local()

    def close(self) -> None:
        """Closes this thread's connection."""
        held = getattr(self._local, "held", None)
        if held is not None:
            held[1].close()
            self._local.held = None

    def rows(self, sql: str, values: dict[str, Any]) -> list[Row]:
        """All rows of a statement by the names of their columns. Raises ArchiveError."""
        with self.reading():
            try:
                cursor = self.connection().execute(sql, values)
            except (OverflowError, UnicodeEncodeError):
                return []  # a number or a text that no row has
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raises ArchiveError where the index cannot be read within the block."""
        try:
            yield
        except FAILURES as exc:
            self._index.report(exc)
            raise ArchiveError(str(self._index.path), f"the index of jobs cannot be read: {exc}") from exc

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, a new one where the index was rebuilt. Raises ArchiveError."""
        held: tuple[int, sqlite3.Connection] | None = getattr(self._local, "held", None)
        file = self._index.file_number()
        if held is None or held[0] != file:
            if held is not None:
                held[1].close()
            connection = self._index.connect()
            connection.create_function("rolled_until", 1, rolled_until, deterministic=True)
            held = self._local.held = (file, connection)
        return held[1]
