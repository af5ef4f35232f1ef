"""Finds how far a run is archived, so that a restart writes nothing twice."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.archive import layout
from laggard_common.errors import ArchiveError

_OWN_ORDER = ("closes", "windows", "alarms", "verdicts", "counters")


def written(directory: Path, run_ns: int) -> Mapping[tuple[str, str], int]:
    """The highest sequence number of the run `run_ns` in each table, by kind and source.

    Rows are appended to each table in that order, so everything up to it is there. Reads the files'
    statistics, and columns only where a file holds several runs. Raises ArchiveError.
    """
    found: dict[tuple[str, str], int] = {}
    for kind in _OWN_ORDER:
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
