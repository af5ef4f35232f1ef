"""The pages in a real Chromium: accessibility, a phone, a lost aggregator, heat maps, a proxied path."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.cli.main import main
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.web.actions import Actions
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages import site as site_module
from laggard_aggregator.web.pages.site import Pages
from tests.aggregator.layers import test_report
from tests.aggregator.notify.email import test_message
from tests.aggregator.web import test_job_loads, test_past
from tests.aggregator.web.test_alarm_log import raised
from tests.aggregator.web.test_pages import PAGES
from tests.e2e import test_job_pages
from tests.e2e.test_page import CHROMIUM, chromium, opened, playwright_api, watched
from tests.support import pages
from tests.support.builders import history, live_status, notifications

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed"),
]
NOW = live_status.NOW
COMPONENT = "/component/luns/oss-1/wwn-2"
PATHS = (*PAGES, "/node/oss-1", "/group/none")
TEMPLATES = Path(site_module.__file__).parents[1] / "templates"
CUT_OFF = """
() => [...document.querySelectorAll(".stack tbody td, .stack tbody th, .heat tbody td, .heat tbody th")]
  .filter((cell) => cell.checkVisibility())
  .filter((cell) => {
    const box = cell.getBoundingClientRect();
    return box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth + 1;
  })
  .map((cell) => cell.outerHTML.slice(0, 120))
"""


@dataclass
class Waiting(live_status.MadeView):
    """A view that changes when the test says so."""

    change: asyncio.Event = field(default_factory=asyncio.Event)

    async def changed(self, revision: int) -> int | None:
        while revision == self.revision and not self._closed:
            await self.change.wait()
            self.change.clear()
        return None if self._closed else self.revision

    def close(self) -> None:
        self._closed = True
        self.change.set()


def site() -> Waiting:
    """A site with alarms, a slight straggler, a silenced one, twelve windows and a cleared alarm."""
    made = live_status.site()
    view = Waiting(**{name: getattr(made, name) for name in made.__dataclass_fields__})
    view._closed = False
    slight = live_status.judgement(
        "more", ("oss-1/a", "oss-1/b", "oss-2/c"), [4, 0, 0], [1.2, 1.0, 1.0], [True, False, False]
    )
    view.groups_ = (*(replace(each, silent=0) for each in view.groups_), live_status.group("more", 3))
    view.judgements_ = (*view.judgements_, slight)
    names = ("oss-1/e", "oss-1/f", "oss-2/g", "oss-2/h")
    calm = live_status.judgement("shadowed", names, [0] * 4, [1.0] * 4, [False] * 4)
    other = live_status.judgement("shadowed", names, [9, 0, 0, 0], [4.0, 1.0, 1.0, 1.0], [True, *[False] * 3])
    detect = DetectSettings(interval_seconds=1.0, shadow=DetectSettings(detector="cdf"))
    view.groups_ = (*view.groups_, replace(live_status.group("shadowed", 4), detect=detect))
    view.judgements_ = (*view.judgements_, replace(calm, shadow=other))
    view.decisions_ = (
        Decision("silence", "oss-1/sdb", "kim", NOW - 60, NOW + 3600, "rebuild after the swap of a disk"),
    )
    for back in range(11, -1, -1):
        for judged in view.judgements_:
            view.history.judged([replace(judged, start=judged.start - 30 * back, end=judged.end - 30 * back)])
    for judged in (raised("oss-1/wwn-9", NOW - 7500), raised("oss-1/wwn-9", NOW - 300, "cleared")):
        view.history.transitions.extend(judged.transitions)
    return view


@asynccontextmanager
async def served(app: ASGIApp, view: Waiting, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address at which the aggregator's own server serves `app`, also once more."""
    view._closed = False
    async with pages.served(view, app, listen) as url:
        yield url


def decided_by_kim(view: Waiting) -> ASGIApp:
    """The pages as the operator kim gets them."""
    inner = make_app(view, actions=Actions(("kim",)))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await inner({**scope, "user": "kim"}, receive, send)

    return app


