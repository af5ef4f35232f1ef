"""The pages in a real Chromium, over a real aggregator that heard of a slow disk through its own broker."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import aiomqtt
import pytest

from laggard_aggregator.app import App
from tests.support.aggregator import (
    SLOW,
    START,
    client,
    publish_schemas,
    publish_seconds,
    running,
    settings,
    shadowed,
)
from tests.support.clock import HandClock
from tests.support.wait import LIMIT_SECONDS

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Request

playwright_api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed"),
]

PAST = f"/component/storage%2Fdiskstats/{SLOW}/wwn?from=2027-01-15T08:00Z&to=2027-01-15T08:01Z"
ANSWER = re.compile(rf"{SLOW}/sda has been (9\.\d|10)× slower than its peers since 2027-01-15 07:59 UTC")
LEAST_CONTRAST = """
() => {
  const channels = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((each) => {
      const share = each / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if ((channels(colour)[3] ?? 1) === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let least = [99, ""];
  for (const element of document.body.querySelectorAll("*:not(svg *)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const pair = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < least[0]) least = [contrast, element.outerHTML.slice(0, 120)];
  }
  return least;
}
"""


@asynccontextmanager
async def aggregator(folder: Path) -> AsyncIterator[tuple[App, aiomqtt.Client, HandClock]]:
    """An aggregator that has found a slow disk, and whoever sends to it."""
    clock = HandClock(START)
    made = settings(archive=folder, detect=shadowed(folder))
    app = App(made, clock)
    async with running(app), client(made.mqtt.port) as agents:
        await publish_schemas(agents)
        await publish_seconds(agents, app, clock, range(12))
        assert [component for _, component, _ in app.view.alarms()] == [f"{SLOW}/wwn"]
        yield app, agents, clock


@asynccontextmanager
async def chromium() -> "AsyncIterator[Browser]":
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with playwright_api.async_playwright() as playwright:
        playwright_api.expect.set_options(timeout=1000 * LIMIT_SECONDS)
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=alone, timeout=1000 * LIMIT_SECONDS
        )
        yield browser
        await browser.close()


async def opened(browser: "Browser", **options: Any) -> "Page":
    """A new page, with the limit of all tests."""
    page = await browser.new_page(**options)
    page.set_default_timeout(1000 * LIMIT_SECONDS)
    return page


async def watched(browser: "Browser", said: list[str], **options: Any) -> "Page":
    """A new page, all complaints of which are noted in `said`."""
    page = await opened(browser, **options)
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))

    def failed(request: "Request") -> None:
        if request.failure != "net::ERR_ABORTED":  # as the stream of events does when its page is left
            said.append(f"{request.url}: {request.failure}")

    page.on("requestfailed", failed)
    return page


async def tab_to(page: "Page", name: str) -> None:
    """Moves the focus by the tabulator key until it is on the link or button `name`, and can be seen."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if await focused.count() == 0:
            continue  # the button of a date picker, which is the browser's own
        if (await focused.inner_text()).strip() == name:
            outline = await focused.evaluate("(element) => getComputedStyle(element).outlineStyle")
            assert outline != "none"
            return
    raise AssertionError(f"no way to {name} by keyboard")


async def by_keyboard(page: "Page", url: str) -> None:
    """From the answer to the slow component and to its node, with no pointer."""
    await page.goto(url)
    await page.keyboard.press("Tab")
    assert await page.locator(":focus").inner_text() == "Skip to the content"
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    await tab_to(page, f"{SLOW}/sda")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name=f"{SLOW}/sda", level=1, exact=True).wait_for()
    assert "slower than its peers since 2027-01-15 07:59:50 UTC" in await page.locator("#answer").inner_text()
    await page.locator(".plot canvas").first.wait_for()  # uPlot under the policy
    await tab_to(page, "The latest window, sample by sample")
    await page.keyboard.press("Enter")
    await page.locator("#samples-1 svg").wait_for(state="visible")
    await page.go_back()
    await tab_to(page, "Nodes")
    await page.keyboard.press("Enter")
    await page.get_by_role("table", name="Unhealthy nodes first").wait_for()


async def by_pointer(page: "Page", url: str) -> None:
    """A chart tells what is under the pointer; a zoom is a range in the address, which back leaves."""
    await page.goto(f"{url}/component/storage%2Fdiskstats/{SLOW}/wwn")
    over = page.locator("#metric-1 .u-over")
    await over.scroll_into_view_if_needed()
    box = await over.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 100)
    await page.locator("#metric-1 .u-legend", has_text="2027-01-15 08:0").wait_for()
    assert " ms" in await page.locator("#metric-1 .u-legend").inner_text()
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 120, steps=5)
    await playwright_api.expect(page.locator("#metric-1 .u-select")).not_to_have_css("width", "0px")
    await page.mouse.up()
    await page.wait_for_url(
        re.compile(r"/wwn\?from=2027-01-15T\d\d:\d\d:\d\dZ&to=2027-01-15T\d\d:\d\d:\d\dZ#past$")
    )
    assert await page.get_by_label("From (UTC)").input_value() in page.url
    await page.get_by_role("heading", name="From 2027-01-15 0").wait_for()
    await page.get_by_role("heading", name="Load: is it just busier?").wait_for()
    assert await page.locator("#past .plot canvas").count() > 4
    await page.get_by_text("Not live: the page shows a range of time.").wait_for()
    await page.go_back()
    await page.wait_for_url(re.compile(r"/wwn$"))
    await page.locator("#metric-1 .plot").wait_for()
    await page.locator("#past .plot").nth(4).wait_for()  # fetched by the script
    await page.go_forward()
    await page.locator("#past .plot .u-over").first.dblclick()
    await page.wait_for_url(re.compile(r"/wwn$"))


async def as_a_screen_reader(page: "Page", url: str) -> None:
    """Landmarks, names and what speaks for itself."""
    await page.goto(url)
    for role in ("banner", "main", "contentinfo", "search"):
        assert await page.get_by_role(role).count() == 1, role
    assert await page.get_by_role("navigation", name="Main").count() == 1
    headline = page.get_by_role("status").filter(has_text=ANSWER)
    assert await headline.get_attribute("aria-live") == "polite"
    assert await page.get_by_role("heading", level=1).count() == 1
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=f"{SLOW}/sda"))
    assert "for " in await row.first.inner_text()
    await page.get_by_role("img", name=re.compile("anomalous in [1-9]")).first.wait_for()
    await page.get_by_role("searchbox", name="Search components, nodes and groups").wait_for()


