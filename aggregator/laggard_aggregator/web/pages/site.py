"""The pages as an application: state read on the event loop, rendered in a thread, cached until a change."""

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jinja2
from prometheus_client.exposition import gzip_accepted
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.urls import NotKnownError, component_path
from laggard_aggregator.status.view import Status
from laggard_aggregator.web.pages import charts, component, groups, nodes, overview, search
from laggard_aggregator.web.pages.events import Events
from laggard_aggregator.web.pages.page_state import KEPT_SECONDS, AlarmLog, Now, StateReader, paged

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy of the pages: own scripts and styles, nothing inline, nothing external."""

MAX_KEPT = 128
MAX_KEPT_BYTES = 32_000_000
MAX_PAGE = 1_000_000
ALARMS_SHOWN = 50

Make = Callable[[Now], dict[str, Any]]
"""Function that builds a template's values, in a thread."""


@dataclass(frozen=True, slots=True)
class _Kept:
    revision: int
    made_at: float
    body: bytes
    packed: bytes

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.body) + len(self.packed)


class Pages:
    """All pages over `view`. `archive`: its folder, for the alarm events of the last weeks."""

    def __init__(self, view: Status, archive: Path | None = None) -> None:
        self._view = view
        self._state_reader = StateReader(view)
        self._alarm_log = AlarmLog(archive)
        self._took = 0.0
        self._events = Events(view, lambda: self._took)
        self._files = StaticFiles()
        self._kept: OrderedDict[tuple[str, bytes], _Kept] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()  # one page at a time: at most one core
        self._templates = _templates(self._files)

    def routes(self) -> list[BaseRoute]:
        """Routes of the pages."""
        return [
            Route("/", self._overview),
            Route("/groups", self._groups),
            Route("/group/{rest:path}", self._group),
            Route("/component/{rest:path}", self._component),
            Route("/nodes", self._nodes),
            Route("/node/{rest:path}", self._node),
            Route("/search", self._search),
            Route("/alarms", self._alarms),
            Route("/events", self._events.answer),
            Route("/static/{name:path}", self._files.answer),
        ]

    async def _overview(self, request: Request) -> Response:
        page = _number(request)
        return await self._page(
            request, "overview.html", lambda now: {"page": overview.overview(now, page), "heat": charts}
        )

    async def _groups(self, request: Request) -> Response:
        page = _number(request)
        return await self._page(
            request, "groups.html", lambda now: {"page": groups.groups(now, page), "heat": charts}
        )

    async def _group(self, request: Request) -> Response:
        name, metric = _name(request, "/group/"), request.query_params.get("metric", "")
        order: groups.Order = "name" if request.query_params.get("order") == "name" else "worst"
        page = _number(request)
        return await self._page(
            request,
            "group.html",
            lambda now: {"page": groups.group(now, name, metric, order, page), "heat": charts},
        )

    async def _component(self, request: Request) -> Response:
        raw = request.scope["raw_path"].partition(b"/component/")[2]
        try:
            group, name = component_path(raw)
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        metric, page = request.query_params.get("metric", ""), _number(request)
        alarms = await self._alarm_log.events(self._view.history, self._view.now)
        return await self._page(
            request,
            "component.html",
            lambda now: {
                "page": component.component(now, group, name, metric=metric, page=page, alarms=alarms)
            },
        )

    async def _nodes(self, request: Request) -> Response:
        role, state = (request.query_params.get(name, "") for name in ("role", "state"))
        page = _number(request)
        return await self._page(
            request,
            "nodes.html",
            lambda now: {
                "page": nodes.nodes(now, role, state, page),
                "troubles": overview.troubles(now),
            },
            of_nodes=True,
        )

    async def _node(self, request: Request) -> Response:
        name = _name(request, "/node/")
        view = self._view.node(name)
        return await self._page(request, "node.html", lambda now: {"page": nodes.node(now, name, view)})

    async def _search(self, request: Request) -> Response:
        asked = request.query_params.get("q", "")
        return await self._page(
            request, "search.html", lambda now: {"page": search.search(now, asked)}, of_nodes=True
        )

    async def _alarms(self, request: Request) -> Response:
        page = _number(request)
        alarms = await self._alarm_log.events(self._view.history, self._view.now)
        return await self._page(request, "alarms.html", lambda _: {"page": paged(alarms, page, ALARMS_SHOWN)})

    async def _page(self, request: Request, template: str, make: Make, *, of_nodes: bool = False) -> Response:
        """Renders `template` with the values that `make` builds from the current state."""
        key = (request.scope["raw_path"].decode("latin-1"), request.scope["query_string"])
        async with self._one_at_a_time:
            kept = self._kept.get(key)
            if kept is None or not self._good(kept):
                now = self._state_reader.now(nodes=of_nodes)
                begun = time.monotonic()
                try:
                    body, packed = await asyncio.to_thread(self._render, template, now, make)
                except NotKnownError as exc:
                    return await self._not_known(now, str(exc))
                self._took = max(time.monotonic() - begun, 0.9 * self._took)  # the longest recent duration
                kept = _Kept(now.revision, time.monotonic(), body, packed)
                self._keep(key, kept)
        return _answer(request, kept.body, kept.packed)

    def _keep(self, key: tuple[str, bytes], page: _Kept) -> None:
        """Caches a page and evicts the oldest beyond the limit."""
        self._kept.pop(key, None)
        self._kept[key] = page
        left = sum(kept.size for kept in self._kept.values())
        while self._kept and (len(self._kept) > MAX_KEPT or left > MAX_KEPT_BYTES):
            left -= self._kept.popitem(last=False)[1].size

    def _good(self, kept: _Kept) -> bool:
        return kept.revision == self._view.revision and time.monotonic() - kept.made_at < KEPT_SECONDS

    async def _not_known(self, now: Now, what: str) -> Response:
        body, _ = await asyncio.to_thread(self._render, "not_found.html", now, lambda _: {"what": what})
        return Response(body, 404, headers=_HEADERS)

    def _render(self, template: str, now: Now, make: Make) -> tuple[bytes, bytes]:
        values = make(now)
        body = self._templates.get_template(template).render(now=now, **values).encode()
        return body, gzip.compress(body, 5)


