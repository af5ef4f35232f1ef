"""The store: Parquet files, hash-partitioned by job within days, and commits that say which of them count.

```
STORE/
  lock                               held while `init` runs
  converting/                        logs of the batch that is being converted
  commits/00000001.json              sources converted, files written, sources skipped and why
  TABLE/day=YYYY-MM-DD/bucket=B/00000001.parquet
```

A batch of sources is one commit. Its files are written first, its commit is renamed into place last: a
reader, and the next `init`, know only committed files, so that a store whose `init` was killed continues as
if it had not been. Commit numbers, batches and rows depend on the sources alone; so do the files.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.jobs.darshan.tables import TABLES
from laggard_common.errors import InputError
from laggard_common.segment_log import sync_path

FORMAT: Final = 1
BUCKETS: Final = 4
_ROW_GROUP: Final = 1 << 17
_COMMITS: Final = "commits"
_CONVERTING: Final = "converting"
_LOCK: Final = "lock"
_COMMIT_NAME: Final = re.compile(r"[0-9]{8}\.(json|tmp)", re.ASCII)
_PART_NAME: Final = re.compile(r"day=[0-9a-z-]{1,16}/(bucket=[0-9]+/)?[0-9]{8}\.(parquet|tmp)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was converted, skipped with an `error`, or began outside of the period asked for.

    `outside_us`: when it began. `zone`: of its times, where they have none of their own. `reader`: the
    versions that found the error.
    """

    path: str
    size: int
    mtime_ns: int
    log: int = 0
    error: str | None = None
    outside_us: int | None = None
    zone: str | None = None
    reader: str | None = None

    @property
    def key(self) -> tuple[str, int, int, str | None]:
        """Path, size, time of modification, and time zone."""
        return self.path, self.size, self.mtime_ns, self.zone


@dataclass(frozen=True, slots=True)
class StoreCommit:
    """Sources converted together and the files with their rows, by table. `kind`: darshan, slurm or lmt."""

    number: int
    kind: str
    sources: list[Source]
    files: dict[str, list[str]] = field(default_factory=dict)


class MineStore:
    """A store on disk as of its opening. Raises InputError when it is none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not (directory / _COMMITS).is_dir():
            raise InputError(str(directory), "not a store of laggard mine: laggard mine init makes one")
        self.commits = list(self._read())

    def sources(self, kind: str) -> dict[str, Source]:
        """The newest state of each source, by its path."""
        return {
            source.path: source for commit in self.commits if commit.kind == kind for source in commit.sources
        }

    def files(self, table: str) -> list[Path]:
        """The files of a table; those of a Slurm or LMT source that was read again are left out."""
        paths = []
        for commit in self.commits:
            if commit.kind == "darshan" or self._is_newest(commit):
                paths += [self.directory / name for name in commit.files.get(table, ())]
        return paths

    def converted_logs(self) -> set[int]:
        """Logs with rows in the store, also those that were replaced."""
        return {
            source.log
            for commit in self.commits
            if commit.kind == "darshan"
            for source in commit.sources
            if source.error is None and source.outside_us is None
        }

    def replaced_logs(self) -> set[int]:
        """Logs that changed since, and were converted again: rows of the older state do not count."""
        every = {
            source.log for commit in self.commits if commit.kind == "darshan" for source in commit.sources
        }
        return every - {source.log for source in self.sources("darshan").values()}

    def _is_newest(self, commit: StoreCommit) -> bool:
        newest = self.sources(commit.kind)
        return all(newest[source.path] == source for source in commit.sources)

    def _read(self) -> Iterator[StoreCommit]:
        for path in sorted((self.directory / _COMMITS).glob("*.json")):
            with InputError.from_os_errors(path):
                text = path.read_text(encoding="utf-8")
            try:
                record: dict[str, Any] = json.loads(text)
                if record.pop("format") != FORMAT:
                    raise InputError(str(path), "of another version of Laggard")
                record["sources"] = [Source(**source) for source in record["sources"]]
                yield StoreCommit(**record)
            except (ValueError, KeyError, TypeError) as exc:
                raise InputError(str(path), f"damaged: {exc}") from exc


class StoreWriter:
    """Adds commits to a store; only one at a time may exist, under the store's lock.

    Raises InputError for a folder that is neither empty nor a store: nothing of it is removed.
    """

    def __init__(self, directory: Path) -> None:
        check_is_store_or_empty(directory)
        _make(directory / _COMMITS)
        self.directory = directory
        self.store = MineStore(directory)
        self._remove_uncommitted()
        self.converting = directory / _CONVERTING
        shutil.rmtree(self.converting, ignore_errors=True)  # of a run that was killed
        self.converting.mkdir(exist_ok=True)  # a reader of that run may have written meanwhile

    def close(self) -> None:
        """Removes the folder of conversions."""
        shutil.rmtree(self.converting, ignore_errors=True)

    def commit(self, kind: str, sources: Sequence[Source], rows: Mapping[str, Iterable[pa.Table]]) -> None:
        """Writes the rows of `sources` and makes them count. `rows`: tables with one source's rows each."""
        number = len(self.store.commits) + 1
        files = {table: self._write(table, number, parts) for table, parts in rows.items()}
        made = StoreCommit(
            number, kind, list(sources), {table: names for table, names in files.items() if names}
        )
        target = self.directory / _COMMITS / f"{number:08d}.json"
        _replace(target, json.dumps({"format": FORMAT, **asdict(made)}, indent=1).encode())
        self.store.commits.append(made)

    def _write(self, table: str, number: int, parts: Iterable[pa.Table]) -> list[str]:
        by_place: dict[str, list[pa.Table]] = {}
        for part in parts:
            if len(part):
                by_place.setdefault(_place(table, part), []).append(part)
        names = []
        for place, together in sorted(by_place.items()):
            name = f"{table}/{place}/{number:08d}.parquet"
            path = self.directory / name
            _make(path.parent)
            temporary = path.with_suffix(".tmp")
            with temporary.open("wb") as file:
                with pq.ParquetWriter(file, TABLES[table], compression="zstd") as writer:
                    for several in _groups(together):
                        writer.write_table(several, _ROW_GROUP)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_path(path.parent)
            names.append(name)
        return names

    def _remove_uncommitted(self) -> None:
        """Removes files of a commit that was not completed."""
        committed = {
            name for commit in self.store.commits for names in commit.files.values() for name in names
        }
        for table in TABLES:
            for path in (self.directory / table).glob("day=*/**/*"):
                is_part = _PART_NAME.fullmatch(path.relative_to(self.directory / table).as_posix())
                if is_part and str(path.relative_to(self.directory)) not in committed:
                    path.unlink()
        for path in (self.directory / _COMMITS).glob("*.tmp"):
            path.unlink()


