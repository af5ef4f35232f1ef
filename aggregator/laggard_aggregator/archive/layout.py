"""Paths of the archive: `kind=K/source=S/date=D/site=T/*.parquet` below its folder.

A file is named by the time of its first row (UTC), its range of parts and the digest of its content:
`20260131T000005Z-000001-000001-a4f08b0c4ff8cf4b.parquet`. Compaction merges parts into one file of their
whole range; a file whose range lies within another's of the same folder is superseded by it and does not
count. Files of earlier versions have no digest. Damaged files lie below `damaged/`, where no reader looks;
an empty file `.used-000007` in their folder keeps the number of its last part from being given again.

A file's content is checked against the digest in its name when all of it is read, and each page against its
checksum whenever it is read.
"""

import errno
import fcntl
import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_common.errors import ArchiveError, InputError
from laggard_common.segment_log import sync_path

OF_DETECTORS = ("verdicts", "windows")
OF_SHADOWS = ("shadow_verdicts", "shadow_windows")
"""Kinds with the same columns for the shadow detectors, which raise no alarms."""
OF_JOBS = (
    *("series60", "jobs", "job_nodes", "paths"),
    *("job_series", "job_components", "job_summaries", "job_findings", "job_traces", "job_logs"),
)
"""Kinds of the rollups and of the jobs (`jobs/tables.py`)."""
_OF_INPUT = ("counters", "schemas", "groups", "closes", "events")
KINDS = (*_OF_INPUT, *OF_DETECTORS, "alarms", *OF_SHADOWS, "layers", *OF_JOBS)
OWN = "laggard"
"""The `source` of the aggregator's own records."""

FORMAT = "1"
"""Incremented when a reader of the previous format would fail; new columns and kinds do not count."""

DAY_OPENS_NS = 5 * 1_000_000_000
"""A day's files open at 00:00:05: a small step back of the clock opens none twice (Intrepid 4.1.1)."""

DAMAGED = "damaged"
"""Folder of an archive for files whose content is not what was written, in the same layout."""

FOLDER_MODE, FILE_MODE = 0o750, 0o640
"""Modes of new folders and files, whatever the umask of a command: an archive names users and their jobs."""

_DIGEST_BYTES = 8
_NAME = re.compile(r"\d{8}T\d{6}Z-(\d{6,})-(\d{6,})(?:-[0-9a-f]{16})?\.parquet", re.ASCII)
_USED = re.compile(r"\.used-(\d{6,})", re.ASCII)
_DATE = re.compile(r"date=\d{4}-\d{2}-\d{2}", re.ASCII)
_FOLDER_TRIES = 3
_unfinished: set[Path] = set()
"""Files that this process is writing: a compaction in another thread leaves them alone."""
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
    def day(self) -> str:
        """The day (ISO 8601) of its folder."""
        return self.folder.parent.name.removeprefix("date=")

    @property
    def opened_at(self) -> str:
        """Time of its first row, such as `20260131T000005Z`."""
        return self.name.partition("-")[0]

    @property
    def hour(self) -> str:
        """Hour in which it was opened, such as `20260131T00`."""
        return self.name[:11]

    @property
    def digest(self) -> str:
        """Digest of its content, empty for a file of an earlier version."""
        return "".join(self.name.removesuffix(".parquet").split("-")[3:])


def is_archive(directory: Path) -> bool:
    """True when this folder holds an archive."""
    return any((directory / f"kind={kind}").is_dir() for kind in KINDS)


def check_archive(directory: Path) -> None:
    """Raises InputError where a folder holds no archive, or cannot be read."""
    with InputError.from_os_errors(directory):
        if not is_archive(directory):
            raise InputError(str(directory), "not a Laggard archive")


def folder(directory: Path, kind: str, source: str, day: str, site: str) -> Path:
    """The folder of one day of one source of a site."""
    return directory / f"kind={kind}" / f"source={source}" / f"date={day}" / f"site={site}"


