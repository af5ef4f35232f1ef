"""Collector `gluster`: io-stats dumps of this node's bricks and mounted volumes."""

import errno
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from laggard_agent.collectors.gluster.dump import NotADumpError, ProcessDump, brick_path, parse_dump
from laggard_agent.collectors.gluster.process import ALWAYS, Process, field_of
from laggard_agent.collectors.interface import (
    Context,
    Reading,
    note_name,
    note_read,
    refused,
    regular_file,
    unreadable,
)
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import ColumnTable, OnceLogged, OwnRow, gauges, raise_first
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component, FieldKind

NODE_FIELDS = gauges(
    *("bricks", "clients", "dumps_partial", "dumps_stale", "dumps_failed", "dumps_of_others"),
    "lines_not_understood",
)
_MOST_DUMPS = 1024
MOST_DUMP_BYTES = 1024 * 1024  # a brick's dump is 45 kB
_GONE = (errno.ENOENT, errno.ESTALE)
_STALE_INTERVALS = 3


class FileState(NamedTuple):
    """File attributes that change with a rewrite; `changed_ns` is since the epoch."""

    inode: int
    size: int
    changed_ns: int


def read_rewritten(path: Path, before: FileState | None) -> tuple[bytes, FileState] | None:
    """Contents and state of `path`; None when unchanged since `before`, missing, or changed during the read.

    The writer rewrites it in place every second. Raises CollectError, also for a file that is longer than a
    dump can be or is not a regular file.
    """
    try:
        if before is not None and _state(path.stat()) == before:
            return None
        with regular_file(path) as (fd, status):
            if status.st_size > MOST_DUMP_BYTES:
                raise refused(path, f"longer than {MOST_DUMP_BYTES} bytes")
            data = os.read(fd, status.st_size + 1)
            if len(data) != status.st_size or _state(os.fstat(fd)) != _state(status):
                return None
    except OSError as exc:
        if exc.errno in _GONE:
            return None
        raise unreadable(path, exc) from exc
    note_read(path, data)
    return data, _state(status)


def _state(status: os.stat_result) -> FileState:
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns)


class _DumpFile:
    """A dump file over the samples. `partial`: the latest read found less than a dump."""

    def __init__(self, path: Path, now_ns: int) -> None:
        self.path = path
        self.process = Process()
        self.component: Component | None = None
        self.partial = False
        self._state: FileState | None = None
        self._changed_ns = now_ns

    def read(self, now_ns: int) -> None:
        """Reads the file if it changed. Raises CollectError."""
        content = read_rewritten(self.path, self._state)
        if content is None:
            return
        data, state = content
        try:
            dump = parse_dump(data)
        except NotADumpError as exc:
            raise CollectError(str(self.path), str(exc)) from exc
        self.partial = dump is None
        if dump is not None:
            self._state = state
            self._changed_ns = now_ns
            self.process.add(dump, state.changed_ns, now_ns)

    def is_stale(self, now_ns: int, stale_seconds: float) -> bool:
        """True when no dump was written for `stale_seconds` and three of its intervals."""
        interval = self.process.dump.interval_s if self.process.dump else 0.0
        return now_ns - self._changed_ns > max(stale_seconds, _STALE_INTERVALS * interval) * 1e9


@dataclass(frozen=True, slots=True)
class GlusterSettings:
    """`[gluster]`: glusterd's folder, and how old the dump of a process that ended is."""

    directory: Path = Path("/var/lib/glusterd")
    stale_seconds: float = field(default=60.0, metadata=checked(between(1)))