def _place(table: str, part: pa.Table) -> str:
    """Partition of the rows of one source: the day of its job or first reading, and a bucket of jobs."""
    times = part["start_us"] if "start_us" in part.column_names else None
    first = part.schema.metadata or {}
    start = (
        int(first[b"start_us"]) if b"start_us" in first else (times[0].as_py() if times is not None else 0)
    )
    day = day_of(start or 0)
    if table.startswith("lmt"):
        return f"day={day}"
    if table.startswith("slurm"):
        return f"day={day}"
    return f"day={day}/bucket={part['job_id'][0].as_py() % BUCKETS}"


def day_of(micros: int) -> str:
    """Day of a time in microseconds since the epoch, UTC."""
    with suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d")
    return "unknown"


def _groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Small tables put together; the rows of a large one in portions, so that memory stays bounded."""
    waiting: list[pa.Table] = []
    count = 0
    for part in parts:
        for at in range(0, len(part), _ROW_GROUP):
            piece = part.slice(at, _ROW_GROUP).replace_schema_metadata(None)
            waiting.append(piece)
            count += len(piece)
            if count >= _ROW_GROUP:
                yield pa.concat_tables(waiting)
                waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def check_is_store_or_empty(directory: Path) -> None:
    """Raises InputError for a folder with files of another kind, or that is no folder."""
    if not directory.exists():
        return
    with InputError.from_os_errors(directory):
        names = {path.name for path in directory.iterdir()} - {_LOCK, "lost+found"}
        commits = directory / _COMMITS
        made = {path.name for path in commits.iterdir()} if commits.is_dir() else set()
        if any(_COMMIT_NAME.fullmatch(name) for name in made):  # beside it may be reports and snapshots
            is_store = all(_COMMIT_NAME.fullmatch(name) or name.startswith(".") for name in made)
        else:  # of a run that was killed before its first commit, if there is an empty folder of commits
            is_store = not names or (
                commits.is_dir() and not made and names <= {_COMMITS, _CONVERTING, *TABLES}
            )
    if not is_store:
        raise InputError(str(directory), "neither empty nor a store of laggard mine")


def _make(directory: Path) -> None:
    """Creates a folder and those above it; after a power cut they are there, too."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_path(directory.parent)


def _replace(target: Path, content: bytes) -> None:
    temporary = target.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
    sync_path(target.parent)