@pytest.mark.parametrize(("shade", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_no_page_has_a_serious_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shade: Literal["light", "dark"], width: int
) -> None:
    axe()
    history.written(tmp_path)
    jobs = test_job_pages.archive(tmp_path / "jobs")
    loads, loaded = test_job_loads.view(), test_job_loads.load_archive(tmp_path / "loads")
    view, empty, stale, past, unknown = (
        site(),
        Waiting(),
        site(),
        test_past.site(),
        test_past.site(known=False),
    )
    stale.overdue_seconds = 600.0
    unknown.judgements_, unknown.groups_ = (), ()
    of_range = f"/component/{history.GROUP}/{history.SLOW}?{test_past.ASKED}"
    apps: Mapping[str, tuple[live_status.MadeView, ASGIApp, tuple[str, ...]]] = {
        "site": (view, make_app(view), (*PATHS, "/nope")),
        "empty": (empty, make_app(empty), ("/", "/groups", "/nodes", "/alarms", "/shadows")),
        "stale": (stale, make_app(stale), ("/", COMPONENT)),
        "operator": (view, decided_by_kim(view), (f"{COMPONENT}?act=silence", "/alarms")),
        "past": (past, make_app(past, tmp_path), (of_range, f"/node/oss-3?{test_past.ASKED}")),
        "unknown": (unknown, make_app(unknown, tmp_path), (of_range,)),
        "jobs": (
            view,
            test_job_pages.as_admin(make_app(view, jobs)),
            ("/jobs", "/jobs/7", "/jobs?user=nobody"),
        ),
        "loads": (
            loads,
            test_job_pages.as_admin(make_app(loads, loaded)),
            (*test_job_loads.ALL, "/metadata?from=-1h", "/amplification?user=none"),
        ),
    }
    rendered, render = set[str](), Pages._render

    def noted(self: Pages, name: str, path: str, **values: Any) -> tuple[bytes, bytes]:
        rendered.add(name)
        return render(self, name, path, **values)

    monkeypatch.setattr(Pages, "_render", noted)

    async def story() -> None:
        async with chromium() as browser:
            found: list[tuple[str, ...]] = []
            page = await opened(browser, color_scheme=shade, viewport={"width": width, "height": 900})
            for name, (shown, app, paths) in apps.items():
                if isinstance(shown, Waiting):
                    shown._closed = False
                async with pages.served(shown, app) as url:
                    for path in paths:
                        await page.goto(url + path)
                        found += [(name, path, *each) for each in await findings(page, width)]
                        if "act=" in path:
                            await page.get_by_role("button", name="Silence").click()
                            await page.wait_for_url("**/decide")
                            found += [(name, "decided", *each) for each in await findings(page, width)]
            await page.close()
            assert found == []

    asyncio.run(story())
    assert rendered == {path.stem for path in TEMPLATES.glob("*.html")} - {"base", "parts"}, (
        "a page is left out"
    )


@pytest.mark.parametrize(("shade", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_no_mail_and_no_report_has_a_serious_finding(
    tmp_path: Path, shade: Literal["light", "dark"], width: int
) -> None:
    axe()
    layers = tmp_path / "layers.html"
    events = str(test_report.serialised(tmp_path))
    assert main(["layers", events, "--html", str(layers), "-o", str(tmp_path / "out")]) == 0
    written = {
        "straggler": notifications.raised("s.1", notifications.report("oss-3/sdb")),
        "digest": notifications.raised("d.1", *test_message.FIVE, count=70),
        "resolved": notifications.resolved("r.1", notifications.resolution()),
        "test": notifications.raised("t.1", notifications.report("oss-3/sdb"), kind="test"),
    }
    texts = {
        name: test_message.text(test_message.written(each, None), "html") for name, each in written.items()
    }

    async def story() -> None:
        async with chromium() as browser:
            page = await opened(browser, color_scheme=shade, viewport={"width": width, "height": 900})
            found: list[tuple[str, ...]] = []
            for name, html in {**texts, "layers": layers.read_text()}.items():
                await page.set_content(html)
                found += [(name, *each) for each in await findings(page, width)]
            await page.close()
            assert found == []

    asyncio.run(story())


def axe() -> Any:
    return pytest.importorskip("axe_playwright_python.async_playwright", reason="axe is not installed").Axe()


async def findings(page: "Page", width: int) -> list[tuple[str, ...]]:
    """Rule and first element of what is serious, or about landmarks and ids, and what is wider."""
    await page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    if (found := await page.evaluate("document.documentElement.scrollWidth")) != width:
        return [("wide", f"{found} instead of {width} pixels")]
    answer = (await axe().run(page)).response
    return [
        (each["id"], each["nodes"][0]["html"][:160])
        for each in answer["violations"]
        if each["impact"] in ("serious", "critical")
        or each["id"].startswith(("landmark-", "duplicate-id", "region"))
    ]


def test_nothing_is_cut_off_on_a_phone(tmp_path: Path) -> None:
    async def story() -> None:
        view = site()
        async with chromium() as browser, served(make_app(view), view) as url:
            page = await opened(browser, viewport={"width": 390, "height": 844})
            for path in PATHS:
                await page.goto(url + path)
                assert await page.evaluate("document.documentElement.scrollWidth") == 390, path
                assert await page.evaluate(CUT_OFF) == [], path
            await page.goto(url)
            row = page.locator(".slow tbody tr").first
            for words in ("4.0×", "2025-10-09 08:56:40 UTC", "await: 8 ms", "look at the component itself"):
                await playwright_api.expect(row).to_contain_text(words)
            strip = await page.locator(".card .strip").first.bounding_box()
            assert strip is not None
            assert strip["width"] > 120
            await page.goto(f"{url}/group/luns")
            strip = await page.locator(".heat.full .strip").first.bounding_box()
            assert strip is not None
            assert strip["width"] > 300
            await page.goto(f"{url}/nodes")
            healthy = page.locator("#nodes tbody tr", has_not_text="unhealthy").last
            row_box = await healthy.bounding_box()
            assert row_box is not None
            assert row_box["height"] < 150, "a node takes a few lines, not one for each figure"
        loads = test_job_loads.view()
        app = test_job_pages.as_admin(make_app(loads, test_job_loads.load_archive(tmp_path)))
        async with chromium() as browser, pages.served(loads, app) as url:
            page = await opened(browser, viewport={"width": 390, "height": 844})
            for path in test_job_loads.ALL:
                await page.goto(url + path)
                assert await page.evaluate("document.documentElement.scrollWidth") == 390, path
                assert await page.evaluate(CUT_OFF) == [], path

    asyncio.run(story())


def test_a_page_whose_aggregator_is_gone_says_so_until_it_is_back() -> None:
    async def story() -> None:
        view = site()
        app = make_app(view)
        expect = playwright_api.expect
        async with chromium() as browser:
            page = await opened(browser)
            async with served(app, view) as url:
                await page.goto(url)
                await expect(page.locator("#live-state")).to_have_text("Live.")
                title = await page.title()
                green = await tile_colours(page)
                assert green
                view.revision += 1
                view.change.set()
                await expect(page.locator("body")).to_have_attribute("data-revision", re.compile("-2$"))
            await expect(page.locator("#stale")).to_contain_text(
                "Stale: the aggregator does not answer. As of 2025-10-09"
            )
            await expect(page).to_have_title(f"Stale · {title}")
            assert (
                await page.locator("main").evaluate("(each) => getComputedStyle(each).filter")
                == "grayscale(1)"
            )
            assert not green & await tile_colours(page)
            assert await page.locator(".tile .sign").first.is_hidden()
            async with served(app, view, url.removeprefix("http://")):
                await expect(page.locator("#stale")).to_be_empty()
                await expect(page).to_have_title(title)
                assert await tile_colours(page) >= green
                assert await page.locator("[id=live-state]").count() == 1

    asyncio.run(story())


async def tile_colours(page: "Page") -> set[str]:
    """The borders of the tiles that are well."""
    colours = await page.locator(".tile.good").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).borderLeftColor)"
    )
    return set(colours)


