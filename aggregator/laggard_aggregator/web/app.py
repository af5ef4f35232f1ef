"""The aggregator's HTTP interface: metrics, health, JSON API and pages; operators may decide by it.

The status is read on the event loop; expositions are rendered in a thread.
"""

import asyncio
import gzip
from collections.abc import Callable, Collection, Hashable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from laggard_aggregator.jobs.loads.load_days import LoadDays
from laggard_aggregator.settings.aggregator import PeakTable
from laggard_aggregator.status import urls
from laggard_aggregator.status.view import Status
from laggard_aggregator.web import api, openapi
from laggard_aggregator.web.actions import API_PATH, FORM_PATH, Actions
from laggard_aggregator.web.answers import Answers, accepts_gzip
from laggard_aggregator.web.exported_metrics import PER_NODE, TABLE
from laggard_aggregator.web.exposition import Exposition, Scrape, scrape
from laggard_aggregator.web.jobs_api import JSON, JobsService, json_body
from laggard_aggregator.web.pages.job_loads import LoadPages
from laggard_aggregator.web.pages.job_search import JobSearch
from laggard_aggregator.web.pages.jobs import JobPages
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.past import PastReader, PastUnavailableError
from laggard_aggregator.web.pages.runbook import RunbookPages
from laggard_aggregator.web.pages.site import Pages
from laggard_aggregator.web.problems import handlers, problem
from laggard_aggregator.web.rendered import Renderer
from laggard_aggregator.web.report.route import ReportRoute
from laggard_aggregator.web.server import MAX_HEADER_BYTES

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


def make_app(
    view: Status,
    archive: Path | None = None,
    listed: Collection[str] = (),
    page: str = "",
    actions: Actions | None = None,
    *,
    peaks: Collection[PeakTable] = (),
    served_by: Mapping[str, str] = MappingProxyType({}),
    jobid_format: str = "",
    loads: LoadDays | None = None,
) -> ASGIApp:
    """The ASGI application. `archive`: directory of the archive, None without one.

    `listed`: nodes with series in `/metrics` even while they are healthy. `page`: address of the pages for
    others, for links in alerts. `actions`: of operators; without, nobody decides. `peaks`: of components.
    `served_by`: the forwarder of each node that has one. `jobid_format`: of Lustre. `loads`: of components
    that are many.
    """
    actions = actions or Actions()
    past = PastReader(view, archive)
    jobs = JobsService(archive, lambda: view.now, served_by, jobid_format)
    pages = Pages(view, past, archive, actions, JobSearch(jobs).matches if archive else None)
    process = ProcessCollector(registry=None)

    def metrics() -> Collector:
        return Exposition(scrape(view, listed, page), TABLE, process)

    def nodes() -> Collector:
        return Exposition(Scrape(nodes=view.nodes(), decisions=view.decisions()), PER_NODE)

    async def readyz(_: Request) -> Response:
        if view.ready:
            return JSONResponse({"ready": True})
        return JSONResponse({"ready": False, "reason": view.unready}, 503)

    exposer = Renderer(asyncio.Lock())

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    app = Starlette(
        routes=[
            *pages.routes(),
            _exposition("/metrics", metrics, exposer),
            _exposition("/metrics/nodes", nodes, exposer),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            *_api_routes(view, pages, past, actions),
            *jobs.routes(),
            *JobPages(jobs, pages.show).routes(),
            *RunbookPages(pages.show).routes(),
            *LoadPages(jobs, pages.show, view, peaks, loads).routes(),
            *ReportRoute(jobs, view).routes(),
        ],
        exception_handlers=handlers(pages.show),
    )
    return _guarded(Answers(app))


