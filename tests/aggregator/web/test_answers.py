"""Answers that nobody takes, bounded in bytes and in time; Accept-Encoding with weights."""

import asyncio
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from laggard_aggregator.web import server
from laggard_aggregator.web.answers import PART_BYTES, Answers, accepts_gzip
from laggard_aggregator.web.server import HttpServer
from tests.aggregator.web.test_server import get, served
from tests.support.wait import time_limit

BODY = bytes(40_000_000)


def answering(make: Callable[[], bytes]) -> ASGIApp:
    """An application that answers `make()` in one piece."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        body = make()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def never() -> Message:
    return {"type": "http.disconnect"}


def test_a_body_is_sent_in_parts_and_whole() -> None:
    body = bytes(range(256)) * 1024

    async def ask() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await Answers(answering(lambda: body))({"type": "http"}, never, send)
        return sent

    start, *parts = asyncio.run(ask())
    assert start["status"] == 200
    assert b"".join(part["body"] for part in parts) == body
    assert max(len(part["body"]) for part in parts) == PART_BYTES
    assert [part["more_body"] for part in parts] == [True] * (len(parts) - 1) + [False]


@pytest.mark.parametrize("shared", [True, False], ids=["one body for all", "a body each"])
def test_the_bytes_that_are_being_sent_are_bounded(shared: bool) -> None:
    body = bytes(200_000)
    answers = Answers(answering(lambda: body if shared else bytes(200_000)), 500_000)

    async def ask() -> list[int]:
        goes_on = asyncio.Event()
        statuses: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif statuses[-1] == 200:
                await goes_on.wait()

        asked = [asyncio.create_task(answers({"type": "http"}, never, send)) for _ in range(5)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert answers.size_bytes <= 500_000
        goes_on.set()
        await asyncio.gather(*asked)
        assert answers.size_bytes == 0
        return statuses

    assert asyncio.run(ask()) == ([200] * 5 if shared else [200, 200, 503, 503, 503])


@pytest.mark.parametrize("limit", ["TAKEN_SECONDS", "ANSWER_SECONDS"])
def test_a_client_that_does_not_take_its_answer_is_let_go(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ANSWER_SECONDS for one that takes a little from time to time."""
    monkeypatch.setattr(server, limit, 1.0)
    monkeypatch.setattr(server, "_CHECK_SECONDS", 0.05)
    answers = Answers(answering(lambda: BODY))

    async def use(http: HttpServer) -> None:
        parts = urlsplit(http.url)
        client = socket.create_connection((parts.hostname, parts.port))
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        with client:
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with time_limit():
                while not answers.size_bytes:
                    await asyncio.sleep(0.01)
                while answers.size_bytes:
                    await asyncio.sleep(0.01)
                    if limit == "ANSWER_SECONDS":
                        await loop.sock_recv(client, 20_000)
        status, text = await asyncio.to_thread(get, http.url)
        assert (status, len(text)) == (200, len(BODY)), "one that takes it gets all of it"

    asyncio.run(served("127.0.0.1:0", use, answers))


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0", False),
        ("gzip;q=0.0", False),
        ("gzip ; Q=0.001", True),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("*;q=0, gzip", True),
        ("identity", False),
        ("identity;q=1, *;q=0", False),
        ("gzip;q=nonsense", False),
        ("notgzip, gzipper", False),
    ],
)
def test_gzip_is_accepted_by_its_weight(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@given(st.text(max_size=60))
def test_any_header(header: str) -> None:
    accepts_gzip(header)
