"""Compaction (parts become hourly and daily files) and retention (old days are deleted).

Both survive a crash at any point. A merged file is complete before the files it replaces are deleted, and
replaces them by its name alone (`layout.parts`); the next compaction removes leftovers of a crash. A damaged
part is never merged: it is set aside.
"""

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.layout import (
    ROW_GROUP_ROWS,
    DamagedPartError,
    check,
    checked_file,
    page_checked_file,
)
from laggard_aggregator.archive.part_reader import set_aside
from laggard_aggregator.archive.schemas import MAX_COLUMNS, double_column_of
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.errors import ArchiveError

RESULTS = (*layout.OF_DETECTORS, "alarms", *layout.OF_SHADOWS, *layout.OF_JOBS)
"""Kinds kept for `rollup_days`; all others are raw data."""

_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors that work on the next folder would have, too."""
MERGED_BYTES = 2 * 1024 * 1024
"""Size of the row groups merged in memory at a time: some 10,000 rows of counters."""
MOST_ROW_GROUPS = 256
"""With more of them they grow, up to ROW_GROUP_ROWS: each costs 20 KiB of memory until its file is complete
and 3 KiB of the file's footer."""
_TABLES_APART = 16
"""Small tables gathered before they are combined: each is dozens of small memory blocks."""


