"""`/api/v1/alarms` over a made-up site and the events of its log."""

import asyncio
import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.web import api
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages.alarm_log import Event
from laggard_aggregator.web.pages.page_state import StateReader
from tests.aggregator.web.test_api_document import documented
from tests.support.builders import live_status
from tests.support.builders.live_status import NOW


def site() -> live_status.MadeView:
    """Two alarms that stand, of which one was raised in memory, and one that was cleared an hour ago."""
    view = live_status.site()
    standing = live_status.alarm("luns", "oss-1/wwn-2")
    before = replace(live_status.alarm("bricks", "oss-2/wwn-3", 3.0), since=NOW - 9000)
    view.history.transitions.extend(
        [
            AlarmEvent("raised", standing, NOW - 120),
            AlarmEvent("raised", before, NOW - 7200),
            AlarmEvent("cleared", before, NOW - 3600),
        ]
    )
    view.decisions_ = (
        Decision("silence", "oss-1/sdb", "alice", NOW - 60, math.inf, "ordered"),
        Decision("comment", "oss-2", "bob", NOW - 50, math.inf, "moved", "https://t.example/1"),
    )
    return view


def fetch(path: str, view: live_status.MadeView) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(view))
        async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
            return await client.get(path)

    return asyncio.run(asked())


def ask(query: str = "", view: live_status.MadeView | None = None) -> httpx.Response:
    return fetch(f"/api/v1/alarms{query}", view or site())


def components(query: str = "") -> list[str]:
    answer = ask(query)
    assert answer.status_code == 200, answer.text
    assert answer.json()["total"] == len(answer.json()["alarms"])
    return sorted(each["component"] for each in answer.json()["alarms"])


def test_an_episode_is_one_row() -> None:
    got = ask().json()
    assert (got["time"], got["total"]) == (NOW, 3)
    rows: dict[str, Any] = {row["component"]: row for row in got["alarms"]}
    cleared, standing = rows["oss-2/wwn-3"], rows["oss-1/wwn-2"]
    assert (cleared["state"], cleared["name"], cleared["since"]) == ("cleared", "oss-2/sdc", NOW - 9000)
    assert (cleared["raised_at"], cleared["cleared_at"]) == (NOW - 7200, NOW - 3600)
    assert cleared["duration_seconds"] == 5400.0
    assert [each["ticket"] for each in cleared["comments"]] == ["https://t.example/1"]
    assert cleared["silenced"] is None
    assert (standing["state"], standing["raised_at"], standing["cleared_at"]) == ("raised", NOW - 120, None)
    assert (standing["duration_seconds"], standing["worst_severity"]) == (300.0, 6.0)
    assert standing["silenced"]["by"] == "alice"


def test_filters() -> None:
    every = ["oss-1/wwn-2", "oss-2/wwn-3", 'oss-9/"odd\\name']
    assert components() == every
    assert components("?group=luns") == [every[0], every[2]]
    assert components("?group=luns&group=bricks") == every
    assert components("?group=none") == []
    assert components("?state=cleared") == [every[1]]
    assert components("?state=raised&group=luns") == [every[0], every[2]]
    assert components(f"?since={NOW - 3601}") == every
    assert components(f"?since={NOW - 3600}") == [every[0], every[2]]
    for at in ("2025-10-09T10:02:00%2B02:00", "2025-10-09T08:02", "-1h"):
        assert components(f"?since={at}") == [every[0], every[2]]
    assert components("?factor=5.5") == [every[0], every[2]]
    assert components("?factor=7") == []
    assert components("?role=storage") == [every[0], every[2]], "the group bricks is not known now"
    by_severity = [each["worst_severity"] for each in ask("?sort=worst_severity").json()["alarms"]]
    assert by_severity == sorted(by_severity)
    assert components(f"?since={NOW + 1}") == []
    limited = ask("?limit=1").json()
    assert (limited["total"], len(limited["alarms"])) == (3, 1)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?state=standing", "state: expected raised or cleared, got 'standing'"),
        ("?since=yesterday", "since: a time is written as 2026-01-31T12:00, -12h or in epoch seconds, got"),
        ("?since=1e999", "since: a time is written as"),
        ("?factor=much", "factor: expected a number, got 'much'"),
        ("?role=cook", "role: expected "),
        ("?sort=weight", "sort: no column 'weight'"),
        ("?limit=0", "limit: expected 1-"),
        ("?limit=99999999", "limit: expected"),
        ("?state=raised&state=cleared", "all but group once, got 'state'"),
        (
            "?grup=luns",
            "expected group, role, factor, state, since, sort, limit, all but group once, got 'grup'",
        ),
    ],
)
def test_wrong_filters_are_said(query: str, said: str) -> None:
    answer = ask(query)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


NAMES = st.sampled_from(("group", "role", "factor", "state", "since", "sort", "limit")) | st.text()


@given(st.lists(st.tuples(NAMES, st.text())))
def test_any_query_is_a_table_or_a_value_error(query: list[tuple[str, str]]) -> None:
    try:
        table, limit = api.alarms(StateReader(site()).now(), (), query)
    except ValueError:
        return
    assert 1 <= limit <= api.MOST_ALARMS
    json.loads("".join(table.json(NOW, limit)))


def test_events_without_their_pair() -> None:
    of = ("luns", "oss-4/wwn-1", "await", "component")
    cleared = Event(NOW - 10, "cleared", *of, NOW - 1000, 2.0, 3.0)
    raised = Event(NOW - 900, "raised", *of, NOW - 2000, 2.0, math.nan)
    table, _ = api.alarms(StateReader(live_status.MadeView()).now(), [cleared, raised], ())
    rows = json.loads("".join(table.json(NOW)))["alarms"]
    assert [(row["state"], row["raised_at"], row["cleared_at"], row["duration_seconds"]) for row in rows] == [
        ("cleared", NOW - 900, None, None),
        ("cleared", None, NOW - 10, 990.0),
    ]
    assert rows[0]["worst_severity"] is None


def test_the_pages_files_have_the_same() -> None:
    view = site()
    answers = {form: fetch(f"/alarms?format={form}&state=raised", view).text for form in ("json", "csv")}
    got = ask("?state=raised", view).json()
    assert json.loads(answers["json"]) == got
    rows = list(csv.DictReader(io.StringIO(answers["csv"])))
    assert [row["component"] for row in rows] == [row["component"] for row in got["alarms"]]
    silenced = {row["component"]: row["silenced"] for row in rows}
    assert json.loads(silenced["oss-1/wwn-2"])["comment"] == "ordered"
    assert [silenced[name] for name in silenced if name != "oss-1/wwn-2"] == [""]


def test_every_field_is_documented() -> None:
    assert documented("/api/v1/alarms") == set(ask().json()["alarms"][0])
