"""Compaction (parts become hourly and daily files) and retention (old days are deleted).

Both survive a crash at any point. A merged file is complete before the files it replaces are deleted, and
replaces them by its name alone (`layout.parts`); the next compaction removes leftovers of a crash.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.layout import ROW_GROUP_ROWS, write_parquet
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.errors import ArchiveError

RESULTS = (*layout.OF_DETECTORS, "alarms", *layout.OF_SHADOWS)
"""Kinds kept for `rollup_days`; all others are raw data."""

MERGED_BYTES = 2 * 1024 * 1024
"""Size of the row groups merged in memory at a time: some 10,000 rows of counters."""
MOST_ROW_GROUPS = 256
"""With more of them they grow, up to ROW_GROUP_ROWS: each costs 20 KiB of memory until its file is complete
and 3 KiB of the file's footer."""
_TABLES_APART = 16
"""Small tables gathered before they are combined: each is dozens of small memory blocks."""


def compact(directory: Path, now_ns: int) -> int:
    """Merges the parts of past hours and past days; returns the number of files removed.

    Raises ArchiveError on a read or write error; nothing is lost then.
    """
    today = layout.day_of(now_ns)
    hour = datetime.fromtimestamp((now_ns - layout.DAY_OPENS_NS) // 10**9, UTC).strftime("%Y%m%dT%H")
    gone = 0
    for kind in layout.KINDS:
        for day, where in layout.days(directory, kind):
            leftovers = layout.superseded(where)
            for path in leftovers:
                path.unlink(missing_ok=True)
            gone += len(leftovers)
            parts = layout.parts(where)
            for run in _consecutive(parts, None if day < today else hour):
                gone += _merge(where, run) if len(run) > 1 else 0
    return gone


def retain(directory: Path, now_ns: int, retention: ArchiveTable) -> list[Path]:
    """Deletes expired days, then the oldest days until the rest takes at most `max_bytes`.

    Raw data expires after `raw_days`, results after `rollup_days`. For space, raw data is deleted before
    results. The current day is never deleted. Returns the deleted folders. Raises ArchiveError.
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
    """Runs of parts to merge: numbered without a gap and, unless the day is past, of one past hour."""
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


class _DamagedError(Exception):
    """A part that cannot be read."""


def _merge(where: Path, parts: list[layout.Part]) -> int:
    """Merges consecutive parts into one file and removes them; leaves them if they cannot be merged."""
    try:
        schema, rows = _unified(parts)
    except pa.ArrowException:
        return 0  # a field changed its type in between: keep them separate
    except OSError as exc:
        raise ArchiveError(str(where), exc.strerror or str(exc)) from exc
    path = where / f"{parts[0].opened}-{parts[0].first:06d}-{parts[-1].last:06d}.parquet"
    try:
        write_parquet(path, schema, _row_groups(parts, schema, rows))
    except _DamagedError:
        return 0  # a retry would not help, and the other parts remain usable
    for part in parts:
        part.path.unlink(missing_ok=True)
    return len(parts)


def _unified(parts: list[layout.Part]) -> tuple[pa.Schema, int]:
    """A schema for all parts and their number of rows. Raises ArrowException without one, OSError."""
    unified: pa.Schema | None = None
    rows = 0
    for part in parts:
        # Not read_metadata, whose object is freed by the garbage collector only.
        with pq.ParquetFile(part.path) as file:
            schema = file.schema_arrow
            rows += file.metadata.num_rows
        if unified is None:
            unified = schema
        elif schema != unified:
            unified = pa.unify_schemas([unified, schema], promote_options="default")
    return unified, rows


def _row_groups(parts: list[layout.Part], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Yields the `rows` of all parts with the columns of `schema`, one table per row group.

    Row groups of a part are not split: both halves would carry the dictionary of the whole.
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
            waiting.append(pa.concat_tables([schema.empty_table(), table], promote_options="default"))
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
    """Yields the row groups of a file. `iter_batches` would hold many in memory at a time."""
    try:
        with pq.ParquetFile(path) as file:
            for at in range(file.num_row_groups):
                yield file.read_row_group(at)
    except (OSError, pa.ArrowException) as exc:
        raise _DamagedError from exc


def _size(where: Path) -> int:
    """Size of all files in bytes. `Path.rglob` would keep every path until the end."""
    return sum(
        Path(folder, name).stat().st_size
        for folder, _, names in os.walk(where)
        for name in names
        if name.endswith(".parquet")
    )


def _drop_empty(directory: Path) -> None:
    """Removes empty date and source folders."""
    for pattern in ("kind=*/source=*/date=*", "kind=*/source=*"):
        for where in directory.glob(pattern):
            if not any(where.iterdir()):
                where.rmdir()