async def stays_live(page: "Page", url: str, app: App, agents: aiomqtt.Client, clock: HandClock) -> None:
    """What is judged while the page is open shows in it, and the focus stays where it is."""
    await page.goto(url)
    await page.evaluate("window.here = true")
    before = app.view.revision
    await page.locator("#slow-1").focus()
    maps = page.get_by_role("img", name=re.compile(r"anomalous in \d+ of")).first
    windows = await maps.get_attribute("aria-label") or ""
    await publish_seconds(agents, app, clock, range(12, 18))
    assert app.view.revision > before
    await playwright_api.expect(maps).not_to_have_attribute("aria-label", windows)
    assert await page.evaluate("window.here")  # it was not loaded anew
    assert await page.evaluate("document.activeElement.id") == "slow-1"
    await page.get_by_text("Live.").wait_for()


async def without_javascript(browser: "Browser", url: str) -> None:
    said: list[str] = []
    page = await watched(browser, said, java_script_enabled=False)
    await page.goto(url)
    assert ANSWER.search(await page.locator("h1").inner_text())
    await page.get_by_role("link", name=f"{SLOW}/sda").first.click()
    await page.locator("svg.chart").first.wait_for(state="visible")
    await page.get_by_role("searchbox").fill("OSS-3")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="matches for “OSS-3”").wait_for()
    await page.get_by_role("link", name="oss-3", exact=True).click()
    await page.get_by_role("heading", name="oss-3", exact=True).wait_for()
    assert said == []


async def in_light_on_a_desk_and_in_dark_on_a_phone(browser: "Browser", url: str) -> None:
    grounds = []
    sizes: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1200), ("dark", 390))
    for shade, width in sizes:
        page = await opened(browser, color_scheme=shade, viewport={"width": width, "height": 900})
        component = f"/component/storage%2Fdiskstats/{SLOW}/wwn"
        for path in ("/", component, "/nodes", "/groups", "/shadows", PAST):
            await page.goto(url + path)
            contrast, where = await page.evaluate(LEAST_CONTRAST)
            assert contrast >= 4.5, (shade, path, where)
            assert await page.evaluate("document.documentElement.scrollWidth") == width, path
        grounds.append(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        await page.close()
    assert grounds[0] != grounds[1]


async def policy_holds(page: "Page", url: str) -> None:
    """Nothing that got into a page runs, or calls home."""
    await page.goto(url)
    blocked = await page.evaluate(
        """() => new Promise((resolve) => {
             const found = new Set();
             document.addEventListener("securitypolicyviolation", (event) => {
               found.add(event.effectiveDirective);
               if (found.size === 3) resolve([...found].sort());
             });
             const script = document.createElement("script");
             script.textContent = "window.hacked = true";
             document.body.append(script);
             const picture = document.createElement("img");
             picture.src = "http://192.0.2.1/x.png";
             document.body.append(picture);
             fetch("http://192.0.2.1/").catch(() => {});
           })"""
    )
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    assert await page.evaluate("window.hacked") is None


def test_an_operator_gets_an_answer_in_a_real_browser(tmp_path: Path) -> None:
    async def story() -> None:
        said: list[str] = []
        async with aggregator(tmp_path) as (app, agents, clock), chromium() as browser:
            page = await watched(browser, said)
            await by_keyboard(page, app.url)
            await by_pointer(page, app.url)
            await as_a_screen_reader(page, app.url)
            await stays_live(page, app.url, app, agents, clock)
            assert said == []
            await page.close()
            await without_javascript(browser, app.url)
            await in_light_on_a_desk_and_in_dark_on_a_phone(browser, app.url)
            await policy_holds(await opened(browser), app.url)

    asyncio.run(story())
