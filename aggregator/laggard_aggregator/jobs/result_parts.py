"""Writes the results of jobs into the archive: series and components before summaries."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from laggard_aggregator.archive import layout
from laggard_aggregator.jobs.accounts import JobAccount
from laggard_aggregator.jobs.summary import ResultRow, component_rows, series_rows, summary_row
from laggard_aggregator.jobs.tables import JOB_COMPONENTS, JOB_SERIES, JOB_SUMMARIES

_RESULTS = (
    ("job_series", JOB_SERIES, series_rows),
    ("job_components", JOB_COMPONENTS, component_rows),
)


def write_results(directory: Path, site: str, day: str, accounts: Sequence[JobAccount], now_ns: int) -> None:
    """Appends the results of jobs that ended on `day` as a revision of `now_ns`. Raises ArchiveError."""
    for kind, schema, rows_of in _RESULTS:
        rows = (row for each in accounts for row in rows_of(each, now_ns))
        write_part(layout.folder(directory, kind, layout.OWN, day, site), schema, rows, now_ns)
    summaries = (summary_row(each, now_ns) for each in accounts)
    where = layout.folder(directory, "job_summaries", layout.OWN, day, site)
    write_part(where, JOB_SUMMARIES, summaries, now_ns)


def write_part(where: Path, schema: pa.Schema, rows: Iterable[ResultRow], now_ns: int) -> None:
    """Appends rows as a file of the folder `where`; none without rows."""
    found = list(rows)
    if found:
        write_tables(where, schema, [result_table(schema, found)], now_ns)


def write_tables(where: Path, schema: pa.Schema, tables: Iterable[pa.Table], now_ns: int) -> None:
    """Appends tables as one file of the folder `where`. Raises ArchiveError."""
    number = layout.next_part(where)
    layout.write_part(where, layout.stamp(now_ns), (number, number), schema, tables)


def result_table(schema: pa.Schema, rows: Sequence[ResultRow]) -> pa.Table:
    """Rows as a table."""
    columns = []
    for each in schema:
        values = [row[each.name] for row in rows]
        columns.append(
            pa.array(values, pa.string()).dictionary_encode()
            if pa.types.is_dictionary(each.type)
            else pa.array(values, each.type)
        )
    return pa.table(columns, schema=schema)
