"""Pages that are told when something changed."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from laggard_aggregator.web.pages import events
from laggard_aggregator.web.pages.events import MAX_STREAMS, EventStreams
from tests.support.builders import live_status


@dataclass
class Changing(live_status.MadeView):
    """A view that changes when the test says so."""

    queue: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)

    async def changed(self, revision: int) -> int | None:
        return await self.queue.get()


class Client:
    """One connection to an ASGI application, which reads as it likes."""

    def __init__(self, app: Starlette, method: str = "GET") -> None:
        self._app = app
        self._method = method
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self.status = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Client"]:
        scope = {
            "type": "http",
            "method": self._method,
            "path": "/events",
            "headers": [],
            "query_string": b"",
        }

        async def receive() -> MutableMapping[str, Any]:
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            await self._sent.put(message)

        task = asyncio.create_task(self._app(scope, receive, send))
        self.status = (await self._sent.get())["status"]
        try:
            yield self
        finally:
            self._gone.set()
            await task

    async def told(self) -> str:
        message = await self._sent.get()
        return str(message["body"].decode()) if message["body"] or message.get("more_body") else "the end"


def app_over(view: live_status.MadeView) -> Starlette:
    return Starlette(routes=[Route("/events", EventStreams(view).answer)])


def test_a_page_is_told_of_every_change_until_the_aggregator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "GAP_SECONDS", 0.0)

    async def story() -> None:
        view = Changing()
        async with Client(app_over(view)).open() as client:
            assert client.status == 200
            assert await client.told() == "retry: 5000\nevent: change\ndata: 1760000000.000-1\n\n"
            view.queue.put_nowait(2)
            assert await client.told() == "event: change\ndata: 1760000000.000-2\n\n"
            view.queue.put_nowait(None)
            assert await client.told() == "the end"

    asyncio.run(story())


def test_a_page_looks_again_when_nothing_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(events, "GAP_SECONDS", 0.0)

    async def story() -> None:
        async with Client(app_over(Changing())).open() as client:
            assert [await client.told() for _ in range(3)][1:] == [
                "event: beat\ndata: 1760000000.000-1\n\n"
            ] * 2

    asyncio.run(story())


def test_what_takes_long_to_make_is_not_asked_for_at_every_change() -> None:
    async def story() -> None:
        view = Changing()
        app = Starlette(routes=[Route("/events", EventStreams(view, lambda: 1000.0).answer)])
        async with Client(app).open() as client:
            await client.told()
            for revision in (2, 3, 4, None):
                view.queue.put_nowait(revision)
            assert [await client.told() for _ in range(2)] == [
                "event: change\ndata: 1760000000.000-2\n\n",
                "the end",
            ]

    asyncio.run(story())


def test_there_is_room_for_some_pages_and_again_when_one_is_closed() -> None:
    async def story() -> None:
        app = app_over(Changing())
        opened = [Client(app).open() for _ in range(MAX_STREAMS)]
        for each in opened:
            assert (await each.__aenter__()).status == 200
        async with Client(app).open() as refused:
            assert refused.status == 503
        async with Client(app, "HEAD").open() as head:
            assert head.status == 200
        await opened.pop().__aexit__(None, None, None)
        async with Client(app).open() as another:
            assert another.status == 200
        for each in opened:
            await each.__aexit__(None, None, None)

    asyncio.run(story())
