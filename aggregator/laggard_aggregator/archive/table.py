"""The surface of the archive: the rows of one kind and source, by day, at one site or at all.

Whoever derives something from the archive, or shows it, reads and writes through a Table and imports nothing
else of this package. Files are merged, expire and are damaged while they are read; here that is settled: a
scan yields each row once, and the rows of a damaged file are missing.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.conditions import Among, Condition, Range, Within, WithinAny
from laggard_aggregator.archive.decode_batches import integers
from laggard_aggregator.archive.layout import (
    DAY_OPENS_NS,
    OWN,
    DamagedPartError,
    Part,
    check_archive,
    page_checked_file,
)
from laggard_aggregator.archive.part_reader import set_aside
from laggard_aggregator.archive.schemas import TEXT, TIME, column_of
from laggard_common.errors import ArchiveError, ConfigError, InputError

__all__ = [
    "DAY_OPENS_NS",
    "LAST_DAY",
    "OWN",
    "TEXT",
    "TIME",
    "Among",
    "Condition",
    "OpenPart",
    "Part",
    "Range",
    "Table",
    "Within",
    "WithinAny",
    "check_archive",
    "column_of",
    "day_of",
    "integers",
    "last_revisions",
    "page_checked_file",
    "received_day",
    "rows_table",
    "tables_of",
]

LAST_DAY: Final = "9999-12-31"
_LISTINGS: Final = 3
"""A folder is listed again this often for files that were merged meanwhile."""
_CHANGES: Final = "files change faster than they can be read"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A file of a table that is open, and so cannot be gone."""

    part: Part
    file: pq.ParquetFile
    table: "Table"

    def span(self, column: str) -> tuple[int, int] | None:
        """Least and largest value of a column of integers or times, by statistics; None without any."""
        place, metadata = self.file.schema_arrow.names.index(column), self.file.metadata
        groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
        ranges = [known for group in groups if (known := _range(group, place)) is not None]
        return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None

    def scan(self, columns: Sequence[str] | None = None, *where: Condition) -> Iterator[pa.Table]:
        """Yields its rows as `Table.scan` does; those behind a damaged page are missing."""
        try:
            with layout.reading(self.part):
                yield from _row_groups(self.file, columns, where)
        except DamagedPartError as exc:
            self.table.settle(exc)