def day_of(time_ns: int) -> str:
    """The day (UTC, ISO 8601) whose files are open at `time_ns`."""
    return datetime.fromtimestamp((time_ns - DAY_OPENS_NS) // 1_000_000_000, UTC).date().isoformat()


def parts(where: Path) -> list[Part]:
    """The current files of a folder in order; none when the folder is missing. Raises OSError."""
    sorted_parts = sorted(_listed_parts(where), key=lambda part: (part.first, -part.last))
    kept: list[Part] = []
    for part in sorted_parts:
        if not kept or part.last > kept[-1].last:
            kept.append(part)
    return kept


def next_part(where: Path) -> int:
    """The number of the next part of a folder, which no part had before. Raises ArchiveError.

    Readers remember up to which number they have read: a part with the number of a damaged one would be
    missed.
    """
    root = where.parents[3]
    try:
        names = [*_names(where), *_names(root / DAMAGED / where.relative_to(root))]
    except OSError as exc:
        raise ArchiveError(str(where), exc.strerror or str(exc)) from exc
    used = [int(match[1]) for name in names if (match := _USED.fullmatch(name))]
    return 1 + max([*(int(match[2]) for name in names if (match := _NAME.fullmatch(name))), *used], default=0)


def mark_used(where: Path, number: int) -> None:
    """Keeps the part numbers of a folder up to `number` from being given again. Raises OSError."""
    marks = [name for name in _names(where) if _USED.fullmatch(name)]
    (where / f".used-{number:06d}").touch()
    sync_path(where)
    for name in marks:
        if int(name.removeprefix(".used-")) < number:
            (where / name).unlink(missing_ok=True)


def superseded(where: Path) -> list[Path]:
    """Files of a folder that a merged file replaced, and temporary files left by a crash."""
    kept = {part.name for part in parts(where)}
    merged = [part.path for part in _listed_parts(where) if part.name not in kept]
    left = [path for path in where.glob(".*.tmp") if path not in _unfinished and not _is_written(path)]
    return [*merged, *left]


def _is_written(path: Path) -> bool:
    """Whether another process is writing a temporary file: `laggard jobs import`, beside the daemon."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def days(directory: Path, kind: str, source: str = "*", site: str = "*") -> list[tuple[str, Path]]:
    """Day and folder of all data of a kind, oldest first; none when `directory` is missing. Raises OSError.

    A folder that cannot be read is an error: its rows would be written once more.
    """
    folders = [
        (day.name.removeprefix("date="), folder)
        for sources in _folders(directory / f"kind={kind}", f"source={source}")
        for day in _folders(sources, "date=*")
        if _DATE.fullmatch(day.name)
        for folder in _folders(day, f"site={site}")
    ]
    return sorted(folders)


def damaged_files(directory: Path, kind: str, source: str = "*", site: str = "*") -> Counter[str]:
    """The number of files of a table that were set aside, by day. Raises OSError."""
    folders = days(directory / DAMAGED, kind, source, site)
    return Counter(day for day, where in folders for _ in _listed_parts(where))


def all_parts(directory: Path) -> Iterator[Part]:
    """The current files of an archive, table after table. Raises OSError."""
    for kind in KINDS:
        for _, where in days(directory, kind):
            yield from parts(where)


def _folders(where: Path, pattern: str) -> list[Path]:
    """The folders `key=value` in `where`; all of a key for the value `*`."""
    prefix = pattern.removesuffix("*")
    try:
        with os.scandir(where) as entries:
            return [
                where / entry.name
                for entry in entries
                if (entry.name.startswith(prefix) if prefix != pattern else entry.name == pattern)
                and entry.is_dir()
            ]
    except FileNotFoundError:
        return []


def _names(where: Path) -> list[str]:
    """Names of all files of a folder, none when it is missing. Raises OSError."""
    try:
        with os.scandir(where) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []


def _listed_parts(where: Path) -> Iterator[Part]:
    for name in _names(where):
        match = _NAME.fullmatch(name)
        if match:
            yield Part(where, name, int(match[1]), int(match[2]))


def write_part(
    where: Path, opened_at: str, numbers: tuple[int, int], schema: pa.Schema, tables: Iterable[pa.Table]
) -> Path:
    """Writes `tables` as a file of a folder; returns its path. `opened_at` as in `Part`; `numbers`: its parts

    The file gets its name only when it is complete and on disk. Raises ArchiveError and leaves nothing behind
    when it cannot be written.
    """
    stem = f"{opened_at}-{numbers[0]:06d}-{numbers[1]:06d}"
    temporary = where / f".{stem}.tmp"
    _unfinished.add(temporary)
    schema = schema.with_metadata({**(schema.metadata or {}), b"laggard.format": FORMAT.encode()})
    try:
        with _locked_file(temporary) as file:
            with pq.ParquetWriter(file, schema, **_options(schema)) as writer:
                for table in tables:
                    writer.write_table(table.replace_schema_metadata(schema.metadata), ROW_GROUP_ROWS)
            os.fsync(file.fileno())
            path = where / f"{stem}-{file.digest.hexdigest()}.parquet"
            temporary.rename(path)
        try:
            sync_path(where)
        except OSError:
            path.unlink(missing_ok=True)  # its rows are written again, with another digest: another name
            with suppress(OSError):
                mark_used(where, numbers[1])  # a reader may have seen it
            raise
    except OSError as exc:
        raise ArchiveError(str(where / stem), exc.strerror or str(exc)) from exc
    finally:
        with suppress(OSError):
            temporary.unlink()
        _unfinished.discard(temporary)
    return path


def _locked_file(path: Path) -> "_DigestedFile":
    """A new file, locked while it is open: a compaction of another process leaves it alone.

    Its folder is made; retention may drop that while it is empty. Raises OSError.
    """
    for _ in range(_FOLDER_TRIES):
        make_folder(path.parent)
        with suppress(FileNotFoundError):
            file = _DigestedFile(path)
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return file
            file.close()
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def refuse_later(part: Part, schema: pa.Schema) -> None:
    """Raises ArchiveError for a file of another format, whose rows this version may not know whole."""
    version = (schema.metadata or {}).get(b"laggard.format", b"").decode(errors="replace")
    if version not in ("", FORMAT):
        raise ArchiveError(str(part.path), f"archive format {version}, this version reads {FORMAT}")


class DamagedPartError(Exception):
    """The content of `part` is not as it was written."""

    def __init__(self, part: Part, reason: str) -> None:
        self.part = part
        self.reason = reason
        super().__init__(f"{part.path}: damaged: {reason}")


@contextmanager
def checked_file(part: Part) -> Iterator[pq.ParquetFile]:
    """The file of `part` after a check of its digest; pages are checked as the block reads them.

    Raises DamagedPartError, also for errors of the block's reading, and OSError when it cannot be opened.
    """
    check_digest(part)
    with page_checked_file(part) as file:
        yield file


@contextmanager
def page_checked_file(part: Part, metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """The same without its digest, for blocks that read the footer or little besides: checks pages only.

    `metadata`: those of the file where it was read before, so that the footer is not read again.
    """
    with reading(part), open_file(part, metadata) as file:
        yield file


def open_file(part: Part, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """The file of `part`, open; pages are checked as they are read. Raises as `page_checked_file`."""
    with reading(part):
        return pq.ParquetFile(part.path, metadata=metadata, page_checksum_verification=True)


def check_digest(part: Part) -> None:
    """Raises DamagedPartError where a file's content does not fit the digest in its name; raises OSError."""
    with reading(part):
        if part.digest and digest_of(part.path) != part.digest:
            raise DamagedPartError(part, "its content does not match the digest in its name")


@contextmanager
def reading(part: Part) -> Iterator[None]:
    """Raises the block's errors of reading `part` as DamagedPartError, other OSErrors as they are."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as exc:  # the latter for a name of a damaged footer
        raise DamagedPartError(part, one_line(exc)) from exc
    except OSError as exc:
        if exc.errno not in (None, errno.EIO):  # pyarrow raises them without a number for what it reads
            raise
        raise DamagedPartError(part, one_line(exc)) from exc


def check(part: Part) -> None:
    """Reads all of `part`. Raises DamagedPartError, and OSError when it cannot be opened."""
    with checked_file(part) as file:
        for at in range(0 if part.digest else file.num_row_groups):
            file.read_row_group(at)


def stamp(time_ns: int) -> str:
    """`Part.opened_at` of a file whose first row came at `time_ns`."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")


