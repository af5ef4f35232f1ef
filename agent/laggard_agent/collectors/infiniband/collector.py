"""/sys/class/infiniband: port counters of RDMA devices, named as in the kernel's ABI documents.

Covers ports of InfiniBand, Omni-Path and RoCE. Counters of 32 bits and less do not wrap: they stay at their
maximum until they are reset. Such a value is omitted and counted in `counters_saturated`.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from errno import EINVAL, ENODATA, ENODEV, EOPNOTSUPP
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.interface import ABSENT, Context, Reading, attribute, read_file, unreadable
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import ColumnTable, OnceLogged, OwnRow, gauges, raise_first
from laggard_common.errors import CollectError
from laggard_common.trace_formats.kernel_text import number
from laggard_common.wire.limits import MAX_FIELDS, MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field, FieldKind

PORT_FIELDS = (
    Field("state", FieldKind.GAUGE),
    Field("phys_state", FieldKind.GAUGE),
    Field("rate", FieldKind.GAUGE, "bit/s"),
    Field("counters_saturated", FieldKind.GAUGE),
)
NODE_FIELDS = gauges("ports", "files_failed", "values_not_understood", "counters_left_out")

_WORDS = ("port_xmit_data", "port_rcv_data")  # of four bytes
_GAUGES = ("hw_active_", "hw_watermark_")
_NO_COUNTERS = ("lifespan",)  # a setting
_BITS = {
    4: ("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
    8: (
        *("link_error_recovery", "link_downed"),
        *("port_xmit_constraint_errors", "port_rcv_constraint_errors"),
    ),
    16: (
        *("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors"),
        *("port_rcv_switch_relay_errors", "port_xmit_discards", "VL15_dropped"),
    ),
    # 64 bits where the device has extended counters; this value is then practically impossible
    32: (*_WORDS, "port_xmit_packets", "port_rcv_packets", "port_xmit_wait"),
}
_HIGHEST = {name: 2**bits - 1 for bits, names in _BITS.items() for name in names}
_MOST_FILE_BYTES = 4096  # a page, the limit of sysfs
_RATE = re.compile(rb"(\d{1,6})(?:\.(\d))? Gb/sec\b")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_NO_PMA = b"N/A (no PMA)"
_GONE = (*ABSENT, ENODEV)
_NOT_COUNTED = (*_GONE, EINVAL, EOPNOTSUPP, ENODATA)
_LOOK_EVERY_NS = 10 * 1_000_000_000


def parse_counter(data: bytes) -> int | None:
    """Parses a counter's file; None for anything but a number of 64 bits."""
    return number(data.strip())


def parse_state(data: bytes) -> int | None:
    """Parses the number of `4: ACTIVE` or `5: LinkUp`; None without one."""
    return parse_counter(data.partition(b":")[0]) if b":" in data else None


def parse_rate(data: bytes) -> int | None:
    """Parses `56 Gb/sec (4X FDR)` or `2.5 Gb/sec (1X SDR)` to bits per second; None for another text."""
    match = _RATE.match(data)
    return None if match is None else int(match[1]) * 10**9 + int(match[2] or 0) * 10**8


_PARSERS: Mapping[str, Callable[[bytes], int | None]] = {
    "state": parse_state,
    "phys_state": parse_state,
    "rate": parse_rate,
}


@dataclass(frozen=True, slots=True)
class InfinibandSettings:
    """`[infiniband]`: whether the counters of the device's own driver are read, beside those of all ports."""

    hw_counters: bool = True


