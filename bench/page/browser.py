"""A headless Chromium."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

from playwright.async_api import Browser, async_playwright


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
