"""/proc/diskstats: the block layer's counters of every whole disk (Documentation/admin-guide/iostats.rst).

A kernel before 4.18 has 14 columns, from 4.18 on 18 (discards), from 5.5 on 20 (flushes). A line that equals
one of the read before is not parsed again, nor is the file when its bytes are equal. The devices are selected
when a name comes or goes, again a minute later, as members and identities change late, and every ten minutes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from laggard_agent.collectors.diskstats.block_devices import BlockDevices
from laggard_agent.collectors.interface import Context, KernelFile, Reading, numbers
from laggard_agent.collectors.registry import register
from laggard_common.config import checked, each, regex
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind

_NAMES = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms"),
    *("dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)
_UNITS = {"sectors": "sectors", "ms": "ms"}
FIELDS = tuple(
    Field(
        name,
        FieldKind.GAUGE if name == "in_flight" else FieldKind.COUNTER,
        _UNITS.get(name.partition("_")[2], "1"),
    )
    for name in _NAMES
)

_LEADING = 3  # major, minor, name
_KNOWN_COLUMNS = (20, 18, 14)
_NO_ROW: tuple[bytes, Row] = (b"", ())
_END = {n: max((k for k in _KNOWN_COLUMNS if k <= n), default=0) for n in range(_KNOWN_COLUMNS[0])}
_SETTLED_NS = 60 * 1_000_000_000
_RESCAN_NS = 10 * _SETTLED_NS  # of 64 disks it takes the CPU time of five samples

Parsed = dict[bytes, tuple[bytes, Row]]


def parse(data: bytes, before: Mapping[bytes, tuple[bytes, Row]]) -> Parsed:
    """Kernel name and row of every line, keyed by the line itself, in the order of `data`.

    `before`: the result for the read before; equal lines keep their objects. A line with fewer than 14
    columns or with anything but numbers has an empty name.
    """
    known = before.get
    return {line: known(line) or _parse_line(line) for line in data.splitlines()}


def _parse_line(line: bytes) -> tuple[bytes, Row]:
    columns = line.split()
    end = _END.get(len(columns), _KNOWN_COLUMNS[0])
    row = numbers(columns[_LEADING:end])
    return _NO_ROW if row is None else (columns[2], row + (None,) * (_KNOWN_COLUMNS[0] - end))


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
        self._data = b""
        self._parsed: Parsed = {}
        self._rows: dict[bytes, Row] = {}
        self._names: tuple[bytes, ...] = ()
        self._selected: dict[bytes, Component] = {}
        self._components: tuple[Component, ...] = ()

    def read(self) -> Iterator[Reading]:
        """One reading of all selected disks. Raises CollectError when the file is unreadable or not one."""
        read_at_ns = self._context.now()
        data = self._file.read()
        if data != self._data:
            self._parsed = parse(data, self._parsed)
            self._rows = {name: row for name, row in self._parsed.values() if name}
            self._data = data
        if data.strip() and not self._rows:
            raise CollectError(str(self._file.path), "no line has the 14, 18 or 20 columns of diskstats")
        names = tuple(self._rows)
        now_ns = self._context.monotonic_ns()
        if names != self._names or now_ns >= self._rescan_at_ns:
            self._rescan_at_ns = now_ns + (_RESCAN_NS if names == self._names else _SETTLED_NS)
            self._names = names
            self._selected = self._devices.components(names)
            components = tuple(self._selected.values())
            if components != self._components:
                self._components = components
        rows = [self._rows[name] for name in self._selected]
        yield Reading("diskstats", FIELDS, read_at_ns, self._components, rows)
