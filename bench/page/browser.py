"""A headless Chromium over a served fleet."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator

from playwright.async_api import Browser, async_playwright

from laggard_aggregator.status.view import Status
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.server import HttpServer


@contextlib.asynccontextmanager
async def served(view: Status) -> AsyncIterator[str]:
    """The address at which the pages over `view` are served, by the aggregator's own server."""
    server, stop = HttpServer(make_app(view), "127.0.0.1:0"), asyncio.Event()
    server.bind()
    serving = asyncio.create_task(server.run(stop))
    try:
        yield server.url
    finally:
        view.close()
        stop.set()
        await serving


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium; SystemExit where it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("chromium is not installed")
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=alone)
        try:
            yield browser
        finally:
            await browser.close()
