import asyncio
import contextlib
import http.client
import signal
import socket
from collections.abc import Awaitable, Callable
from operator import attrgetter
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from laggard_aggregator.settings.http import parse_listen
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.server import MAX_CONNECTIONS, HttpServer
from laggard_common.errors import ServiceError
from tests.support.builders import live_status
from tests.support.wait import LIMIT_SECONDS, time_limit


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello {request.url.path}")


APP = Starlette(routes=[Route("/{path:path}", hello)])


def get(url: str, path: str = "/x", headers: dict[str, str] | None = None) -> tuple[int, str]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


async def served(listen: str, use: Callable[[HttpServer], Awaitable[None]], app: ASGIApp = APP) -> None:
    """Runs `use` while a server listens, and ends the server."""
    stop = asyncio.Event()
    server = HttpServer(app, listen)
    server.bind()
    running = asyncio.create_task(server.run(stop))
    try:
        await use(server)
    finally:
        stop.set()
        await running


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("[::]:9464", ("::", 9464)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_listen_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert parse_listen(listen) == expected


@pytest.mark.parametrize(
    "listen", ["", "9464", ":9464", "::1:9464", "host:70000", "host:port", "[::1]", "a:1:2"]
)
def test_what_is_no_listen_address(listen: str) -> None:
    with pytest.raises(ValueError, match=r"expected (HOST:PORT|a port of 0-65535, got 70000)"):
        parse_listen(listen)
    with pytest.raises(ServiceError, match=r"http\.listen: expected (HOST:PORT|a port of 0-65535)"):
        HttpServer(APP, listen).bind()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_it_serves_and_gives_the_port_back(host: str) -> None:
    urls = []

    async def use(server: HttpServer) -> None:
        urls.append(server.url)
        assert server.url.startswith(f"http://{host}:")
        assert await asyncio.to_thread(get, server.url) == (200, "hello /x")

    if host == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6 loopback here")
    asyncio.run(served(f"{host}:0", use))
    with pytest.raises(ConnectionRefusedError):
        get(urls[0])


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: the port is taken$"):
            HttpServer(APP, f"127.0.0.1:{port}").bind()


def test_an_address_of_another_host_is_one_clear_line() -> None:
    with pytest.raises(
        ServiceError, match=r"^cannot listen on 192\.0\.2\.1:0: Cannot assign requested address$"
    ):
        HttpServer(APP, "192.0.2.1:0").bind()


def test_signals_stay_with_the_daemon() -> None:
    async def handlers() -> list[object]:
        seen: list[object] = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)]

        async def use(server: HttpServer) -> None:
            await asyncio.to_thread(get, server.url)
            seen.extend([signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)])

        await served("127.0.0.1:0", use)
        return seen

    before_term, before_int, term, int_ = asyncio.run(handlers())
    assert (term, int_) == (before_term, before_int)


def test_it_ends_though_a_client_keeps_its_connection() -> None:
    kept: list[http.client.HTTPConnection] = []

    async def use(server: HttpServer) -> None:
        parts = urlsplit(server.url)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_SECONDS)
        kept.append(connection)
        await asyncio.to_thread(connection.request, "GET", "/keep")
        response = await asyncio.to_thread(connection.getresponse)
        assert response.read() == b"hello /keep"

    asyncio.run(served("127.0.0.1:0", use))
    kept[0].close()


@pytest.mark.parametrize("size", [17_000, 60_000, 100_000, 300_000])
def test_a_request_with_endless_headers_is_refused(size: int) -> None:
    """By h11, or by the application where they come in one piece."""

    async def use(server: HttpServer) -> None:
        # The answer is 400 and a closed connection; a client that is still sending may only see the latter.
        try:
            status, _ = await asyncio.to_thread(get, server.url, "/healthz", {"X-Long": "x" * size})
            refused = status == 400
        except ConnectionError:
            refused = True
        assert refused
        assert await asyncio.to_thread(get, server.url, "/healthz") == (200, '{"status":"ok"}')

    asyncio.run(served("127.0.0.1:0", use, make_app(live_status.site())))


