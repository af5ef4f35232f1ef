"""Collector `gluster`: io-stats dumps of this node's bricks and mounted volumes."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from laggard_agent.collectors.gluster.dump import NotADumpError, ProcessDump, parse_dump
from laggard_agent.collectors.gluster.identity import brick_path
from laggard_agent.collectors.gluster.process import Process
from laggard_agent.collectors.gluster.reader import FileState, read_text
from laggard_agent.collectors.gluster.table import ALWAYS, ProcessTable
from laggard_agent.collectors.interface import Context, Now, Reading, note_name, note_not_read
from laggard_agent.collectors.own_state import OnceLogged, OwnRow, raise_first
from laggard_agent.collectors.registry import register
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field, FieldKind

_log = logging.getLogger(__name__)

NODE_FIELDS = tuple(
    Field(name, FieldKind.GAUGE)
    for name in (
        "bricks",
        "clients",
        "dumps_partial",
        "dumps_stale",
        "dumps_failed",
        "dumps_of_others",
        "lines_not_understood",
    )
)
_MOST_DUMPS = 1024
_STALE_INTERVALS = 3


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
        text = read_text(self.path, self._state)
        if text is None:
            return
        try:
            dump = parse_dump(text.data)
        except NotADumpError as exc:
            raise CollectError(str(self.path), str(exc)) from exc
        self.partial = dump is None
        if dump is not None:
            self._state = text.state
            self._changed_ns = now_ns
            self.process.add(dump, text.state.changed_ns, now_ns)

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

    def __init__(
        self, directory: Path, now: Now, monotonic_ns: Callable[[], int], *, stale_seconds: float = 60.0
    ) -> None:
        self._directory = directory
        self._now = now
        self._monotonic_ns = monotonic_ns
        self._stale_seconds = stale_seconds
        self._files: dict[str, _DumpFile] = {}
        self._bricks = ProcessTable("gluster_brick")
        self._clients = ProcessTable("gluster_client")
        self._own = OwnRow("gluster", NODE_FIELDS)
        self._nothing = OnceLogged(_log, "gluster")
        self.leftovers: Mapping[str, tuple[str, ...]] = {}

    @classmethod
    def open(cls, settings: GlusterSettings, context: Context) -> Self:
        """As `CollectorClass`."""
        stale_seconds = settings.stale_seconds
        return cls(settings.directory, context.now, context.monotonic_ns, stale_seconds=stale_seconds)

    def read(self) -> Iterator[Reading]:
        """Yields bricks, clients, then the node's own row.

        Raises CollectError at the end for the folder, or the first file, that is unreadable.
        """
        now_ns = self._monotonic_ns()
        failures = self._look(now_ns)
        at = self._now()
        live = {
            name: file
            for name, file in self._files.items()
            if file.process.dump is not None and not file.is_stale(now_ns, self._stale_seconds)
        }
        rows = []
        for table, is_brick in ((self._bricks, True), (self._clients, False)):
            found = self._of_kind(live, is_brick)
            rows.append(len(found))
            reading = table.reading(at, found)
            if reading is not None:
                yield reading
        self.leftovers = {n: f.process.dump.leftovers for n, f in live.items() if f.process.dump}
        self.leftovers = {name: lines for name, lines in self.leftovers.items() if lines}
        yield self._node(at, (*rows, len(self._files) - len(live), len(failures)))
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
            found = [path for path in folder.iterdir() if path.suffix == ".dump" and path.name.isprintable()]
        except FileNotFoundError:
            return []
        except OSError as exc:
            reason = exc.strerror or str(exc)
            note_not_read(folder, reason)
            raise CollectError(str(folder), reason) from exc
        return sorted(found)[:_MOST_DUMPS]

    def _brick_files(self) -> list[tuple[str, str]]:
        """Volume and name of each brick file of glusterd; none without permission."""
        try:
            folders = sorted((self._directory / "vols").iterdir())
        except OSError:
            return []
        found = []
        for folder in folders:
            try:
                paths = list((folder / "bricks").iterdir())
            except OSError:
                continue
            for path in paths:
                note_name(path)
                found.append((folder.name, path.name))
        return found

    def _of_kind(self, live: Mapping[str, _DumpFile], is_brick: bool) -> list[tuple[Component, Process]]:
        found = {}
        for file in live.values():
            if file.component is not None and file.process.dump and file.process.dump.is_brick == is_brick:
                found[file.component.id] = (file.component, file.process)
        return list(found.values())

    def _node(self, at_ns: int, counts: tuple[int, ...]) -> Reading:
        bricks, clients, stale, failed = counts
        row = (
            bricks,
            clients,
            sum(file.partial for file in self._files.values()),
            stale,
            failed,
            sum(file.process.foreign for file in self._files.values()),
            sum(map(len, self.leftovers.values())),
        )
        return self._own.reading(at_ns, row)


def _component(dump: ProcessDump, bricks: list[tuple[str, str]]) -> Component | None:
    """Component of the dump; None for an impossible name."""
    path, volume = brick_path(dump.name, bricks) if dump.is_brick else (dump.name, dump.name)
    if not path.isprintable() or len(path) > MAX_NAME_CHARS:
        return None
    return Component(path, path, (("volume", volume),) if volume else ())