@dataclass(frozen=True, slots=True)
class Table:
    """The table of `kind` and `source` in the archive in `directory`; `site`: `*` for all sites.

    `is_strict`: files are checked by their digest, and a damaged one raises InputError; otherwise their pages
    are checked as they are read, and a damaged file is set aside. All methods raise ArchiveError for an
    archive that cannot be read or written.
    """

    directory: Path
    kind: str
    source: str = OWN
    site: str = "*"
    is_strict: bool = False

    def days(self, first_day: str = "", last_day: str = LAST_DAY) -> list[str]:
        """The days with data, oldest first."""
        return sorted({day for day, _ in self._folders(first_day, last_day)})

    def files(self, first_day: str = "", last_day: str = LAST_DAY) -> list[Part]:
        """The current files, by day and site in the order in which they were written."""
        return [part for _, folder in self._folders(first_day, last_day) for part in self._parts(folder)]

    def dataset(self, schema: pa.Schema) -> ds.Dataset:
        """The rows for a query engine, with checks of pages. Files may be merged before they are read."""
        pages = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        form = ds.ParquetFileFormat(default_fragment_scan_options=pages)
        paths = [part.path for part in self.files()]
        if not paths:
            return ds.dataset(schema.empty_table())
        return ds.dataset(paths, schema=schema, format=form)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *where: Condition,
        first_day: str = "",
        last_day: str = LAST_DAY,
    ) -> Iterator[pa.Table]:
        """Yields the rows that meet all conditions, each once, a row group or less at a time.

        `columns`: those to read where a file has them; None for all.
        """
        for _, folder in self._folders(first_day, last_day):
            yield from self._scan_folder(folder, columns, where)

    def read(
        self, schema: pa.Schema, *where: Condition, first_day: str = "", last_day: str = LAST_DAY
    ) -> pa.Table:
        """The same as one table with the columns of `schema`, null where a file lacks one."""
        tables = self.scan(schema.names, *where, first_day=first_day, last_day=last_day)
        return pa.concat_tables(
            [schema.empty_table(), *tables], promote_options="default"
        ).unify_dictionaries()

    def unchanged(self, read: Callable[[list[Part]], T], first_day: str = "") -> T:
        """The result of `read` for the current files, once none of them was merged meanwhile.

        For readers that keep more of a file than its rows; they open it by `page_checked_file`.
        """
        changes = 0
        while changes < _LISTINGS:
            try:
                return read(self.files(first_day))
            except FileNotFoundError:
                changes += 1
            except DamagedPartError as exc:
                self.settle(exc)
            except OSError as exc:
                raise _archive_error(exc, self.directory) from exc
        raise ArchiveError(str(self.directory), _CHANGES)

    def new_since(self, cursor: dict[str, int], prefix: str = "", first_day: str = "") -> Iterator[OpenPart]:
        """Yields the files that are new, and notes each in `cursor` once the next one is asked for.

        `cursor`: number of the last part of each day, by `prefix` and day. A file that was merged meanwhile
        comes as part of the merged one, with rows that came before.
        """
        for day, folder in self._folders(first_day, LAST_DAY):
            key, waiting, changes = prefix + day, self._parts(folder), 0
            if waiting and waiting[-1].last < cursor.get(key, 0):
                del cursor[key]  # the day expired and began again
            while waiting:
                part = waiting.pop(0)
                if part.last <= cursor.get(key, 0):
                    continue
                with self.opened(part) as file:
                    if file is not None:
                        yield file
                        cursor[key] = part.last
                    elif (changes := changes + 1) < _LISTINGS:
                        waiting = self._parts(folder)

    def newly_damaged_days(self, known: dict[str, int], prefix: str = "") -> list[str]:
        """The days whose files were set aside since the last call with `known`, which notes their number.

        For passes whose rows can be made again.
        """
        with ArchiveError.from_os_errors(self.directory):
            damaged = layout.damaged_files(self.directory, self.kind, self.source, self.site)
        days = sorted(day for day, files in damaged.items() if files > known.get(prefix + day, 0))
        gone = [key for key in known if key.startswith(prefix) and key.removeprefix(prefix) not in damaged]
        for key in gone:
            del known[key]
        known.update({prefix + day: files for day, files in damaged.items()})
        return days

    @contextmanager
    def opened(self, part: Part) -> Iterator[OpenPart | None]:
        """The file of a part; None where it was merged or set aside since it was listed."""
        try:
            file = self._open(part)
        except FileNotFoundError:
            file = None
        if file is None:
            yield None
            return
        with file:
            yield OpenPart(part, file, self)

    def append(self, day: str, tables: Iterable[pa.Table], opened_ns: int, schema: pa.Schema) -> Part:
        """Appends tables as one file of a day; `opened_ns`: when its first row came."""
        folder = layout.folder(self.directory, self.kind, self.source, day, self.site)
        number = layout.next_part(folder)
        path = layout.write_part(folder, layout.stamp(opened_ns), (number, number), schema, tables)
        return Part(folder, path.name, number, number)

    def append_rows(
        self, day: str, rows: Iterable[Mapping[str, Any]], opened_ns: int, schema: pa.Schema
    ) -> None:
        """Appends rows as one file of a day; no file without rows."""
        listed = list(rows)
        if listed:
            self.append(day, [rows_table(schema, listed)], opened_ns, schema)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes that write this kind from doing so in the block.

        Raises ConfigError for another user's archive: its retention could not delete the files again.
        """
        where = self.directory / f"kind={self.kind}"
        with ArchiveError.from_os_errors(where):
            owner = self.directory.stat().st_uid if self.directory.exists() else os.geteuid()
            if owner != os.geteuid():
                whose = f"{self.directory} belongs to user {owner}: run this command as that user"
                raise ConfigError("", [f"--archive: {whose}"])
            layout.make_folder(where)
            with (where / ".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def settle(self, damaged: DamagedPartError) -> None:
        """Sets a damaged file aside. Raises InputError instead in a strict table."""
        if self.is_strict:
            raise InputError(str(damaged.part.path), f"damaged: {damaged.reason}") from damaged
        set_aside(damaged)

    def set_aside(self, exc: InputError) -> None:
        """Sets the damaged file aside for which a strict table raised `exc`.

        Raises ArchiveError where it cannot be moved, and `exc` where that is about something else.
        """
        if not isinstance(exc.__cause__, DamagedPartError):
            raise exc
        set_aside(exc.__cause__)

    def _folders(self, first_day: str, last_day: str) -> list[tuple[str, Path]]:
        """Day and folder of each site, oldest first."""
        with ArchiveError.from_os_errors(self.directory):
            days = layout.days(self.directory, self.kind, self.source, self.site)
        return [(day, folder) for day, folder in days if first_day <= day <= last_day]

    def _parts(self, folder: Path) -> list[Part]:
        with ArchiveError.from_os_errors(folder):
            return layout.parts(folder)

    def _open(self, part: Part) -> pq.ParquetFile | None:
        """The file of a part, None where it was damaged and set aside. Raises FileNotFoundError."""
        try:
            if self.is_strict:
                layout.check_digest(part)
            file = layout.open_file(part)
            layout.refuse_later(part, file.schema_arrow)
            return file
        except DamagedPartError as exc:
            self.settle(exc)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise _archive_error(exc, part.path) from exc
        return None

    def _scan_folder(
        self, folder: Path, columns: Sequence[str] | None, where: Sequence[Condition]
    ) -> Iterator[pa.Table]:
        given: list[tuple[Part, int]] = []
        """Files whose rows were yielded, with their numbers: a merged file begins with them."""
        waiting, changes = self._parts(folder), 0
        while waiting:
            part = waiting.pop(0)
            try:
                file = self._open(part)
            except FileNotFoundError:
                changes += 1
                if changes == _LISTINGS:
                    raise ArchiveError(str(folder), _CHANGES) from None
                last = given[-1][0].last if given else 0
                waiting = [later for later in self._parts(folder) if later.last > last]
                continue
            if file is None:
                continue
            skip = sum(rows for known, rows in given if part.first <= known.first)
            given.append((part, file.metadata.num_rows - skip))
            try:
                with file, layout.reading(part):
                    yield from _row_groups(file, columns, where, skip)
            except DamagedPartError as exc:
                self.settle(exc)


def tables_of(directory: Path, kind: str) -> list[Table]:
    """The tables of a kind, one a source and site. Raises ArchiveError."""
    with ArchiveError.from_os_errors(directory):
        folders = layout.days(directory, kind)
    names = {
        (folder.parts[-3].removeprefix("source="), folder.name.removeprefix("site=")) for _, folder in folders
    }
    return [Table(directory, kind, source, site) for source, site in sorted(names)]


def day_of(seconds: float) -> str:
    """The day (UTC, ISO 8601) of a time, as of a job's end."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def received_day(time_ns: int) -> str:
    """The day in whose files rows that were received at `time_ns` are."""
    return layout.day_of(max(time_ns, DAY_OPENS_NS))


