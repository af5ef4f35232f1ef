"""Decisions in a real Chromium: the form by keyboard and on a phone, a page of another site, a restart."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from laggard_aggregator.app import App
from laggard_aggregator.settings.aggregator import StateTable
from laggard_aggregator.settings.http import HttpSettings
from laggard_aggregator.web.auth import password_line
from tests.e2e.test_page import CHROMIUM, LEAST_CONTRAST, chromium, opened, tab_to, watched
from tests.support.aggregator import SLOW, START, client, publish_schemas, publish_seconds, running, settings
from tests.support.clock import HandClock

if TYPE_CHECKING:
    from playwright.async_api import Browser, HttpCredentials

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed"),
]

ALICE = ("alice", "correct horse: battery")
SIGNED_IN: "HttpCredentials" = {"username": ALICE[0], "password": ALICE[1]}
COMPONENT = f"/component/storage%2Fdiskstats/{SLOW}/wwn"
LINK = f"{COMPONENT}?act=silence#act"
EVIL = """\
<!doctype html><title>another site</title>
<form method="post" action="{url}/decide"><input name="do" value="drain"><input name="target" value="{slow}">
<input name="token" value=""><button>go</button></form>
"""


def http_settings(folder: Path) -> HttpSettings:
    credentials = folder / "credentials"
    if not credentials.exists():
        credentials.touch(mode=0o600)
        credentials.write_text(password_line(*ALICE) + "\n")
    return HttpSettings("127.0.0.1:0", credentials_file=credentials, operators=("alice",))


@asynccontextmanager
async def aggregator(folder: Path, clock: HandClock) -> AsyncIterator[App]:
    """An aggregator with an operator and its state in `folder`."""
    made = settings(state=StateTable(folder / "state", catch_up_seconds=0.0), http=http_settings(folder))
    app = App(made, clock)
    async with running(app):
        yield app


async def slowed(app: App, clock: HandClock) -> None:
    async with client(app._settings.mqtt.port) as agents:
        await publish_schemas(agents)
        await publish_seconds(agents, app, clock, range(12))
    assert [component for _, component, _ in app.view.alarms()] == [f"{SLOW}/wwn"]


def kinds(app: App) -> list[tuple[str, str, str]]:
    return [(each.kind, each.target, each.by) for each in app.view.decisions()]


async def by_keyboard(browser: "Browser", app: App) -> None:
    """From the link of a mail to a silence, which the page then shows."""
    said: list[str] = []
    page = await watched(browser, said, http_credentials=SIGNED_IN)
    await page.goto(app.url + LINK)
    assert kinds(app) == []
    await page.get_by_label("Component, node or pattern").focus()
    await page.keyboard.press("Tab")
    await page.keyboard.type("2 d")  # chooses in the list
    await page.keyboard.press("Tab")
    await page.keyboard.type("disk ordered")
    await page.keyboard.press("Tab")
    await page.keyboard.type("https://tickets.example.org/4711")
    await page.keyboard.press("Tab")
    assert await page.locator(":focus").inner_text() == "Silence"
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name=f"{SLOW}/wwn is silenced until").wait_for()
    assert kinds(app) == [("silence", f"{SLOW}/wwn", "alice")]
    (decision,) = app.view.decisions()
    assert decision.until == decision.at + 2 * 86_400
    await tab_to(page, "Back")
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="tickets.example.org/4711").first.wait_for()
    assert "silenced until" in await page.locator("h1").inner_text()
    await page.goto(app.url + "/alarms")
    await tab_to(page, "end")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="End").click()
    await page.get_by_role("heading", name=f"The silence of {SLOW}/wwn has ended").wait_for()
    assert kinds(app) == []
    assert said == []
    await page.close()


async def without_javascript_on_a_phone(browser: "Browser", app: App) -> None:
    page = await opened(
        browser,
        http_credentials=SIGNED_IN,
        java_script_enabled=False,
        viewport={"width": 390, "height": 800},
    )
    await page.goto(app.url + COMPONENT)
    await page.get_by_role("link", name="Comment", exact=True).click()
    assert await page.locator("noscript meta[http-equiv=refresh]").count() == 0
    await page.get_by_role("textbox", name="Comment").fill("waits for the spare")
    await page.get_by_role("button", name="Comment").click()
    await page.get_by_role("heading", name=f"Comment on {SLOW}/wwn saved").wait_for()
    assert kinds(app) == [("comment", f"{SLOW}/wwn", "alice")]
    await page.close()


async def readable_in_both_shades(browser: "Browser", app: App) -> None:
    for shade, width in (("light", 1200), ("dark", 390)):
        page = await opened(
            browser,
            color_scheme=shade,
            http_credentials=SIGNED_IN,
            viewport={"width": width, "height": 900},
        )
        for path in ("/", LINK, f"{COMPONENT}?act=comment", f"/node/{SLOW}?act=drain", "/alarms?act=silence"):
            await page.goto(app.url + path)
            contrast, where = await page.evaluate(LEAST_CONTRAST)
            assert contrast >= 4.5, (shade, path, where)
            assert await page.evaluate("document.documentElement.scrollWidth") == width, path
        await page.close()


async def from_another_site(browser: "Browser", app: App) -> None:
    """A form of another origin is sent with the credentials that the browser has, and is refused."""
    evil = EVIL.format(url=app.url, slow=SLOW).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + evil)
        await writer.drain()
        writer.close()

    before = kinds(app)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    page = await opened(browser, http_credentials=SIGNED_IN)
    async with server:
        await page.goto(app.url + COMPONENT)
        await page.goto(f"http://localhost:{port}/")
        async with page.expect_response(re.compile("/decide$")) as answered:
            await page.get_by_role("button", name="go").click()
        answer = await answered.value
        assert (answer.status, "another origin" in await answer.text()) == (403, True)
    await page.close()
    assert kinds(app) == before


def test_an_operator_decides_in_a_real_browser(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        async with aggregator(tmp_path, clock) as app, chromium() as browser:
            await slowed(app, clock)
            await by_keyboard(browser, app)
            await without_javascript_on_a_phone(browser, app)
            await readable_in_both_shades(browser, app)
            await from_another_site(browser, app)
        async with aggregator(tmp_path, clock) as again, httpx.AsyncClient(auth=ALICE) as http:
            answer = await http.get(f"{again.url}/api/v1/decisions")
            (kept,) = answer.json()["decisions"]
            assert (kept["kind"], kept["comment"]) == ("comment", "waits for the spare")
            body = {"do": "end", "kind": "comment", "target": f"{SLOW}/wwn"}
            assert (await http.post(f"{again.url}/api/v1/decisions", json=body)).status_code == 200
            assert kinds(again) == []

    asyncio.run(story())
