"""The pages of loads: components of every kind, metadata servers, and jobs with amplification.

Each has one table, also as CSV and JSON, of the jobs that the asker may see. The page of the components is
for those who see the whole site, as it tells when others' jobs ran; for everybody else there is none.
"""

from collections.abc import Collection
from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.jobs.access.queries import AMPLIFIED, JobQueries
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.loads.component_load import ComponentLoad, component_load
from laggard_aggregator.jobs.loads.kinds import FORWARDERS, KINDS, known_kinds
from laggard_aggregator.jobs.loads.load_days import LoadDays
from laggard_aggregator.jobs.loads.metadata import (
    OF_SITE,
    MetadataBy,
    MetadataLoad,
    metadata_load,
    site_metadata,
)
from laggard_aggregator.settings.aggregator import PeakTable
from laggard_aggregator.status import urls
from laggard_aggregator.status.urls import TimeRange
from laggard_aggregator.status.view import Status
from laggard_aggregator.web.jobs_api import JobsService, checked_parameters, principal
from laggard_aggregator.web.pages.component_loads import component_table
from laggard_aggregator.web.pages.jobs import LIST_PATH
from laggard_aggregator.web.pages.site import Asked
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query, table_file
from laggard_aggregator.web.problems import Show
from laggard_common.visible import visible

LOADS, METADATA, AMPLIFICATION = "/loads", "/metadata", "/amplification"
DAY: Final = 86_400.0
MAX_AMPLIFIED = 200
_TABLE: Final = ("sort", "page", "table", "format")
_RANGE: Final = ("from", "to")
_HEADINGS: Final = {
    MetadataBy.APPLICATION: "Application",
    MetadataBy.USER: "User",
    MetadataBy.PROJECT: "Project",
    MetadataBy.JOB: "Job",
    MetadataBy.NODES: "Nodes",
    MetadataBy.TARGET: "Target",
}
OUTSIDE: Final = "outside finished jobs"
_FILTERS: Final = {MetadataBy.USER: "user", MetadataBy.PROJECT: "project", MetadataBy.APPLICATION: "app"}
"""Parameters of the list of jobs."""


class LoadPages:
    """The pages over `service`; `show` renders them, `view` knows who is up, `peaks` full loads.

    `loads`: of components that are too many for their minutes; without, all are shown by the minute.
    """

    def __init__(
        self,
        service: JobsService,
        show: Show,
        view: Status,
        peaks: Collection[PeakTable] = (),
        loads: LoadDays | None = None,
    ) -> None:
        self._service = service
        self._show = show
        self._view = view
        self._peaks = peaks
        self._loads_of_days = loads

    def routes(self) -> list[BaseRoute]:
        """Routes of the pages."""
        return [
            Route(LOADS, self._loads),
            Route("/forwarders", _forwarders),
            Route(METADATA, self._metadata),
            Route(AMPLIFICATION, self._amplification),
        ]

    async def _loads(self, request: Request) -> Response:
        who, directory = principal(request), self._service.directory
        if not who.sees_site or directory is None:
            raise HTTPException(404)  # as for a path that there is not
        given = checked_parameters(request, ("of", "component", *_RANGE, *_TABLE))
        asked, when = self._range(request)
        asked_kind = given.get("of", "")
        if asked_kind not in ("", *KINDS):
            raise HTTPException(400, f"of: expected one of {', '.join(KINDS)}")
        nodes = [(node.node, node.role) for node in self._view.nodes()]

        def load(_: JobQueries) -> tuple[list[str], str, ComponentLoad]:
            kinds = known_kinds(directory, {role for _, role in nodes})
            chosen = asked_kind or next(iter(kinds), next(iter(KINDS)))
            up = [node for node, role in nodes if role in KINDS[chosen].roles]
            kind, days = KINDS[chosen], self._loads_of_days
            loads = component_load(directory, kind, when.start, when.end, up=up, peaks=self._peaks, days=days)
            return kinds, chosen, loads

        kinds, chosen, loads = await self._service.ask(load)
        table, page = component_table(loads, chosen, when, Query(given))
        tabs = [(name, KINDS[name].title) for name in KINDS if name in (*kinds, chosen)]
        page |= {"asked": asked, "of": chosen, "tabs": tabs, "is_known": bool(kinds or asked_kind)}
        return await self._answer(request, "loads", table, page)

    async def _metadata(self, request: Request) -> Response:
        given, who = checked_parameters(request, ("by", *_RANGE, *_TABLE)), principal(request)
        asked, when = self._range(request)
        directory = self._service.directory if who.sees_site else None
        classes = [by for by in MetadataBy if who.sees_site or by not in OF_SITE]
        group = given.get("by", MetadataBy.APPLICATION)
        if group not in classes:
            raise HTTPException(400, f"by: expected one of {', '.join(classes)}")
        by = MetadataBy(group)

        def load(queries: JobQueries) -> list[MetadataLoad]:
            site = None if directory is None else site_metadata(directory, when.start, when.end)
            return metadata_load(queries, who, when.start, when.end, by, site=site)

        loads = await self._service.ask(load)
        page = {"asked": asked, "start": when.start, "end": when.end, "by": by, "classes": classes}
        return await self._answer(request, "metadata", metadata_table(loads, by, Query(given)), page)

    async def _amplification(self, request: Request) -> Response:
        given = checked_parameters(request, ("user", "project", "app", *_TABLE))
        who = principal(request)
        jobs = await self._service.ask(lambda queries: queries.amplified(who, MAX_AMPLIFIED))
        page = {"limit": AMPLIFIED, "is_cut": len(jobs) == MAX_AMPLIFIED}
        return await self._answer(request, "amplification", amplification_table(jobs, Query(given)), page)

    async def _answer(
        self, request: Request, name: str, table: PageTable[Any], page: dict[str, Any]
    ) -> Response:
        if table.problems:
            raise HTTPException(400, "; ".join(table.problems))
        if form := request.query_params.get("format", ""):
            return table_file([table], request.query_params.get("table", ""), form, self._view.now)
        sees_site = principal(request).sees_site
        return await self._show(request, name, page | {"table": table, "sees_site": sees_site})

    def _range(self, request: Request) -> tuple[Asked, TimeRange]:
        """The range of the URL, without one the last day. Raises HTTPException."""
        now = self._view.now
        asked = Asked.of(request, now)
        if asked.problem:
            raise HTTPException(400, asked.problem)
        return asked, asked.range if asked.range is not None else TimeRange(now - DAY, now)