def compact(directory: Path, now_ns: int) -> int:
    """Merges the parts of past hours and past days; returns the number of files removed.

    A folder with a file that cannot be read or removed stops no other. Raises ArchiveError for the first one
    at the end, and at once where the disk takes nothing; nothing is lost then.
    """
    today = layout.day_of(now_ns)
    hour = datetime.fromtimestamp((now_ns - layout.DAY_OPENS_NS) // 10**9, UTC).strftime("%Y%m%dT%H")
    gone = 0
    failures: list[ArchiveError] = []
    with ArchiveError.from_os_errors(directory):
        folders = [(day, where) for kind in layout.KINDS for day, where in layout.days(directory, kind)]
    for day, where in folders:
        with _apart(where, failures):
            for path in layout.superseded(where):
                path.unlink(missing_ok=True)
                gone += 1
            parts = layout.parts(where)
            for run in _consecutive(parts, None if day < today else hour):
                gone += _merge(where, run) if len(run) > 1 else 0
    if failures:
        raise failures[0]
    return gone


@contextmanager
def _apart(where: Path, failures: list[ArchiveError]) -> Iterator[None]:
    """Appends the block's error to `failures`, for work to continue elsewhere; raises errors of the disk."""
    try:
        yield
    except (ArchiveError, OSError) as exc:
        cause = exc if isinstance(exc, OSError) else exc.__cause__
        failure = _failure(exc, where) if isinstance(exc, OSError) else exc
        if isinstance(cause, OSError) and cause.errno in _OF_THE_DISK:
            raise failure from cause
        failures.append(failure)


def scrub(parts: Iterator[layout.Part], max_bytes: int) -> bool:
    """Checks the next of `parts`, up to `max_bytes` and the file that exceeds them; whether more may be left.

    Damaged files are set aside. Raises ArchiveError.
    """
    try:
        for part in parts:
            with suppress(FileNotFoundError):  # merged or deleted since it was listed
                max_bytes -= part.path.stat().st_size
                _check(part)
            if max_bytes <= 0:
                return True
    except OSError as exc:
        raise ArchiveError(str(exc.filename), exc.strerror or str(exc)) from exc
    return False


def _check(part: layout.Part) -> None:
    try:
        check(part)
    except DamagedPartError as exc:
        set_aside(exc)


def retain(directory: Path, now_ns: int, retention: ArchiveTable) -> list[Path]:
    """Deletes expired days, then the oldest days until the rest takes at most `max_bytes`.

    Raw data expires after `raw_days`, results after `rollup_days`. For space, raw data is deleted before
    results. The current day is never deleted. Returns the deleted folders. A folder that cannot be deleted
    stops no other; raises ArchiveError for the first one at the end.
    """
    today = layout.day_of(now_ns)
    raw, results = retention.raw_days, retention.rollup_days
    ages = {kind: results if kind in RESULTS else raw for kind in layout.KINDS}
    expired: list[Path] = []
    failures: list[ArchiveError] = []
    left: dict[tuple[bool, str], list[Path]] = defaultdict(list)
    try:
        for kind, keep_days in ages.items():
            oldest = (datetime.fromisoformat(today) - timedelta(days=keep_days)).date().isoformat()
            for root in (directory, directory / layout.DAMAGED):
                for day, where in layout.days(root, kind):
                    if day < oldest:
                        expired.append(where)
                    elif day < today:
                        left[kind in RESULTS, day].append(where)
        gone = [where for where in expired if _is_deleted(where, failures)]
        size = _size(directory)
        for _, folders in sorted(left.items()):
            if size <= retention.max_bytes:
                break
            for where in folders:
                freed = _size(where)
                if _is_deleted(where, failures):
                    size -= freed
                    gone.append(where)
        _drop_empty(directory)
    except OSError as exc:
        raise ArchiveError(str(exc.filename or directory), exc.strerror or str(exc)) from exc
    if failures:
        raise failures[0]
    return gone


def _is_deleted(where: Path, failures: list[ArchiveError]) -> bool:
    try:
        shutil.rmtree(where)
    except OSError as exc:
        failures.append(_failure(exc, where))
        return False
    return True


def _failure(exc: OSError, where: Path) -> ArchiveError:
    failure = ArchiveError(str(exc.filename or where), exc.strerror or str(exc))
    failure.__cause__ = exc
    return failure


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


def _merge(where: Path, parts: list[layout.Part]) -> int:
    """Merges consecutive parts into as few files as they fit and removes them; returns how many it removed.

    Raises ArchiveError.
    """
    gone = 0
    try:
        for run, schema, rows in _unions(parts):
            if len(run) > 1:
                numbers = run[0].first, run[-1].last
                layout.write_part(where, run[0].opened_at, numbers, schema, _row_groups(run, schema, rows))
                for part in run:
                    part.path.unlink(missing_ok=True)
                gone += len(run)
    except DamagedPartError as exc:
        set_aside(exc)  # the other parts are merged the next time
    return gone


def _unions(parts: list[layout.Part]) -> Iterator[tuple[list[layout.Part], pa.Schema, int]]:
    """Runs of `parts` that one table can hold, each with the table's schema and number of rows.

    A run ends where the table would have more than MAX_COLUMNS. Footers only are read. Raises OSError and
    DamagedPartError.
    """
    run: list[layout.Part] = []
    unified, rows = pa.schema([]), 0
    for part in parts:
        # Not read_metadata, whose object is freed by the garbage collector only.
        with page_checked_file(part) as file:
            schema, more = file.schema_arrow, file.metadata.num_rows
            layout.refuse_later(part, schema)
        union = _union(unified, schema) if run else schema
        if union is None:
            yield run, unified, rows
            run, rows, union = [], 0, schema
        run.append(part)
        unified, rows = union, rows + more
    if run:
        yield run, unified, rows


def _union(unified: pa.Schema, schema: pa.Schema) -> pa.Schema | None:
    """A schema for both, None without one."""
    if schema == unified:
        return unified
    either = (_beside_integers(unified, schema), _beside_integers(schema, unified))
    try:
        union = pa.unify_schemas(either, promote_options="default")
    except pa.ArrowException:
        return None
    return union if len(union) <= MAX_COLUMNS else None


def _beside_integers(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """`schema` with names for its f64 columns that leave their fields' own to the integers of `other`."""
    for at, field in enumerate(schema):
        place = other.get_field_index(field.name)
        if place >= 0 and field.type == pa.float64() and other.field(place).type == pa.int64():
            schema = schema.set(at, field.with_name(double_column_of(field.name)))
    return schema


def _row_groups(parts: list[layout.Part], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Yields the `rows` of all parts with the columns of `schema`, one table per row group.

    Row groups of a part are not split: both halves would carry the dictionary of the whole.
    """
    least_rows = min(rows // MOST_ROW_GROUPS, ROW_GROUP_ROWS)
    waiting: list[pa.Table] = []
    apart = size = gathered = 0
    for part in parts:
        for table in _tables(part):
            full = size >= MERGED_BYTES and gathered >= least_rows
            if waiting and (full or gathered + table.num_rows > ROW_GROUP_ROWS):
                yield _one(waiting)
                waiting, apart, size, gathered = [], 0, 0, 0
            own = table.rename_columns(_beside_integers(table.schema, schema).names)
            waiting.append(pa.concat_tables([schema.empty_table(), own], promote_options="default"))
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


def _tables(part: layout.Part) -> Iterator[pa.Table]:
    """Yields the row groups of a file. `iter_batches` would hold many in memory at a time."""
    with checked_file(part) as file:
        for at in range(file.num_row_groups):
            yield file.read_row_group(at)


def _size(where: Path) -> int:
    """Size of all files in bytes. `Path.rglob` would keep every path until the end."""
    return sum(
        Path(folder, name).stat().st_size
        for folder, _, names in os.walk(where, onerror=_refuse)
        for name in names
        if name.endswith(".parquet")
    )


def _refuse(error: OSError) -> None:
    """Raises an error of `os.walk`: the files that it hides would not count against the limit."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _drop_empty(directory: Path) -> None:
    """Removes empty date and source folders."""
    for pattern in ("kind=*/source=*/date=*", "kind=*/source=*"):
        for root in (directory, directory / layout.DAMAGED):
            for where in root.glob(pattern):
                if not any(where.iterdir()):
                    where.rmdir()