def rows_table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table; null where a row lacks a column."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        columns.append(
            pa.array(values, pa.string()).dictionary_encode()
            if pa.types.is_dictionary(field.type)
            else pa.array(values, field.type)
        )
    return pa.table(columns, schema=schema)


def last_revisions(table: pa.Table) -> pa.Table:
    """The rows of each `job_key` that have its last `revision_at`, in their order."""
    if not table.num_rows:
        return table
    keys = table["job_key"].cast(pa.string()).combine_chunks().dictionary_encode()
    codes = np.asarray((keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys).indices)
    times = table["revision_at"].cast(pa.int64()).to_numpy()
    last = np.full(codes.max() + 1, np.iinfo(np.int64).min)
    np.maximum.at(last, codes, times)
    return table.filter(pa.array(times == last[codes]))


def _row_groups(
    file: pq.ParquetFile, columns: Sequence[str] | None, where: Sequence[Condition], skip: int = 0
) -> Iterator[pa.Table]:
    """Yields the rows of a file behind the first `skip` that meet all conditions, by row group."""
    names, metadata = file.schema_arrow.names, file.metadata
    wanted = None if columns is None else [name for name in columns if name in names]
    places = [[names.index(name) for name in condition.columns] for condition in where]
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group)
        rows = known.num_rows
        dropped, skip = min(skip, rows), max(skip - rows, 0)
        if dropped == rows or not all(
            condition.may_match(*(_range(known, at) for at in own))
            for condition, own in zip(where, places, strict=True)
        ):
            continue
        chosen = np.arange(rows) >= dropped
        for condition in where:
            chosen &= condition.rows(file.read_row_group(group, list(condition.columns), use_threads=False))
            if not chosen.any():
                break
        else:
            table = file.read_row_group(group, wanted, use_threads=False)
            yield table if chosen.all() else table.filter(pa.array(chosen))


def _range(group: pq.RowGroupMetaData, place: int) -> Range:
    """Least and largest value of a column in a row group, as its statistics have them."""
    known = group.column(place).statistics
    if known is None or not known.has_min_max:
        return None
    if known.physical_type == "BYTE_ARRAY":
        return known.min, known.max
    return known.min_raw, known.max_raw


def _archive_error(exc: OSError, path: Path) -> ArchiveError:
    return ArchiveError(str(exc.filename or path), exc.strerror or str(exc))
