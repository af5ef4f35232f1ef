"""Collector `fntrace`: calls and self times of functions, over all traced processes of this node."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from laggard_agent.collectors.fntrace.program_totals import Totals
from laggard_agent.collectors.fntrace.shm_layout import Slot
from laggard_agent.collectors.fntrace.symbolizer import Namer
from laggard_agent.collectors.fntrace.table import MOST_HELD_BYTES, CallTable, Processes
from laggard_agent.collectors.interface import ABSENT, Context, Reading, note_name, unreadable
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, gauges, raise_first
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Field

FIELDS = (Field("calls"), Field("self_ns", unit="ns"))
NODE_FIELDS = gauges(
    *("tables", "tables_ended", "tables_failed", "functions_without_row", "functions_left_out"),
    *("threads_without_slot", "deep_calls", "untimed_calls", "abandoned_frames", "unmatched_exits"),
)

# process, its start, which of its tables
_NAME = re.compile(r"([1-9]\d{0,9})\.(\d{1,20})\.(\d{1,9})", re.ASCII)
_MOST_TABLES = 512
_UNFINISHED_SECONDS = 60
_RANK_EVERY_NS = 60 * 1_000_000_000
_MOST = 2**63 - 1

Key = tuple[str, int]  # name and inode of a file


class _CallTableFile(NamedTuple):
    """A table identified by its file name. `is_last`: its owner made none after it, by another exec."""

    name: str
    inode: int
    pid: int
    start_ticks: int
    is_last: bool


class _TracedProcess:
    """A table, its counts reported so far, and the end of its process before the last read."""

    def __init__(self, path: Path) -> None:
        self.table = CallTable(path)
        self.has_ended = False
        self._taken: list[int] = []

    def rises(self, *, is_first: bool) -> Iterator[tuple[str, int, int]]:
        """Id, calls and self ns of the functions that counted since the previous call.

        `is_first`: unnamed functions are not reported later either. The agent may start long after the
        process, and the accumulated counts would look like an increase.
        """
        table = self.table
        if table.head is None or self._taken == table.sums:
            return
        rate = table.head.ticks_per_second
        before = self._taken + [0] * (len(table.sums) - len(self._taken))
        after = table.sums.copy()
        for i, name in enumerate(table.names):
            calls, ticks = after[2 * i : 2 * i + 2]
            calls_before, ticks_before = before[2 * i : 2 * i + 2]
            if (calls, ticks) == (calls_before, ticks_before):
                continue
            if name is None and not is_first:
                after[2 * i : 2 * i + 2] = before[2 * i : 2 * i + 2]  # once its name is known
            if name is None:
                continue
            yield name, calls - calls_before, ticks * 10**9 // rate - ticks_before * 10**9 // rate
        self._taken = after


@dataclass(frozen=True, slots=True)
class FntraceSettings:
    """`[fntrace]`: where traced processes put their tables, and how many functions have a row."""

    directory: Path = Path("/dev/shm/laggard")  # noqa: S108 - the library's own default
    max_functions: int = field(default=1024, metadata=checked(between(1, 4096)))


@register
class Fntrace:
    """Reads the tables in `directory`; `procfs` shows which of their processes have ended.

    The table of an ended process is removed one sample after its last read, so a collector that reads once
    removes nothing.
    """

    name = "fntrace"
    settings = FntraceSettings
    sources: ClassVar = {"fntrace": FIELDS, "fntrace_node": NODE_FIELDS}

    def __init__(self, settings: FntraceSettings, context: Context) -> None:
        self._directory = settings.directory
        self._context = context
        self._processes = Processes(context.roots.procfs)
        self._namer = Namer()
        self._totals = Totals(settings.max_functions)
        self._ranked_ns = context.monotonic_ns()
        self._found: dict[Key, _TracedProcess] = {}
        self._is_first = True
        self._own = OwnRow("fntrace_node", NODE_FIELDS, "fntrace")
        self._nothing = OnceLogged("fntrace")

    def read(self) -> Iterator[Reading]:
        """Yields functions, then this node. Raises CollectError for the first unreadable table."""
        at = self._context.now()
        failures = self._look()
        rises: dict[str, tuple[int, int]] = {}
        for process in self._found.values():
            for name, calls, self_ns in process.rises(is_first=self._is_first):
                before = rises.get(name, (0, 0))
                rises[name] = (before[0] + calls, before[1] + self_ns)
        self._is_first = False
        self._totals.add(rises)
        now = self._context.monotonic_ns()
        if now - self._ranked_ns >= _RANK_EVERY_NS:
            self._ranked_ns = now
            self._totals.rank()
        yield Reading("fntrace", FIELDS, at, self._totals.components, self._totals.rows())
        tables = [process.table for process in self._found.values()]
        heads = [table.head for table in tables if table.head is not None]
        slots = [Slot(), *(slot for table in tables for slot in table.slots)]
        values = (
            len(heads),
            sum(process.has_ended for process in self._found.values()),
            len(failures),
            self._totals.without_row,
            sum(head.functions_left_out for head in heads),
            sum(head.threads_without_slot for head in heads),
            *map(sum, zip(*slots, strict=True)),  # deep, untimed, abandoned, unmatched
        )
        yield self._own.of(at, *(min(value, _MOST) for value in values))
        self._nothing.update(not self._found and not failures, f"nothing found in {self._directory}")
        raise_first(failures)

    def _look(self) -> list[CollectError]:
        """Reads every table; returns the errors."""
        try:
            named = self._names()
        except CollectError as exc:
            return [exc]
        failures = []
        if len(named) > _MOST_TABLES:
            failures.append(CollectError(str(self._directory), f"more than {_MOST_TABLES} tables"))
        processes: dict[Key, _TracedProcess] = {}
        room_bytes = MOST_HELD_BYTES
        self._namer.start_sample()
        for file in named[:_MOST_TABLES]:
            key = (file.name, file.inode)
            process = self._found.get(key) or _TracedProcess(self._directory / file.name)
            if process.has_ended and _removed(process.table.path, file.inode):
                continue
            has_ended = self._has_ended(file, process.table)
            try:
                if not process.table.read(room_bytes):
                    continue
            except CollectError as exc:
                failures.append(exc)
            room_bytes -= process.table.held_bytes
            processes[key] = process
            self._namer.name(process.table)
            process.has_ended = has_ended and None not in process.table.names
        self._found = processes
        return failures

    def _names(self) -> list[_CallTableFile]:
        """The existing tables, known ones first."""
        if self._directory.is_symlink():  # a symbolic link would decide where files are removed
            raise CollectError(str(self._directory), "is a link")
        try:
            with os.scandir(self._directory) as entries:
                all_matches = ((_NAME.fullmatch(entry.name), entry.inode()) for entry in entries)
                matches = [(match, inode) for match, inode in all_matches if match]
        except OSError as exc:
            if exc.errno in ABSENT:
                return []
            raise unreadable(self._directory, exc) from exc
        note_name(self._directory, is_folder=True)
        matches.sort(key=lambda match: tuple(map(int, match[0].groups())))
        tables_of = Counter(match.group(1, 2) for match, _ in matches)
        makers = [
            (*match.group(1, 2), self._owner(match[0]) if tables_of[match.group(1, 2)] > 1 else None)
            for match, _ in matches
        ]
        last = dict(zip(makers, matches, strict=True))
        named = [
            _CallTableFile(match[0], inode, int(match[1]), int(match[2]), last[maker][0] is match)
            for maker, (match, inode) in zip(makers, matches, strict=True)
        ]
        return sorted(named, key=lambda file: (file.name, file.inode) not in self._found)

    def _owner(self, name: str) -> int | None:
        """Owner of the file: another user's file does not continue a process."""
        try:
            return (self._directory / name).lstat().st_uid
        except OSError:
            return None

    def _has_ended(self, file: _CallTableFile, table: CallTable) -> bool:
        """True when a table will not be written again. An incomplete one gets a minute."""
        if table.head is not None:
            if not file.is_last:
                return True
            ours = self._processes.is_ours(table.head.pid_namespace)
            return ours and self._processes.has_ended(file.pid, file.start_ticks)
        try:
            age_seconds = self._context.now() / 1e9 - table.path.lstat().st_mtime
        except OSError:
            return False
        return age_seconds > _UNFINISHED_SECONDS and self._processes.has_ended(file.pid, file.start_ticks)


def _removed(path: Path, inode: int) -> bool:
    """Removes a table; False without permission: it stays and is not counted again."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
