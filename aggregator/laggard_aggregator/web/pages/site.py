"""The pages as an application: state read on the event loop, rendered in a thread, cached until a change."""

import asyncio
import gzip
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import jinja2
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.alarms.overrides import MOST_TARGET_CHARS
from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.urls import NotKnownError, TimeRange, component_path
from laggard_aggregator.status.view import Status
from laggard_aggregator.web.actions import FORM_PATH, Actions
from laggard_aggregator.web.answers import accepts_gzip
from laggard_aggregator.web.pages import alarms, charts, component, groups, nodes, overview, search, shadows
from laggard_aggregator.web.pages.alarm_log import AlarmLog, Event, episodes
from laggard_aggregator.web.pages.events import EventStreams
from laggard_aggregator.web.pages.job_search import JobMatch
from laggard_aggregator.web.pages.page_state import KEPT_SECONDS, Acts, Now, StateReader
from laggard_aggregator.web.pages.past import Past, PastReader, PastUnavailableError
from laggard_aggregator.web.pages.static_files import shipped_files
from laggard_aggregator.web.pages.tables import Query, table_file

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy of the pages: own scripts and styles, nothing inline, nothing external."""

MAX_KEPT = 128
_MAX_PART_CHARS = 24
"""Longer parts of a name, such as identifiers of disks, may wrap anywhere."""
MAX_KEPT_BYTES = 32_000_000
_LINK = re.compile(rb'\b(href|src|action|formaction|data-fetch)="/')
"""A link from the root in a template; data cannot look so, as quotes are escaped."""

Events = tuple[Event, ...]
Make = Callable[[Now, Request, Events], Any]
"""Function that builds a template's value `page`, in a thread, from the request and the alarm log."""


@dataclass(frozen=True, slots=True)
class _Kept:
    revision: int
    made_at: float
    body: bytes
    packed: bytes
    status: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The range in a page's URL: as text, and `range` or the `problem` with it; neither without a range."""

    start: str
    end: str
    range: TimeRange | None = None
    problem: str = ""

    @classmethod
    def of(cls, request: Request, now: float) -> "Asked":
        """The range of the query parameters `from` and `to`."""
        start, end = _text(request, "from"), _text(request, "to")
        if not (start or end):
            return cls(start, end)
        try:
            return cls(start, end, TimeRange.parse(start, end, now))
        except ValueError as exc:
            return cls(start[:40], end[:40], problem=formatting.sentence(f"{exc}."))


AskPast = Callable[[Request, TimeRange], Awaitable[Past]]
"""Reads the range of a page from the archive. Raises PastUnavailableError."""


AskJobs = Callable[[Request], Awaitable[list[JobMatch]]]
"""Finds jobs by the words of a search."""


@dataclass(frozen=True, slots=True)
class _PageSpec:
    """A template and its needs: one `node`, all `nodes`, or the `alarms` of the log.

    `decides`: it has the forms of decisions, and so is cached for each operator. `past`: reads a range that
    is asked for. `jobs`: finds jobs for the page, which then is not cached: each reader sees others.
    """

    name: str
    make: Make
    node: bool = False
    nodes: bool = False
    alarms: bool = False
    decides: bool = False
    past: AskPast | None = None
    jobs: AskJobs | None = None


