"""Every page over a made-up site, as a browser without JavaScript gets it."""

import asyncio
import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import numpy as np
import pytest

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.ingest.node_view import NodeView
from laggard_aggregator.status import urls
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages import site
from laggard_aggregator.web.pages.page_state import StateReader
from laggard_aggregator.web.pages.site import CONTENT_SECURITY_POLICY, Pages
from tests.support.builders import live_status

HOSTILE = "oss-1/<script>alert(1)</script>\"&'{{7*7}} ü"
NAN = float("nan")
PAGES = (
    "/",
    "/groups",
    "/group/luns",
    "/group/storage%2Fnet%2F10%20Gb",
    "/component/luns/oss-1/wwn-2",
    "/nodes",
    "/node/oss-2",
    "/alarms",
    "/search",
    "/search?q=oss",
    "/shadows",
    "/runbook",
    "/runbook/LaggardStraggler",
)
VENDOR = Path(site.__file__).parents[1] / "static" / "vendor"
VOID = {"meta", "link", "input", "br", "wbr"}


def ask(paths: Sequence[str], view: live_status.MadeView | None = None) -> list[httpx.Response]:
    """The answers of one application over `view`."""

    async def asked() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(view or with_history()), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(asked())


def page(path: str, view: live_status.MadeView | None = None) -> str:
    """The text of a page that is there."""
    (answer,) = ask([path], view)
    assert answer.status_code == 200, answer.text
    return answer.text


def with_history(windows: int = 8) -> live_status.MadeView:
    """The made-up site after some windows."""
    view = live_status.site()
    for back in range(windows - 1, -1, -1):
        for judged in view.judgements_:
            view.history.judged([replace(judged, start=judged.start - 30 * back, end=judged.end - 30 * back)])
    return view


