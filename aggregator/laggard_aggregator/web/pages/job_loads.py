"""The pages of what jobs load: forwarders, metadata servers, and jobs with amplification.

Each has one table, also as CSV and JSON, of the jobs that the asker may see. The page of the forwarders is
for those who see the whole site; for everybody else there is none.
"""

from collections.abc import Collection
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.access.queries import AMPLIFIED, JobQueries
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.loads.forwarders import GAP, ROLE, ForwarderLoad, shown_forwarder_load
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
from laggard_aggregator.web.pages.charts import (
    GONE,
    MAX_WINDOWS,
    SLOW,
    SLOWEST,
    WELL,
    WIDE,
    drawing,
)
from laggard_aggregator.web.pages.jobs import LIST_PATH
from laggard_aggregator.web.pages.site import Asked
from laggard_aggregator.web.pages.table_files import table_file
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query
from laggard_aggregator.web.problems import Show
from laggard_common.visible import visible

FORWARDERS, METADATA, AMPLIFICATION = "/forwarders", "/metadata", "/amplification"
DAY: Final = 86_400.0
_MIB: Final = 2.0**20
MAX_AMPLIFIED = 200
_TABLE: Final = ("sort", "page", "table", "format")
_RANGE: Final = ("from", "to")
_LEVELS: Final = np.array([WELL, WIDE, SLOW, SLOWEST, GONE], dtype=np.uint8)
"""Levels of a heat map by class; the last is that of GAP."""
_SHARES: Final = (("above_90", "> 90 %"), ("to_90", "50-90 %"), ("to_50", "10-50 %"), ("to_10", "0-10 %"))
"""Columns of the classes, highest first."""
_LEGEND: Final = (
    (SLOWEST, "above 90 % of the peak"),
    (SLOW, "50 to 90 %"),
    (WIDE, "10 to 50 %"),
    (WELL, "0 to 10 %"),
    (GONE, "no data"),
)
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
    """The pages over `service`; `show` renders them, `view` knows who is up, `peaks` full loads."""

    def __init__(
        self, service: JobsService, show: Show, view: Status, peaks: Collection[PeakTable] = ()
    ) -> None:
        self._service = service
        self._show = show
        self._view = view
        self._peaks = peaks

    def routes(self) -> list[BaseRoute]:
        """Routes of the pages."""
        return [
            Route(FORWARDERS, self._forwarders),
            Route(METADATA, self._metadata),
            Route(AMPLIFICATION, self._amplification),
        ]

    async def _forwarders(self, request: Request) -> Response:
        who, directory = principal(request), self._service.directory
        if not who.sees_site or directory is None:
            raise HTTPException(404)  # as for a path that there is not
        given = checked_parameters(request, ("forwarder", *_RANGE, *_TABLE))
        asked, when = self._range(request)
        names = tuple(node.node for node in self._view.nodes() if node.role == ROLE)
        found = await self._service.ask(
            lambda queries: shown_forwarder_load(
                queries, who, directory, names, self._peaks, start=when.start, end=when.end
            )
        )
        if found is None:
            raise HTTPException(404)
        table, page = forwarder_table(found, Query(given))
        return await self._answer(request, "forwarders", table, page | {"asked": asked, "legend": _LEGEND})

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

        found = await self._service.ask(load)
        page = {"asked": asked, "start": when.start, "end": when.end, "by": by, "classes": classes}
        return await self._answer(request, "metadata", metadata_table(found, by, Query(given)), page)

    async def _amplification(self, request: Request) -> Response:
        given = checked_parameters(request, ("user", "project", "app", *_TABLE))
        who = principal(request)
        found = await self._service.ask(lambda queries: queries.amplified(who, MAX_AMPLIFIED))
        page = {"limit": AMPLIFIED, "is_cut": len(found) == MAX_AMPLIFIED}
        return await self._answer(request, "amplification", amplification_table(found, Query(given)), page)

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


