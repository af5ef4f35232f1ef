"""Reading of one file: times in its zone, and lines about samples that were left out."""

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from laggard_aggregator.offline.zone import LocalClock
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import InputError

_UTC_NAMES = ("UTC", "GMT", "Z")
_TIMES = ("%m/%d/%y", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y-%m-%d")
_DAY_FIRST = ("%d/%m/%y", "%d/%m/%Y")


class Report:
    """`zone`: of times that name none; None refuses them."""

    def __init__(self, path: Path, zone: ZoneInfo | None) -> None:
        self.path = path
        self._zone = zone
        self._clock = LocalClock(zone or ZoneInfo("UTC"))
        self._left_out: dict[str, list[str]] = defaultdict(list)
        self._remarks: list[str] = []
        self._last: float | None = None

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
        """All lines about the file."""
        for text in self._remarks:
            yield f"{self.path}: {text}"
        for some in self._left_out.values():
            yield f"{self.path}: {counted(len(some), 'sample')} not judged, the first: {some[0]}"


def parse_time(text: str, report: Report) -> float:
    """Epoch seconds of a time of iostat: ISO 8601, or a date of the locale and a time. Raises InputError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        date, _, clock = text.partition(" ")
        moment = datetime.combine(parse_date(date, report), parse_clock(clock, report).time())
    if moment.tzinfo is not None:
        return moment.timestamp()
    return report.epoch(moment, "a local time")


def parse_date(text: str, report: Report) -> datetime:
    """The day of a banner. Raises InputError."""
    for form in _TIMES:
        try:
            day = datetime.strptime(text, form)
        except ValueError:
            continue
        first, _, rest = text.partition("/")
        if form in ("%m/%d/%y", "%m/%d/%Y") and int(first) <= 12 and int(rest.partition("/")[0]) <= 12:
            report.remark(f"{text} is read as month/day/year: S_TIME_FORMAT=ISO prints dates that are plain")
        return day
    for form in _DAY_FIRST:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise InputError(str(report.path), f"expected a date such as 2026-05-01, got {text[:40]!r}")


def parse_clock(text: str, report: Report) -> datetime:
    """The time of day of a line. Raises InputError."""
    for form in ("%H:%M:%S", "%I:%M:%S %p"):
        try:
            return datetime.strptime(text.strip(), form)
        except ValueError:
            continue
    raise InputError(str(report.path), f"expected a time such as 23:59:00, got {text[:40]!r}")