def test_a_uvicorn_that_hides_its_connections_ends_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of heads is off then, with one warning."""
    monkeypatch.setattr("laggard_aggregator.web.server._CHECK_SECONDS", 0.01)
    monkeypatch.setattr("laggard_aggregator.web.server._is_idle", attrgetter("of_another_version"))

    async def use(server: HttpServer) -> None:
        parts = urlsplit(server.url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        async with time_limit():
            while not caplog.records:
                await asyncio.sleep(0.01)
        writer.close()
        assert await asyncio.to_thread(get, server.url) == (200, "hello /x")

    asyncio.run(served("127.0.0.1:0", use))
    assert [each.levelname for each in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    "sent", [b"", b"GET /x HTTP/1.1\r\nHost: a\r\n", b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /"]
)
def test_slow_heads_end_after_a_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Also of a connection's second request, and of one that sends a byte now and then."""
    monkeypatch.setattr("laggard_aggregator.web.server.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("laggard_aggregator.web.server._CHECK_SECONDS", 0.05)

    async def use(server: HttpServer) -> None:
        parts = urlsplit(server.url)
        links = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(2)]

        async def drip(writer: asyncio.StreamWriter) -> None:
            writer.write(sent)
            while not writer.is_closing():
                await asyncio.sleep(0.02)
                writer.write(b"x" if sent else b"")

        dripping = [asyncio.create_task(drip(writer)) for _, writer in links]
        async with time_limit():
            for reader, _ in links if b"\r\n\r\n" in sent else ():
                await reader.readuntil(b"hello /x")
            while (await asyncio.to_thread(get, server.url))[0] != 503:
                await asyncio.sleep(0.01)
            monkeypatch.setattr("laggard_aggregator.web.server.HEAD_SECONDS", 0.1)
            for reader, _ in links:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                    assert reader.at_eof()
            while await asyncio.to_thread(get, server.url) != (200, "hello /x"):
                await asyncio.sleep(0.01)
        for each, (_, writer) in zip(dripping, links, strict=True):
            each.cancel()
            writer.close()

    asyncio.run(served("127.0.0.1:0", use))


def test_a_slow_answer_and_a_kept_connection_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.web.server.HEAD_SECONDS", 0.05)
    monkeypatch.setattr("laggard_aggregator.web.server._CHECK_SECONDS", 0.02)

    async def slow(_: Request) -> PlainTextResponse:
        await asyncio.sleep(0.5)
        return PlainTextResponse("late")

    async def use(server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        for _ in range(2):
            writer.write(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(4) == b"late"
            await asyncio.sleep(0.3)
        writer.close()

    asyncio.run(served("127.0.0.1:0", use, Starlette(routes=[Route("/x", slow)])))


def test_silent_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a file descriptor, which journal and archive need too."""
    monkeypatch.setattr("laggard_aggregator.web.server.MAX_CONNECTIONS", 10)
    monkeypatch.setattr("laggard_aggregator.web.server._CHECK_SECONDS", 0.05)

    async def use(server: HttpServer) -> None:
        port = urlsplit(server.url).port
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        async with time_limit():
            while sum(not reader.at_eof() and reader.exception() is None for reader, _ in links) > 10:
                await asyncio.sleep(0.02)
        for _, writer in links:
            writer.close()

    asyncio.run(served("127.0.0.1:0", use))


def test_idle_connections_do_not_take_the_way_of_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without health is restarted: whoever may connect could restart it."""
    monkeypatch.setattr("laggard_aggregator.web.server._CHECK_SECONDS", 3600.0)

    async def use(server: HttpServer) -> None:
        port = urlsplit(server.url).port
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        for at, (reader, writer) in enumerate(links):
            if at % 2:  # kept after an answer
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert (await asyncio.to_thread(get, server.url))[0] == 503
        assert await asyncio.to_thread(get, server.url, "/healthz") == (200, "hello /healthz")
        for _, writer in links:
            writer.close()

    asyncio.run(served("127.0.0.1:0", use))


def test_kept_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.web.server.MAX_CONNECTIONS", 10)
    monkeypatch.setattr("laggard_aggregator.web.server._CHECK_SECONDS", 0.05)

    async def use(server: HttpServer) -> None:
        port = urlsplit(server.url).port
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        for _, writer in links:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        async with time_limit():
            for reader, _ in links[-10:]:
                await reader.readuntil(b"\r\n\r\n")
            while await asyncio.to_thread(get, server.url) != (200, "hello /x"):
                await asyncio.sleep(0.01)
        for _, writer in links:
            writer.close()

    asyncio.run(served("127.0.0.1:0", use))


def test_connections_over_the_limit_are_answered_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections count too."""
    monkeypatch.setattr("laggard_aggregator.web.server.MAX_CONNECTIONS", 2)

    async def use(server: HttpServer) -> None:
        address = (urlsplit(server.url).hostname, urlsplit(server.url).port)
        idle = await asyncio.to_thread(socket.create_connection, address, LIMIT_SECONDS)
        assert (await asyncio.to_thread(get, server.url))[0] == 503
        idle.close()
        async with time_limit():
            while await asyncio.to_thread(get, server.url) != (200, "hello /x"):
                await asyncio.sleep(0.01)

    asyncio.run(served("127.0.0.1:0", use))
