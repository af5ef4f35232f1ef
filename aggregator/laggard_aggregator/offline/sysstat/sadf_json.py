"""JSON of `sadf -j` and of `iostat -o JSON`, which share their root and little else.

Both have been printed with `nan`, superfluous commas, without some columns, and cut short. Such text is
mended where that has one meaning, and read as far as it goes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from laggard_aggregator.offline.sysstat.disk_sample import DiskSample
from laggard_aggregator.offline.sysstat.report import Report, parse_time, sadf_time
from laggard_common.errors import InputError

_DECIMAL_COMMA = re.compile(rb'(":\s*-?\d+),(\d+)(?=\s*[,}\]\n])')
_NOT_A_NUMBER = re.compile(rb'(":\s*)-?(?:nan|inf)\b', re.I)
_SUPERFLUOUS = re.compile(rb",(?=\s*[}\]])")
_MISSING = re.compile(rb"}(\s*){")
_HOST = re.compile(r'"nodename"\s*:\s*"([^"]*)"')
_STATISTICS = re.compile(r'"statistics"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_DEVICE_KEYS = ("disk-device", "disk_device")


def is_json(head: bytes) -> bool:
    """True for the begin of JSON that a program of sysstat printed."""
    return head.lstrip()[:1] == b"{" and b'"sysstat"' in head


def read_json(text: bytes, report: Report) -> Iterator[DiskSample]:
    """The samples, in order. Raises InputError for other JSON, and for local times without a zone."""
    hosts = _hosts(text, report)
    report.settle_dates(" ".join(_stamps(hosts)))
    for host in hosts:
        report.new_section()
        name = str(host.get("nodename", report.path.stem))
        statistics = host.get("statistics")
        for statistic in statistics if isinstance(statistics, list) else ():
            if isinstance(statistic, dict):
                yield from _samples(name, statistic, report)


def _stamps(hosts: list[Mapping[str, Any]]) -> Iterator[str]:
    for host in hosts:
        statistics = host.get("statistics")
        for statistic in statistics if isinstance(statistics, list) else ():
            if isinstance(statistic, dict) and isinstance(stamp := statistic.get("timestamp"), str):
                yield stamp


def _samples(host: str, statistic: Mapping[str, Any], report: Report) -> Iterator[DiskSample]:
    disks = statistic.get("disk")
    if not isinstance(disks, list) or not disks:
        return
    stamp = statistic.get("timestamp")
    if isinstance(stamp, dict):
        end, seconds = sadf_time(stamp, report)
    elif isinstance(stamp, str):
        end = parse_time(stamp, report)
        seconds = report.seconds_since_last(end)
        if not seconds:
            return
    else:
        problem = "iostat's JSON without times: iostat -dxt -o JSON, or sadf -j FILE -- -d, has them"
        raise InputError(str(report.path), problem)
    for disk in disks:
        device = (
            next((disk[key] for key in _DEVICE_KEYS if key in disk), "") if isinstance(disk, dict) else ""
        )
        if not isinstance(device, str) or not device:
            report.leave_out("a disk without a name", str(stamp))
            continue
        columns = {
            key: float(value)
            for key, value in disk.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        yield DiskSample(host, device, end, seconds, columns, str(stamp))


def _hosts(text: bytes, report: Report) -> list[Mapping[str, Any]]:
    try:
        return _checked(text, report)
    except ValueError:
        pass
    if comma := _DECIMAL_COMMA.search(text):
        number = comma[0].decode().partition(":")[2].strip()
        problem = f"has decimal commas ({number}): print it with LC_ALL=C sadf -j FILE -- -d"
        raise InputError(str(report.path), problem)
    mended = _SUPERFLUOUS.sub(b"", _MISSING.sub(rb"},\1{", _NOT_A_NUMBER.sub(rb"\1null", text)))
    try:
        return _checked(mended, report)
    except ValueError as exc:
        hosts = _hosts_of_cut_text(mended.decode(errors="replace"))
        if not hosts:
            raise InputError(str(report.path), f"not the JSON of sadf, or cut short: {exc}") from exc
        report.remark(f"ends early, or is damaged ({exc}): read as far as it goes")
        return hosts


def _checked(text: bytes, report: Report) -> list[Mapping[str, Any]]:
    """The hosts of all documents. Raises ValueError for text that is no JSON, InputError for other JSON."""
    every: list[Mapping[str, Any]] = []
    for document in _documents(text):
        root = document.get("sysstat") if isinstance(document, dict) else None
        hosts = root.get("hosts") if isinstance(root, dict) else None
        if not isinstance(hosts, list):
            raise InputError(str(report.path), 'not the JSON of sadf or iostat: no list "hosts" in "sysstat"')
        every += [host for host in hosts if isinstance(host, dict)]
    return every


def _documents(text: bytes) -> Iterator[Any]:
    """The documents of a file, one or, as `cat` puts them together, several. Raises ValueError."""
    decoder, shown = json.JSONDecoder(), text.decode(json.detect_encoding(text))
    place = _end_of(_BETWEEN, shown, 0)
    while True:
        document, place = decoder.raw_decode(shown, place)
        yield document
        place = _end_of(_BETWEEN, shown, place)
        if place == len(shown):
            return


def _hosts_of_cut_text(text: str) -> list[Mapping[str, Any]]:
    """Each host with the statistics that are whole."""
    decoder = json.JSONDecoder()
    names = list(_HOST.finditer(text))
    hosts: list[Mapping[str, Any]] = []
    for at, name in enumerate(names):
        part = text[name.start() : names[at + 1].start() if at + 1 < len(names) else len(text)]
        begin = _STATISTICS.search(part)
        if begin is None:
            continue
        statistics, place = [], begin.end()
        while (place := _end_of(_BETWEEN, part, place)) < len(part):
            try:
                statistic, place = decoder.raw_decode(part, place)
            except ValueError:
                break
            statistics.append(statistic)
        hosts.append({"nodename": name[1], "statistics": statistics})
    return hosts if any(host["statistics"] for host in hosts) else []


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place