@register
class Gluster:
    """Reads `<directory>/stats/*.dump`; the names of `<directory>/vols/*/bricks/*` identify the bricks.

    A dump that is being rewritten is left for the next sample, and its row is unchanged: counters are sums,
    so nothing is lost. A file that was not rewritten for `stale_seconds` (and three of its intervals) belongs
    to an ended process and has no row. `leftovers`: unparsed lines, by file.
    """

    name = "gluster"
    settings = GlusterSettings
    sources: ClassVar = {
        "gluster_brick": ALWAYS,
        "gluster_client": ALWAYS,
        "gluster": NODE_FIELDS,
    }

    def __init__(self, settings: GlusterSettings, context: Context) -> None:
        self._directory = settings.directory
        self._stale_seconds = settings.stale_seconds
        self._context = context
        self._files: dict[str, _DumpFile] = {}
        self._bricks = ColumnTable("gluster_brick", ALWAYS)
        self._clients = ColumnTable("gluster_client", ALWAYS)
        self._own = OwnRow("gluster", NODE_FIELDS)
        self._nothing = OnceLogged("gluster")
        self.leftovers: Mapping[str, tuple[str, ...]] = {}

    def read(self) -> Iterator[Reading]:
        """Yields bricks, clients, then the node's own row.

        Raises CollectError at the end for the folder, or the first file, that is unreadable.
        """
        now_ns = self._context.monotonic_ns()
        failures = self._look(now_ns)
        at = self._context.now()
        live = {
            name: file
            for name, file in self._files.items()
            if file.process.dump is not None and not file.is_stale(now_ns, self._stale_seconds)
        }
        counts = []
        for table, is_brick in ((self._bricks, True), (self._clients, False)):
            processes = {
                file.component.id: (file.component, file.process)
                for file in live.values()
                if file.component and file.process.dump and file.process.dump.is_brick == is_brick
            }
            counts.append(len(processes))
            if processes:
                yield _reading(table, at, processes.values())
        leftovers = {n: f.process.dump.leftovers for n, f in live.items() if f.process.dump}
        self.leftovers = {name: lines for name, lines in leftovers.items() if lines}
        yield self._own.of(
            at,
            *counts,
            sum(file.partial for file in self._files.values()),
            len(self._files) - len(live),
            len(failures),
            sum(file.process.foreign for file in self._files.values()),
            sum(map(len, self.leftovers.values())),
        )
        self._nothing.update(
            not self._files and not failures, f"nothing found in {self._directory / 'stats'}"
        )
        raise_first(failures)

    def _look(self, now_ns: int) -> list[CollectError]:
        """Reads every dump file; returns the errors."""
        try:
            paths = self._dump_files()
        except CollectError as exc:
            self._files = {}
            return [exc]
        self._files = {p.name: self._files.get(p.name) or _DumpFile(p, now_ns) for p in paths}
        failures = []
        bricks: list[tuple[str, str]] | None = None
        for file in self._files.values():
            try:
                file.read(now_ns)
            except CollectError as exc:
                failures.append(exc)
            dump = file.process.dump
            if dump is not None and file.component is None:
                if bricks is None:
                    bricks = self._brick_files()
                file.component = _component(dump, bricks)
        return failures

    def _dump_files(self) -> list[Path]:
        folder = self._directory / "stats"
        try:
            dumps = [path for path in folder.iterdir() if path.suffix == ".dump" and path.name.isprintable()]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise unreadable(folder, exc) from exc
        return sorted(dumps)[:_MOST_DUMPS]

    def _brick_files(self) -> list[tuple[str, str]]:
        """Volume and name of each brick file of glusterd; none without permission."""
        bricks = []
        for path in sorted(self._directory.glob("vols/*/bricks/*")):
            note_name(path)
            bricks.append((path.parts[-3], path.name))
        return bricks


def _reading(table: ColumnTable, at_ns: int, processes: Collection[tuple[Component, Process]]) -> Reading:
    """A row of each process; a counter missing from a fully parsed dump never counted."""
    for _, process in processes:
        new = [(field_of(name), value) for name, value in process.values.items() if name not in table.names]
        table.grow(field for field, value in new if value or field.kind is FieldKind.GAUGE)
    return table.table(at_ns, ((name, process.values, process.is_whole) for name, process in processes))


def _component(dump: ProcessDump, bricks: list[tuple[str, str]]) -> Component | None:
    """Component of the dump; None for an impossible name."""
    path, volume = brick_path(dump.name, bricks) if dump.is_brick else (dump.name, dump.name)
    if not path.isprintable() or len(path) > MAX_NAME_CHARS:
        return None
    return Component(path, path, (("volume", volume),) if volume else ())
