"""Reading of one file: times in its zone, and lines about samples that were left out."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from laggard_aggregator.offline.zone import LocalClock
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import InputError

_UTC_NAMES = ("UTC", "GMT", "Z")
_NUMBER = re.compile(r"((?i:-?(?:\d+(?:[.,]\d*)?(?:e[+-]?\d+)?|nan|inf)))([kMGTPB%]?)")
_HUMAN = {"": 1.0, "%": 1.0, "B": 1 / 1024, **{unit: 1024.0**power for power, unit in enumerate("kMGTP")}}
"""Units of `-h`, in kB where a column is in kB."""
_SLASHED = re.compile(r"(?<![0-9/])([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})(?![0-9/])")
_MONTH_FIRST, _DAY_FIRST = (0, 1), (1, 0)
_PLAIN = ("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y-%m-%d")


class Report:
    """`zone`: of times that name none; None refuses them."""

    def __init__(self, path: Path, zone: ZoneInfo | None) -> None:
        self.path = path
        self._zone = zone
        self._clock = LocalClock(zone or ZoneInfo("UTC"))
        self._left_out: dict[str, list[str]] = defaultdict(list)
        self._remarks: list[str] = []
        self._last: float | None = None
        self._day_first = False
        self._ambiguous = False

    def settle_dates(self, text: str) -> None:
        """Settles whether 04/05/2026 is of May, by all dates of the file.

        An order that makes a date impossible is not the file's; of two possible ones it is that which puts
        the days closer together, else month/day.
        """
        dates = set(_SLASHED.findall(text))
        month_first, day_first = (_days(dates, order) for order in (_MONTH_FIRST, _DAY_FIRST))
        self._day_first = day_first is not None and (
            month_first is None or _span(day_first) < _span(month_first)
        )
        self._ambiguous = (
            day_first is not None
            and month_first is not None
            and _span(day_first) == _span(month_first)
            and day_first != month_first
        )

    def date(self, text: str) -> datetime:
        """The day of a banner or a stamp. Raises InputError."""
        if match := _SLASHED.fullmatch(text):
            days = _days({match.groups()}, _DAY_FIRST if self._day_first else _MONTH_FIRST)
            if days:
                if self._ambiguous:
                    self.remark(
                        f"{text} is read as month/day/year: S_TIME_FORMAT=ISO prints dates that are plain"
                    )
                return days[0]
        for form in _PLAIN:
            try:
                return datetime.strptime(text, form)
            except ValueError:
                continue
        raise InputError(str(self.path), f"expected a date such as 2026-05-01, got {text[:40]!r}")

    def epoch(self, time: datetime, zone: str) -> float:
        """Epoch seconds of a time without an offset; `zone`: its name, or its description.

        Raises InputError for a local time while the zone is not known.
        """
        if zone in _UTC_NAMES:
            return time.replace(tzinfo=UTC).timestamp()
        if self._zone is None:
            raise InputError(
                str(self.path),
                f"{time:%Y-%m-%d %H:%M:%S} is no UTC ({zone}): give the zone, as in --timezone Europe/Berlin",
            )
        return self._clock.epoch(time)

    def new_section(self) -> None:
        """Begins another host, or another run of a program."""
        self._last = None

    def seconds_since_last(self, end: float) -> float:
        """Seconds since the report before, 0 for the first, which is of the time since the host's start."""
        last, self._last = self._last, end
        if last is None:
            self.remark("the first report of iostat is of the time since the boot: left out")
            return 0.0
        return max(end - last, 0.0)

    def leave_out(self, why: str, where: str) -> None:
        """Notes a sample that is not judged."""
        self._left_out[re.sub(r"-?[0-9][0-9.e+]*", "N", why)].append(f"{why}, {where}" if where else why)

    def remark(self, text: str) -> None:
        """Adds a line about the file, once."""
        if text not in self._remarks:
            self._remarks.append(text)

    def remarks(self) -> Iterator[str]:
        """All lines about the file, those about samples last."""
        for text in self._remarks:
            yield f"{self.path}: {text}"
        yield from self.left_out()

    def left_out(self) -> Iterator[str]:
        """A line about each kind of sample that is not judged."""
        for some in self._left_out.values():
            yield f"{self.path}: {counted(len(some), 'sample')} not judged, the first: {some[0]}"


def parse_time(text: str, report: Report) -> float:
    """Epoch seconds of a time of iostat: ISO 8601, or a date of the locale and a time. Raises InputError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        date, _, clock = text.partition(" ")
        moment = datetime.combine(report.date(date), parse_clock(clock, report).time())
    if moment.tzinfo is not None:
        return moment.timestamp()
    return report.epoch(moment, "a local time")


def _days(dates: Iterable[Sequence[str]], order: tuple[int, int]) -> list[datetime] | None:
    """The days in order; None when one is not in the calendar. `order`: places of the month and the day."""
    month, day = order
    try:
        return sorted(
            datetime(int(date[2]) + (2000 if len(date[2]) == 2 else 0), int(date[month]), int(date[day]))
            for date in dates
        )
    except ValueError:
        return None


def _span(days: Sequence[datetime]) -> timedelta:
    return days[-1] - days[0] if days else timedelta(0)


def parse_clock(text: str, report: Report) -> datetime:
    """The time of day of a line. Raises InputError."""
    for form in ("%H:%M:%S", "%I:%M:%S %p"):
        try:
            return datetime.strptime(text.strip(), form)
        except ValueError:
            continue
    raise InputError(str(report.path), f"expected a time such as 23:59:00, got {text[:40]!r}")


def sadf_time(stamp: Mapping[str, Any], report: Report) -> tuple[float, float]:
    """End and length of the interval of a stamp of sadf: UTC unless it says otherwise. Raises InputError."""
    try:
        local = datetime.fromisoformat(f"{stamp['date']}T{stamp['time']}")
        seconds = float(stamp["interval"])
    except (KeyError, ValueError, TypeError) as exc:
        raise InputError(str(report.path), f"not a time of sadf: {str(dict(stamp))[:120]}") from exc
    zone = str(stamp.get("tz", "UTC" if stamp.get("utc", 1) else "local times, of sadf -T"))
    return report.epoch(local, zone), seconds


def numbers(row: Mapping[str, str], where: str, report: Report) -> dict[str, float] | None:
    """The values that are known; None, and a line, when one is not a number."""
    columns = {name: number_in(text) for name, text in row.items()}
    bad = next((name for name, value in columns.items() if value is None), None)
    if bad is not None:
        report.leave_out(f"{bad} is {row[bad][:20]!r}", where)
        return None
    return {name: value for name, value in columns.items() if value is not None and not math.isnan(value)}


def number_in(text: str) -> float | None:
    """A number, with a decimal comma in some locales and a unit with `-h`; None for other text."""
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else float(match[1].replace(",", ".")) * _HUMAN[match[2]]
