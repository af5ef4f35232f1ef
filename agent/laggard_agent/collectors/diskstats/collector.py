"""/proc/diskstats: the block layer's counters of every whole disk (Documentation/admin-guide/iostats.rst).

A kernel before 4.18 has 14 columns, from 4.18 on 18 (discards), from 5.5 on 20 (flushes). A line that equals
the one of the reading before is not parsed again: an idle disk costs one look-up.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Protocol, cast

from laggard_agent.collectors.capture import Capture, Captures
from laggard_agent.collectors.interface import Now, Reading
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind

FIELDS = (
    Field("rd_ios", unit="1"),
    Field("rd_merges", unit="1"),
    Field("rd_sectors", unit="sectors"),
    Field("rd_ms", unit="ms"),
    Field("wr_ios", unit="1"),
    Field("wr_merges", unit="1"),
    Field("wr_sectors", unit="sectors"),
    Field("wr_ms", unit="ms"),
    Field("in_flight", FieldKind.GAUGE, unit="1"),
    Field("io_ms", unit="ms"),
    Field("weighted_ms", unit="ms"),
    Field("dc_ios", unit="1"),
    Field("dc_merges", unit="1"),
    Field("dc_sectors", unit="sectors"),
    Field("dc_ms", unit="ms"),
    Field("fl_ios", unit="1"),
    Field("fl_ms", unit="ms"),
)

_LEADING = 3  # major, minor, name
_KNOWN_COLUMNS = (20, 18, 14)
_NAME = itemgetter(2)
_COUNTERS = itemgetter(slice(_LEADING, None))
_NO_ROW: tuple[bytes, Row] = (b"", ())
_END = {n: max((k for k in _KNOWN_COLUMNS if k <= n), default=0) for n in range(_KNOWN_COLUMNS[0])}
_ABSENT = {known: (None,) * (_KNOWN_COLUMNS[0] - known) for known in _KNOWN_COLUMNS}
_MOST = 2**64

Parsed = dict[bytes, tuple[bytes, Row]]


def parse(
    data: bytes, before: Mapping[bytes, tuple[bytes, Row]], unwanted: Set[bytes] = frozenset()
) -> Parsed:
    """Kernel name and row of every line, keyed by the line itself, in the order of `data`.

    `before` is what was returned for the reading before; lines that it holds are taken from it, same objects.
    Of a device in `unwanted` no row is made. Lines with fewer than 14 columns or with something else than
    numbers are left out (empty name).
    """
    lines = data.splitlines()
    parsed = dict(zip(lines, map(before.get, lines), strict=True))
    new = [line for line, known in parsed.items() if known is None]
    parsed.update(zip(new, _parse_lines(new, unwanted), strict=True))
    return cast(Parsed, parsed)


def _parse_lines(lines: Sequence[bytes], unwanted: Set[bytes]) -> Iterable[tuple[bytes, Row]]:
    """As `_parse_line` of each, in a third of the time when all are as the newest kernels write them."""
    columns = [*map(bytes.split, lines)]
    if {*map(len, columns)} == {_KNOWN_COLUMNS[0]}:
        names = [*map(_NAME, columns)]
        if unwanted.isdisjoint(names):
            try:
                values = [*map(int, chain.from_iterable(map(_COUNTERS, columns)))]
                struct.pack(f"{len(values)}Q", *values)  # the quickest way to see that none is out of range
            except (ValueError, struct.error):
                pass
            else:
                return zip(names, zip(*[iter(values)] * len(FIELDS), strict=True), strict=True)
    return [_parse_line(line, unwanted) for line in lines]


def _parse_line(line: bytes, unwanted: Set[bytes]) -> tuple[bytes, Row]:
    columns = line.split()
    end = _END.get(len(columns), _KNOWN_COLUMNS[0])
    absent = _ABSENT.get(end)
    if absent is None:
        return _NO_ROW
    if columns[2] in unwanted:
        return columns[2], ()
    try:
        row = tuple(map(int, columns[_LEADING:end]))
    except ValueError:
        return _NO_ROW
    if max(row) >= _MOST or (b"-" in line and min(row) < 0):  # a name may have a hyphen
        return _NO_ROW
    return columns[2], row + absent


class Devices(Protocol):
    """Which kernel names are components, and what they are called for good."""

    def components(self, names: tuple[bytes, ...]) -> dict[bytes, Component]:
        """The component of each of `names` that is one."""
        ...


class Diskstats:
    """Reads `<procfs>/diskstats`; `devices` says which lines are peers and what their stable identity is."""

    name = "diskstats"

    def __init__(self, procfs: Path, devices: Devices, now: Now) -> None:
        self._path = procfs / "diskstats"
        self._devices = devices
        self.captures = Captures([self._path], now)
        self._parsed: Parsed = {}
        self._names: tuple[bytes, ...] = ()
        self._unwanted: frozenset[bytes] = frozenset()
        self._chosen: dict[bytes, Component] = {}
        self._components: tuple[Component, ...] = ()

    def read(self) -> Iterator[Reading]:
        """One reading of all chosen disks. Raises CollectError when the file cannot be read or is not one."""
        return self.interpret(self.captures.take())

    def interpret(self, capture: Capture) -> Iterator[Reading]:
        """As `read`, of what was read at another time."""
        (file,) = capture.files
        data = file.text()
        rows = self._rows(data)
        if data.strip() and not rows:
            raise CollectError(str(self._path), "no line has the 14, 18 or 20 columns of diskstats")
        names = tuple(rows)
        chosen = self._devices.components(names)
        if chosen is not self._chosen or names != self._names:
            self._parsed, self._unwanted = {}, frozenset()
            rows = self._rows(data)
            self._choose(tuple(rows))
        yield Reading(
            "diskstats", FIELDS, file.at_ns, self._components, [rows[name] for name in self._chosen]
        )

    def _rows(self, data: bytes) -> dict[bytes, Row]:
        """By kernel name; those of unwanted devices are empty."""
        self._parsed = parse(data, self._parsed, self._unwanted)
        rows = dict(self._parsed.values())
        rows.pop(b"", None)
        return rows

    def _choose(self, names: tuple[bytes, ...]) -> None:
        self._names = names
        self._chosen = self._devices.components(names)
        self._unwanted = frozenset(names) - self._chosen.keys()
        components = tuple(self._chosen.values())
        if components != self._components:
            self._components = components