class Pages:
    """All pages over `view`. `archive`: its folder, for alarm events and, read by `past`, ranges.

    `find_jobs`: finds those that a search names; without, it names none.
    """

    def __init__(
        self,
        view: Status,
        past: PastReader,
        archive: Path | None = None,
        actions: Actions | None = None,
        find_jobs: AskJobs | None = None,
    ) -> None:
        self._view = view
        self._find_jobs = find_jobs
        self._past = past
        self._actions = actions or Actions()
        self.state_reader = StateReader(view)
        self.alarm_log = AlarmLog(archive)
        self._took = 0.0
        self._streams = EventStreams(view, lambda: self._took)
        self._kept: OrderedDict[tuple[str, bytes, str], _Kept] = OrderedDict()
        self.lock = asyncio.Lock()  # one page at a time: at most one core
        self._common = {
            "archive": archive is not None,
            "has_jobs": lambda: archive is not None and (archive / "kind=jobs").is_dir(),
        }

    def routes(self) -> list[BaseRoute]:
        """Routes of the pages."""
        pages = {
            "/": _PageSpec("overview", lambda now, request, _: overview.overview(now, _query(request))),
            "/groups": _PageSpec("groups", lambda now, request, _: groups.groups(now, _query(request))),
            "/group/{rest:path}": _PageSpec(
                "group",
                lambda now, request, _: groups.group(now, _name(request), _query(request)),
                past=lambda request, when: self._past.group(_name(request), when),
            ),
            "/component/{rest:path}": _PageSpec(
                "component", _component, alarms=True, decides=True, past=self._past_component
            ),
            "/nodes": _PageSpec(
                "nodes", lambda now, request, _: nodes.nodes(now, _query(request)), nodes=True
            ),
            "/node/{rest:path}": _PageSpec(
                "node",
                lambda now, request, _: nodes.node(now, _name(request), _query(request)),
                node=True,
                decides=True,
                past=lambda request, when: self._past.node(_name(request), when),
            ),
            "/search": _PageSpec(
                "search",
                lambda now, request, _: search.search(now, _query(request)),
                nodes=True,
                jobs=self._find_jobs,
            ),
            "/alarms": _PageSpec(
                "alarms", _alarms, alarms=True, decides=True, past=lambda _, when: self._past.alarms(when)
            ),
            "/shadows": _PageSpec("shadows", lambda now, request, _: shadows.shadows(now, _query(request))),
        }
        return [
            *(Route(path, partial(self._respond, page)) for path, page in pages.items()),
            Route(FORM_PATH, self._decide, methods=["POST"]),
            Route("/events", self._streams.answer),
            Route("/static/{name:path}", self._static),
        ]

    async def show(self, request: Request, name: str, page: Any, status: int = 200) -> Response:
        """Renders the template `name` for this request alone."""
        path = request.scope["raw_path"].decode("latin-1")
        values = {"now": self.state_reader.now(), "acts": self._acts(request), "page": page}
        async with self.lock:
            body, packed = await asyncio.to_thread(self._render, name, path, **values)
        return _answer(request, body, packed, _HEADERS, status)

    async def _respond(self, page: _PageSpec, request: Request) -> Response:
        """Answers with a page, from the cache while it is current, or with a table of it as a file."""
        asked, archived = None, None
        if page.past is not None:
            asked = Asked.of(request, self._view.now)
            archived = await self._ask(page.past, request, asked.range)
        events = await self.alarm_log.events(self._view.history, self._view.now) if page.alarms else ()
        if archived is not None:
            events = _within(archived, events)
        if form := _text(request, "format"):
            async with self.lock:
                now = self._present(page, request, archived)
                return await asyncio.to_thread(
                    _file, now, request, form, make=page.make, events=events, archived=archived
                )
        acts = self._acts(request)
        matches = [] if page.jobs is None else await page.jobs(request)
        path = request.scope["raw_path"].decode("latin-1")
        key = (path, request.scope["query_string"], acts.user * page.decides)
        async with self.lock:
            kept = self._kept.get(key)
            if kept is None or not self._good(kept):
                values = {"path": path, "acts": acts, "asked": asked, "past": archived, "jobs": matches}
                kept = await self._made(page, request, events, archived, values)
                if page.jobs is None and kept.status == 200:
                    self._keep(key, kept)
        return _answer(request, kept.body, kept.packed, _HEADERS, kept.status)

    def _present(self, page: _PageSpec, request: Request, archived: Past | None) -> Now:
        """The state that a page shows; its history is that of the range."""
        now = self.state_reader.now(nodes=page.nodes, node=_name(request) if page.node else None)
        if archived is None:
            return now
        history = archived.history or now.history.between(archived.range.start, archived.range.end)
        return replace(now, history=history)

    async def _made(
        self, page: _PageSpec, request: Request, events: Events, archived: Past | None, values: dict[str, Any]
    ) -> _Kept:
        """Renders a page with the `values` of its template; one about an unknown name has status 404."""
        now, begun = self._present(page, request, archived), time.monotonic()
        values["now"] = now
        if archived is not None:
            values["past_table"] = await asyncio.to_thread(archived.table, now, _query(request))
        template, status = page.name, 200
        try:
            values["page"] = await asyncio.to_thread(page.make, now, request, events)
        except NotKnownError as exc:
            if archived is not None and archived.is_known:
                template, values["page"] = "past", unquote(_rest(request))
            else:
                template, values["what"], status = "not_found", str(exc), 404
        body, packed = await asyncio.to_thread(self._render, template, **values)
        if status == 200:  # the longest recent duration
            self._took = max(time.monotonic() - begun, 0.9 * self._took)
        return _Kept(now.revision, time.monotonic(), body, packed, status)

    async def _ask(self, past: AskPast, request: Request, asked: TimeRange | None) -> Past | None:
        """The range that is asked for, None without one; with a note where it cannot be read."""
        try:
            return None if asked is None else await past(request, asked)
        except PastUnavailableError as exc:
            assert asked is not None
            return Past(asked, (str(exc),))

    async def _past_component(self, request: Request, asked: TimeRange) -> Past:
        return await self._past.component(*_component_path(request), asked)

    def _acts(self, request: Request) -> Acts:
        """Decisions that the reader of a page may make."""
        operators, user = self._actions.operators, request.scope.get("user", "")
        user = user if user in operators else ""
        path = request.scope["raw_path"].decode("latin-1")
        asked = {
            name: _text(request, name)[:MOST_TARGET_CHARS] for name in ("act", "kind", "target", "metric")
        }
        acts = Acts(bool(operators), user, path, asked, state=self._actions.state)
        return replace(acts, token=self._actions.token(user)) if user and acts.act else acts

    async def _decide(self, request: Request) -> Response:
        """Executes a form; answers with the components concerned, or with the form and why it was refused."""
        done: dict[str, Any] | None = None
        fields, problem, status, more = dict[str, str](), "", 200, dict[str, str]()
        try:
            fields = await self._actions.form(request)
            asked: dict[str, Any] = {name: text for name, text in fields.items() if text and name != "back"}
            if "seconds" in asked:
                asked["seconds"] = float(asked["seconds"])
            done = await self._actions.decide(request, asked, "page")
        except HTTPException as exc:
            problem, status, more = exc.detail, exc.status_code, dict(exc.headers or {})
        except ValueError:
            problem, status = "seconds: expected a number", 400
        back = fields.get("back", "")
        path = back if _BACK.fullmatch(back) else "/alarms"
        acts = replace(self._acts(request), path=path, asked=fields | {"act": fields.get("do", "")})
        if fields:
            acts = replace(acts, token=self._actions.token(acts.user))
        now = self.state_reader.now()
        values = {"now": now, "acts": acts, "done": done, "problem": problem}
        body, packed = await asyncio.to_thread(self._render, "decided", FORM_PATH, **values)
        return _answer(request, body, packed, _HEADERS | more, status)

    async def _static(self, request: Request) -> Response:
        name, version = request.path_params["name"], _text(request, "v")
        return _answer(request, *shipped_files().find(name, version))

    def _keep(self, key: tuple[str, bytes, str], page: _Kept) -> None:
        """Caches a page and evicts the oldest beyond the limit."""
        self._kept.pop(key, None)
        self._kept[key] = page
        left = sum(len(kept.body) + len(kept.packed) for kept in self._kept.values())
        while self._kept and (len(self._kept) > MAX_KEPT or left > MAX_KEPT_BYTES):
            _, oldest = self._kept.popitem(last=False)
            left -= len(oldest.body) + len(oldest.packed)

    def _good(self, kept: _Kept) -> bool:
        return kept.revision == self._view.revision and time.monotonic() - kept.made_at < KEPT_SECONDS

    def _render(self, name: str, path: str, **values: Any) -> tuple[bytes, bytes]:
        """The page at `path`. Its links are relative, so that a proxy may serve the pages below a path."""
        body = _templates().get_template(f"{name}.html").render(path=path, **self._common, **values).encode()
        root = b"../" * (path.count("/") - 1) or b"./"
        body = _LINK.sub(rb'\1="' + root, body)
        return body, gzip.compress(body, 5)


