"""Questions to a site's index and archive, each with the limit of its p99."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.jobs_queries.counters import BEGIN
from bench.jobs_queries.generator import (
    ACCOUNTS,
    APPLICATIONS,
    DAY,
    FIRST,
    OSTS,
    STATES,
    USERS,
    SiteSize,
    node_name,
    user_name,
)
from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.loads.heat_map import heat_map
from laggard_aggregator.jobs.loads.kinds import COMPUTE, KINDS

ADMIN: Final = Principal("root", Role.ADMIN)
MOST_NODES, HEAT_SECONDS = 1_000_000, 7200


@dataclass(slots=True)
class Asker:
    """Asks about the site in `archive`. `detailed`: keys of jobs with series."""

    archive: Path
    size: SiteSize
    detailed: list[str]
    chance: random.Random
    heat_seconds: int = HEAT_SECONDS

    def ask(self, name: str) -> None:
        """One question, by connections of its own."""
        queries = JobQueries(JobIndex(self.archive))
        try:
            QUESTIONS[name].ask(self, queries)
        finally:
            queries.close()

    def who(self) -> Principal:
        """An administrator, or a user with many or few jobs."""
        user = Principal(user_name(self._user()), Role.USER)
        manager = Principal(user.name, Role.MANAGER, frozenset({self.project()}))
        return self.chance.choice([ADMIN, ADMIN, user, manager])

    def project(self) -> str:
        """A project."""
        return f"project{self.chance.randrange(ACCOUNTS):03d}"

    def application(self) -> str:
        """An application."""
        return f"app{self.chance.randrange(APPLICATIONS):03d}"

    def user(self) -> str:
        """A user with many or few jobs."""
        return user_name(self._user())

    def moment(self) -> float:
        """A time of the year."""
        return FIRST + self.chance.random() * self.size.days * DAY

    def _user(self) -> int:
        return min(int(self.chance.paretovariate(0.3)) - 1, USERS - 1)


Ask = Callable[[Asker, JobQueries], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """`limit_seconds`: of p99."""

    limit_seconds: float
    ask: Ask


def _listed(limit_seconds: float, draw: Callable[[Asker], JobSelection]) -> Question:
    return Question(limit_seconds, lambda asker, queries: queries.list_jobs(asker.who(), draw(asker)))


def _by_id(asker: Asker, queries: JobQueries) -> None:
    assert queries.find(ADMIN, str(1000 + asker.chance.randrange(asker.size.jobs // 2)))


def _page(asker: Asker, queries: JobQueries) -> None:
    key = asker.chance.choice(asker.detailed)
    results, job = JobResults(asker.archive), queries.job(ADMIN, key)
    assert job is not None
    assert queries.nodes(job)
    queries.history(job)
    queries.neighbours(job)
    assert len(results.series(job)) == 4
    assert results.components(job)


def _time(asker: Asker) -> JobSelection:
    at = asker.moment()
    return JobSelection(after=at, before=at + DAY)


def _year(asker: Asker) -> JobSelection:
    return JobSelection(
        after=FIRST,
        before=FIRST + asker.size.days * DAY,
        application=asker.application(),
        state=asker.chance.choice(STATES),
        min_nodes=64,
    )


def _count(asker: Asker, queries: JobQueries) -> None:
    selection = JobSelection(project=asker.project(), state="failed", after=FIRST)
    queries.count(asker.who(), selection)


def _heat(most: int) -> Ask:
    def ask(asker: Asker, _: JobQueries) -> None:
        nodes = {(node_name(node), "") for node in range(min(most, asker.size.nodes))}
        heat = heat_map(asker.archive, KINDS[COMPUTE], nodes, BEGIN, BEGIN + asker.heat_seconds)
        assert len(heat.rates) == len(nodes)

    return ask


QUESTIONS: Final = {
    "job by id": Question(0.1, _by_id),
    "newest 50 of a user": _listed(0.1, lambda asker: JobSelection(user=asker.user())),
    "by project": _listed(0.1, lambda asker: JobSelection(project=asker.project())),
    "by application": _listed(0.1, lambda asker: JobSelection(application=asker.application())),
    "by state": _listed(0.1, lambda asker: JobSelection(state=asker.chance.choice(STATES))),
    "by size": _listed(0.1, lambda asker: JobSelection(min_nodes=asker.chance.choice([2, 64, 1024]))),
    "by time": _listed(0.1, _time),
    "by node": _listed(
        0.1, lambda asker: JobSelection(node=node_name(asker.chance.randrange(asker.size.nodes)))
    ),
    "by OST": _listed(0.1, lambda asker: JobSelection(component=f"OST{asker.chance.randrange(OSTS):04x}")),
    "by finding": _listed(0.1, lambda _: JobSelection(finding="amplification")),
    "below history": _listed(0.1, lambda _: JobSelection(below_history=0.01)),
    "job page": Question(0.5, _page),
    "year-wide filter": _listed(1.0, _year),
    "year-wide count": Question(1.0, _count),
    "heat map of 512 nodes": Question(5.0, _heat(512)),
    "heat map of all nodes": Question(5.0, _heat(MOST_NODES)),
}
