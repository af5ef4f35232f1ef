"""The page of shadow detectors, and that no other page, answer or metric shows their verdicts."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urljoin

import httpx
import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.web.app import make_app
from tests.aggregator.web.test_pages import HOSTILE, Outline, ask, page, text_of
from tests.support.builders import live_status
from tests.support.builders.live_status import MadeView, judgement

NAMES = ("oss-1/a", "oss-1/b", "oss-2/c", "oss-2/d", HOSTILE)


def earlier(judged: Judgement, windows: int) -> Judgement:
    """The same so many windows earlier."""
    return replace(judged, start=judged.start - 30 * windows, end=judged.end - 30 * windows)


def shadowed(windows: int = 8) -> MadeView:
    """A group with `oss-1/b` slow for both, `oss-2/c` and one with a hostile name for the shadow alone."""
    detect = DetectSettings(interval_seconds=1.0, shadow=DetectSettings(detector="cdf"))
    view = MadeView(
        groups_=(replace(live_status.group("luns", 5), detect=detect), live_status.group("alone", 4)),
        alarms_={one.key: one for one in (live_status.alarm("luns", "oss-1/b"),)},
        names={"oss-2/c": "oss-2/sdc"},
    )
    own = judgement("luns", NAMES, (0, 9, 0, 0, 0), (1.0, 4.0, 1.0, 1.0, 1.0), (False, True, *[False] * 3))
    shadow = judgement(
        "luns", NAMES, (0, 9, 9, 0, 1), (1.0, 4.0, 9.0, 1.0, 3.0), (False, True, True, False, False)
    )
    alone = judgement("alone", NAMES[:4], [0] * 4, [1.0] * 4, [False] * 4)
    calm = replace(shadow.verdicts, anomalous=shadow.verdicts.anomalous & (shadow.verdicts.severity != 3.0))
    for back in range(windows - 1, -1, -1):
        beside = replace(shadow, verdicts=calm) if back else shadow
        view.judgements_ = (replace(earlier(own, back), shadow=earlier(beside, back)), earlier(alone, back))
        view.history.judged(view.judgements_)
    return view


def row(text: str, name: str) -> str:
    """The text of the row of the last table that has `name`."""
    return text_of(next(part for part in reversed(text.split("<tr>")) if name in part))


def test_the_page_shows_where_they_differ() -> None:
    text = page("/shadows", shadowed())
    assert "luns await laggard cdf 8 40 8 0 9 77.50%" in text_of(text)
    assert "Where they differ: luns, await" in text_of(text)
    assert row(text, "oss-2/sdc").startswith("oss-2/sdc by cdf 0 8 0")
    assert row(text, "7*7").startswith("oss-1/<script>alert(1)</script>\"&'{{7*7}} ü no 0 1 0")
    assert text.index("oss-2/sdc") < text.index("7*7")
    assert "oss-1/b" not in text, "they agree on it"
    assert "laggard alone found it anomalous in 0 of 8 windows, cdf alone in 8" in text


@pytest.mark.parametrize(
    "path", ["/shadows", "/shadows?group=luns", "/shadows?group=luns&metric=await&page=2"]
)
def test_the_page_is_well_formed_and_named(path: str) -> None:
    outline = Outline(page(path, shadowed()))
    assert outline.headings == [1, 2, 2]
    assert len(outline.all("table")) == len(outline.all("caption")) == 2
    assert all("scope" in attrs for attrs in outline.all("th"))
    assert {attrs["aria-current"] for attrs in outline.all("a") if "aria-current" in attrs} == {
        "page",
        "true",
    }
    assert not [attrs for _, attrs in outline.tags if any(n == "style" or n.startswith("on") for n in attrs)]
    links = [urljoin(path, attrs["href"] or "") for attrs in outline.all("a")]
    targets = sorted({href for href in links if href.startswith(("/shadows", "/component", "/group"))})
    assert all(answer.status_code == 200 for answer in ask(targets, shadowed()))


def test_where_there_is_nothing_to_show() -> None:
    plain = live_status.site()
    assert "No group has a shadow" in text_of(page("/shadows", plain))
    assert "/shadows" not in page("/", plain)
    assert 'href="./shadows"' in page("/", shadowed())
    assert "cdf as a shadow" in text_of(page("/group/luns", shadowed()))
    assert "as a shadow" not in text_of(page("/group/alone", shadowed()))
    assert "No window has closed yet" in text_of(page("/shadows", shadowed(windows=0)))
    same = shadowed(windows=1)
    same.history = type(same.history)()
    judged = same.judgements_[0]
    same.history.judged([replace(judged, shadow=replace(judged, transitions=()))])
    assert "In 1 window they found the same components anomalous" in text_of(page("/shadows", same))
    asked = ["/shadows?group=none", "/shadows?group=alone", "/shadows?group=luns&metric=x%3Cb"]
    for answer in ask(asked, shadowed()):
        assert answer.status_code == 404
        assert "x<b" not in answer.text


OTHERS = (
    *(
        "/",
        "/groups",
        "/group/luns",
        "/component/luns/oss-2/c",
        "/nodes",
        "/alarms",
        "/search?q=oss",
        "/metrics",
    ),
    *(
        "/metrics/nodes",
        "/api/v1/stragglers",
        "/api/v1/groups",
        "/api/v1/nodes",
        "/api/v1/components/luns/oss-2/c",
    ),
)


@pytest.mark.parametrize("path", OTHERS)
def test_other_pages_and_answers_are_as_without_the_shadow(path: str) -> None:
    view, without = shadowed(), shadowed()
    without.judgements_ = tuple(replace(judged, shadow=None) for judged in view.judgements_)
    own, (plain,) = answers([path], view)[0], answers([path], without)
    if path == "/metrics":
        lines = [line for line in own.text.splitlines() if "process_" not in line]
        more = [line for line in lines if line not in plain.text.splitlines()]
        assert more
        assert all(line.startswith("laggard_shadow_") for line in more)
        assert '{component="oss-2/c"' not in own.text
    else:
        assert own.text == plain.text
        assert own.status_code == 200


def answers(paths: Sequence[str], view: MadeView) -> list[httpx.Response]:
    async def asked() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(view))
        async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(asked())


def test_thousands_that_differ_are_paged() -> None:
    names = tuple(f"oss-{at // 10}/sd{at:05}" for at in range(3000))
    own = judgement("luns", names, [0] * 3000, [1.0] * 3000, [False] * 3000)
    shadow = judgement("luns", names, [5] * 3000, [2.0] * 3000, [True] * 3000)
    view = shadowed()
    view.judgements_ = (replace(own, shadow=shadow),)
    for back in range(100, -1, -1):
        view.history.judged([replace(earlier(own, back), shadow=earlier(shadow, back))])
    first, last = ask(["/shadows", "/shadows?page=60"], view)
    assert len(first.content) < 60_000
    assert "1–50 of 3,000 components" in text_of(first.text)
    assert "oss-99/sd00999" in text_of(last.text)