def digest_of(path: Path) -> str:
    """Digest of a file's content, as `b2sum --length=64` prints it. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _digest).hexdigest()


def _digest() -> Any:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


class _DigestedFile(io.FileIO):
    """A new file; `digest` covers all bytes as they were handed to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))
        self.digest = _digest()

    def write(self, data: Any) -> int:
        """Writes all of `data`."""
        view = memoryview(data).cast("B")
        self.digest.update(view)
        left = view
        while left:
            left = left[super().write(left) :]
        return len(view)


def one_line(exc: Exception) -> str:
    """Message of an exception as one bounded line."""
    return " ".join(str(exc).split())[:200]


def _options(schema: pa.Schema) -> Mapping[str, object]:
    """Dictionaries for strings, packed deltas for integers, which suit slowly rising counters, and bytes of
    one significance together for series."""
    texts = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    deltas = {field.name: "DELTA_BINARY_PACKED" for field in schema if field.type in _INTEGERS}
    lists = [field.name for field in schema if field.type == pa.list_(pa.float64())]
    encodings = deltas | {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in lists}
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": texts,
        "column_encoding": encodings or None,
        "write_statistics": True,
        "write_page_checksum": True,
    }


def make_folder(folder: Path) -> None:
    """Creates a folder durably (fsync of its parent); retention may drop an empty one above it meanwhile."""
    for tries_left in reversed(range(_FOLDER_TRIES)):
        if folder.is_dir():
            return
        make_folder(folder.parent)
        try:
            folder.mkdir(FOLDER_MODE, exist_ok=True)
            sync_path(folder.parent)
        except FileNotFoundError:
            if not tries_left:
                raise
