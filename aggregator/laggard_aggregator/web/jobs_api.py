"""`/api/v1/jobs`: jobs of the archive as JSON and CSV, as much of each as its principal may see.

A job of others is absent: the same answer to the byte as for a job that never was, in lists and counts too.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from laggard_aggregator.jobs.access.filter import MAX_PAGE, JobSelection
from laggard_aggregator.jobs.access.principals import NOBODY, Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.show import full_record, job_lines, job_record
from laggard_aggregator.jobs.verdict import METHODS
from laggard_aggregator.jobs.verdict.evidence.alarms import SlowTime
from laggard_aggregator.jobs.verdict.judge import JobJudge
from laggard_aggregator.status import urls
from laggard_common.errors import ArchiveError, ConfigError

PATH: Final = "/api/v1/jobs"
PAGE_JOBS: Final = 50
MOST_ROWS: Final = 1_000_000
"""Limit of jobs in one CSV file."""
MOST_AT_ONCE: Final = 4
JSON: Final = "application/json"
_MOST_CHARS: Final = 512
_TEXTS: Final = {
    "user": "user",
    "project": "project",
    "app": "application",
    "state": "state",
    "node": "node",
    "ost": "component",
    "finding": "finding",
}
FILTERS: Final = (*_TEXTS, "from", "to", "min_nodes", "max_nodes", "below_history")
_PARAMETERS: Final = (*FILTERS, "limit", "cursor", "count", "format")
T = TypeVar("T")


class JobsService:
    """Answers about the jobs of the archive in `directory`, None without one; `now`: present time.

    `served_by`: the forwarder of each node that has one, for verdicts that are not stored. `jobid_format`: of
    Lustre, for jobs that run.
    """

    def __init__(
        self,
        directory: Path | None,
        now: Callable[[], float],
        served_by: Mapping[str, str] = MappingProxyType({}),
        jobid_format: str = "",
    ) -> None:
        self.directory = directory
        self._queries = None if directory is None else JobQueries(JobIndex(directory))
        self._judge = (
            None
            if directory is None or self._queries is None
            else JobJudge(directory, self._queries, served_by, jobid_format=jobid_format)
        )
        self._now = now
        self._at_once = asyncio.Semaphore(MOST_AT_ONCE)

    def routes(self) -> list[BaseRoute]:
        """Routes of the API."""
        return [Route(PATH, self._list), Route(PATH + "/{rest:path}", self._one)]

    async def ask(self, question: Callable[[JobQueries], T]) -> T:
        """The answer of the query layer, in a thread. Raises HTTPException."""
        queries = self._queries
        if queries is None:
            raise HTTPException(503, "there is no archive")
        async with self._at_once:
            try:
                return await asyncio.to_thread(question, queries)
            except ConfigError as exc:
                raise HTTPException(400, "; ".join(exc.problems)) from exc
            except ArchiveError as exc:
                raise HTTPException(503, "the index of jobs is not built yet, or cannot be read") from exc

    def full(self, queries: JobQueries, job: VisibleJob, method: str = "") -> dict[str, Any]:
        """A job's record with its verdict, within `ask`."""
        assert self._judge is not None, "there is an archive"
        return full_record(queries, self._judge, job, method)

    def series(self, job: VisibleJob) -> list[Row]:
        """A job's series, of a running one until now, within `ask`."""
        assert self._judge is not None, "there is an archive"
        return self._judge.series(job)

    def slow_times(self, job: VisibleJob, components: Collection[str]) -> list[SlowTime]:
        """Times of the job in which components were slow, within `ask`."""
        assert self._judge is not None, "there is an archive"
        return self._judge.slow_times(job, components)

    def selection(self, given: Mapping[str, str]) -> JobSelection:
        """The filters of a URL's query. Raises HTTPException."""
        try:
            return _selection(given, self._now())
        except ConfigError as exc:
            raise HTTPException(400, "; ".join(exc.problems)) from exc
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc

    async def _list(self, request: Request) -> Response:
        given = checked_parameters(request, _PARAMETERS)
        selection, who, form = self.selection(given), principal(request), given.get("format", "json")
        if form == "csv":
            first = await self.ask(lambda queries: _chunk(queries.every(who, selection)))
            name = 'attachment; filename="laggard-jobs.csv"'
            return StreamingResponse(first, media_type="text/csv", headers={"content-disposition": name})
        if form != "json":
            raise HTTPException(400, "format: expected json or csv")
        limit = _whole(given.get("limit", str(PAGE_JOBS)), "limit", MAX_PAGE)

        def answer(queries: JobQueries) -> dict[str, Any]:
            page = queries.list_jobs(who, selection, limit, given.get("cursor", ""))
            answer_record: dict[str, Any] = {"jobs": [job_record(job) for job in page.jobs]}
            answer_record["next"] = page.next_cursor or None
            return answer_record | ({"count": queries.count(who, selection)} if given.get("count") else {})

        try:
            return Response(await self.ask(lambda queries: json_body(answer(queries))), media_type=JSON)
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc

    async def _one(self, request: Request) -> Response:
        text, who, method = job_text(request), principal(request), slow_components(request)

        def answer(queries: JobQueries) -> bytes | None:
            runs = [self.full(queries, job, method) for job in queries.find(who, text)]
            return json_body({"jobs": runs}) if runs else None

        body = await self.ask(answer)
        if body is None:
            raise HTTPException(404, "no such job")
        return Response(body, media_type=JSON)


