"""Reads the rows of one folder in order, also while its parts are being merged, and the end of a run."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.archive import layout
from laggard_common.errors import ArchiveError, InputError

CHUNK_ROWS = 65_536
_APPENDED = ("closes", "windows", "alarms", "verdicts", *layout.OF_SHADOWS, "counters")


def files(where: Path) -> Iterator[Iterator[pa.Table]]:
    """Yields, for each file of a folder, an iterator of tables; exhaust each before the next.

    The folder is listed again after every file. A file that has been merged meanwhile is read from the merged
    file, without the rows already yielded. Raises InputError for a file that cannot be read.
    """
    given: list[tuple[int, int]] = []  # first part, and rows
    last = 0
    while (part := next((each for each in layout.parts(where) if each.last > last), None)) is not None:
        skip = sum(rows for first, rows in given if first >= part.first)
        try:
            file = pq.ParquetFile(part.path)
        except FileNotFoundError:
            continue
        except (OSError, pa.ArrowException) as exc:
            raise InputError(str(part.path), f"cannot be read: {one_line(exc)}") from exc
        with file:
            check_format(part.path, file.schema_arrow)
            given.append((part.first, file.metadata.num_rows - skip))
            yield _rows(part.path, file, skip)
        last = part.last


def tables(where: Path) -> Iterator[pa.Table]:
    """Yields each file of a folder as one table, the run as an integer: Python's times lack nanoseconds."""
    for chunks in files(where):
        table = pa.concat_tables(chunks)
        at = table.schema.get_field_index("run")
        yield table.set_column(at, "run", table["run"].cast(pa.int64()))


def one_line(exc: Exception) -> str:
    """Message of an exception as one bounded line."""
    return " ".join(str(exc).split())[:200]


def _rows(path: Path, file: pq.ParquetFile, skip: int) -> Iterator[pa.Table]:
    """The rows of a file after the first `skip`; at least one table."""
    yield file.schema_arrow.empty_table()
    try:
        for batch in file.iter_batches(CHUNK_ROWS):
            beginning = min(skip, batch.num_rows)
            skip -= beginning
            if beginning < batch.num_rows:
                yield pa.Table.from_batches([batch.slice(beginning)])
    except (OSError, pa.ArrowException) as exc:
        raise InputError(str(path), f"cannot be read: {one_line(exc)}") from exc


def check_format(path: Path, schema: pa.Schema) -> None:
    """Raises InputError for a file of another format of the archive."""
    found = (schema.metadata or {}).get(b"laggard.format", b"").decode(errors="replace")
    if found != layout.FORMAT:
        raise InputError(
            str(path), f"archive format {found or 'unknown'}, this version reads {layout.FORMAT}"
        )


def written(directory: Path, run_ns: int) -> Mapping[tuple[str, str], int]:
    """The highest sequence number of the run `run_ns` in each table, by kind and source.

    Rows are appended to each table in that order, so everything up to it is there. Reads the files'
    statistics, and columns only where a file holds several runs. Raises ArchiveError.
    """
    found: dict[tuple[str, str], int] = {}
    for kind in _APPENDED:
        for day, where in layout.days(directory, kind):
            if day < layout.day_of(run_ns):
                continue
            key = (kind, where.parent.parent.name.removeprefix("source="))
            for part in layout.parts(where):
                try:
                    found[key] = max(found.get(key, -1), _highest(part.path, run_ns))
                except (OSError, pa.ArrowException) as exc:
                    raise ArchiveError(str(part.path), f"cannot be read: {exc}"[:300]) from exc
    return found


def _highest(path: Path, run_ns: int) -> int:
    """The highest sequence number of the run in a file, -1 without one."""
    with pq.ParquetFile(path) as file:
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
