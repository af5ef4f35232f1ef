from dataclasses import replace

import pytest

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.notify.incidents import Incident, Limits, cleared, due
from laggard_aggregator.status.window_history import WindowHistory
from tests.support.builders.live_status import NAN, MadeView, alarm, judgement


def incidents(
    *alarms: Alarm,
    told: tuple[str, ...] = (),
    site: str = "site",
    silenced: str = "",
    after_seconds: float = 60.0,
    least_severity: float = 1.0,
    learning: bool = False,
) -> list[Incident]:
    names = {each.component: each.component.upper() for each in alarms}
    view = MadeView(alarms_={each.key: each for each in alarms}, names=names)
    if silenced:
        view.decisions_ = (Decision("silence", silenced, "ops", 0.0),)
    return due(view, told, site, Limits(after_seconds, least_severity, learning=learning))


def test_a_component_is_one_case_however_many_metrics_and_groups_say_so() -> None:
    one = alarm("luns", "oss-1/a", 2.0)
    worse = replace(one, metric="r_await", severity=3.0, since=one.since - 50)
    (incident,) = incidents(one, worse, replace(one, group="all"))
    assert (incident.component, incident.name, incident.metric) == ("oss-1/a", "OSS-1/A", "r_await")
    assert (incident.severity, incident.since) == (3.0, one.since - 50)


def test_the_worst_comes_first_and_what_has_no_severity_last() -> None:
    unknown = replace(alarm("luns", "c"), severity=NAN)
    found = incidents(alarm("luns", "b", 2.0), unknown, alarm("luns", "a", 5.0))
    assert [incident.component for incident in found] == ["a", "b", "c"]


def test_only_what_lasted_long_enough_as_of_its_latest_window() -> None:
    one = alarm("luns", "a")  # from 300 s to 40 s before now
    assert incidents(one, after_seconds=260.0)
    assert not incidents(one, after_seconds=260.1)
    assert not incidents(replace(one, updated_at=one.since + 59.0))


def test_mild_ones_are_shown_and_not_mailed() -> None:
    one = alarm("luns", "a", 1.5)  # at worst 3.5
    assert incidents(one, least_severity=3.5)
    assert not incidents(one, least_severity=3.6)
    assert incidents(replace(one, worst_severity=NAN), least_severity=3.6)


def test_one_whose_latest_window_is_as_its_peers_is_not_mailed() -> None:
    one = replace(alarm("luns", "a", 3.0), observed=5.2, reference=5.0)
    assert not incidents(one)
    assert not severe(replace(one, severity=9.0))
    assert incidents(replace(one, observed=15.0))
    assert incidents(replace(one, observed=NAN))


def severe(one: Alarm, severity: float = 5.0, *, learning: bool = False) -> list[Incident]:
    view = MadeView(alarms_={one.key: one})
    return due(view, (), "site", Limits(1e6, 1.0, severity, 60.0, learning))


@pytest.mark.parametrize("learning", [False, True])
def test_a_severe_one_is_due_at_once(learning: bool) -> None:
    one = alarm("luns", "a", 5.0)
    assert severe(one, learning=learning)
    assert not severe(one, 0.0, learning=learning)
    assert not severe(replace(one, severity=4.9))
    assert not severe(replace(one, severity=NAN, worst_severity=NAN))
    assert not severe(replace(one, since=one.updated_at - 59.0))


def test_only_severe_ones_are_due_while_a_site_is_learned() -> None:
    one = alarm("luns", "a", 4.0)
    assert incidents(one)
    assert not incidents(one, learning=True)


@pytest.mark.parametrize(("before", "found"), [((9.0, 2.0, 6.0, 6.0), 1), ((9.0, 6.0, 4.0, 6.0), 0)])
def test_severe_is_each_window_of_the_time(before: tuple[float, ...], found: int) -> None:
    """Windows of 30 s; the last two count."""
    one, history = alarm("luns", "a", 6.0), WindowHistory()
    for at, severity in enumerate(before):
        window = judgement("luns", ["a", "b"], [3, 0], [severity, 1.0], [True, False])
        end = one.updated_at - 30.0 * (len(before) - 1 - at)
        history.judged([replace(window, start=end - 30.0, end=end)])
    view = MadeView(alarms_={one.key: one}, history=history)
    limits = Limits(1e6, 1.0, severe_severity=5.0, severe_after_seconds=60.0)
    assert len(due(view, (), "site", limits)) == found


def test_who_was_told_of_or_is_silenced_is_left_out() -> None:
    one = alarm("luns", "a")
    assert not incidents(one, told=("a",))
    assert not incidents(one, silenced="a")


def test_a_case_is_over_when_none_of_its_alarms_stands() -> None:
    one, other = alarm("luns", "a"), replace(alarm("luns", "a"), metric="r_await")
    (incident,) = incidents(one)
    assert cleared([incident], {other.key: other}) == []
    assert cleared([incident], {}) == [incident]


def test_its_id_is_its_own_and_the_same_everywhere() -> None:
    one = alarm("luns", "a")
    (id_,) = (incident.id for incident in incidents(one))
    assert [each.id for each in incidents(replace(one, severity=9.0, group="g", metric="x"))] == [id_]
    others = (replace(one, since=one.since + 1), replace(one, component="b"))
    found = [*incidents(one, site="other"), *(each for other in others for each in incidents(other))]
    assert len({id_, *(each.id for each in found)}) == 4
