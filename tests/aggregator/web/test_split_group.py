"""A group of which one server's half is slow, on the pages, in the API, the exposition and a mail."""

import math
from dataclasses import replace

import numpy as np

from laggard_aggregator.detect import LEVEL_OF_SPLITS as LEVEL
from laggard_aggregator.detect.escalation import joined
from laggard_aggregator.detect.split import Split, verdict_on
from laggard_aggregator.notify.incidents import AlarmTimelines, Limits, due
from laggard_aggregator.notify.report import report, resolutions
from tests.aggregator.web.test_pages import ask, text_of
from tests.support.builders import live_status

SIDE = "all of oss-2"


def site() -> live_status.MadeView:
    """The group `luns` of two servers, all disks of one of which are 2.8 times slower."""
    view = live_status.site()
    names = tuple(f"oss-{server}/sd{disk}" for server in (1, 2) for disk in "abcdef")
    judged = live_status.judgement("luns", names, [0] * 12, [1.0] * 12, [False] * 12)
    split = Split("node", "oss-2", "oss-1", 6, 6, 14.0, 5.0, 2.8)
    judged = replace(
        judged,
        components=(*names, SIDE),
        levels=(*judged.levels, LEVEL),
        verdicts=replace(joined(judged.verdicts, [verdict_on(split)]), note="not a group of peers"),
        persistence=np.append(judged.persistence, 6),
        straggler=np.append(judged.straggler, True),
        since=np.append(judged.since, live_status.NOW - 300),
        split=split,
    )
    view.judgements_ = (judged,)
    alarm = replace(live_status.alarm("luns", SIDE, 2.8), level=LEVEL)
    view.alarms_ = {alarm.key: alarm}
    view.history.judged([judged])
    return view


def test_the_pages_say_which_server_and_that_the_normal_side_is_unknown() -> None:
    overview, group, component = ask(["/", "/group/luns", f"/component/luns/{SIDE}"], site())
    assert SIDE in text_of(overview.text)
    assert "peers alone cannot tell which is normal" in text_of(overview.text)
    assert "all 6 members of node oss-2 are 2.8 times slower than those of oss-1" in text_of(group.text)
    assert component.status_code == 200
    assert "slower side share" in text_of(component.text)
    assert 'href="../../node/' not in component.text, "a side of a group has no page of a node"


def test_a_side_without_a_factor_in_the_latest_window_is_told_without_one() -> None:
    view = site()
    view.judgements_ = (live_status.judgement("luns", ("oss-1/sda",), [0], [1.0], [False]),)
    view.alarms_ = {key: replace(alarm, severity=math.nan) for key, alarm in view.alarms_.items()}
    said = text_of(ask(["/"], view)[0].text)
    assert f"{SIDE} has been slower than the rest since" in said
    assert "; peers alone cannot tell which is normal" in said


def test_the_api_has_the_alarm_and_the_sides() -> None:
    stragglers, groups, metrics = ask(["/api/v1/stragglers", "/api/v1/groups", "/metrics"], site())
    assert [(row["component"], row["level"]) for row in stragglers.json()["stragglers"]] == [(SIDE, LEVEL)]
    luns = next(group for group in groups.json()["groups"] if group["group"] == "luns")
    (split,) = luns["splits"]
    assert (split["attribute"], split["value"], split["factor"]) == ("node", "oss-2", 2.8)
    series = 'laggard_group_split_ratio{attribute="node",group="luns",metric="await",value="oss-2"} 2.8'
    assert series in metrics.text


def test_a_mail_says_so() -> None:
    view = site()
    (incident,) = due(view, (), "site", Limits(after_seconds=0.0, least_severity=1.0))
    mail = report(incident, view, AlarmTimelines(), "http://aggregator", view.locating()())
    assert mail is not None
    assert "peers alone cannot tell which is normal" in mail.parent
    assert mail.worst.predicate == "is 2.8 times slower than the rest of its group"
    assert "what the slower side shares" in mail.hint
    (over,) = resolutions([incident], view, "http://aggregator")
    assert over.slower_than == "slower than the rest of its group"
    assert replace(over, recovered=True).outcome == "keeps up with the rest of its group again"
