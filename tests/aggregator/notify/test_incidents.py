from dataclasses import replace

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.notify.incidents import Case, due, over
from tests.support.builders.live_status import NAN, alarm

OPTIONS = {"after_seconds": 60.0, "least_severity": 1.0, "muted": lambda _: False}


def cases(*alarms: Alarm, told: tuple[str, ...] = (), **options: object) -> list[Case]:
    standing = {each.key: each for each in alarms}
    return due(standing, told, str.upper, **{**OPTIONS, **options})  # type: ignore[arg-type]


def test_a_component_is_one_case_however_many_metrics_and_groups_say_so() -> None:
    one = alarm("luns", "oss-1/a", 2.0)
    worse = replace(one, metric="r_await", severity=3.0, since=one.since - 50)
    (case,) = cases(one, worse, replace(one, group="all"))
    assert (case.component, case.name, case.metric) == ("oss-1/a", "OSS-1/A", "r_await")
    assert (case.severity, case.since) == (3.0, one.since - 50)


def test_the_worst_comes_first_and_what_has_no_severity_last() -> None:
    unknown = replace(alarm("luns", "c"), severity=NAN)
    found = cases(alarm("luns", "b", 2.0), unknown, alarm("luns", "a", 5.0))
    assert [case.component for case in found] == ["a", "b", "c"]


def test_only_what_lasted_long_enough_as_of_its_latest_window() -> None:
    one = alarm("luns", "a")  # from 300 s to 40 s before now
    assert cases(one, after_seconds=260.0)
    assert not cases(one, after_seconds=260.1)
    assert not cases(replace(one, updated_at=one.since + 59.0))


def test_mild_ones_are_shown_and_not_mailed() -> None:
    one = alarm("luns", "a", 1.5)  # at worst 3.5
    assert cases(one, least_severity=3.5)
    assert not cases(one, least_severity=3.6)
    assert cases(replace(one, worst_severity=NAN), least_severity=3.6)


def test_who_was_told_of_or_is_muted_is_left_out() -> None:
    one = alarm("luns", "a")
    assert not cases(one, told=("a",))
    assert not cases(one, muted=lambda each: each.component == "a")


def test_a_case_is_over_when_none_of_its_alarms_stands() -> None:
    one, other = alarm("luns", "a"), replace(alarm("luns", "a"), metric="r_await")
    (case,) = cases(one)
    assert over([case], {other.key: other}) == []
    assert over([case], {}) == [case]


def test_its_id_is_its_own_and_the_same_everywhere() -> None:
    (case,) = cases(alarm("luns", "a"))
    assert case.id("site") == replace(case, severity=9.0, name="other", metric="x").id("site")
    later, other = replace(case, since=case.since + 1), replace(case, component="b")
    assert len({case.id("site"), case.id("other"), later.id("site"), other.id("site")}) == 4
