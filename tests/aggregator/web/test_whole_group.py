"""A whole group that is slower than in its own past, on the pages, in the API and in a mail."""

from dataclasses import replace

import numpy as np

from laggard_aggregator.detect import LEVEL_OF_GROUPS as LEVEL
from laggard_aggregator.detect.escalation import joined
from laggard_aggregator.detect.interface import Verdicts
from laggard_aggregator.notify.incidents import AlarmTimelines, Limits, due
from laggard_aggregator.notify.report import report, resolutions
from tests.aggregator.web.test_pages import ask, text_of
from tests.support.builders import live_status


def site() -> live_status.MadeView:
    """The group `luns` of four healthy components, 2.5 times slower than in its past."""
    view = live_status.site()
    names = tuple(f"oss-{n}/wwn-{n}" for n in range(4))
    judged = live_status.judgement("luns", names, [0] * 4, [1.0] * 4, [False] * 4)
    yes = np.array([True])
    whole = Verdicts(yes, yes, np.array([3.0]), np.array([2.5]), np.array([5.0]), np.array([2.0]))
    judged = replace(
        judged,
        components=(*names, "luns"),
        levels=(*judged.levels, LEVEL),
        verdicts=joined(judged.verdicts, [whole]),
        persistence=np.append(judged.persistence, 6),
        straggler=np.append(judged.straggler, True),
        since=np.append(judged.since, live_status.NOW - 300),
    )
    view.judgements_ = (judged,)
    alarm = replace(live_status.alarm("luns", "luns", 2.5), level=LEVEL)
    view.alarms_ = {alarm.key: alarm}
    view.history.judged([judged])
    return view


def test_the_pages_hold_it_against_its_own_past() -> None:
    overview, group, component = ask(["/", "/group/luns", "/component/luns/luns"], site())
    assert "2.5× slower than in its own past" in text_of(overview.text)
    assert "own past 2 ms" in text_of(overview.text).replace("\N{NO-BREAK SPACE}", " ")
    assert "look at what its members share" in text_of(overview.text) + text_of(component.text)
    for answer in (group, component):
        assert answer.status_code == 200
        assert LEVEL in text_of(answer.text)


def test_the_api_names_its_level() -> None:
    (answer,) = ask(["/api/v1/stragglers"], site())
    assert [(row["component"], row["level"]) for row in answer.json()["stragglers"]] == [("luns", LEVEL)]


def test_a_mail_says_so() -> None:
    view = site()
    (incident,) = due(view, (), "site", Limits(after_seconds=0.0, least_severity=1.0))
    said = report(incident, view, AlarmTimelines(), "http://aggregator", view.locating()())
    assert said is not None
    assert said.parent.startswith("It is a whole group: its members are slow together")
    assert said.worst.predicate == "is 2.5 times slower than in its own past"
    assert "look at what its members share" in said.hint
    (over,) = resolutions([incident], view, "http://aggregator")
    assert over.slower_than == "slower than in its own past"
    assert replace(over, recovered=True).outcome == "is as fast as in its own past again"
    assert said.peers == 0