@register
class Infiniband:
    """Reads `<sysfs>/class/infiniband/*/ports/*`; ports are searched every 10 s, and when one disappears.

    On a node without ports `ports` is 0 in the node's row, and the log says so once. `leftovers`: unparsed
    text of the latest sample, by file.
    """

    name = "infiniband"
    settings = InfinibandSettings
    sources: ClassVar = {"infiniband_port": PORT_FIELDS, "infiniband": NODE_FIELDS}

    def __init__(self, settings: InfinibandSettings, context: Context) -> None:
        self._folder = None if context.roots.sysfs is None else context.roots.sysfs / "class/infiniband"
        self._groups = (("counters", ""), ("hw_counters", "hw_"))[: 1 + settings.hw_counters]
        self._context = context
        self._look_at_ns: int | None = None
        self._ports: dict[Component, dict[str, str]] = {}  # files by the name of the field
        self._suffixes: dict[tuple[str, str], str] = {}  # of the IDs of devices, by name and GUID
        self._left_out = 0
        self._rows = ColumnTable("infiniband_port", PORT_FIELDS)
        self._own = OwnRow("infiniband", NODE_FIELDS)
        self._nothing = OnceLogged("infiniband")
        self.leftovers: dict[str, bytes] = {}

    def read(self) -> Iterator[Reading]:
        """Yields the ports, then the node's own row.

        Raises CollectError at the end for the first unreadable file or folder.
        """
        failures = self._look()
        at = self._context.now()
        self.leftovers = {}
        rows = {component: self._row(files, failures) for component, files in self._ports.items()}
        ports = {component: row for component, row in rows.items() if row is not None}
        if len(ports) < len(rows):
            self._look_at_ns = None
        if ports:
            yield self._rows.table(at, ((component, row, False) for component, row in ports.items()))
        yield self._own.of(at, len(ports), len(failures), len(self.leftovers), self._left_out)
        place = self._folder or "sysfs: it is not read"
        self._nothing.update(not ports and not failures, f"nothing found under {place}")
        raise_first(failures)

    def _row(self, files: Mapping[str, str], failures: list[CollectError]) -> dict[str, int | None] | None:
        """Reads the counters of a port; None if it disappeared. Read errors are added to `failures`."""
        values: dict[str, int | None] = {}
        saturated = 0
        for field, path in files.items():
            try:
                data = read_file(path, _MOST_FILE_BYTES)
            except CollectError as exc:
                code = exc.__cause__.errno if isinstance(exc.__cause__, OSError) else None
                if code not in _NOT_COUNTED:
                    failures.append(exc)
                elif field == "state" and code in _GONE:
                    return None
                continue
            value = _PARSERS.get(field, parse_counter)(data)
            if value is None and data.strip() != _NO_PMA:
                self.leftovers[path] = data[:200]
            elif value is not None and value == _HIGHEST.get(field):
                saturated += 1
            else:
                values[field] = value
        values["counters_saturated"] = saturated
        return values

    def _look(self) -> list[CollectError]:
        """Searches ports and files when due; returns the folders that could not be listed."""
        now = self._context.monotonic_ns()
        if self._folder is None or (self._look_at_ns is not None and now < self._look_at_ns):
            return []
        self._look_at_ns = now + _LOOK_EVERY_NS
        failures: list[CollectError] = []
        ports: dict[Component, dict[str, str]] = {}
        taken: set[str] = set()
        guids = {
            device: attribute(f"{self._folder}/{device}/node_guid").replace(":", "")
            for device in _listed(self._folder, failures)
        }
        self._tell_apart(guids)
        for device, guid in guids.items():
            for port in _listed(self._folder / device / "ports", failures):
                folder = self._folder / device / "ports" / port
                files = {field.name: f"{folder}/{field.name}" for field in PORT_FIELDS[:3]}
                for group, prefix in self._groups:
                    for file in _listed(folder / group, failures):
                        if file not in _NO_COUNTERS:
                            files.setdefault(prefix + file.partition(",")[0], f"{folder}/{group}/{file}")
                component = _component(device, port, guid, attribute(f"{folder}/link_layer"))
                suffix = self._suffixes[device, guid]
                if suffix or component.id in taken:
                    component = replace(component, id=f"{component.id}{suffix or f'@{device}'}")
                taken.add(component.id)
                ports[component] = files
        self._ports = ports
        names = {name for files in ports.values() for name in files} - self._rows.names.keys()
        new = sorted(names, key=lambda name: (name.startswith("hw_"), name))
        self._left_out = max(0, len(new) + len(self._rows.fields) - MAX_FIELDS)
        self._rows.grow(map(_field, new))
        if failures:
            self._look_at_ns = None  # an unlistable folder is an error of every sample
        return failures

    def _tell_apart(self, guids: Mapping[str, str]) -> None:
        """Chooses suffixes for devices with one GUID; a device keeps its own as long as it is there."""
        sharers = Counter(guid for guid in guids.values() if guid.strip("0"))
        self._suffixes = {
            (device, guid): self._suffixes.get((device, guid), f"@{device}" if sharers[guid] > 1 else "")
            for device, guid in guids.items()
        }


def _field(name: str) -> Field:
    kind = FieldKind.GAUGE if name.startswith(_GAUGES) else FieldKind.COUNTER
    return Field(name, kind, "words" if name in _WORDS else "1")


def _component(device: str, port: str, guid: str, link_layer: str) -> Component:
    """Component of a port: by its device's GUID, stable across reboots and drivers, or by name."""
    known = guid if guid.strip("0") else device
    labels = (("device", device), ("port", port), *([("link_layer", link_layer)] if link_layer else []))
    return Component(f"{known}/{port}"[:MAX_NAME_CHARS], f"{device}/{port}"[:MAX_NAME_CHARS], labels)


def _listed(folder: Path, failures: list[CollectError]) -> list[str]:
    """Valid names in a folder, `2` before `10`; none where it is missing."""
    try:
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name.partition(",")[0])]  # noqa: PTH208
    except OSError as exc:
        if exc.errno not in ABSENT:
            failures.append(unreadable(folder, exc))
        return []
    return sorted(names, key=lambda name: (len(name), name))