def test_an_aggregator_that_hangs_is_noticed() -> None:
    async def story() -> None:
        view = site()
        view.site = "hung"
        hanging, inner = asyncio.Event(), make_app(view)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if hanging.is_set():
                await asyncio.Event().wait()
            await inner(scope, receive, send)

        async with chromium() as browser, served(app, view) as url:
            page = await opened(browser)
            await page.clock.install()
            await page.goto(url)
            await playwright_api.expect(page.locator("#live-state")).to_have_text("Live.")
            hanging.set()
            await page.clock.run_for(55_000)
            assert await page.locator("#stale").inner_text() == ""
            await page.clock.run_for(60_000)
            await playwright_api.expect(page.locator("#stale")).to_contain_text(
                "the aggregator does not answer"
            )
            await page.close()

    asyncio.run(story())


def test_a_cell_of_a_heat_map_names_component_and_time_and_leads_there() -> None:
    async def story() -> None:
        view = site()
        said: list[str] = []
        async with chromium() as browser, served(make_app(view), view) as url:
            page = await watched(browser, said)
            for path in ("/", "/group/luns"):
                await page.goto(url + path)
                row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="oss-1/sdb"))
                strip = row.locator(".strip").last
                box = await strip.bounding_box()
                assert box is not None
                await strip.hover(position={"x": box["width"] * 0.99, "y": box["height"] / 2})
                await playwright_api.expect(page.locator(".tip")).to_have_text(
                    "oss-1/sdb, 2025-10-09 09:00:00 to 09:01:00 UTC: anomalous, 2× or slower"
                )
                await strip.click(position={"x": box["width"] / 24, "y": box["height"] / 2})
                await page.wait_for_url(
                    re.compile(r"/component/luns/oss-1/wwn-2\?.*from=2025-10-09T08%3A54%3A30Z")
                )
                await page.get_by_role("heading", name="oss-1/sdb", level=1).wait_for()
            await page.close()
        assert said == []

    asyncio.run(story())


