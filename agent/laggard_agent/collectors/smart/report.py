"""Documents of `smartctl --json=c --all`, one a line: SMART of ATA disks, logs of SCSI and NVMe ones.

Names are those of smartmontools' ataprint.cpp, scsiprint.cpp and nvmeprint.cpp.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from laggard_agent.collectors.interface import printable
from laggard_common.trace_formats.kernel_text import MOST
from laggard_common.wire.limits import MAX_NAME_CHARS

COUNTERS = ("media_errors", "log_entries", "grown_defects", "uncorrected", "reallocated", "link_errors")
STATES = ("failing", "critical_warning", "pending")
_ATTRIBUTES = {5: "reallocated", 197: "pending", 199: "link_errors"}
"""Attributes of ATA disks: sectors replaced, sectors to be replaced, CRC errors of the link."""
_NVME = {
    "media_errors": "media_errors",
    "num_err_log_entries": "log_entries",
    "critical_warning": "critical_warning",
}


@dataclass(slots=True)
class SmartReport:
    """Values by disk, those that it has, and its model and serial number, empty when unknown.

    `odd`: lines that are not smartctl's document on a disk.
    """

    disks: dict[str, dict[str, int]] = field(default_factory=dict)
    serials: dict[str, tuple[str, str]] = field(default_factory=dict)
    odd: int = 0


def parse_report(data: bytes) -> SmartReport:
    """The values of a report. A line without an end was cut off, and is left out."""
    report = SmartReport()
    for line in data.rpartition(b"\n")[0].splitlines():
        try:
            document = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            report.odd += bool(line.strip())
            continue
        name = _disk_name(document) if isinstance(document, dict) else ""
        if name:
            report.disks[name] = dict(_values(document))
            report.serials[name] = _text(document, "model_name"), _text(document, "serial_number")
        else:
            report.odd += 1
    return report


def _disk_name(document: Mapping[str, Any]) -> str:
    """`sda`; of a disk behind a controller with its place, as `bus/0 megaraid,1`. Empty without one."""
    device = document.get("device")
    name = device.get("name") if isinstance(device, dict) else None
    kind = device.get("type") if isinstance(device, dict) else None
    if not isinstance(name, str) or not name:
        return ""
    place = f" {kind}" if isinstance(kind, str) and "," in kind else ""
    return printable(name.removeprefix("/dev/") + place)[:MAX_NAME_CHARS]


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    return printable(value.strip())[:MAX_NAME_CHARS] if isinstance(value, str) else ""


def _values(document: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    passed = _at(document, "smart_status", "passed")
    if isinstance(passed, bool):
        yield "failing", int(not passed)
    for key, name in _NVME.items():
        yield from _counted(name, _at(document, "nvme_smart_health_information_log", key))
    yield from _counted("grown_defects", document.get("scsi_grown_defect_list"))
    totals = [
        _at(document, "scsi_error_counter_log", way, "total_uncorrected_errors") for way in ("read", "write")
    ]
    if all(type(total) is int for total in totals):
        yield from _counted("uncorrected", sum(totals))
    table = _at(document, "ata_smart_attributes", "table")
    for attribute in table if isinstance(table, list) else ():
        number = attribute.get("id") if isinstance(attribute, dict) else None
        if type(number) is int and number in _ATTRIBUTES:
            yield from _counted(_ATTRIBUTES[number], _at(attribute, "raw", "value"))


def _at(document: Any, *keys: str) -> Any:
    """The value at a path of keys of a document; None without it."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _counted(name: str, value: object) -> Iterator[tuple[str, int]]:
    if type(value) is int and 0 <= value < MOST:
        yield name, value
