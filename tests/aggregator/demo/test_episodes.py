from collections.abc import Sequence
from dataclasses import replace

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent
from laggard_aggregator.demo.episodes import Episode, episodes, shortcomings


def raised(component: str, since: float, at: float, group: str = "luns", worst: float = 5.0) -> AlarmEvent:
    alarm = Alarm(group, component, "await", "component", since, at, at, 2.0, 4.0, worst, 12.0, 2.0)
    return AlarmEvent("raised", alarm, at)


def cleared(event: AlarmEvent, at: float, worst: float = 5.0) -> AlarmEvent:
    return AlarmEvent("cleared", replace(event.alarm, worst_severity=worst), at)


def found(*events: AlarmEvent, standing: Sequence[Alarm] = ()) -> list[Episode]:
    """Recorded second 0 is epoch second 1000, ten recorded seconds a second."""
    known = {alarm.key: alarm for alarm in standing}
    return episodes(events, known, "luns", lambda time: (time - 1000) * 10)


def errors(*events: AlarmEvent) -> list[str]:
    return shortcomings(found(*events), "oss-08/loop27", 179.0)


RIGHT = raised("oss-08/loop27", 1018.0, 1027.0)


def test_an_episode_from_raising_to_clearing() -> None:
    other = raised("x", 1, 2, group="this-machine")
    assert found(RIGHT, other) == [
        Episode(
            "oss-08/loop27",
            270.0,
            "has been 6.0 times slower than its peers since second 180, 4.0 times on average",
        )
    ]
    steady = replace(RIGHT.alarm, severity=6.2)
    now = Episode("oss-08/loop27", 270.0, "has been 6.0 times slower than its peers since second 180")
    assert found(RIGHT, other, standing=[steady]) == [now]
    events = (RIGHT, other, cleared(RIGHT, 1054.0, worst=21.0))
    told = "was slower than its peers from second 180 on, up to 21 times on average"
    assert found(*events) == [Episode("oss-08/loop27", 270.0, told, 540.0)]
    assert errors(*events) == []


def test_nothing_found() -> None:
    assert errors() == ["oss-08/loop27 was slow and not found"]


def test_another_one_too() -> None:
    other = raised("oss-01/loop20", 1019, 1028)
    assert errors(RIGHT, other, cleared(RIGHT, 1055), cleared(other, 1055)) == ["not slow: oss-01/loop20"]


def test_too_early() -> None:
    early = raised("oss-08/loop27", 1000, 1010)
    assert errors(early, cleared(early, 1055)) == ["oss-08/loop27 was blamed before it became slow"]


def test_an_alarm_that_never_clears() -> None:
    assert errors(RIGHT) == ["the alarm on oss-08/loop27 did not clear after the fault"]


def test_an_alarm_that_comes_twice_is_two_episodes() -> None:
    first, second = raised("a", 1018, 1027), raised("a", 1040, 1044)
    twice = found(first, cleared(first, 1035), second, cleared(second, 1055))
    assert [(e.raised, e.cleared) for e in twice] == [(270.0, 350.0), (440.0, 550.0)]
    twice = found(first, cleared(first, 1035), second, standing=[second.alarm])
    assert [(e.raised, e.cleared) for e in twice] == [(270.0, 350.0), (440.0, None)]
