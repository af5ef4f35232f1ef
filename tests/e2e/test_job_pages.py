"""The pages of jobs in a real browser: light and dark, on desk and phone, with hostile names and gaps."""

import asyncio
from pathlib import Path
from typing import Any, Literal

from starlette.types import ASGIApp

from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.server import HttpServer
from tests.aggregator.web.test_jobs_access import HOSTILE, acting
from tests.e2e import test_page as pages
from tests.support.builders import live_status
from tests.support.builders.job_tables import component_row, job_row, node_rows, summary_row, write_rows

pytestmark = pages.pytestmark

JOBS = 60


def archive(folder: Path) -> Path:
    """More jobs than a page has; job 7 has a hostile name, and a series with a gap."""
    jobs = [job_row(at, user=("alice", "bob")[at % 2], application="wrf") for at in range(1, JOBS + 1)]
    jobs[6] |= {"name": HOSTILE, "application": HOSTILE}
    write_rows(folder, "job_nodes", [row for job in jobs for row in node_rows(job, ["cn-1"])])
    write_rows(folder, "job_components", [component_row(job, "OST0") for job in jobs])
    write_rows(folder, "jobs", jobs)
    write_rows(folder, "job_summaries", [summary_row(job, read_bytes=2e9, coverage=0.97) for job in jobs])
    values: list[Any] = [1e9] * 100 + [None] * 50 + [2e9] * 100
    key = {name: jobs[6][name] for name in ("job_key", "revision_at", "start")}
    series = {**key, "layer": "client", "resolution_seconds": 10.0, "read_bytes": values}
    write_rows(folder, "job_series", [series])
    JobIndex(folder).refresh()
    return folder


def as_admin(app: ASGIApp) -> ASGIApp:
    """The pages as an administrator gets them."""
    return acting(app, Principal("root", Role.ADMIN))


async def reads(url: str) -> None:
    said: list[str] = []
    sizes: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1200), ("dark", 390))
    async with pages.chromium() as browser:
        for shade, width in sizes:
            page = await pages.watched(
                browser, said, color_scheme=shade, viewport={"width": width, "height": 900}
            )
            for path in ("/jobs", "/jobs/7"):
                await page.goto(url + path)
                contrast, where = await page.evaluate(pages.LEAST_CONTRAST)
                assert contrast >= 4.5, (shade, path, where)
                assert await page.evaluate("document.documentElement.scrollWidth") == width, path
            drawn = await page.locator("svg.chart path.read").get_attribute("d")
            assert drawn is not None
            assert drawn.count("M") == 2, "a gap is a gap of the line"
            assert "\u202e" not in await page.content()
            await page.close()
        page = await pages.watched(browser, said)
        await page.goto(url + "/jobs")
        await page.get_by_text("Filter", exact=True).first.click()
        await page.get_by_label("User", exact=True).fill("alice")
        await page.get_by_role("button", name="Filter").click()
        await page.wait_for_url("**user=alice**")
        assert await page.locator("tbody tr").count() == JOBS // 2
        await page.goto(url + "/jobs")
        await page.get_by_role("link", name="Older").click()
        await page.get_by_role("link", name="Newest").wait_for()
        assert await page.locator("tbody tr").count() == JOBS - 50
        await page.get_by_role("link", name="7", exact=True).click()
        await page.get_by_role("heading", name="When, and how fast").wait_for()
        assert said == []
        await pages.policy_holds(await pages.opened(browser), url + "/jobs/7")


def test_jobs_in_a_real_browser(tmp_path: Path) -> None:
    async def story() -> None:
        app = make_app(live_status.site(), archive(tmp_path))
        server, stop = HttpServer(as_admin(app), "127.0.0.1:0"), asyncio.Event()
        server.bind()
        serving = asyncio.create_task(server.run(stop))
        try:
            await reads(server.url)
        finally:
            stop.set()
            await serving
            server.close()

    asyncio.run(story())
