"""Reads the rows of one folder in order, also while its parts are being merged, and the end of a run.

A damaged file of the running aggregator's archive is set aside.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.layout import DamagedPartError, checked_file, one_line
from laggard_aggregator.log.entries import EntryTimes
from laggard_common.errors import ArchiveError, InputError
from laggard_common.segment_log import sync_path

_log = logging.getLogger(__name__)

CHUNK_ROWS = 65_536
_APPENDED = ("closes", "windows", "alarms", "verdicts", *layout.OF_SHADOWS, "counters", "events")


def set_aside(damaged: DamagedPartError) -> None:
    """Moves a damaged file into the folder `damaged` of its archive and logs it. Raises ArchiveError."""
    part = damaged.part
    root = part.folder.parents[3]
    place = root / layout.DAMAGED / part.folder.relative_to(root)
    try:
        layout.mark_used(part.folder, part.last)
        layout.make_folder(place)
        part.path.rename(place / part.name)
        sync_path(place)
        sync_path(part.folder)
    except OSError as exc:
        raise ArchiveError(str(place), exc.strerror or str(exc)) from exc
    _log.warning("archive: %s; moved to %s", damaged, place)


def count_damaged(directory: Path) -> int:
    """Number of files that were set aside. Raises ArchiveError."""
    where = directory / layout.DAMAGED
    try:
        return sum(1 for _ in where.rglob("*.parquet"))
    except OSError as exc:
        raise ArchiveError(str(where), exc.strerror or str(exc)) from exc


def files(where: Path) -> Iterator[Iterator[pa.Table]]:
    """Yields, for each file of a folder, an iterator of tables; exhaust each before the next.

    The folder is listed again after every file. A file that has been merged meanwhile is read from the merged
    file, without the rows already yielded. Raises InputError for a file that is damaged or cannot be read.
    """
    given: list[tuple[int, int]] = []  # first part, and rows
    last = 0
    while (part := _next_part(where, last)) is not None:
        skip = sum(rows for first, rows in given if first >= part.first)
        try:
            with checked_file(part) as file:
                check_format(part.path, file.schema_arrow)
                given.append((part.first, file.metadata.num_rows - skip))
                yield _rows(file, skip)
        except FileNotFoundError:
            continue
        except (OSError, DamagedPartError) as exc:
            raise InputError(str(part.path), f"cannot be read: {_reason(exc)}") from exc
        last = part.last


def _next_part(where: Path, last: int) -> layout.Part | None:
    with InputError.from_os_errors(where):
        return next((part for part in layout.parts(where) if part.last > last), None)


def _reason(exc: Exception) -> str:
    return exc.reason if isinstance(exc, DamagedPartError) else one_line(exc)


def tables(where: Path) -> Iterator[pa.Table]:
    """Yields each file of a folder as one table, the run as an integer: Python's times lack nanoseconds."""
    for chunks in files(where):
        table = pa.concat_tables(chunks)
        at = table.schema.get_field_index("run")
        yield table.set_column(at, "run", table["run"].cast(pa.int64()))


def _rows(file: pq.ParquetFile, skip: int) -> Iterator[pa.Table]:
    """The rows of a file after the first `skip`; at least one table."""
    yield file.schema_arrow.empty_table()
    for batch in file.iter_batches(CHUNK_ROWS):
        beginning = min(skip, batch.num_rows)
        skip -= beginning
        if beginning < batch.num_rows:
            yield pa.Table.from_batches([batch.slice(beginning)])


def check_format(path: Path, schema: pa.Schema) -> None:
    """Raises InputError for a file of another format of the archive."""
    version = (schema.metadata or {}).get(b"laggard.format", b"").decode(errors="replace")
    if version != layout.FORMAT:
        raise InputError(
            str(path), f"archive format {version or 'unknown'}, this version reads {layout.FORMAT}"
        )


