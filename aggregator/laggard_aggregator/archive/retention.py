"""Keeps the archive small: parts become hourly and daily files, old days go.

Both are safe against a crash at any point. A merged file is complete before what it replaces goes, and takes
its place by its name alone (`layout.parts`); what a crash leaves behind is cleared by the next compaction.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.parquet_files import ROW_GROUP_ROWS, write_parquet
from laggard_common.errors import ArchiveError

RESULTS = ("verdicts", "windows", "alarms")
"""What is kept for `rollup_days`; everything else is raw."""

MERGED_BYTES = 2 * 1024 * 1024
"""Row groups of so much are in memory at a time, and become one: some 10,000 rows of counters."""
MOST_ROW_GROUPS = 256
"""Of more rows they become larger, up to ROW_GROUP_ROWS: each takes 20 KiB of memory until its file is whole,
and 3 KiB of the file, which whoever opens it reads first."""
_TABLES_APART = 16
"""So many small tables lie beside each other before they are made one: each is dozens of small blocks."""


def compact(directory: Path, now_ns: int) -> int:
    """Merges the parts of hours that are over, and all of days that are over; returns how many files went.

    Raises ArchiveError when something cannot be read or written; nothing is lost then.
    """
    today = layout.day_of(now_ns)
    hour = datetime.fromtimestamp((now_ns - layout.DAY_OPENS_NS) // 10**9, UTC).strftime("%Y%m%dT%H")
    gone = 0
    for kind in layout.KINDS:
        for day, where in layout.days(directory, kind):
            gone += _clear(where)
            parts = layout.parts(where)
            for run in _consecutive(parts, None if day < today else hour):
                gone += _merge(where, run) if len(run) > 1 else 0
    return gone


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept: raw data for `raw_days`, results for `rollup_days`, at most `max_bytes` of all."""

    raw_days: int = 30
    rollup_days: int = 365
    max_bytes: int = 100 * 10**9


def retain(directory: Path, now_ns: int, retention: Retention) -> list[Path]:
    """Deletes days that are too old, then the oldest days until the rest takes at most `max_bytes`.

    To save space raw data goes before results. The day that is open is never deleted. Returns the folders
    that went. Raises ArchiveError.
    """
    today = layout.day_of(now_ns)
    raw, results = retention.raw_days, retention.rollup_days
    ages = {kind: results if kind in RESULTS else raw for kind in layout.KINDS}
    gone: list[Path] = []
    left: dict[tuple[bool, str], list[Path]] = defaultdict(list)
    try:
        for kind, keep_days in ages.items():
            oldest = (datetime.fromisoformat(today) - timedelta(days=keep_days)).date().isoformat()
            for day, where in layout.days(directory, kind):
                if day < oldest:
                    gone.append(where)
                elif day < today:
                    left[kind in RESULTS, day].append(where)
        for where in gone:
            shutil.rmtree(where)
        size = _size(directory)
        for _, folders in sorted(left.items()):
            if size <= retention.max_bytes:
                break
            for where in folders:
                size -= _size(where)
                shutil.rmtree(where)
                gone.append(where)
        _drop_empty(directory)
    except OSError as exc:
        raise ArchiveError(str(exc.filename or directory), exc.strerror or str(exc)) from exc
    return gone


def _consecutive(parts: list[layout.Part], before_hour: str | None) -> Iterator[list[layout.Part]]:
    """Runs of parts to be merged: numbered without a gap and, unless the day is over, of one hour that is."""
    run: list[layout.Part] = []
    for part in parts:
        if run:
            last = run[-1]
            over = before_hour is None or part.hour == last.hour < before_hour
            if not over or part.first != last.last + 1:
                yield run
                run = []
        run.append(part)
    if run:
        yield run


def _clear(where: Path) -> int:
    """Removes what a merged file has superseded, and what a crash left."""
    leftovers = layout.superseded(where)
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


class _DamagedError(Exception):
    """A part that cannot be read."""


def _merge(where: Path, parts: list[layout.Part]) -> int:
    """Makes one file of consecutive parts, and removes them; leaves them apart when that cannot be done."""
    try:
        schema, rows = _unified(parts)
    except pa.ArrowException:
        return 0  # a field changed its type in between: these stay apart
    except OSError as exc:
        raise ArchiveError(str(where), exc.strerror or str(exc)) from exc
    path = where / f"{parts[0].opened}-{parts[0].first:06d}-{parts[-1].last:06d}.parquet"
    try:
        write_parquet(path, schema, _row_groups(parts, schema, rows))
    except _DamagedError:
        return 0  # nothing of it gets better by being tried again, and the others are to be kept
    for part in parts:
        part.path.unlink(missing_ok=True)
    return len(parts)


def _unified(parts: list[layout.Part]) -> tuple[pa.Schema, int]:
    """A schema for all parts, and how many rows they have. Raises ArrowException without one, OSError."""
    unified: pa.Schema | None = None
    rows = 0
    for part in parts:
        with pq.ParquetFile(part.path) as file:  # what read_metadata gives waits for the garbage collector
            schema = file.schema_arrow
            rows += file.metadata.num_rows
        if unified is None:
            unified = schema
        elif schema != unified:
            unified = pa.unify_schemas([unified, schema], promote_options="default")
    return unified, rows


def _row_groups(parts: list[layout.Part], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """The `rows` of all parts with the columns of `schema`, in tables for a row group each.

    A row group of a part stays whole: each has the texts of its own rows, and would leave all to both halves.
    """
    least_rows = min(rows // MOST_ROW_GROUPS, ROW_GROUP_ROWS)
    waiting: list[pa.Table] = []
    apart = size = gathered = 0
    for part in parts:
        for table in _tables(part.path):
            full = size >= MERGED_BYTES and gathered >= least_rows
            if waiting and (full or gathered + table.num_rows > ROW_GROUP_ROWS):
                yield _one(waiting)
                waiting, apart, size, gathered = [], 0, 0, 0
            waiting.append(_widened(table, schema))
            apart += 1
            size += table.nbytes
            gathered += table.num_rows
            if apart >= _TABLES_APART:
                waiting[-apart:] = [_one(waiting[-apart:]).combine_chunks()]
                apart = 0
    if waiting:
        yield _one(waiting)


def _one(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries()


def _tables(path: Path) -> Iterator[pa.Table]:
    """The row groups of a file. `iter_batches` would have many in memory at a time: as many as it takes to
    have the rows that it is asked for.
    """
    try:
        with pq.ParquetFile(path) as file:
            for at in range(file.num_row_groups):
                yield file.read_row_group(at)
    except (OSError, pa.ArrowException) as exc:
        raise _DamagedError from exc


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[each.name] if each.name in table.schema.names else pa.nulls(table.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def _size(where: Path) -> int:
    """Bytes of all its files. `Path.rglob` would keep the path of each until the last one."""
    return sum(
        Path(folder, name).stat().st_size
        for folder, _, names in os.walk(where)
        for name in names
        if name.endswith(".parquet")
    )


def _drop_empty(directory: Path) -> None:
    """Removes date and source folders that have nothing in them any more."""
    for pattern in ("kind=*/source=*/date=*", "kind=*/source=*"):
        for where in directory.glob(pattern):
            if not any(where.iterdir()):
                where.rmdir()
