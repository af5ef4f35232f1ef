"""Pages that are live when the aggregator ends."""

import asyncio
import logging

import httpx
import pytest

from laggard_aggregator.app import App
from tests.support.aggregator import START, running, settings
from tests.support.clock import HandClock


def test_open_pages_hold_up_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        app, told = App(settings(), HandClock(START)), asyncio.Event()

        async def listen() -> str:
            heard = ""
            async with httpx.AsyncClient() as client, client.stream("GET", f"{app.url}/events") as answer:
                async for text in answer.aiter_text():
                    heard += text
                    told.set()
            return heard

        async with running(app):
            pages = [asyncio.create_task(listen()) for _ in range(3)]
            await told.wait()
        assert all("event: change" in heard for heard in await asyncio.gather(*pages))

    asyncio.run(story())
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
