"""Text that sysstat's programs print: `sadf -d`, `sar -d` and `iostat -x`, which people have at hand."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from laggard_aggregator.offline.sysstat.disk_sample import DiskSample
from laggard_aggregator.offline.sysstat.report import (
    Report,
    number_in,
    numbers,
    parse_clock,
    parse_time,
)
from laggard_common.errors import InputError

_SEMICOLONS = re.compile(r"#? ?hostname;interval;timestamp")
_RESTART = re.compile(r"[^;]*;-1;[^;]*;(?:LINUX-RESTART|COM )")
_PAIRS = re.compile(r"[^\t]+\t-?[0-9]+\t[^\t]+\t[^\t]+\t\S+\t\S+$")
_BANNER = re.compile(r"[A-Z]\w+ \S+ \(([^)\s]+)\)\s+(\S+)\s+_\S+_\s")
_CLOCK = re.compile(r"(\d\d:\d\d:\d\d(?: [AP]M)?)\s+(\S.*)")
_STAMP = re.compile(
    r"(?:Time: )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|(?:\d+[/.-]\d+[/.-]\d+ )?\d\d:\d\d:\d\d(?: [AP]M)?)"
)
_HALF_A_DAY = timedelta(hours=12)
_FIXED = 3
"""Host, interval and time, which begin each line of `sadf -d`."""


def is_text(head: bytes) -> bool:
    """True for the begin of text that a program of sysstat printed."""
    lines = [line for line in head.decode(errors="replace").splitlines() if line.strip()][:4]
    return bool(lines) and (
        _SEMICOLONS.match(lines[0]) is not None
        or _RESTART.match(lines[0]) is not None
        or _PAIRS.match(lines[0]) is not None
        or _BANNER.match(lines[0]) is not None
        or any(_is_sar_header(line) or _is_iostat_header(line.split()) for line in lines)
    )


def read_text(text: str, report: Report) -> Iterator[DiskSample]:
    """The samples, in order. Raises InputError for text without times or awaits, or with local times without
    a zone."""
    lines = text.splitlines()
    if lines and not text.endswith("\n"):  # its last name or number may have lost its end
        report.leave_out("a line that is cut short", f"line {len(lines)}")
        lines.pop()
    if lines and _PAIRS.match(lines[0]):
        raise InputError(str(report.path), "pairs of sadf -p: sadf -d, or sadf -j, prints what is read here")
    report.settle_dates(text)
    if any(_SEMICOLONS.match(line) or _RESTART.match(line) for line in lines[:1]):
        return _read_semicolons(lines, report)
    if any(_is_sar_header(line) for line in lines):
        return _read_sar(lines, report)
    return _read_iostat(lines, report)


# -- sadf -d


def _read_semicolons(lines: Iterable[str], report: Report) -> Iterator[DiskSample]:
    names: list[str] | None = None
    wide = False
    for number, line in enumerate(lines, 1):
        if _SEMICOLONS.match(line):
            wide = line.rstrip().endswith("[...]")
            header = line.strip().removesuffix("[...]").lstrip("# ").split(";")
            names = header if "DEV" in header and "tps" in header else None
            continue
        cells = line.strip().split(";")
        if names is None or len(cells) <= _FIXED or cells[_FIXED].startswith(("LINUX-RESTART", "COM ")):
            continue
        host, interval, stamp = cells[:_FIXED]
        size = len(names) - _FIXED
        groups = [cells[at : at + size] for at in range(_FIXED, len(cells), size)]
        for group in groups if wide else groups[:1]:
            row = dict(zip(names[_FIXED:], group, strict=False))
            seconds = number_in(interval)
            if len(group) < size or seconds is None or seconds <= 0:
                report.leave_out("a line that is cut short", f"line {number}")
                continue
            device = row.pop("DEV")
            end = _semicolon_time(stamp, report)
            yield from _sample(host, device, (end, seconds), row, report=report, number=number)


def _semicolon_time(stamp: str, report: Report) -> float:
    """A time as `2026-05-01 00:01:00 UTC`, without UTC a local one, or epoch seconds."""
    seconds = number_in(stamp)
    if seconds is not None:
        return seconds
    try:
        date, clock, *zone = stamp.split(" ")
        time = datetime.fromisoformat(f"{date}T{clock}")
    except ValueError as exc:
        raise InputError(str(report.path), f"expected a time of sadf -d, got {stamp[:40]!r}") from exc
    return report.epoch(time, zone[0] if zone else "a local time, of sadf -T")


# -- sar -d


class _Day:
    """Times of day, in order, from a day on."""

    def __init__(self, day: datetime, report: Report) -> None:
        self._last = day
        self._report = report
        self._known = ("", 0.0)

    def epoch(self, clock: str) -> float:
        """Epoch seconds of a time of day; one that is much earlier than the last is of the next day."""
        if clock != self._known[0]:
            time = datetime.combine(self._last, parse_clock(clock, self._report).time())
            if self._last - time > _HALF_A_DAY:
                time += timedelta(days=1)
            self._last = time
            self._known = clock, self._report.epoch(time, "a local time")
        return self._known[1]


def _read_sar(lines: Iterable[str], report: Report) -> Iterator[DiskSample]:
    host, day = "", None
    names: Sequence[str] = ()
    begin = end = 0.0
    for number, line in enumerate(lines, 1):
        if banner := _BANNER.match(line):
            host, day, names = banner[1], _Day(report.date(banner[2]), report), ()
        elif not line.strip():
            names = ()
        elif match := _CLOCK.match(line):
            words = match[2].split()
            if "DEV" in words and "tps" in words:
                names = words
            elif "DEV" in words or not names or words[0] == "LINUX":
                names = ()
                continue
            if day is None:
                problem = (
                    "no line such as 'Linux 6.1.0 (host) 2026-05-01' above the first time: print it whole"
                )
                raise InputError(str(report.path), problem)
            now = day.epoch(match[1])
            if words is names:
                begin = end = now
                continue
            if now != end:
                begin, end = end, now
            if len(words) != len(names):
                report.leave_out("a line that is cut short", f"line {number}")
                continue
            row = dict(zip(names, words, strict=True))
            yield from _sample(host, row.pop("DEV"), (end, end - begin), row, report=report, number=number)


def _is_sar_header(line: str) -> bool:
    match = _CLOCK.match(line)
    return match is not None and {"DEV", "tps"} <= set(match[2].split())


# -- iostat -x


def _read_iostat(lines: Iterable[str], report: Report) -> Iterator[DiskSample]:
    host, day = "", None
    names: Sequence[str] = ()
    at: tuple[float, float] | None = None
    rows: dict[str, dict[str, str]] = {}
    for number, line in enumerate([*lines, "Time: end"], 1):
        banner, stamp, words = _BANNER.match(line), _STAMP.fullmatch(line.strip()), line.split()
        if banner or stamp or line == "Time: end":
            for device, row in rows.items():
                if at is not None and at[1] > 0:
                    yield from _sample(host, device, at, row, report=report, number=number)
            names, rows = (), {}
        if banner:
            host, day = banner[1], _Day(report.date(banner[2]), report)
            at = None
            report.new_section()
        elif stamp:
            has_day = not re.match(r"\d\d:", stamp[1])
            end = parse_time(stamp[1], report) if has_day or day is None else day.epoch(stamp[1])
            at = end, report.seconds_since_last(end)
        elif _is_iostat_header(words):
            names = [word.removesuffix(":") for word in words]
            if at is None:
                problem = "iostat's text without times: iostat -dxt, or sar -d, has them"
                raise InputError(str(report.path), problem)
            if not any("await" in name for name in names):
                raise InputError(str(report.path), "iostat's text without await: iostat -dxt prints it")
        elif not words:
            names = ()
        elif names and not (line[0].isspace() and names[0] == "Device"):  # a sum over a group of devices
            if len(words) != len(names):
                report.leave_out("a line that is cut short", f"line {number}")
                continue
            row = dict(zip(names, words, strict=True))
            rows.setdefault(row.pop("Device"), {}).update(row)


def _is_iostat_header(words: Sequence[str]) -> bool:
    return len(words) > 1 and "Device" in (words[0].removesuffix(":"), words[-1])


# -- all


def _sample(
    host: str,
    device: str,
    at: tuple[float, float],
    row: Mapping[str, str],
    *,
    report: Report,
    number: int,
) -> Iterator[DiskSample]:
    """The sample of a row, unless a value is no number. `at`: end and length of its interval."""
    if (columns := numbers(row, f"line {number}", report)) is not None:
        yield DiskSample(host or report.path.stem, device, *at, columns, f"line {number}")
