"""/proc/diskstats: the block layer's counters of every whole disk (Documentation/admin-guide/iostats.rst).

A kernel before 4.18 has 14 columns, from 4.18 on 18 (discards), from 5.5 on 20 (flushes). A line that equals
one of the read before is not parsed again, nor is the file when its bytes are equal. The devices are selected
when a name comes or goes, when a counter falls (another device may be under its name), again a minute later,
as members and identities change late, and every ten minutes.
"""

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter, lt
from typing import Any, ClassVar

from laggard_agent.collectors.diskstats.block_devices import BlockDevices, Disk
from laggard_agent.collectors.diskstats.layers import Usage
from laggard_agent.collectors.interface import Context, KernelFile, Reading
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged
from laggard_common.config import checked, each, regex
from laggard_common.errors import CollectError
from laggard_common.trace_formats.kernel_text import DISK_COUNTERS, MOST, disk_line
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind

_log = logging.getLogger(__name__)

_UNITS = {"sectors": "sectors", "ms": "ms"}
FIELDS = tuple(
    Field(
        name,
        FieldKind.GAUGE if name == "in_flight" else FieldKind.COUNTER,
        _UNITS.get(name.partition("_")[2], "1"),
    )
    for name in DISK_COUNTERS
)

_OLD_PARTITION = 7
_REQUESTS, _REQUEST_MS = itemgetter(0, 4, 11), itemgetter(3, 7, 14)
_WRITES = itemgetter(4)
_TIMES = frozenset(at for at, name in enumerate(DISK_COUNTERS) if name.endswith("_ms"))
STARTED_FIELDS = (*FIELDS, Field("start_time", FieldKind.GAUGE, "s"))
_SETTLED_NS = 60 * 1_000_000_000
_FALLS_NS = 10 * 1_000_000_000  # between selections for falls that changed nothing
_RESCAN_NS = 10 * _SETTLED_NS  # of 64 disks it takes the CPU time of five samples

Parsed = dict[bytes, tuple[bytes, Row]]
_MOST_IDS = 4096


class Origins:
    """The devices by ID, also those that went: counters are not continued from those of another one.

    `changes`: the epoch second since when an ID belongs to another device, by ID.
    """

    def __init__(self) -> None:
        self._devices: dict[str, Hashable] = {}
        self.changes: dict[str, int] = {}

    def update(self, devices: Mapping[str, Hashable], now_ns: int) -> None:
        """Notes the device of each ID."""
        for id_, device in devices.items():
            before = self._devices.pop(id_, device)
            self._devices[id_] = device
            if device != before:
                self.changes[id_] = max(now_ns // 10**9, self.changes.get(id_, 0) + 1)
        while len(self._devices) > _MOST_IDS + len(devices):
            oldest = next(iter(self._devices))
            del self._devices[oldest]
            self.changes.pop(oldest, None)


def parse(data: bytes, before: Mapping[bytes, tuple[bytes, Row]]) -> Parsed:
    """Kernel name and row of every line, keyed by the line itself, in the order of `data`.

    `before`: the result for the read before; equal lines keep their objects. A line with fewer than 14
    columns or with anything but numbers has an empty name.
    """
    known = before.get
    return {line: known(line) or disk_line(line) for line in data.splitlines()}


@dataclass(frozen=True, slots=True)
class DiskstatsSettings:
    """`[diskstats]`: regular expressions on kernel names; `include` selects devices of any kind."""

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))
    exclude: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))