def written(directory: Path, run_ns: int) -> tuple[Mapping[tuple[str, str], int], str]:
    """The highest sequence number of the run `run_ns` in each table, by kind and source, and its last day.

    Rows are appended to each table in that order, so everything up to it is there, and the newest files are
    enough. Reads their statistics, and columns only where a file holds several runs. A damaged file is set
    aside. The day is at least the one on which the run began. Raises ArchiveError.
    """
    rows: dict[tuple[str, str], int] = {}
    began = last_day = layout.day_of(run_ns)
    try:
        for kind in _APPENDED:
            for day, where in reversed(layout.days(directory, kind)):
                key = (kind, where.parent.parent.name.removeprefix("source="))
                if day >= began and rows.get(key, -1) < 0:
                    rows[key] = _highest_in(where, run_ns)
                    last_day = max(last_day, day) if rows[key] >= 0 else last_day
    except OSError as exc:
        raise ArchiveError(str(exc.filename or directory), exc.strerror or str(exc)) from exc
    return rows, last_day


def runs_of(directory: Path, times: EntryTimes) -> set[int]:
    """The runs with rows of some of the entries in `times`: of the same lsn and time.

    Empty where the archive ends before the first of them. A damaged file is set aside. Raises ArchiveError.
    """
    runs: set[int] = set()
    kinds: tuple[tuple[str, str, Mapping[int, float]], ...] = (
        ("closes", "closed_at", times.closes),
        ("counters", "received", times.batches),
    )
    try:
        for kind, column, of_lsn in kinds:
            if not of_lsn:
                continue
            first = min(of_lsn.values())
            day = layout.day_of(int(first if kind == "counters" else first * 1e9))
            lsns = np.array(sorted(of_lsn), dtype=np.int64)
            known = lsns, np.array([of_lsn[lsn] for lsn in lsns.tolist()])
            for folder_day, where in layout.days(directory, kind):
                if folder_day >= day:
                    runs |= _runs_in(where, column, known)
    except OSError as exc:
        raise ArchiveError(str(exc.filename or directory), exc.strerror or str(exc)) from exc
    return runs


def _runs_in(where: Path, column: str, known: tuple[NDArray[np.int64], NDArray[Any]]) -> set[int]:
    """The runs in a folder that have rows of `known` lsns with their times in `column`.

    Rows are appended, so files before the first one that ends before all of these times have none.
    """
    runs: set[int] = set()
    lsns, times = known
    for part in reversed(layout.parts(where)):
        try:
            with checked_file(part) as file:
                layout.refuse_later(part, file.schema_arrow)
                table = file.read(["run", "ordinal", column])
        except DamagedPartError as exc:
            set_aside(exc)
            continue
        run, lsn = (table[name].cast(pa.int64()).to_numpy() for name in ("run", "ordinal"))
        time = table[column]
        at = (time.cast(pa.int64()) if pa.types.is_timestamp(time.type) else time).to_numpy()
        place = np.minimum(np.searchsorted(lsns, lsn), lsns.size - 1)
        runs.update(np.unique(run[(lsns[place] == lsn) & (times[place] == at)]).tolist())
        if at.size and at.max() < times.min():
            break
    return runs


def _highest_in(where: Path, run_ns: int) -> int:
    """The highest sequence number of the run in the newest file of a folder that has any, -1 without one."""
    for part in reversed(layout.parts(where)):
        try:
            with checked_file(part) as file:
                layout.refuse_later(part, file.schema_arrow)
                highest = _highest(file, run_ns)
        except DamagedPartError as exc:
            set_aside(exc)
            continue
        if highest >= 0:
            return highest
    return -1


def _highest(file: pq.ParquetFile, run_ns: int) -> int:
    names = file.schema_arrow.names
    run, ordinal = names.index("run"), names.index("ordinal")
    highest = -1
    for at in range(file.num_row_groups):
        group = file.metadata.row_group(at)
        runs, ordinals = group.column(run).statistics, group.column(ordinal).statistics
        if runs is None or ordinals is None or runs.min_raw != runs.max_raw:
            highest = max(highest, _highest_row(file, at, run_ns))
        elif runs.min_raw == run_ns:
            highest = max(highest, int(ordinals.max_raw))
    return highest


def _highest_row(file: pq.ParquetFile, row_group: int, run_ns: int) -> int:
    table = file.read_row_group(row_group, columns=["run", "ordinal"])
    runs = table["run"].cast(pa.int64()).to_numpy()
    mine = table["ordinal"].to_numpy()[runs == run_ns]
    return int(mine.max()) if mine.size else -1
