"""The aggregator's HTTP interface: metrics, health, JSON API and pages. Read-only.

The status is read on the event loop; expositions are rendered in a thread.
"""

import asyncio
import gzip
import http
from collections.abc import Callable, Collection
from pathlib import Path

from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from laggard_aggregator.status import urls
from laggard_aggregator.status.view import Status
from laggard_aggregator.web import api
from laggard_aggregator.web.exposition import Exposition, Scrape, scrape
from laggard_aggregator.web.metric_table import PER_NODE, TABLE
from laggard_aggregator.web.pages.site import Pages

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)

COMPONENTS = "/api/v1/components/"


def make_app(view: Status, archive: Path | None = None, listed: Collection[str] = ()) -> ASGIApp:
    """The ASGI application. `archive`: directory of the archive, None without one.

    `listed`: nodes with series in `/metrics` even while they are healthy.
    """
    pages = _Endpoints(view, listed)
    app = Starlette(
        routes=[
            *Pages(view, archive).routes(),
            Route("/metrics", pages.metrics),
            Route("/metrics/nodes", pages.node_metrics),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/api/v1/stragglers", pages.stragglers),
            Route("/api/v1/groups", pages.groups),
            Route("/api/v1/nodes", pages.nodes),
            Route("/api/v1/decisions", pages.decisions),
            Route(COMPONENTS + "{rest:path}", pages.component),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _server_error},
    )
    return _SecurityHeaders(_NoBodies(app))


class _Endpoints:
    """The endpoints."""

    def __init__(self, view: Status, listed: Collection[str]) -> None:
        self._view = view
        self._listed = listed
        self._process = ProcessCollector(registry=None)
        self._one_at_a_time = asyncio.Semaphore(1)  # an exposition of all nodes may be tens of MB

    async def metrics(self, request: Request) -> Response:
        values = scrape(self._view, self._listed)
        return await self._rendered(request, Exposition(values, TABLE, self._process))

    async def node_metrics(self, request: Request) -> Response:
        return await self._rendered(request, Exposition(Scrape(nodes=self._view.nodes()), PER_NODE))

    async def healthz(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        ready = self._view.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def stragglers(self, _: Request) -> Response:
        return JSONResponse(api.stragglers(self._view))

    async def groups(self, _: Request) -> Response:
        return JSONResponse(api.groups(self._view))

    async def nodes(self, _: Request) -> Response:
        return JSONResponse(api.nodes(self._view))

    async def decisions(self, _: Request) -> Response:
        return JSONResponse(api.decisions(self._view))

    async def component(self, request: Request) -> Response:
        raw = request.scope["raw_path"].partition(COMPONENTS.encode())[2]
        try:
            group, name = urls.component_path(raw)
            return JSONResponse(api.component(self._view, group, name))
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        except urls.NotKnownError as exc:
            raise HTTPException(404, str(exc)) from exc

    async def _rendered(self, request: Request, collector: Collector) -> Response:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        packed = gzip_accepted(request.headers.get("accept-encoding", ""))
        async with self._one_at_a_time:
            body = await asyncio.to_thread(encode, collector)
            if packed:
                body = await asyncio.to_thread(gzip.compress, body, 1)
        headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
        return Response(body, headers=headers | ({"content-encoding": "gzip"} if packed else {}))


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """The encoder of a collector for a client that accepts `accept`, and its content type."""
    try:
        return choose_encoder(accept)
    except TypeError:  # the library compares a version that is no number
        return choose_encoder("")


class _SecurityHeaders:
    """Adds the missing SECURITY_HEADERS to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in SECURITY_HEADERS if h[0] not in own)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _NoBodies:
    """Answers requests with a body with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            await _problem(413, "requests have no body here")(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def _http_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    response = _problem(exc.status_code, exc.detail)
    response.headers.update(exc.headers or {})
    return response


async def _server_error(_: Request, exc: Exception) -> Response:
    del exc  # logged; the client gets no detail
    return _problem(500, "internal error")


def _problem(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text or http.HTTPStatus(status).phrase, "status": status}, status)