def _api_routes(view: Status, pages: Pages, past: PastReader, actions: Actions) -> list[Route]:
    """The routes of `/api/v1` except those of jobs."""
    renderer = Renderer(pages.lock)

    async def answer(key: Hashable, make: Callable[[Now], Mapping[str, Any]]) -> Response:
        body = await renderer.body(
            key, lambda: pages.state_reader.now(least_seconds=0.0), lambda now: json_body(make(now))
        )
        return Response(body, media_type=JSON)

    def present(path: str, make: Callable[[Now], Mapping[str, Any]]) -> Route:
        async def route(_: Request) -> Response:
            return await answer(path, make)

        return Route(path, route)

    async def component(request: Request) -> Response:
        raw = request.scope["raw_path"].partition(COMPONENTS.encode())[2]
        try:
            asked = urls.component_path(raw)
            return await answer((COMPONENTS, *asked), lambda now: api.component(now, *asked))
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        except urls.NotKnownError as exc:
            raise HTTPException(404, str(exc)) from exc

    async def alarms(request: Request) -> Response:
        events = await pages.alarm_log.events(view.history, view.now)
        given = tuple(request.query_params.multi_items())

        def render(now: Now) -> bytes:
            table, limit = api.alarms(now, events, given)
            return "".join(table.json(now.time, limit)).encode()

        try:
            body = await renderer.body((request.url.path, given), pages.state_reader.now, render)
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        return Response(body, media_type=JSON)

    async def described(_: Request) -> Response:
        return JSONResponse(openapi.document())

    async def decide(request: Request) -> Response:
        return JSONResponse(await actions.decide(request, await actions.json(request), "api"))

    return [
        Route(openapi.PATH, described),
        present("/api/v1/stragglers", api.stragglers),
        present("/api/v1/groups", api.groups),
        present("/api/v1/nodes", api.nodes),
        Route("/api/v1/alarms", alarms),
        present(API_PATH, api.decisions),
        Route(API_PATH, decide, methods=["POST"]),
        _history_route(view, past),
        Route(COMPONENTS + "{rest:path}", component),
    ]


def _history_route(view: Status, past: PastReader) -> Route:
    """The route to the history of a component, with its peers."""

    async def answer(request: Request) -> Response:
        query = request.query_params
        group, name = query.get("group", ""), query.get("component", "")
        try:
            asked = urls.TimeRange.parse(query.get("from", ""), query.get("to", ""), view.now)
            if not name:
                raise ValueError("component is missing: its permanent ID or current name")
            if not group:
                compared = [(shown.name, view.compared(shown.name)) for shown in view.groups()]
                group, name = await asyncio.to_thread(api.find_component, compared, view.shown, name)
            course = await past.component(group, name, asked)
            return Response(
                await asyncio.to_thread(lambda: json_body(api.history(course, view.now, group, name))),
                media_type=JSON,
            )
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        except urls.NotKnownError as exc:
            raise HTTPException(404, str(exc)) from exc
        except PastUnavailableError as exc:
            raise HTTPException(503, str(exc)) from exc

    return Route("/api/v1/history", answer)


def _exposition(path: str, make: Callable[[], Collector], renderer: Renderer) -> Route:
    """A route to a collector that is made on the event loop and encoded in a thread."""

    async def answer(request: Request) -> Response:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        packed = accepts_gzip(request.headers.get("accept-encoding", ""))

        def encoded(collector: Collector) -> bytes:
            return gzip.compress(encode(collector), 1) if packed else encode(collector)

        body = await renderer.body((path, content_type, packed), make, encoded)
        headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
        return Response(body, headers=headers | ({"content-encoding": "gzip"} if packed else {}))

    return Route(path, answer)


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """The encoder of a collector for a client that accepts `accept`, and its content type."""
    try:
        return choose_encoder(accept)
    except TypeError:  # the library compares a version that is no number
        return choose_encoder("")


def _guarded(app: ASGIApp) -> ASGIApp:
    """`app` with the missing SECURITY_HEADERS on every response, and its limits.

    413 for bodies beside decisions; 400 for two lengths, and for a head beyond MAX_HEADER_BYTES that came in
    one piece: h11 checks incomplete ones alone.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in SECURITY_HEADERS if h[0] not in own)]
            await send(message)

        headers = dict(scope.get("headers", ()))
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        decides = scope.get("method") == "POST" and scope["path"] in (FORM_PATH, API_PATH)
        answer = problem(413, "requests have no body here") if has_body and not decides else app
        head = len(scope.get("raw_path", b"")) + len(scope.get("query_string", b""))
        if b"content-length" in headers and b"transfer-encoding" in headers:
            answer = problem(400, "a request has one length")  # of which a proxy may read the other one
            answer.headers["connection"] = "close"
        if head + sum(len(name) + len(value) for name, value in scope.get("headers", ())) > MAX_HEADER_BYTES:
            answer = problem(400, "the headers are too long")
        await answer(scope, receive, send_with_headers)

    return guarded
