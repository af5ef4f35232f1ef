from dataclasses import replace

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.demo.watch import Episode, Expected, Watch

EXPECTED = Expected("oss-08/loop27", 179.0, 479.0)


def alarm(component: str, since: float, raised: float, group: str = "luns", worst: float = 5.0) -> Alarm:
    return Alarm(group, component, "await", "component", since, raised, raised, 2.0, 4.0, worst, 8.0, 2.0)


def standing(*alarms: Alarm):  # type: ignore[no-untyped-def]
    return {each.key: each for each in alarms}


def watch() -> Watch:
    """Recorded second 0 is epoch second 1000, ten recorded seconds a second."""
    return Watch("luns", lambda time: (time - 1000) * 10)


def test_an_episode_from_raising_to_clearing() -> None:
    seen = watch()
    right = alarm("oss-08/loop27", 1018.0, 1027.0)
    assert seen.update(standing(right), 1027.5) == [Episode("oss-08/loop27", 180.0, 270.0, 5.0)]
    worse = replace(right, worst_severity=21.0)
    assert seen.update(standing(worse, alarm("x", 1, 2, group="luns-cdf")), 1030) == []
    assert seen.update({}, 1054.0) == [Episode("oss-08/loop27", 180.0, 270.0, 21.0, 540.0)]
    assert seen.blamed == ("oss-08/loop27",)
    assert seen.shortcomings(EXPECTED) == []


def test_nothing_found() -> None:
    assert watch().shortcomings(EXPECTED) == ["oss-08/loop27 was slow and not found"]


def test_another_one_too() -> None:
    seen = watch()
    seen.update(standing(alarm("oss-08/loop27", 1018, 1027), alarm("oss-01/loop20", 1019, 1028)), 1029)
    seen.update({}, 1055)
    assert seen.shortcomings(EXPECTED) == ["not slow: oss-01/loop20"]


def test_too_early() -> None:
    seen = watch()
    seen.update(standing(alarm("oss-08/loop27", 1000, 1010)), 1010)
    seen.update({}, 1055)
    assert seen.shortcomings(EXPECTED) == ["oss-08/loop27 was blamed before it became slow"]


def test_an_alarm_that_never_clears() -> None:
    seen = watch()
    seen.update(standing(alarm("oss-08/loop27", 1018, 1027)), 1029)
    assert seen.shortcomings(EXPECTED) == ["the alarm on oss-08/loop27 did not clear after the fault"]


def test_an_alarm_that_comes_twice_is_two_episodes() -> None:
    seen = watch()
    first, second = alarm("a", 1018, 1027), alarm("a", 1040, 1044)
    for alarms, now in ((standing(first), 1028), ({}, 1035), (standing(second), 1045), ({}, 1055)):
        seen.update(alarms, now)
    assert [(e.raised, e.cleared) for e in seen.episodes] == [(270.0, 350.0), (440.0, 550.0)]
    assert seen.blamed == ("a",)