def forwarder_table(found: ForwarderLoad, query: Query) -> tuple[PageTable[int], dict[str, Any]]:
    """The forwarders that are loaded most first, each with its heat map, and the axis of the maps."""
    steps = found.classes.shape[1]
    merged = -(-steps // MAX_WINDOWS)
    first = np.arange(0, steps, merged)
    levels = _narrowed(found.classes, first)
    known = ~np.isnan(found.bytes_per_second)
    sums, count = np.where(known, found.bytes_per_second, 0.0).sum(axis=1), known.sum(axis=1)
    mean: FloatArray = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
    shares = found.time_share[:, ::-1]

    def row(at: int) -> dict[str, Any]:
        name = found.forwarders[at]
        above = shares[at, 0]
        label = (
            f"{name}: no data"
            if np.isnan(above)
            else f"{name}: above 90 % of the peak {above:.0%} of the time"
        )
        return {
            "name": name,
            "mean": mean[at] / _MIB,
            "largest": found.largest[at] / _MIB,
            "peak": found.peak[at] / _MIB if count[at] else np.nan,
            "shares": [(heading, shares[at, place]) for place, (_, heading) in enumerate(_SHARES)],
            "picture": drawing(levels[at : at + 1], label, "strip"),
        }

    def share(place: int) -> Any:
        return lambda at: float(shares[at, place])

    columns = (
        PageColumn[int]("forwarder", "Forwarder", lambda at: found.forwarders[at]),
        PageColumn[int]("start", "", lambda _: found.start, is_time=True),
        PageColumn[int]("step_seconds", "", lambda _: found.step_seconds),
        PageColumn[int]("steps", "", lambda at: int(count[at])),
        PageColumn[int]("mean_bytes_per_second", "Mean", lambda at: float(mean[at]), right=True),
        PageColumn[int](
            "largest_bytes_per_second", "Largest", lambda at: float(found.largest[at]), right=True
        ),
        PageColumn[int](
            "peak_bytes_per_second",
            "Peak",
            lambda at: float(found.peak[at]) if count[at] else None,
            right=True,
        ),
        *(
            PageColumn[int](f"time_{key}", heading, share(place), right=True)
            for place, (key, heading) in enumerate(_SHARES)
        ),
    )
    load = np.divide(mean, found.peak, out=np.zeros(len(mean)), where=(count > 0) & (found.peak > 0))
    order = np.lexsort((-load, -np.nan_to_num(shares[:, 0]), np.isnan(shares[:, 0])))
    table = PageTable(
        "forwarders",
        columns,
        order.tolist(),
        query,
        filters=(Filter[int]("forwarder", "Forwarder", lambda at: found.forwarders[at]),),
        keep=_RANGE,
        make=row,
    )
    quarters = sorted({len(first) * part // 4 for part in range(4)})
    return table, {
        "start": found.start,
        "end": found.start + steps * found.step_seconds,
        "step_seconds": found.step_seconds,
        "merged": merged,
        "times": [found.start + found.step_seconds * float(first[at]) for at in quarters],
    }


def metadata_table(found: list[MetadataLoad], group: MetadataBy, query: Query) -> PageTable[MetadataLoad]:
    """The classes with most operations first; shares are those of the operations in the table."""
    total = sum(each.operations for each in found) or 1.0  # of jobs that took no time

    def url(each: MetadataLoad) -> str:
        if group == MetadataBy.JOB and not each.is_outside:
            return f"{LIST_PATH}/{quote(each.name, safe='')}"
        return urls.page(LIST_PATH, **{_FILTERS[group]: each.name}) if each.name and group in _FILTERS else ""

    def name(each: MetadataLoad) -> str:
        return OUTSIDE if each.is_outside else each.name

    def row(each: MetadataLoad) -> dict[str, Any]:
        return {
            "name": visible(name(each)),
            "url": url(each),
            "count": each.count,
            "busiest": each.busiest,
            "operations": each.operations,
            "rate": each.operations_per_second,
            "share": each.operations / total,
        }

    of = PageColumn[MetadataLoad]
    columns = (
        of("name", _HEADINGS[group], name),
        *((of("jobs", "Jobs", lambda each: each.count, right=True),) if group not in OF_SITE else ()),
        *((of("nodes", "Count", lambda each: each.count, right=True),) if group == MetadataBy.NODES else ()),
        *((of("busiest", "Busiest", lambda each: each.busiest),) if group == MetadataBy.NODES else ()),
        of("operations", "Operations", lambda each: each.operations, right=True),
        of("operations_per_second", "Per second", lambda each: each.operations_per_second, right=True),
        of("share", "Share", lambda each: each.operations / total, right=True),
    )
    return PageTable("metadata", columns, found, query, keep=("by", *_RANGE), make=row)


def amplification_table(found: list[Row], query: Query) -> PageTable[Row]:
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

    of = PageColumn[Row]
    columns = (
        of("job", "Job", lambda job: job["job"]),
        of("key", "", lambda job: job["job_key"]),
        of("user", "User", lambda job: job["user"]),
        of("project", "Project", lambda job: job["account"]),
        of("application", "Application", lambda job: job["application"]),
        of("start", "Start", lambda job: job["start"], is_time=True),
        of("amplification", "Amplification", lambda job: job["amplification"], right=True),
        of("asked_bytes", "Asked for", lambda job: _total(job, *_LAYERS), right=True),
        of("moved_bytes", "Moved", lambda job: _total(job, *_LAYERS[::-1]), right=True),
    )
    filters = (
        Filter[Row]("user", "User", lambda job: job["user"]),
        Filter[Row]("project", "Project", lambda job: job["account"]),
        Filter[Row]("app", "Application", lambda job: job["application"]),
    )
    return PageTable("amplification", columns, found, query, filters=filters, make=row)


_LAYERS: Final = ("client", "forwarder", "server")


def _total(job: Row, *layers: str) -> float | None:
    """Bytes read and written in the first of the layers that counts both; None without any."""
    for layer in layers:
        read, written = job[f"s_{layer}_read_bytes"], job[f"s_{layer}_written_bytes"]
        if read is not None and written is not None:
            return float(read + written)
    return None


def _narrowed(classes: NDArray[np.int8], first: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Levels (F, N) of classes (F, T): the highest class of the steps from each of `first` (N,) on."""
    assert GAP == -1, "its level is the last"
    return _LEVELS[np.maximum.reduceat(classes, first, axis=1)]
