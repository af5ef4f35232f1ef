"""The pages of jobs: the list with its columns, orders, and filters in the URL; and one job.

The cells of the list are in `templates/jobs.html`. The pages are never kept for the next request, as
each asker sees other jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.jobs.access.filter import MAX_PAGE
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.show import job_record, mode_text, trace_text
from laggard_aggregator.status.formatting import counted
from laggard_aggregator.web.jobs_api import (
    FILTERS,
    PAGE_JOBS,
    PATH,
    JobsService,
    checked_parameters,
    job_text,
    principal,
    slow_components,
)
from laggard_aggregator.web.pages.job import ComponentsTable, answer, blamed_names
from laggard_aggregator.web.pages.timeline import LAYERS, timelines
from laggard_aggregator.web.problems import Show
from laggard_common.visible import visible

LIST_PATH: Final = "/jobs"
_LABELS: Final = {
    "user": "User",
    "project": "Project",
    "app": "Application",
    "state": "State",
    "node": "Node",
    "ost": "OST or forwarder",
    "from": "From",
    "to": "To",
    "min_nodes": "Nodes, at least",
    "max_nodes": "Nodes, at most",
    "finding": "Finding",
    "below_history": "Below share of history",
}
_LONGEST_NUMBER: Final = 19
Job = Mapping[str, Any]


def _number(job: Job) -> tuple[int, str]:
    text = str(job["job"] or "")
    return (int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else 0, text)


def _lasted(job: Job) -> float | None:
    return None if job["start"] is None or job["end"] is None else job["end"] - job["start"]


@dataclass(frozen=True, slots=True)
class JobColumn:
    """A column: its heading and the value of a job, None where unknown. `numbers`: the largest come first."""

    heading: str
    value: Callable[[Job], Any]
    numbers: bool = False
    right: bool = False


COLUMNS: Final[Mapping[str, JobColumn]] = {
    "job": JobColumn("Job", _number),
    "user": JobColumn("User", lambda job: job["user"] or None),
    "project": JobColumn("Project", lambda job: job["account"] or None),
    "application": JobColumn("Application", lambda job: job["application"] or None),
    "state": JobColumn("State", lambda job: job["state"] or None),
    "nodes": JobColumn("Nodes", lambda job: job["node_count"], numbers=True, right=True),
    "start": JobColumn("Start", lambda job: job["start"], numbers=True),
    "lasted": JobColumn("Lasted", _lasted, numbers=True),
    "read": JobColumn("Read", lambda job: job["summary"]["read_bytes"], numbers=True, right=True),
    "written": JobColumn("Written", lambda job: job["summary"]["written_bytes"], numbers=True, right=True),
    "verdict": JobColumn("Verdict", lambda job: job["verdict"]),
}
"""The columns by the names of their orders."""


@dataclass(frozen=True, slots=True)
class JobOrder:
    """The order by the column `name`, falling if `falls`; without a name the list's own, newest first."""

    name: str = ""
    falls: bool = False

    @classmethod
    def of(cls, text: str) -> "JobOrder":
        """The order that the parameter `sort` names, such as `-written`. Raises HTTPException."""
        name = text.removeprefix("-")
        if text and name not in COLUMNS:
            raise HTTPException(400, f"sort: expected one of {', '.join(COLUMNS)}, falling with - before it")
        return cls(name, text.startswith("-"))

    def sorted(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs in this order, those without a value last."""
        if not self.name:
            return list(jobs)
        value = COLUMNS[self.name].value
        known = [job for job in jobs if value(job) is not None]
        return sorted(known, key=value, reverse=self.falls) + [job for job in jobs if value(job) is None]

    def after_click(self, name: str) -> str:
        """The parameter `sort` of a heading: its own order, the other way round where it has that now."""
        falls = not self.falls if name == self.name else COLUMNS[name].numbers
        return f"-{name}" if falls else name

    def sign(self, name: str) -> str:
        """The present order of a column for `aria-sort`, empty for the others."""
        return "" if name != self.name else "descending" if self.falls else "ascending"

    def caption(self, count: str) -> str:
        """The order in words; `count`: the jobs that were sorted, in words."""
        if not self.name:
            return "Newest first"
        return f"By {COLUMNS[self.name].heading.lower()}{', falling' * self.falls}, of the {count}"


class JobPages:
    """The pages over `service`; `show` renders them."""

    def __init__(self, service: JobsService, show: Show) -> None:
        self._service = service
        self._show = show

    def routes(self) -> list[BaseRoute]:
        """Routes of the pages."""
        return [Route(LIST_PATH, self._list), Route(LIST_PATH + "/{rest:path}", self._one)]

    async def _list(self, request: Request) -> Response:
        given = checked_parameters(request, (*FILTERS, "cursor", "sort"))
        selection, who = self._service.selection(given), principal(request)
        order, cursor = JobOrder.of(given.get("sort", "")), given.get("cursor", "")
        most = MAX_PAGE if order.name else PAGE_JOBS
        listed = await self._service.ask(
            lambda queries: queries.list_jobs(who, selection, most, "" if order.name else cursor)
        )
        asked = {name: value for name, value in given.items() if name not in ("cursor", "sort")}
        jobs = order.sorted([job_record(job) for job in listed.jobs])[:PAGE_JOBS]
        more = listed.next_cursor if not order.name else ""
        page = {
            "jobs": [_shown(job) for job in jobs],
            "headings": [
                (column, _address(LIST_PATH, {**asked, "sort": order.after_click(name)}), order.sign(name))
                for name, column in COLUMNS.items()
            ],
            "caption": order.caption(counted(len(listed.jobs), "newest job")),
            "filters": [(name, label, asked.get(name, "")) for name, label in _LABELS.items()],
            "is_filtered": bool(asked),
            "here": _address(LIST_PATH, asked),
            "is_first": not order.name and not cursor,
            "first": _address(LIST_PATH, asked),
            "next": _address(LIST_PATH, {**asked, "cursor": more}) if more else "",
            "csv": _address(PATH, {**asked, "format": "csv"}),
            "json": _address(PATH, asked),
            "sees_site": who.sees_site,
            "sees_all": who.sees_all,
            "sees_any": who.sees_all or bool(who.users or who.accounts),
        }
        return await self._show(request, "jobs", page)

    async def _one(self, request: Request) -> Response:
        text, who, method = job_text(request), principal(request), slow_components(request)
        job = await self._service.ask(lambda queries: self._job(queries, who, text, method))
        if job is None:
            raise HTTPException(404, "no such job")
        return await self._show(request, "job", job)

    def _job(self, queries: JobQueries, who: Principal, text: str, method: str) -> dict[str, Any] | None:
        """The newest run of an id or key, with its timeline; None where there is none."""
        runs = queries.find(who, text)
        if not runs:
            return None
        own = runs[0]
        job = _shown(self._service.full(queries, own, method))
        for name in ("findings", "neighbours", "components"):
            job[name] = [_shown(row) for row in job[name]]
        series, blamed = self._service.series(own), blamed_names(job)
        slow = self._service.slow_times(own, blamed)
        return {
            "job": job,
            "answer": answer(job),
            "runs": [(run["job_key"], run["start"]) for run in runs[1:]],
            "timelines": timelines(series, job["phases"], slow),
            "slow_times": slow,
            "blamed": bool(blamed),
            "components": ComponentsTable.of(job["components"], job["findings"]),
            "mode": mode_text(job["summary"]["mode"]),
            "traced": trace_text(job["trace_difference"]),
            "volumes": [
                (layer, *volumes) for layer in LAYERS if any(volumes := _volume(job["volumes"], layer))
            ],
        }


def _shown(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose texts have no control characters and no marks of direction; its key is for links."""
    return {
        name: visible(value) if isinstance(value, str) and name != "key" else value
        for name, value in record.items()
    }


def _volume(volumes: dict[str, Any], layer: str) -> tuple[Any, Any]:
    return volumes[f"{layer}_read_bytes"], volumes[f"{layer}_written_bytes"]


def _address(path: str, given: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(given)}" if given else path
