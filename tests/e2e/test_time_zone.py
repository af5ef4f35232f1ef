"""Times on the pages in a real Chromium: UTC, or the browser's zone by a switch."""

import asyncio
import re

import pytest

from tests.aggregator.web.test_pages import with_history
from tests.e2e.test_page import CHROMIUM, chromium, watched
from tests.support.pages import served
from tests.support.wait import LIMIT_SECONDS

playwright_api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed"),
]
COMPONENT = "/component/luns/oss-1/wwn-2"


def test_times_are_utc_or_in_the_browsers_zone_which_is_named() -> None:
    async def story() -> None:
        expect = playwright_api.expect
        said: list[str] = []
        async with served(with_history()) as url, chromium() as browser:
            # no daylight saving time, and half an hour
            page = await watched(browser, said, timezone_id="Asia/Tehran", java_script_enabled=True)
            expect.set_options(timeout=1000 * LIMIT_SECONDS)
            await page.goto(url)
            as_of = page.locator("#as-of time")
            await expect(as_of).to_have_text("2025-10-09 09:01:40 UTC")
            await page.get_by_role("button", name="Times: UTC").click()
            await expect(as_of).to_have_text("2025-10-09 12:31:40 UTC+3:30")
            await expect(as_of).to_have_attribute("datetime", "2025-10-09T09:01:40Z")

            await page.goto(url + COMPONENT)  # the choice stays
            await expect(page.locator("#as-of time")).to_have_text("2025-10-09 12:31:40 UTC+3:30")
            first = page.locator("svg.chart text[data-at]").first
            await expect(first).to_have_text(re.compile(r"12:2\d(:\d\d)? UTC\+3:30"))
            over = page.locator(".plot .u-over").first
            await over.scroll_into_view_if_needed()
            box = await over.bounding_box()
            assert box is not None
            await page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 100)
            await page.locator(".u-legend", has_text="2025-10-09 12:31:00 UTC+3:30").wait_for()

            await page.get_by_role("button", name="Times: Asia/Tehran").click()
            await expect(first).to_have_text(re.compile(r"0[89]:\d\d(:\d\d)? UTC"))
            await over.scroll_into_view_if_needed()
            box = await over.bounding_box()
            assert box is not None
            await page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 100)
            await page.locator(".u-legend", has_text="2025-10-09 09:01:00 UTC").wait_for()
            assert said == []

            plain = await watched(browser, said, timezone_id="Asia/Tehran", java_script_enabled=False)
            await plain.goto(url)
            await expect(plain.locator("#as-of time")).to_have_text("2025-10-09 09:01:40 UTC")
            await expect(plain.locator("#zone")).to_be_hidden()
            assert said == []

    asyncio.run(story())