async def _forwarders(request: Request) -> Response:
    """The page's address in 0.2.0."""
    query = request.url.query
    return RedirectResponse(f"loads?of={FORWARDERS}{'&' if query else ''}{query}", 308)


def metadata_table(loads: list[MetadataLoad], group: MetadataBy, query: Query) -> PageTable[MetadataLoad]:
    """The classes with most operations first; shares are those of the operations in the table.

    Operations that forwarders pass on for nodes in the table are in these, and have no share of their own.
    """
    own = [load.operations for load in loads if not load.is_passed_on]
    total = sum(own) or 1.0  # of jobs that took no time

    def share(load: MetadataLoad) -> float | None:
        return None if load.is_passed_on else load.operations / total

    def url(load: MetadataLoad) -> str:
        if group == MetadataBy.JOB and not load.is_outside:
            return f"{LIST_PATH}/{quote(load.name, safe='')}"
        return urls.page(LIST_PATH, **{_FILTERS[group]: load.name}) if load.name and group in _FILTERS else ""

    def name(load: MetadataLoad) -> str:
        return OUTSIDE if load.is_outside else load.name

    def row(load: MetadataLoad) -> dict[str, Any]:
        return {
            "name": visible(name(load)),
            "url": url(load),
            "count": load.count,
            "busiest": load.busiest,
            "operations": load.operations,
            "rate": load.operations_per_second,
            "share": share(load),
        }

    column = PageColumn[MetadataLoad]
    of_nodes = (
        column("nodes", "Count", lambda load: load.count, right=True),
        column("busiest", "Busiest", lambda load: load.busiest),
    )
    columns = (
        column("name", _HEADINGS[group], name),
        *([column("jobs", "Jobs", lambda load: load.count, right=True)] if group not in OF_SITE else []),
        *(of_nodes if group == MetadataBy.NODES else ()),
        column("operations", "Operations", lambda load: load.operations, right=True),
        column("operations_per_second", "Per second", lambda load: load.operations_per_second, right=True),
        column("share", "Share", share, right=True),
    )
    return PageTable("metadata", columns, loads, query, keep=("by", *_RANGE), make=row)


def amplification_table(jobs: list[Row], query: Query) -> PageTable[Row]:
    """The jobs that were amplified most first."""

    def row(job: Row) -> dict[str, Any]:
        return {
            "job": visible(job["job"]),
            "url": f"{LIST_PATH}/{quote(job['job_key'], safe='')}",
            "user": visible(job["user"]),
            "project": visible(job["account"]),
            "application": visible(job["application"]),
            "start": job["start"],
            "amplification": job["amplification"],
            "asked": _total(job, *_LAYERS),
            "moved": _total(job, *_LAYERS[::-1]),
        }

    column = PageColumn[Row]
    columns = (
        column("job", "Job", lambda job: job["job"]),
        column("key", "", lambda job: job["job_key"]),
        column("user", "User", lambda job: job["user"]),
        column("project", "Project", lambda job: job["account"]),
        column("application", "Application", lambda job: job["application"]),
        column("start", "Start", lambda job: job["start"], is_time=True),
        column("amplification", "Amplification", lambda job: job["amplification"], right=True),
        column("asked_bytes", "Asked for", lambda job: _total(job, *_LAYERS), right=True),
        column("moved_bytes", "Moved", lambda job: _total(job, *_LAYERS[::-1]), right=True),
    )
    filters = (
        Filter[Row]("user", "User", lambda job: job["user"]),
        Filter[Row]("project", "Project", lambda job: job["account"]),
        Filter[Row]("app", "Application", lambda job: job["application"]),
    )
    return PageTable("amplification", columns, jobs, query, filters=filters, make=row)


_LAYERS: Final = ("client", "forwarder", "server")


def _total(job: Row, *layers: str) -> float | None:
    """Bytes read and written in the first of the layers that counts both; None without any."""
    for layer in layers:
        read, written = job[f"s_{layer}_read_bytes"], job[f"s_{layer}_written_bytes"]
        if read is not None and written is not None:
            return float(read + written)
    return None
