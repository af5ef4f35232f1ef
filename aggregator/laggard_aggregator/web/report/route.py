"""The report as a file to download, for those who see the whole site; for everybody else there is none."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.status.urls import TimeRange
from laggard_aggregator.status.view import Status
from laggard_aggregator.web.jobs_api import JobsService, checked_parameters, principal
from laggard_aggregator.web.report.contents import centre_report
from laggard_aggregator.web.report.page import page
from laggard_aggregator.web.report.records import json_lines
from laggard_common.errors import InputError

PATH: Final = "/report"
_DEFAULT_FROM: Final = "-7d"


class ReportRoute:
    """Makes reports on the archive of `service`; `view` has the site's name and the present time."""

    def __init__(self, service: JobsService, view: Status) -> None:
        self._service = service
        self._view = view

    def routes(self) -> list[BaseRoute]:
        """Its route."""
        return [Route(PATH, self._report)]

    async def _report(self, request: Request) -> Response:
        who, directory, now = principal(request), self._service.directory, self._view.now
        if not who.sees_site or directory is None:
            raise HTTPException(404)  # as for a path that there is not
        given = checked_parameters(request, ("from", "to", "format"))
        form = given.get("format", "html")
        if form not in ("html", "json"):
            raise HTTPException(400, "format: expected html or json")
        try:
            when = TimeRange.parse(given.get("from", _DEFAULT_FROM), given.get("to", ""), now)
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc

        def made(queries: JobQueries) -> str:
            try:
                report = centre_report(directory, queries, who, when, now)
            except ModuleNotFoundError as exc:
                raise HTTPException(501, f"the aggregator lacks {exc.name}: laggard[mining]") from exc
            except InputError as exc:
                raise HTTPException(503, "the archive cannot be read") from exc
            if form == "json":
                return json_lines(report)
            return page(report, self._view.site)

        body = await self._service.ask(made)
        media = "text/html" if form == "html" else "application/jsonl"
        name = f'attachment; filename="laggard-report.{"html" if form == "html" else "jsonl"}"'
        return Response(body, media_type=media, headers={"content-disposition": name})
