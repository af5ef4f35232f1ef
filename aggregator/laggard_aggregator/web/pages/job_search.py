"""Jobs, users, projects and applications that a search names and its user may see."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.show import job_record
from laggard_aggregator.web.jobs_api import JobsService, principal
from laggard_common.visible import visible

MAX_CHARS = 200
MAX_JOBS = 5
_PARAMETERS = {"user": "User", "project": "Project", "app": "Application"}
"""Parameters of the list of jobs that have a name, and their headings."""


@dataclass(frozen=True, slots=True)
class JobMatch:
    """A match: its `kind` on the page, `name`, link and, of a job, whose it is."""

    kind: str
    name: str
    url: str
    about: str = ""


class JobSearch:
    """Asks `service`; names must match as a whole, as the index has them."""

    def __init__(self, service: JobsService) -> None:
        self._service = service

    async def matches(self, request: Request) -> list[JobMatch]:
        """The matches of the parameter `q`; none without jobs or while their index cannot be read."""
        text = request.query_params.get("q", "").strip()[:MAX_CHARS]
        who = principal(request)
        if not text or self._service.directory is None:
            return []
        try:
            return await self._service.ask(lambda queries: _matches(queries, who, text))
        except HTTPException:  # 400: no name of a job, 503: no index yet
            return []


def _matches(queries: JobQueries, who: Principal, text: str) -> list[JobMatch]:
    selections = {
        "user": JobSelection(user=text),
        "project": JobSelection(project=text),
        "app": JobSelection(application=text),
    }
    matches = [
        JobMatch(_PARAMETERS[name], visible(text), f"/jobs?{urlencode({name: text})}")
        for name, selection in selections.items()
        if queries.list_jobs(who, selection, 1).jobs
    ]
    for job in queries.find(who, text)[:MAX_JOBS]:
        record = job_record(job)
        about = " ".join(visible(str(record[name])) for name in ("user", "application") if record[name])
        url = f"/jobs/{quote(str(record['key']), safe='')}"
        matches.append(JobMatch("Job", visible(str(record["job"])), url, about))
    return matches