def test_the_pages_work_below_the_path_of_a_proxy() -> None:
    async def story() -> None:
        view = site()
        inner = make_app(view)
        asked: list[str] = []

        async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
            asked.append(scope["path"])
            path, raw = scope["path"].removeprefix("/laggard"), scope["raw_path"].removeprefix(b"/laggard")
            await inner({**scope, "path": path, "raw_path": raw}, receive, send)

        said: list[str] = []
        async with chromium() as browser, served(proxy, view) as url:
            page = await watched(browser, said)
            await page.goto(f"{url}/laggard/")
            await playwright_api.expect(page.locator("#live-state")).to_have_text("Live.")
            await page.locator("#slow-1").click()
            await page.wait_for_url(f"{url}/laggard/component/luns/oss-1/wwn-2**")
            await page.locator(".plot canvas").wait_for()
            await playwright_api.expect(page.locator("#live-state")).to_have_text("Live.")
            await page.get_by_role("link", name="luns").first.click()
            await page.wait_for_url(f"{url}/laggard/group/luns")
            await page.get_by_role("searchbox").fill("oss-2")
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"{url}/laggard/search?q=oss-2")
            await page.get_by_role("link", name="oss-2", exact=True).click()
            await page.wait_for_url(f"{url}/laggard/node/oss-2")
            await page.close()
        assert said == []
        assert "/laggard/events" in asked
        assert [path for path in asked if not path.startswith("/laggard/")] == []

    asyncio.run(story())