class Outline(HTMLParser):
    """Tags that are opened and closed, headings, ids, names of what can be reached."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def text_of(page: str) -> str:
    """What a reader sees, in one line."""
    whole = re.sub(r"</span><wbr><span[^>]*>", "", page)  # names may wrap here
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", whole)).split())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_well_formed_named_and_reachable(path: str) -> None:
    outline = Outline(page(path))
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(later <= before + 1 for before, later in pairwise(outline.headings))
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {"header", "main", "footer", "nav"} <= {tag for tag, _ in outline.tags}
    assert outline.tags[[tag for tag, _ in outline.tags].index("body") + 1][1]["href"] == "#main"
    for svg in outline.all("svg"):
        assert svg.get("aria-hidden") == "true" or (svg.get("role"), bool(svg.get("aria-label"))) == (
            "img",
            True,
        )
    assert len(outline.all("table")) == len(outline.all("caption"))
    assert all("scope" in attrs for attrs in outline.all("th"))
    for attrs in outline.all("input") + outline.all("select"):
        if attrs.get("type") == "hidden":
            continue
        assert attrs["id"] in {label.get("for") for label in outline.all("label")}
    live = [attrs for _, attrs in outline.tags if "data-live" in attrs]
    assert all(attrs.get("id") for attrs in live)


@pytest.mark.parametrize("path", PAGES)
def test_nothing_in_a_page_is_inline_or_from_elsewhere(path: str) -> None:
    (answer,) = ask([path])
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    outline = Outline(answer.text)
    for tag, attrs in outline.tags:
        assert not any(name == "style" or name.startswith("on") for name in attrs), (tag, attrs)
        assert "src" not in attrs or urljoin(path, attrs["src"] or "").startswith("/static/")
        assert (attrs.get("href") or ".")[0] in ".#?"
        assert (attrs.get("action") or ".")[0] == "."
    assert not outline.all("style")


def test_every_link_of_every_page_leads_somewhere() -> None:
    view = with_history()
    found = {
        urljoin(path, attrs["href"] or "")
        for path in PAGES
        for attrs in Outline(page(path, view)).all("a") + Outline(page(path, view)).all("link")
        if not (attrs["href"] or "").startswith("#")
    }
    targets = sorted(found)
    assert "/component/luns/oss-1/wwn-2?metric=await" in targets
    for target, answer in zip(targets, ask(targets, view), strict=True):
        assert answer.status_code == 200 or target in ("/node/oss-3",), target


def test_the_overview_is_an_answer() -> None:
    text = text_of(page("/"))
    assert (
        "oss-1/sdb has been 4.0× slower than its peers since 2025-10-09 08:56 UTC ; 2 more stragglers" in text
    )
    assert "oss-1/sdb alarm raised 4.0× serious " in text
    assert "await: 8 ms, peers 2 ms luns" in text
    assert (
        "Only this one of oss-1 is slow, the other one beside it is not: look at the component itself."
        in text
    )
    assert "3 nodes unhealthy" in text
    assert "1 with too few members to compare" in text


def test_a_site_without_stragglers_says_so() -> None:
    calm = live_status.judgement("luns", ("a", "b", "c", "d"), [0] * 4, [1.0] * 4, [False] * 4)
    view = live_status.MadeView(groups_=(live_status.group("luns", 4),), judgements_=(calm,))
    assert "No stragglers: 4 components behave like their peers" in text_of(page("/", view))
    assert "The last alarm" not in text_of(page("/", view))
    was = live_status.alarm("luns", "a")
    view.history.transitions.append(AlarmEvent("cleared", was, live_status.NOW - 60))
    assert (
        "The last alarm: a was slow from 2025-10-09 08:56:40 UTC to 2025-10-09 09:00:40 UTC , for 4 min"
        in (text_of(page("/", view)))
    )
    view.history.transitions.append(AlarmEvent("cleared", was, live_status.NOW - 90_000))
    assert "The last alarm" not in text_of(page("/", view)), "it is more than a day old"
    waiting = live_status.MadeView(groups_=(live_status.group("luns", 4),))
    assert "Nothing was judged yet" in text_of(page("/", waiting))
    assert "Nothing is compared yet" in text_of(
        page("/", live_status.MadeView(unready="not connected to the broker"))
    )
    assert "not connected to the broker" in text_of(
        page("/", live_status.MadeView(unready="not connected to the broker"))
    )


def many(count: int) -> live_status.MadeView:
    """A group of so many components, all of which are slow."""
    names = tuple(f"oss-{at // 10}/sd{at:05}" for at in range(count))
    severities = [2.0 + at / 1000 for at in range(count)]
    judged = live_status.judgement("luns", names, [5] * count, severities, [True] * count)
    view = live_status.MadeView(groups_=(live_status.group("luns", count),), judgements_=(judged,))
    view.history.judged([judged])
    return view


def test_lists_are_bounded_and_paged() -> None:
    view = many(3000)
    first, second, beyond, nonsense = ask(["/", "/?page=2", "/?page=999999", "/?page=x"], view)
    assert len(first.content) < 60_000
    assert "1–20 of 3,000 stragglers" in text_of(first.text)
    assert "oss-299/sd02999" in text_of(first.text)  # the slowest
    assert "21–40 of 3,000 stragglers" in text_of(second.text)
    assert "2,981–3,000 of 3,000 stragglers" in text_of(beyond.text)
    assert "1–20 of" in text_of(nonsense.text)
    worst, by_name = ask(["/group/luns", "/group/luns?sort=name&page=60"], view)
    assert "1–50 of 3,000 components" in text_of(worst.text)
    assert "2,951–3,000" in text_of(by_name.text)
    assert len(worst.content) < 60_000
    (found,) = ask(["/search?q=SD0299"], view)
    assert "10 matches" in text_of(found.text)


def hostile() -> live_status.MadeView:
    """A site in which everything has the most unpleasant name."""
    names = (HOSTILE, "oss-1/b", "oss-1/c", "oss-1/d")
    group = f"luns/{HOSTILE}"
    judged = live_status.judgement(
        group, names, [5, 0, 0, 0], [4.0, 1.0, 1.0, 1.0], [True, False, False, False]
    )
    judged = replace(judged, verdicts=replace(judged.verdicts, causes={HOSTILE: ((HOSTILE, 2.0),)}))
    alarm = live_status.alarm(group, HOSTILE)
    view = live_status.MadeView(
        site=HOSTILE,
        groups_=(live_status.group(group, 4),),
        judgements_=(judged,),
        alarms_={alarm.key: alarm},
        decisions_=(Decision("silence", HOSTILE, HOSTILE, live_status.NOW, comment=HOSTILE),),
        nodes_=(NodeView(HOSTILE, "storage", "up", False, NAN, NAN, version=HOSTILE),),
    )
    for back in range(3, -1, -1):
        view.history.judged([replace(judged, start=judged.start - 30 * back, end=judged.end - 30 * back)])
    return view


def test_hostile_names_stay_text_and_their_links_work() -> None:
    view, group = hostile(), f"luns/{HOSTILE}"
    paths = (
        *("/", "/groups", "/nodes", "/alarms", "/search?q=script"),
        *(urls.group(group), urls.component(group, HOSTILE), urls.node(HOSTILE)),
    )
    for path, answer in zip(paths, ask(paths, view), strict=True):
        assert answer.status_code == 200, path
        scripts = [urljoin(path, attrs.get("src") or "") for attrs in Outline(answer.text).all("script")]
        assert all(src.startswith("/static/") for src in scripts), path
        assert "<script>alert" not in answer.text
        if path not in ("/alarms",):
            assert HOSTILE.split("/")[1] in html.unescape(answer.text), path
        assert "49" not in text_of(answer.text).replace("49–", ""), path  # the template saw no template


def test_what_is_not_known_is_a_page_too() -> None:
    paths = [
        "/component/luns/none",
        "/component/none/oss-1/wwn-1",
        "/group/none",
        "/node/none",
        "/group/luns?metric=x",
    ]
    for answer in ask(paths):
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert "Not found" in text_of(answer.text)
    for path in ("/component/luns", "/component/", "/component/luns/%FF", "/group/%FF", "/node/%FF"):
        (answer,) = ask([path])
        assert answer.status_code == 400, path


def test_a_component_is_found_by_its_name_of_the_day() -> None:
    text = text_of(page("/component/luns/oss-1/sdb"))
    assert "4.0× slower than its peers since 2025-10-09 08:56:40 UTC" in text
    assert "Permanent ID oss-1/wwn-2" in text
    assert "ssh oss-1 iostat -x 5 # its own error counters ssh oss-1 sudo smartctl -x /dev/sdb" in text
    assert "Windows and verdicts, newest first" in text
    assert "▲ anomalous" in text
    for word in ("its peers", "await", "8 ms", "4.0×"):
        assert word in text


def test_a_component_that_went_silent_keeps_its_page() -> None:
    view = with_history()
    only = live_status.judgement("luns", ("oss-2/wwn-3",), [0], [1.0], [False])
    view.judgements_ = (only,)
    view.alarms_ = {}
    early = replace(only, start=1.0, end=2.0)
    short = live_status.MadeView(groups_=view.groups_)
    short.history.judged([early, *with_history().judgements_])
    assert "it has no data now" in text_of(page("/component/luns/oss-3/wwn-5", short))
    text = text_of(page("/component/luns/oss-3/wwn-5", view))
    assert "Not judged in the latest window: it has no data now" in text


def test_what_operators_decided_is_shown_everywhere() -> None:
    view = with_history()
    view.decisions_ = (
        Decision("silence", "oss-1/sdb", "kim", live_status.NOW - 60, live_status.NOW + 3600, "rebuild"),
        Decision("drain", "oss-*", "kim", live_status.NOW - 30),
    )
    for path in ("/", "/component/luns/oss-1/wwn-2"):
        assert 'title="rebuild"' in page(path, view)
        assert "silenced until 2025-10-09 10:01:40 UTC drained" in text_of(page(path, view))
    assert "oss-2 drained" in text_of(page("/node/oss-2", view))
    text = text_of(page("/alarms", view))
    assert "oss-* drain 2025-10-09 09:01:10 UTC open-ended kim" in text
    assert "oss-1/sdb silence 2025-10-09 09:00:40 UTC 2025-10-09 10:01:40 UTC kim rebuild" in text


def test_the_distributions_that_cdf_compared_are_drawn() -> None:
    view = with_history()
    assert registry.find("cdf").distributions is not None
    view.groups_ = (replace(view.groups_[0], detect=DetectSettings("cdf")), view.groups_[1])
    names = view.judgements_[0].components
    chance = np.random.default_rng(1)
    values = chance.lognormal(0.7, 0.1, (5, 74))
    values[1] *= 4
    values[3, 30:] = np.nan
    view.history.judged(
        (), GroupWindow("luns", names, live_status.NOW - 100, live_status.NOW - 40, 14, {"await": values})
    )
    text = page("/component/luns/oss-1/wwn-2", view)
    assert 'aria-label="cumulative distributions of await: this component and 3 peers"' in text
    assert "score 30.00, anomalous from 1 on" in text
    assert "The latest window, sample by sample" in text
    assert "too few samples in the latest window" in page("/component/luns/oss-2/wwn-4", view)
    assert view.history.samples("luns") is not None


def test_a_node_is_told_by_the_functions_in_which_it_differs() -> None:
    nodes = ("oss-1", "oss-2", "oss-3", "oss-4")
    judged = live_status.judgement(
        "storage/fnprofile", nodes, [5, 0, 0, 0], [NAN] * 4, [True, False, False, False]
    )
    verdicts = replace(
        judged.verdicts,
        judged=np.ones(4, dtype=np.bool_),
        anomalous=np.array([True, False, False, False]),
        score=np.array([6.1, 0.5, 0.5, 0.5]),
        causes={"oss-1": (("md_raid6_compute", 41.5), ("copy_user", -2.0))},
    )
    judged = replace(judged, metric="samples", verdicts=verdicts, levels=("node",) * 4)
    group = replace(
        live_status.group("storage/fnprofile", 4),
        source="fnprofile",
        detect=DetectSettings("manhattan"),
        metrics=("samples",),
    )
    view = live_status.MadeView(groups_=(group,), judgements_=(judged,))
    view.history.judged([judged])
    assert "oss-1 has been unlike its peers since" in text_of(page("/", view))
    assert "samples: most in md_raid6_compute storage/fnprofile" in text_of(page("/", view))
    text = text_of(page(urls.component("storage/fnprofile", "oss-1"), view))
    assert "Unlike its peers since" in text
    assert "the largest differences show where it goes" in text
    assert "ssh oss-1 sudo perf top" in text
    assert text.index("md_raid6_compute 41.5") < text.index("copy_user -2")


def test_a_node_is_told_with_what_is_on_it() -> None:
    text = text_of(page("/node/oss-2"))
    assert "Collector net: no /proc/net/dev; 7 samples dropped: its spool was full." in text
    assert "oss-2/sdc luns await 1.0× like its peers" in text
    assert "Sends no samples, although its agent should be up." in text_of(page("/node/oss-9"))


def test_nodes_that_are_not_well_come_first_and_can_be_picked() -> None:
    text = text_of(page("/nodes"))
    assert (
        text.index("oss-9 storage silent")
        < text.index("oss-2 storage up, unhealthy")
        < text.index("oss-1 storage up")
    )
    picked = text_of(page("/nodes?role=metadata&state=stopped"))
    assert "mds-1" in picked
    assert "oss-9" not in picked
    assert "oss-1 " not in text_of(page("/nodes?state=unwell"))


def judged_again(view: live_status.MadeView, severity: float) -> None:
    judged: Judgement = view.judgements_[0]
    verdicts = replace(judged.verdicts, severity=np.full(5, severity))
    view.judgements_ = (replace(judged, verdicts=verdicts), *view.judgements_[1:])


def test_a_page_is_made_once_for_a_window() -> None:
    view = with_history()

    async def asked() -> list[str]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(make_app(view)), base_url="http://a"
        ) as client:
            found = [(await client.get("/")).text]
            judged_again(view, 7.0)
            found.append((await client.get("/")).text)
            view.revision += 1
            return [*found, (await client.get("/")).text]

    first, same, changed = asyncio.run(asked())
    assert first == same
    assert "7.0×" not in text_of(same)
    assert "7.0×" in text_of(changed)


def test_what_is_asked_of_all_nodes_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0
    for clock in ("monotonic", "thread_time"):
        monkeypatch.setattr(f"laggard_aggregator.web.pages.page_state.time.{clock}", lambda: seconds)

    class Slowly(live_status.MadeView):
        asked = 0

        def nodes(self) -> tuple[NodeView, ...]:
            nonlocal seconds
            self.asked += 1
            seconds += 0.3
            return super().nodes()

    view = Slowly()
    taking = StateReader(view)
    for at, asked in ((0.0, 1), (14.0, 1), (15.5, 2), (15.6, 2)):
        seconds = max(seconds, at)
        assert taking.now(nodes=True).nodes == ()
        assert taking.now().nodes is None
        assert view.asked == asked, at
    view.nodes_ = (NodeView("oss-1", "storage", "down", False, 0.0, 0.0),)
    assert taking.now(nodes=True).nodes == ()
    assert taking.now(node="oss-1").nodes == view.nodes_, "the page of one node does not wait for the list"
    assert taking.now(node="oss-2").nodes is None


def test_what_is_not_ours_is_what_its_publisher_published() -> None:
    readme = (VENDOR / "README.md").read_text()
    files = [path for path in VENDOR.rglob("*") if path.suffix in (".js", ".css")]
    assert len(files) == 2
    for path in files:
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(VENDOR)}" in readme
        assert "MIT License" in (path.parent / "LICENSE").read_text()


@pytest.mark.parametrize(("room", "made_times"), [(site.MAX_KEPT_BYTES, 2), (0, 3)])
def test_pages_are_kept_for_as_long_as_there_is_room(
    room: int, made_times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MAX_KEPT_BYTES", room)
    rendered: list[str] = []
    render = Pages._render

    def counted(pages: Pages, name: str, path: str, **values: Any) -> tuple[bytes, bytes]:
        rendered.append(name)
        return render(pages, name, path, **values)

    monkeypatch.setattr(Pages, "_render", counted)
    first, _, again = ask(["/search", "/search?q=oss", "/search"])
    assert first.text == again.text
    assert len(rendered) == made_times


def test_scripts_come_in_few_requests_without_their_comments() -> None:
    for path, names in (("/", ["page.js"]), ("/component/luns/oss-1/wwn-2", ["page.js", "charts.js"])):
        sources = [urljoin(path, attrs["src"] or "") for attrs in Outline(page(path)).all("script")]
        assert [source.partition("?")[0] for source in sources] == [f"/static/{name}" for name in names]
    served, charts = ask(sources)
    assert not re.search(r"(^|\s)//|^\s", served.text, re.MULTILINE)
    for name in ("zone.js", "heat.js", "live.js"):
        lines = (VENDOR.parent / name).read_text().splitlines()
        code = [line.partition(" // ")[0].strip() for line in lines if not line.strip().startswith("//")]
        assert "\n".join(line for line in code if line) in served.text
    assert charts.text.startswith((VENDOR / "uplot" / "uPlot.iife.min.js").read_text())
    assert int(served.headers["content-length"]) < 3_000
    assert "immutable" in served.headers["cache-control"]


def test_files_are_kept_by_browsers_for_as_long_as_they_are_the_same() -> None:
    sheet = next(attrs["href"] for attrs in Outline(page("/")).all("link") if attrs["rel"] == "stylesheet")
    known, old, none, outside = ask(
        [urljoin("/", sheet or ""), "/static/style.css?v=old", "/static/none.css", "/static/..%2fsite.py"]
    )
    assert "immutable" in known.headers["cache-control"]
    assert known.headers["content-type"] == "text/css; charset=utf-8"
    assert old.headers["cache-control"] == "no-cache"
    assert (none.status_code, outside.status_code) == (404, 404)