@register
class Diskstats:
    """Reads `<procfs>/diskstats`; `devices` selects the peers and gives their permanent IDs."""

    name = "diskstats"
    settings = DiskstatsSettings
    sources: ClassVar = {"diskstats": FIELDS}

    def __init__(
        self, settings: DiskstatsSettings, context: Context, devices: BlockDevices | None = None
    ) -> None:
        self._file = KernelFile(context.roots.procfs / "diskstats")
        sysfs = context.roots.sysfs
        self._devices = devices or BlockDevices(sysfs, settings.include, settings.exclude)
        self._context = context
        self._rescan_at_ns = 0
        self._falls_count_from_ns = 0
        self._data = b""
        self._parsed: Parsed = {}
        self._rows: dict[bytes, Row] = {}
        self._names: tuple[bytes, ...] = ()
        self._selected: list[tuple[bytes, Disk]] = []
        self._read_from: tuple[bytes, ...] = ()
        self._undecided: dict[bytes, int] = {}
        self._components: tuple[Component, ...] = ()
        self._is_plain = True
        self._last: list[Any] = []
        self._origins = Origins()
        self._remarked: set[str] = set()
        self._odd = OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """One reading of all selected disks. Raises CollectError when the file is unreadable or not one."""
        read_at_ns = self._context.now()
        data = self._file.read()
        now_ns = self._context.monotonic_ns()
        fell = False
        if data != self._data:
            before, self._parsed = self._parsed, parse(data, self._parsed)
            self._rows = {name: row for name, row in self._parsed.values() if name}
            self._data = data
            self._report_odd_lines()
            fell = self._has_fall()
            if fell:
                self._rescan_at_ns = min(self._rescan_at_ns, self._falls_count_from_ns)
            if self._undecided and self._is_due(self._parsed.keys() - before.keys()):
                self._rescan_at_ns = 0
        if data.strip() and not self._rows:
            raise CollectError(str(self._file.path), "no line has the 14, 18 or 20 columns of diskstats")
        names = tuple(self._rows)
        if names != self._names or now_ns >= self._rescan_at_ns:
            is_new = names != self._names
            self._rescan_at_ns = now_ns + (_SETTLED_NS if is_new or fell else _RESCAN_NS)
            self._names = names
            changed = self._select(read_at_ns)
            self._falls_count_from_ns = now_ns if changed or not fell else now_ns + _FALLS_NS
        if self._is_plain:
            rows = list(self._last)
            yield Reading("diskstats", FIELDS, read_at_ns, self._components, rows)
        else:
            rows = [self._row(name, disk) for name, disk in self._selected]
            fields = STARTED_FIELDS if self._origins.changes else FIELDS
            yield Reading("diskstats", fields, read_at_ns, self._components, rows)

    def _select(self, read_at_ns: int) -> bool:
        """Selects the devices; True when their set, or an identity, changed."""
        disks = self._devices.select({_text(name): _usage(row) for name, row in self._rows.items()})
        selected = [(name, disk) for name in self._rows if (disk := disks.get(_text(name))) is not None]
        changed = selected != self._selected
        self._selected = selected
        components = tuple(disk.component for _, disk in selected)
        if components != self._components:
            self._components = components
        origins = {disk.component.id: (disk.parts, disk.facts) for _, disk in selected}
        self._origins.update(origins, read_at_ns)
        self._is_plain = not self._origins.changes and all(
            disk.has_times and disk.parts == (_text(name),) for name, disk in selected
        )
        self._read_from = tuple(dict.fromkeys(part.encode() for _, disk in selected for part in disk.parts))
        if self._is_plain:
            self._read_from = tuple(name for name, _ in selected)
        self._last = [row for name in self._read_from if (row := self._rows.get(name)) is not None]
        self._undecided = {name: disk.undecided_until for name, disk in selected if disk.undecided_until}
        for name, text in self._devices.remarks.items():
            if name not in self._remarked:
                _log.warning("collector diskstats: %s", text)
        self._remarked = set(self._devices.remarks)
        return changed

    def _row(self, name: bytes, disk: Disk) -> Row:
        """The row of a disk that is a sum, lacks times, or is on a node where a device was replaced."""
        parts = [row for part in disk.parts if (row := self._rows.get(part.encode())) is not None]
        row = (*parts, self._rows[name])[0]
        if len(parts) > 1:
            row = tuple(map(_total, zip(*parts, strict=True)))
        if not disk.has_times:
            row = tuple(None if column in _TIMES else value for column, value in enumerate(row))
        return (*row, self._origins.changes.get(disk.component.id)) if self._origins.changes else row

    def _has_fall(self) -> bool:
        """Whether counters of a selected disk fell since the last reading: another device has its name.

        Rows are compared as tuples, and writes besides: of disks that exchange their names one falls in its
        first counter that differs, and a new disk in its reads or its writes.
        """
        before: list[Any] = self._last
        try:
            now: list[Any] = [self._rows[name] for name in self._read_from]
            self._last = now
            return len(now) == len(before) and bool(
                any(map(lt, now, before)) or any(map(lt, map(_WRITES, now), map(_WRITES, before)))
            )
        except KeyError:  # a device that went, so that they are selected anyway
            return False
        except TypeError:  # another number of columns
            return True

    def _is_due(self, lines: Iterable[bytes]) -> bool:
        """Whether the selection may be another one after these lines, which are new.

        A disk that was taken for one that counts, and has times now, is one.
        """
        is_due = False
        for name, row in map(self._parsed.__getitem__, lines):
            least = self._undecided.get(name, 0)
            if least:
                usage = _usage(row)
                if usage.ms and least > 1:
                    del self._undecided[name]
                elif usage.requests >= least:
                    is_due = True
        return is_due

    def _report_odd_lines(self) -> None:
        all_known = len(self._rows) == len(self._parsed)
        odd = [] if all_known else [line for line, (n, _) in self._parsed.items() if not n and _is_odd(line)]
        self._odd.update_lines(odd, str(self._file.path))


def _text(name: bytes) -> str:
    return name.decode("ascii", "replace")


def _usage(row: Row) -> Usage:
    return Usage(sum(filter(None, _REQUESTS(row))), sum(filter(None, _REQUEST_MS(row))))


def _total(values: tuple[int | float | None, ...]) -> int | None:
    """The sum of a counter over the paths of a disk; unknown when one is."""
    return None if None in values else int(sum(value or 0 for value in values)) % MOST


def _is_odd(line: bytes) -> bool:
    """Whether no kernel writes such a line; kernels before 2.6.25 have 7 columns for a partition."""
    columns = len(line.split())
    return bool(columns) and columns != _OLD_PARTITION
