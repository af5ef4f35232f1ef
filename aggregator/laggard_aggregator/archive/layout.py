"""Paths of the archive: `kind=K/source=S/date=D/site=T/*.parquet` below its folder.

A file is named by the time of its first row (UTC) and its range of parts:
`20260131T000005Z-000001-000001.parquet`. Compaction merges parts into one file of their whole range; a file
whose range lies within another's of the same folder is superseded by it and does not count.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_common.errors import ArchiveError
from laggard_common.segment_log import sync_path

OF_DETECTORS = ("verdicts", "windows")
OF_SHADOWS = ("shadow_verdicts", "shadow_windows")
"""Kinds with the same columns for the shadow detectors, which raise no alarms."""
KINDS = ("counters", "schemas", "groups", "closes", *OF_DETECTORS, "alarms", *OF_SHADOWS)
OWN = "laggard"
"""The `source` of the aggregator's own records."""

FORMAT = "1"
"""Incremented when a reader of the previous format would fail; new columns and kinds do not count."""

DAY_OPENS_NS = 5 * 1_000_000_000
"""A day's files open at 00:00:05: a small backward step of the clock opens none twice (Intrepid 4.1.1)."""

_NAME = re.compile(r"\d{8}T\d{6}Z-(\d{6,})-(\d{6,})\.parquet", re.ASCII)
_DATES = "date=" + "-".join("[0-9]" * digits for digits in (4, 2, 2))
ROW_GROUP_ROWS = 131_072
ZSTD_LEVEL = 3
_INTEGERS = (pa.int64(), pa.uint64(), pa.uint32(), pa.timestamp("ns", tz="UTC"))


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the archive that holds the parts `first` to `last`.

    Small, as a folder may have thousands.
    """

    folder: Path
    name: str
    first: int
    last: int

    @property
    def path(self) -> Path:
        """Its path."""
        return self.folder / self.name

    @property
    def opened(self) -> str:
        """Time of its first row, such as `20260131T000005Z`."""
        return self.name.partition("-")[0]

    @property
    def hour(self) -> str:
        """Hour in which it was opened, such as `20260131T00`."""
        return self.name[:11]


def is_archive(directory: Path) -> bool:
    """True when this folder holds an archive."""
    return any((directory / f"kind={kind}").is_dir() for kind in KINDS)


def folder(directory: Path, kind: str, source: str, day: str, site: str) -> Path:
    """The folder of one day of one source of a site."""
    return directory / f"kind={kind}" / f"source={source}" / f"date={day}" / f"site={site}"


def part_path(where: Path, opened_ns: int, first: int, last: int) -> Path:
    """The path of a file in `where`."""
    opened = datetime.fromtimestamp(opened_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    return where / f"{opened}-{first:06d}-{last:06d}.parquet"


def day_of(time_ns: int) -> str:
    """The day (UTC, ISO 8601) whose files are open at `time_ns`."""
    return datetime.fromtimestamp((time_ns - DAY_OPENS_NS) // 1_000_000_000, UTC).date().isoformat()


def parts(where: Path) -> list[Part]:
    """The current files of a folder in order; none when the folder is missing."""
    found = sorted(_all_parts(where), key=lambda part: (part.first, -part.last))
    kept: list[Part] = []
    for part in found:
        if not kept or part.last > kept[-1].last:
            kept.append(part)
    return kept


def superseded(where: Path) -> list[Path]:
    """Files of a folder that a merged file replaced, and temporary files left by a crash."""
    kept = {part.name for part in parts(where)}
    merged = [part.path for part in _all_parts(where) if part.name not in kept]
    return [*merged, *where.glob(".*.tmp")]


def days(directory: Path, kind: str, source: str = "*", site: str = "*") -> list[tuple[str, Path]]:
    """Day and folder of all data of a kind, oldest first."""
    found = directory.glob(f"kind={kind}/source={source}/{_DATES}/site={site}")
    return sorted((path.parent.name.removeprefix("date="), path) for path in found)


def _all_parts(where: Path) -> Iterator[Part]:
    try:
        with os.scandir(where) as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match:
            yield Part(where, name, int(match[1]), int(match[2]))


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes `tables` to `path`.

    The file gets its name only when it is complete and on disk. Raises ArchiveError and leaves nothing behind
    when it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    schema = schema.with_metadata({**(schema.metadata or {}), b"laggard.format": FORMAT.encode()})
    try:
        _make(path.parent)
        with pq.ParquetWriter(temporary, schema, **_options(schema)) as writer:
            for table in tables:
                writer.write_table(table.replace_schema_metadata(schema.metadata), ROW_GROUP_ROWS)
        sync_path(temporary)
        temporary.rename(path)
        sync_path(path.parent)
    except OSError as exc:
        raise ArchiveError(str(path), exc.strerror or str(exc)) from exc
    finally:
        with suppress(OSError):
            temporary.unlink()


def _options(schema: pa.Schema) -> Mapping[str, object]:
    """Dictionaries for strings and packed deltas for integers, which suit slowly rising counters."""
    texts = [each.name for each in schema if pa.types.is_dictionary(each.type)]
    deltas = {each.name: "DELTA_BINARY_PACKED" for each in schema if each.type in _INTEGERS}
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": texts,
        "column_encoding": deltas or None,
        "write_statistics": True,
    }


def _make(folder: Path) -> None:
    """Creates a folder durably (fsync of its parent)."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_path(folder.parent)
