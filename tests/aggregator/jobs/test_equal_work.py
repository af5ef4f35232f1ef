"""The work of SQLite for a job of others and for one that never was: counted in steps, not in time."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import NOBODY, READ_PROJECT, READ_USER, Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from tests.support.builders.job_tables import (
    EPOCH,
    component_row,
    job_row,
    node_rows,
    summary_row,
    write_rows,
)
from tests.support.counted_index import CountedIndex, Question

MINE, PROJECTS = "u1", ("a1", "a3")
WHO = {
    "user": Principal(MINE, Role.USER),
    "manager": Principal(MINE, Role.MANAGER, frozenset(PROJECTS)),
    "api": Principal("grafana", Role.API, scopes=frozenset({READ_PROJECT + "a1", READ_USER + MINE})),
    "nobody": NOBODY,
}
BY_KEY: dict[str, Question] = {"job": JobQueries.job, "find": JobQueries.find}


@contextmanager
def counted(folder: Path) -> Iterator[tuple[CountedIndex, JobQueries]]:
    index = CountedIndex(folder)
    with closing(JobQueries(index)) as queries:
        queries.job(WHO["user"], "c/0/0")  # opens the connection
        yield index, queries


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], Random]:
    """600 jobs, with shown ids and raw ids that several share, and keys of both forms."""
    folder, seed = tmp_path_factory.mktemp("archive"), secrets.randbits(32)
    print(f"seed {seed}")
    random, rows = Random(seed), []
    for at in range(1, 601):
        more = {"sluid": f"s{at}", "job_key": f"c/s{at}"} if at % 3 == 0 else {}
        row = job_row(at, user=f"u{random.randrange(6)}", account=f"a{random.randrange(6)}", **more)
        row |= {"raw_id": 1 + at % 400, "job": str(1 + at % 300) if at % 2 else f"{at % 300}_1"}
        rows.append(row)
    write_rows(folder, "job_nodes", [row for job in rows for row in node_rows(job, ["cn-1"])])
    write_rows(folder, "job_components", [component_row(job, "OST0") for job in rows])
    write_rows(folder, "jobs", rows)
    write_rows(folder, "job_summaries", [summary_row(job, read_bytes=2e9) for job in rows])
    JobIndex(folder).refresh()
    return folder, rows, random


@pytest.mark.parametrize("question", BY_KEY)
@pytest.mark.parametrize("who", WHO)
def test_a_key_of_others_takes_the_work_of_one_that_never_was(
    jobs: tuple[Path, list[dict[str, Any]], Random], who: str, question: str
) -> None:
    folder, rows, random = jobs
    principal, ask = WHO[who], BY_KEY[question]
    others = [row for row in rows if not principal.may_see(row["user"], row["account"])]
    keys = [row["job_key"] for row in random.sample(others, 40)]
    absent = ["c/0/0", "c/s0", "zz/9/9", "c/601/1763597401", "\U0010ffff/1/1", f"{keys[0]}/r0", f"{keys[1]}x"]
    with counted(folder) as (index, queries):
        seen = {key: index.work(ask, queries, principal, key) for key in absent + keys}
        if who != "nobody" and question == "job":
            own = next(row["job_key"] for row in rows if principal.may_see(row["user"], row["account"]))
            answer, steps, _ = index.work(ask, queries, principal, own)
            assert answer is not None
            assert steps > seen[absent[0]][1] > 0, "the steps are counted"
    assert not any(answer for answer, _, _ in seen.values())
    assert len({work[1:] for work in seen.values()}) == 1


@pytest.mark.parametrize("who", WHO)
def test_an_id_of_others_takes_the_work_of_one_that_never_was(
    jobs: tuple[Path, list[dict[str, Any]], Random], who: str
) -> None:
    folder, rows, _ = jobs
    principal = WHO[who]
    mine = {
        str(row[name])
        for row in rows
        for name in ("job", "raw_id")
        if principal.may_see(row["user"], row["account"])
    }
    theirs = {row["job"] for row in rows} - mine
    shown = {text for text in theirs if "_" in text}
    plain = theirs - shown
    assert shown
    with counted(folder) as (index, queries):
        for given, absent in ((shown, ["300_1", "601_1", "x"]), (plain, ["0", "601", "99999999"])):
            answers = [index.work(queries.find, principal, text) for text in [*given, *absent]]
            assert not any(answer for answer, _, _ in answers)
            assert len({work[1:] for work in answers}) == 1


OWN = 20
SELECTIONS = {
    "slow": JobSelection(finding="slow"),
    "straggler": JobSelection(finding="straggler"),
    "amplification": JobSelection(finding="amplification"),
    "node": JobSelection(node="cn-9"),
    "OST": JobSelection(component="OST9"),
    "application": JobSelection(application="theirs"),
    "time": JobSelection(after=EPOCH + 1000.0),
    "size": JobSelection(min_nodes=64),
    "large": JobSelection(min_nodes=1024),
}


def filled(folder: Path, others: int) -> Path:
    """OWN jobs of MINE that no selection but the time has, and some of others that each has."""
    mine = [job_row(at, user=MINE, account="a1") for at in range(1, OWN + 1)]
    theirs = [
        job_row(100 + at, user=f"o{at % 7}", account="a9", application="theirs", node_count=1024)
        for at in range(others)
    ]
    write_rows(folder, "job_nodes", [row for job in theirs for row in node_rows(job, ["cn-9"])])
    write_rows(folder, "job_components", [component_row(job, "OST9") for job in theirs])
    write_rows(folder, "jobs", mine + theirs)
    write_rows(folder, "job_summaries", [summary_row(job, amplification=3.0) for job in theirs])
    told = {"verdict": "slow", "rank": 0, "kind": "straggler", "joined_at": 1}
    write_rows(folder, "job_findings", [summary_row(job, **told) for job in theirs])
    JobIndex(folder).refresh()
    return folder


@pytest.mark.parametrize("who", ["user", "manager", "api"])
def test_a_list_takes_no_work_for_the_jobs_of_others(
    tmp_path_factory: pytest.TempPathFactory, who: str
) -> None:
    seen = []
    for others in (30, 600):
        with counted(filled(tmp_path_factory.mktemp("archive"), others)) as (index, queries):
            admin = Principal("root", Role.ADMIN)
            found = {
                name: len(queries.list_jobs(admin, each, 1000).jobs) for name, each in SELECTIONS.items()
            }
            assert set(found.values()) - {others + OWN} == {others}, found
            work = {
                (name, ask.__name__): index.work(ask, queries, WHO[who], each)[1:]
                for name, each in SELECTIONS.items()
                for ask in (JobQueries.list_jobs, JobQueries.count)
            }
            work["", "amplified"] = index.work(queries.amplified, WHO[who])[1:]
            seen.append(work)
    for each, (steps, statements) in seen[0].items():
        more, same = seen[1][each]
        assert statements == same, each
        assert abs(more - steps) <= 10 * OWN, (
            each
        )  # the planner knows sizes; each of the others would add some