_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "vary": "accept-encoding",
    "referrer-policy": "same-origin",  # with no-referrer browsers do not name the origin of a form
}
_BACK = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@%-][A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?", re.ASCII)
"""Path of a page of this site."""


def _answer(
    request: Request, body: bytes, packed: bytes, headers: dict[str, str], status: int = 200
) -> Response:
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(packed, status, headers | {"content-encoding": "gzip"})
    return Response(body, status, headers)


def _parts_of_name(name: str) -> Markup:
    """A name that wraps at its slashes, long parts at underscores; only very long ones wrap anywhere."""
    spans = []
    for part in name.replace("/", "/\n").split("\n"):
        for piece in [part] if len(part) <= _MAX_PART_CHARS else part.replace("_", "_\n").split("\n"):
            style = "part" if len(piece) <= _MAX_PART_CHARS else "long"
            spans.append(Markup('<span class="{}">{}</span>').format(style, piece))
    return Markup("<wbr>").join(spans)


def _alarms(now: Now, request: Request, events: Events) -> Any:
    when = Asked.of(request, now.time).range
    active = {k: alarm for k, alarm in now.alarms.items() if when is None or alarm.raised_at <= when.end}
    return alarms.alarms(now, episodes(events, active), _query(request))


def _file(
    now: Now, request: Request, form: str, *, make: Make, events: Events, archived: Past | None
) -> Response:
    """A table of a page as CSV or JSON: the first, or that which the parameter `table` names."""
    tables = [] if archived is None else [archived.table(now, _query(request))]
    try:
        page = make(now, request, events)
        tables = [page["table"], *page.get("tables", ()), *tables]
    except NotKnownError as exc:
        if archived is None or not archived.is_known:
            raise HTTPException(404, str(exc)) from exc
    return table_file(tables, _text(request, "table"), form, now.time)


def _component(now: Now, request: Request, events: Events) -> dict[str, Any]:
    return component.component(now, *_component_path(request), _query(request), events)


def _component_path(request: Request) -> tuple[str, str]:
    try:
        return component_path(_rest(request))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from exc


def _within(archived: Past, events: Events) -> Events:
    """The alarm events of a range: of the archive, and those of the log that came since."""
    since = {event for event in events if archived.range.start <= event.at <= archived.range.end}
    return tuple(sorted(since.union(archived.events), key=lambda event: -event.at))


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _query(request: Request) -> Query:
    return Query(dict(request.query_params))


def _rest(request: Request) -> bytes:
    """The path after its first level, percent-encoded."""
    path: bytes = request.scope["raw_path"]
    return path.partition(b"/")[2].partition(b"/")[2]


def _name(request: Request) -> str:
    """The path after its first level."""
    try:
        return unquote_to_bytes(_rest(request)).decode()
    except UnicodeDecodeError as exc:
        raise HTTPException(400, "not UTF-8 after percent-decoding") from exc


@cache
def _templates() -> jinja2.Environment:
    """The pages' templates, compiled once in a process."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["parts_of_name"] = _parts_of_name
    environment.globals.update(
        links=urls, words=formatting, heat=charts, static=shipped_files().urls.__getitem__
    )
    return environment
