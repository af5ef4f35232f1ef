"""Alarms as episodes: one row from raised to cleared."""

import math
from dataclasses import replace

from laggard_aggregator.web.pages.alarm_log import Event, episodes
from tests.aggregator.web.test_alarm_log import raised
from tests.aggregator.web.test_pages import page, text_of, with_history
from tests.support.builders import live_status

NOW = live_status.NOW


def event(
    kind: str, at: float, *, component: str = "a", since: float = NOW - 9000, worst: float = 3.0
) -> Event:
    return Event(at, kind, "luns", component, "await", "component", since, 2.0, worst)


def test_raised_and_cleared_are_one_row() -> None:
    found = episodes([event("cleared", NOW - 600, worst=4.5), event("raised", NOW - 4200)], {})
    (only,) = found
    assert (only.raised_at, only.cleared_at, only.active) == (NOW - 4200, NOW - 600, False)
    assert only.of.worst_severity == 4.5
    assert only.lasted(NOW) == 8400.0


def test_each_alarm_of_a_component_is_a_row_and_the_latest_comes_first() -> None:
    alarm = live_status.alarm("luns", "a")
    events = [
        event("raised", alarm.raised_at),
        *(
            event("cleared", NOW - 4000),
            event("raised", NOW - 8000),
            event("raised", NOW - 6000, component="b"),
        ),
    ]
    found = episodes(events, {alarm.key: alarm})
    assert [(each.of.component, each.raised_at, each.active) for each in found] == [
        ("a", alarm.raised_at, True),
        ("b", NOW - 6000, False),
        ("a", NOW - 8000, False),
    ]
    assert found[0].lasted(NOW) == NOW - alarm.since
    assert math.isnan(found[1].lasted(NOW)), "neither active nor cleared"


def test_an_alarm_is_shown_without_a_record_of_its_beginning() -> None:
    alarm = live_status.alarm("luns", "a")
    (active,) = episodes([], {alarm.key: alarm})
    assert (active.raised_at, active.active) == (alarm.raised_at, True)
    (cleared,) = episodes([event("cleared", NOW - 60)], {})
    assert math.isnan(cleared.raised_at)
    assert cleared.lasted(NOW) == 8940.0
    again = episodes([event("raised", NOW - 900), event("raised", NOW - 300)], {})
    assert [each.raised_at for each in again] == [NOW - 300, NOW - 900], "the first ended without a record"


def test_the_pages_have_a_row_an_alarm_with_its_duration() -> None:
    view = with_history()
    first = raised("oss-1/wwn-9", NOW - 7500)
    cleared = replace(first.transitions[0], kind="cleared", at=NOW - 300)
    view.history.judged([first, replace(first, end=NOW - 300, transitions=(cleared,))])
    text = text_of(page("/alarms", view))
    assert "Component Group Metric Slow since Raised Cleared Lasted Worst average" in text
    assert "oss-1/wwn-9 luns await 2025-10-09 06:5" in text
    assert "2025-10-09 06:56:40 UTC 2025-10-09 08:56:40 UTC 2 h 5 min " in text
    assert text.count("oss-1/wwn-9") == 1
    standing = "2025-10-09 08:56:40 UTC 2025-10-09 08:59:40 UTC still raised 5 min so far 6.0×"
    assert f"oss-1/sdb luns await {standing}" in text
    text = text_of(page("/component/luns/oss-1/wwn-2", view))
    assert "Its alarms CSV JSON" in text
    assert f"luns await {standing}" in text
