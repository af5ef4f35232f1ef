"""Answers are rendered in a thread, one at a time, once for all who ask meanwhile."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import httpx
import pytest

from laggard_aggregator.web import api, rendered
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.rendered import Renderer
from tests.support.builders import live_status
from tests.support.wait import LIMIT_SECONDS, time_limit

ROUTES = (
    "/metrics",
    "/metrics/nodes",
    "/api/v1/stragglers",
    "/api/v1/groups",
    "/api/v1/nodes",
    "/api/v1/alarms",
    "/api/v1/decisions",
    "/api/v1/components/luns/oss-1/wwn-2",
    "/",
    "/groups",
)


@pytest.mark.parametrize("path", ROUTES)
def test_the_event_loop_goes_on_while_an_answer_is_made(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are accepted there: an answer that was made on it kept them waiting."""
    loop_thread = threading.get_ident()
    begun, goes_on = threading.Event(), threading.Event()
    view = live_status.site()
    shown = view.shown

    def slow(component: str) -> str:
        if threading.get_ident() != loop_thread:
            begun.set()
            assert goes_on.wait(LIMIT_SECONDS)
        return shown(component)

    original = asyncio.to_thread

    async def to_thread(function: object, *args: object, **kwargs: object) -> object:
        def run() -> object:
            slow("")
            return function(*args, **kwargs)  # type: ignore[operator]

        return await original(run)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)

    async def ask() -> None:
        transport = httpx.ASGITransport(make_app(view))
        async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
            asked = asyncio.create_task(client.get(path))
            async with time_limit():
                while not begun.is_set():
                    assert not asked.done(), "it was made on the event loop"
                    await asyncio.sleep(0.001)
            health = await client.get("/healthz")
            assert health.status_code == 200
            goes_on.set()
            assert (await asked).status_code == 200

    asyncio.run(ask())


def test_everyone_who_asks_meanwhile_gets_the_same_body() -> None:
    rendering = 0

    def render(state: int) -> bytes:
        nonlocal rendering
        rendering += 1
        return b"%d" % state

    async def ask() -> list[bytes]:
        renderer = Renderer(asyncio.Lock())
        return await asyncio.gather(*(renderer.body("key", lambda: 7, render) for _ in range(50)))

    bodies = asyncio.run(ask())
    assert len({id(body) for body in bodies}) == rendering
    assert rendering < 50


def test_rendering_takes_a_third_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    made: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def render(_: None) -> bytes:
        nonlocal now
        now += 1.0
        made.append(now)
        return b""

    async def ask() -> None:
        nonlocal now
        renderer = Renderer(asyncio.Lock())
        for _ in range(100):
            await renderer.body("key", lambda: None, render)
            now += 0.1

    asyncio.run(ask())
    assert len(made) <= now / 3 + 1


def test_bodies_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "MAX_KEPT_BYTES", 100)
    monkeypatch.setattr(rendered, "KEPT_SHARE", 1e9)

    async def ask() -> int:
        renderer = Renderer(asyncio.Lock())
        for number, size in enumerate((30, 30, 30, 500, 60, 30)):
            await renderer.body(number, partial(int, size), bytes)
        return sum(len(each.body) for each in renderer._kept.values())

    assert asyncio.run(ask()) <= 100


def test_the_list_of_alarms_is_made_for_one_reader_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    make, at_work, most, calls = api.alarms, 0, 0, 0

    def counted(*args: Any) -> Any:
        nonlocal at_work, most, calls
        calls += 1
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.02)
        answer = make(*args)
        at_work -= 1
        return answer

    monkeypatch.setattr(api, "alarms", counted)

    async def ask() -> set[bytes]:
        transport = httpx.ASGITransport(make_app(live_status.site()))
        client = httpx.AsyncClient(transport=transport, base_url="http://aggregator")
        async with client, time_limit():
            answers = await asyncio.gather(*(client.get("/api/v1/alarms") for _ in range(20)))
        return {answer.content for answer in answers}

    assert len(asyncio.run(ask())) == 1
    assert most == 1
    assert calls < 20