def json_body(answer: Mapping[str, Any]) -> bytes:
    """An answer as JSON; to be called in a thread, as it may be large."""
    return bytes(JSONResponse(answer).body)


def principal(request: Request) -> Principal:
    """The principal of a request, `NOBODY` without one."""
    principal = request.scope.get("principal")
    return principal if isinstance(principal, Principal) else NOBODY


def slow_components(request: Request) -> str:
    """The method that `slow_components` names, if given. Raises HTTPException."""
    method = checked_parameters(request, ("slow_components",)).get("slow_components", "")
    if method and method not in METHODS:
        raise HTTPException(
            400, f"slow_components: expected one of {', '.join(METHODS)}, got {method[:40]!r}"
        )
    return method


def job_text(request: Request) -> str:
    """Id or key of a job in a path."""
    text: str = request.path_params["rest"]
    return text[:_MOST_CHARS]


def checked_parameters(request: Request, known: Iterable[str]) -> dict[str, str]:
    """The parameters of a URL that are not empty. Raises HTTPException for unknown, doubled or long ones."""
    names, given = tuple(known), request.query_params.multi_items()
    for name, value in given:
        if name not in names or sum(other == name for other, _ in given) > 1:
            expected = f"expected {', '.join(names)}, each once" if names else "expected no parameters"
            raise HTTPException(400, f"{expected}, got {name[:40]!r}")
        if len(value) > _MOST_CHARS * (8 if name == "cursor" else 1):
            raise HTTPException(400, f"{name}: too long")
    return {name: value for name, value in given if value}


def _selection(given: Mapping[str, str], now: float) -> JobSelection:
    def number(name: str) -> int | None:
        return _whole(given[name], name, 1 << 30, least=0) if name in given else None

    def moment(name: str) -> float | None:
        try:
            return urls.parse_time(given[name], now) if name in given else None
        except ValueError as exc:
            raise ValueError(f"{name}: {exc}") from exc

    return JobSelection(
        **{column: given.get(name, "") for name, column in _TEXTS.items()},
        after=moment("from"),
        before=moment("to"),
        min_nodes=number("min_nodes"),
        max_nodes=number("max_nodes"),
        below_history=_share(given["below_history"]) if "below_history" in given else None,
    )


def _whole(text: str, name: str, most: int, least: int = 1) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise HTTPException(400, f"{name}: expected {least}-{most}, got {text[:40]!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise ValueError(f"below_history: expected a positive number, got {text[:40]!r}")
    return value


def _chunk(jobs: Iterator[VisibleJob]) -> Iterator[str]:
    """CSV of jobs, the first of which are read now, so that errors have a status."""
    first = list(islice(jobs, 1))
    return job_lines(job_record(job) for job in islice(_chained(first, jobs), MOST_ROWS))


def _chained(first: list[VisibleJob], rest: Iterator[VisibleJob]) -> Iterator[VisibleJob]:
    yield from first
    yield from rest
