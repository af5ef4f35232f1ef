"""Disk statistics in the forms of sysstat's programs; shares nothing with the readers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

START = 1_777_593_600
"""2026-05-01 00:00:00 UTC."""


@dataclass(frozen=True)
class Line:
    """A disk in one interval: all numbers have two decimals; sizes are kB a second."""

    end: int
    device: str
    reads: float
    writes: float
    read_kb: float
    written_kb: float
    await_ms: float

    @property
    def tps(self) -> float:
        return round(self.reads + self.writes, 2)


def steady(devices: Sequence[str], count: int, await_ms: dict[str, float], interval: int = 60) -> list[Line]:
    """`count` intervals of equal load; the await is 5 ms unless told."""
    return [
        Line(START + interval * at, device, 10.0, 10.0, 320.0, 320.0, await_ms.get(device, 5.0) + at % 7 / 10)
        for at in range(1, count + 1)
        for device in devices
    ]


def _columns(line: Line) -> dict[str, float]:
    size = (line.read_kb + line.written_kb) / line.tps if line.tps else 0.0
    return {
        "tps": line.tps,
        "rkB/s": line.read_kb,
        "wkB/s": line.written_kb,
        "areq-sz": size,
        "aqu-sz": 0.1,
        "await": line.await_ms,
        "%util": 10.0,
    }


def _iostat_columns(line: Line) -> dict[str, float]:
    return {
        "r/s": line.reads,
        "w/s": line.writes,
        "rkB/s": line.read_kb,
        "wkB/s": line.written_kb,
        "r_await": line.await_ms,
        "w_await": line.await_ms,
        "aqu-sz": 0.1,
        "%util": 10.0,
    }


def _time(end: int) -> datetime:
    return datetime.fromtimestamp(end, UTC)


def _by_time(lines: Sequence[Line]) -> list[tuple[int, list[Line]]]:
    return [(end, list(some)) for end, some in groupby(lines, key=lambda line: line.end)]


def sadf_json(lines: Sequence[Line], interval: int = 60, **stamp: Any) -> str:
    """`sadf -j FILE -- -d`; `stamp`: in place of `"utc": 1`."""
    statistics = []
    for end, some in _by_time(lines):
        disks = []
        for line in some:
            names = {"rkB/s": "rkB", "wkB/s": "wkB", "%util": "util-percent"}
            own = {names.get(name, name): round(value, 2) for name, value in _columns(line).items()}
            disks.append({"disk-device": line.device, **own})
        time: dict[str, Any] = {"date": f"{_time(end):%Y-%m-%d}", "time": f"{_time(end):%H:%M:%S}"}
        time |= stamp or {"utc": 1}
        time["interval"] = interval
        statistics.append({"timestamp": time, "disk": disks})
    return json.dumps({"sysstat": {"hosts": [{"nodename": "oss1", "statistics": statistics}]}}, indent=1)


def iostat_json(lines: Sequence[Line], interval: int = 60) -> str:
    """`iostat -dxt -o JSON` with ISO times; the first report is of the time since the boot."""
    statistics = []
    for end, some in [(lines[0].end - interval, _by_time(lines)[0][1]), *_by_time(lines)]:
        disks = [
            {"disk_device": line.device, **{k.replace("%", ""): v for k, v in _iostat_columns(line).items()}}
            for line in some
        ]
        statistics.append({"timestamp": f"{_time(end):%Y-%m-%dT%H:%M:%S}+0000", "disk": disks})
    host = {"nodename": "oss1", "date": "2026-05-01", "statistics": statistics}
    return json.dumps({"sysstat": {"hosts": [host]}})


def sadf_x(lines: Sequence[Line], interval: int = 60) -> str:
    """`sadf -x FILE -- -d`."""
    names = {"rkB/s": "rkB", "wkB/s": "wkB", "%util": "util-percent"}
    out = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<!DOCTYPE sysstat PUBLIC "DTD v3.11 sysstat //EN"',
        '"http://pagesperso-orange.fr/sebastien.godard/sysstat-3.11.dtd">',
        '<sysstat xmlns="http://pagesperso-orange.fr/sebastien.godard/sysstat">',
        '<host nodename="oss1"><timezone>UTC</timezone><statistics>',
    ]
    for end, some in _by_time(lines):
        out.append(
            f'<timestamp date="{_time(end):%Y-%m-%d}" time="{_time(end):%H:%M:%S}" utc="1"'
            f' interval="{interval}"><disk per="second">'
        )
        for line in some:
            own = " ".join(f'{names.get(k, k)}="{value:.2f}"' for k, value in _columns(line).items())
            out.append(f'<disk-device dev="{line.device}" {own}/>')
        out.append("</disk></timestamp>")
    return "\n".join([*out, "</statistics></host>", "</sysstat>", ""])


def sadf_d(lines: Sequence[Line], interval: int = 60, zone: str = " UTC") -> str:
    """`sadf -d FILE -- -d`."""
    names = list(_columns(lines[0]))
    out = ["# hostname;interval;timestamp;DEV;" + ";".join(names)]
    for line in lines:
        values = ";".join(f"{value:.2f}" for value in _columns(line).values())
        out.append(f"oss1;{interval};{_time(line.end):%Y-%m-%d %H:%M:%S}{zone};{line.device};{values}")
    return "\n".join(out) + "\n"


def sadf_dh(lines: Sequence[Line], interval: int = 60) -> str:
    """`sadf -dh`: the disks of a time beside each other."""
    out = ["# hostname;interval;timestamp;DEV;" + ";".join(_columns(lines[0])) + "[...]"]
    for end, some in _by_time(lines):
        cells = [f"{line.device};" + ";".join(f"{v:.2f}" for v in _columns(line).values()) for line in some]
        out.append(f"oss1;{interval};{_time(end):%Y-%m-%d %H:%M:%S} UTC;" + ";".join(cells))
    return "\n".join(out) + "\n"


def sar_d(
    lines: Sequence[Line],
    interval: int = 60,
    *,
    clock: str = "%H:%M:%S",
    date: str = "%Y-%m-%d",
    last: bool = False,
    number: Callable[[float], str] = "{:.2f}".format,
) -> str:
    """`sar -d`, with the device in the `last` column with `-p`; local times."""
    names = list(_columns(lines[0]))
    begin = lines[0].end - interval
    head = " ".join([*names, "DEV"] if last else ["DEV", *names])
    out = [f"Linux 6.1.0 (oss1) \t{_time(begin):{date}} \t_x86_64_\t(8 CPU)", ""]
    out.append(f"{_time(begin):{clock}}      {head}")
    for end, some in _by_time(lines):
        for line in some:
            values = [number(value) for value in _columns(line).values()]
            cells = [*values, line.device] if last else [line.device, *values]
            out.append(f"{_time(end):{clock}}      {'   '.join(cells)}")
    out += [f"Average:      {line.device} " + " 0.00" * len(names) for line in _by_time(lines)[-1][1]]
    return "\n".join(out) + "\n"


def iostat_x(lines: Sequence[Line], interval: int = 60, *, time: str = "%Y-%m-%dT%H:%M:%S+0000") -> str:
    """`iostat -xt`: a report a time, the first of the time since the boot."""
    names = list(_iostat_columns(lines[0]))
    out = [f"Linux 6.1.0 (oss1) \t{_time(lines[0].end):%Y-%m-%d} \t_x86_64_\t(8 CPU)", ""]
    for end, some in [(lines[0].end - interval, _by_time(lines)[0][1]), *_by_time(lines)]:
        out += [f"{_time(end):{time}}", "avg-cpu:  %user   %nice", "          32.18   36.91", ""]
        out.append("Device            " + "     ".join(names))
        for line in some:
            values = "    ".join(f"{value:.2f}" for value in _iostat_columns(line).values())
            out.append(f"{line.device}     {values}")
        out += ["", ""]
    return "\n".join(out) + "\n"