_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "vary": "accept-encoding",
}


def _answer(request: Request, body: bytes, packed: bytes) -> Response:
    if gzip_accepted(request.headers.get("accept-encoding", "")):
        return Response(packed, headers=_HEADERS | {"content-encoding": "gzip"})
    return Response(body, headers=_HEADERS)


def _number(request: Request) -> int:
    """The requested page number, 1 if invalid."""
    text = request.query_params.get("page", "1")
    return min(int(text), MAX_PAGE) if text.isascii() and text.isdigit() and len(text) < 8 else 1


def _name(request: Request, before: str) -> str:
    """The percent-decoded path after `before`."""
    raw = request.scope["raw_path"].partition(before.encode())[2]
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as exc:
        raise HTTPException(400, "not UTF-8 after percent-decoding") from exc


def _templates(files: "StaticFiles") -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(links=urls, words=formatting, static=files.url)
    return environment


_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = "private, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    content_type: str
    version: str


class StaticFiles:
    """Files of the folder `static` with an allowed type."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(_FOLDER).as_posix(): _read(path)
            for path in sorted(_FOLDER.rglob("*"))
            if path.suffix in _TYPES
        }

    def url(self, name: str) -> str:
        """URL of a file, which changes with its contents."""
        return f"/static/{name}?v={self._files[name].version}"

    async def answer(self, request: Request) -> Response:
        """Serves one file; its versioned URL may be cached forever."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        kept = request.query_params.get("v") == file.version
        headers = {
            "content-type": file.content_type,
            "cache-control": _FOR_EVER if kept else "no-cache",
            "vary": "accept-encoding",
        }
        if gzip_accepted(request.headers.get("accept-encoding", "")):
            return Response(file.packed, headers=headers | {"content-encoding": "gzip"})
        return Response(file.body, headers=headers)


def _read(path: Path) -> _File:
    body = path.read_bytes()
    version = hashlib.sha256(body).hexdigest()[:12]
    return _File(body, gzip.compress(body, 9, mtime=0), _TYPES[path.suffix], version)
