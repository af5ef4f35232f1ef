"""Where the archive keeps what: `kind=K/source=S/date=D/site=T/*.parquet` below its folder.

A file is named by the time of its first row (UTC) and the range of parts that it holds:
`20260131T000005Z-000001-000001.parquet`. Compaction merges parts into one file of their whole range; a file
whose range lies within another's of the same folder is superseded by it and does not count.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

KINDS = ("counters", "schemas", "groups", "closes", "verdicts", "windows", "alarms")
OWN = "laggard"
"""The `source` of what the aggregator itself has to tell."""

FORMAT = "1"
"""Raised when a reader of the format before would go wrong; new columns and kinds do not raise it."""

DAY_OPENS_NS = 5 * 1_000_000_000
"""A day's files open at 00:00:05: a small backward step of the clock opens none twice (Intrepid 4.1.1)."""

_NAME = re.compile(r"\d{8}T\d{6}Z-(\d{6,})-(\d{6,})\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the archive: `first` to `last` are the parts it holds.

    A folder may have thousands, so little is kept of each.
    """

    folder: Path
    name: str
    first: int
    last: int

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / self.name

    @property
    def opened(self) -> str:
        """Its first row's time, such as `20260131T000005Z`."""
        return self.name.partition("-")[0]

    @property
    def hour(self) -> str:
        """The hour that it was opened in, such as `20260131T00`."""
        return self.name[:11]


def is_archive(directory: Path) -> bool:
    """Whether this folder holds an archive."""
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
    """The files of a folder that count, in order; none of a folder that is not there."""
    found = sorted(_all_parts(where), key=lambda part: (part.first, -part.last))
    kept: list[Part] = []
    for part in found:
        if not kept or part.last > kept[-1].last:
            kept.append(part)
    return kept


def superseded(where: Path) -> list[Path]:
    """The files of a folder that a merged one has taken the place of, and leftovers of writing."""
    kept = {part.name for part in parts(where)}
    merged = [part.path for part in _all_parts(where) if part.name not in kept]
    return [*merged, *where.glob(".*.tmp")]


def days(directory: Path, kind: str, source: str = "*", site: str = "*") -> list[tuple[str, Path]]:
    """Day and folder of everything of a kind that is kept, oldest first."""
    found = directory.glob(f"kind={kind}/source={source}/date=*/site={site}")
    dated = [(path.parent.name.removeprefix("date="), path) for path in found]
    return sorted((day, path) for day, path in dated if _is_date(day))


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


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
