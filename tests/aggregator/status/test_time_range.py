"""Ranges of time in links: what they may say, and what is said of those that cannot be."""

import math

import pytest

from laggard_aggregator.status import urls
from laggard_aggregator.status.urls import TimeRange

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
HOUR = 3600


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("", "", (NOW - 12 * HOUR, NOW)),
        ("-1h", "", (NOW - HOUR, NOW)),
        ("-90m", "-30m", (NOW - 5400, NOW - 1800)),
        ("-1w", "", (NOW - 7 * 24 * HOUR, NOW)),
        ("1799990000", "1799993600.5", (1_799_990_000, 1_799_993_600.5)),
        ("2027-01-15", "2027-01-15T06:00Z", (NOW - 8 * HOUR, NOW - 2 * HOUR)),
        ("20270115", "2027-01-15 07:00", (NOW - 8 * HOUR, NOW - HOUR)),
        ("2027-01-15T08:00:00+02:00", " 2027-01-15T07:00:30 ", (NOW - 2 * HOUR, NOW - HOUR + 30)),
        ("", "2027-01-15T07:00", (NOW - 13 * HOUR, NOW - HOUR)),
        ("-1h", "2999-01-01", (NOW - HOUR, NOW)),
    ],
)
def test_a_range(start: str, end: str, expected: tuple[float, float]) -> None:
    found = TimeRange.parse(start, end, NOW)
    assert (found.start, found.end) == expected


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("-1h", "-2h", "ends before it begins"),
        ("-1h", "-1h", "ends before it begins"),
        ("2027-01-15T08:00:01", "", "in the future"),
        ("-401d", "", "longer than 400 days"),
        ("0", "", "is written as"),
        ("-1", "", "is written as"),
        ("now", "", "is written as"),
        ("12", "x" * 10_000, "is written as"),
        ("1e400", "", "is written as"),
        ("inf", "", "is written as"),
        ("٣", "", "is written as"),
        ("-٣h", "", "is written as"),
        ("0001-01-01T00:00+23:00", "", "is written as"),
        ("9" * 39, "", "is written as"),
    ],
)
def test_what_is_no_range(start: str, end: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TimeRange.parse(start, end, NOW)


def test_a_link_to_an_alarm_is_centred_on_its_start() -> None:
    link = urls.component("luns", "oss-1/wwn:2", "await", NOW)
    assert link == ("/component/luns/oss-1/wwn%3A2?metric=await&from=2027-01-15T02:00Z&to=2027-01-15T14:00Z")
    query = urls.around(NOW)
    found = TimeRange.parse(query["from"], query["to"], NOW + 24 * HOUR)
    assert (found.start + found.end) / 2 == NOW
    assert urls.component("luns", "a", at=math.nan) == "/component/luns/a"
    assert urls.component("luns", "a", at=-1e300).endswith("&to=1970-01-01T00:00Z")
