"""Every answer about jobs equals a plain filter over the rows, for every principal."""

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laggard_aggregator.jobs.access.filter import CursorError, JobSelection
from laggard_aggregator.jobs.access.principals import (
    NOBODY,
    READ_ALL,
    READ_PROJECT,
    READ_USER,
    Principal,
    Role,
)
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.index.schema import LARGE_NODES
from laggard_common.errors import ConfigError
from tests import naive_jobs_queries as naive
from tests.support.builders.job_tables import (
    EPOCH,
    component_row,
    job_row,
    node_rows,
    summary_row,
    write_rows,
)
from tests.support.thorough import examples

ADMIN = Principal("root", Role.ADMIN)
ALICE = Principal("alice", Role.USER)
NAMES = st.sampled_from(["alice", "bob", "carol", ""])
ACCOUNTS = st.sampled_from(["physics", "chem", ""])
NODE_COUNTS = st.integers(0, 4) | st.integers(LARGE_NODES - 1, LARGE_NODES + 1)
HOSTILE = "' or 1=1 --"


@st.composite
def _jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows = []
    stretch = draw(st.sampled_from([1, 400_000]))  # minutes, or most of a year
    for raw_id in range(1, draw(st.integers(0, 12)) + 1):
        submit = int(EPOCH) + draw(st.integers(0, 50)) * stretch
        start = draw(st.none() | st.integers(submit, submit + 50).map(float))
        lasted = draw(st.none() | st.integers(1, 60))
        end = None if start is None or lasted is None else start + lasted
        row = job_row(
            raw_id,
            submit=submit,
            start=start,
            end=end,
            user=draw(NAMES),
            account=draw(ACCOUNTS),
            application=draw(st.sampled_from(["app", HOSTILE])),
            state=draw(st.sampled_from(["COMPLETED", "FAILED"])),
            node_count=draw(st.none() | NODE_COUNTS),
        )
        row["nodes"] = (
            [] if start is None else draw(st.lists(st.sampled_from(["n1", "n2", "n3", "n10"]), unique=True))
        )
        row["components"] = draw(st.lists(st.sampled_from(["OST0", "OST1", "fwd1"]), unique=True))
        row["amplification"] = draw(st.none() | st.sampled_from([1.0, 1.5, 3.5]))
        row["verdict"] = draw(st.sampled_from(["slow", "as usual", "different work"]))
        row["kinds"] = draw(st.lists(st.sampled_from(["straggler", "opens", "amplification"]), unique=True))
        rows.append(row)
    return rows


PRINCIPALS = st.one_of(
    st.builds(Principal, NAMES, st.sampled_from([Role.USER, Role.SUPPORT, Role.ADMIN])),
    st.builds(Principal, NAMES, st.just(Role.MANAGER), st.frozensets(ACCOUNTS)),
    st.builds(
        lambda scopes: Principal("token", Role.API, scopes=frozenset(scopes)),
        st.lists(
            st.one_of(NAMES.map(READ_USER.__add__), ACCOUNTS.map(READ_PROJECT.__add__), st.just(READ_ALL)),
            max_size=3,
        ),
    ),
)
TIMES = st.none() | st.integers(0, 150).map(EPOCH.__add__)
SELECTIONS = st.builds(
    JobSelection,
    user=st.just("") | NAMES,
    project=st.just("") | ACCOUNTS,
    application=st.sampled_from(["", "app", HOSTILE]),
    state=st.sampled_from(["", "failed"]),
    min_nodes=st.none() | NODE_COUNTS,
    max_nodes=st.none() | NODE_COUNTS,
    after=TIMES,
    before=TIMES,
    node=st.sampled_from(["", "n1", "n10", "n2' --"]),
    component=st.sampled_from(["", "OST1", "fwd1"]),
    finding=st.sampled_from(["", "amplification", "slow", "opens"]),
)


def _findings(row: dict[str, Any]) -> list[dict[str, Any]]:
    told = {"verdict": row.get("verdict", "as usual"), "joined_at": 1}
    kinds = row.get("kinds") or [None]
    factor = {"amplification": 2.5}
    return [
        summary_row(row, rank=rank, kind=kind, factor=factor.get(kind or ""), **told)
        for rank, kind in enumerate(kinds)
    ]


def _filled(archive: Path, rows: list[dict[str, Any]]) -> JobQueries:
    if rows:
        write_rows(archive, "job_nodes", [n for row in rows for n in node_rows(row, row["nodes"])])
        write_rows(archive, "jobs", rows)
        write_rows(archive, "job_components", [component_row(r, c) for r in rows for c in r["components"]])
        write_rows(archive, "job_summaries", [summary_row(r, amplification=r["amplification"]) for r in rows])
        write_rows(archive, "job_findings", [each for row in rows for each in _findings(row)])
    index = JobIndex(archive)
    index.refresh()
    return JobQueries(index)


def _are_beside(job: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two jobs ran at the same time on a common component or node."""
    if job is other or job["start"] is None or other["start"] is None:
        return False
    ends = [math.inf if each["end"] is None else each["end"] for each in (job, other)]
    shared = any(set(job[name]) & set(other[name]) for name in ("components", "nodes"))
    return shared and other["start"] < ends[0] and job["start"] < ends[1]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=_jobs(),
    asked=st.lists(st.tuples(PRINCIPALS, SELECTIONS, st.integers(1, 4)), min_size=5, max_size=15),
)
def test_equals_a_plain_filter(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    asked: list[tuple[Principal, JobSelection, int]],
) -> None:
    queries = _filled(tmp_path_factory.mktemp("archive"), rows)
    by_key = {row["job_key"]: row for row in rows}
    for who, wanted, limit in asked:
        expected = naive.selected(who, wanted, rows)
        found, after = [], ""
        while True:
            page = queries.list_jobs(who, wanted, limit, after)
            assert len(page.jobs) <= limit
            found += page.jobs
            after = page.next_cursor
            if not after:
                break
        assert sorted(row["job_key"] for row in found) == sorted(expected)
        assert [row["at"] for row in found] == sorted((row["at"] for row in found), reverse=True)
        assert queries.count(who, wanted) == len(expected)
        assert [row["job_key"] for row in queries.every(who, wanted)] == [row["job_key"] for row in found]
    for who, _, _ in asked:
        for key, row in by_key.items():
            may = naive.visible(who, row)
            job = queries.job(who, key)
            assert (job is not None) == may
            assert bool(queries.find(who, row["job"])) == may
            if job is None:
                continue
            assert [n["name"] for n in queries.nodes(job)] == sorted(row["nodes"], key=lambda n: int(n[1:]))
            assert sorted(c["name"] for c in queries.components(job)) == sorted(row["components"])
            if who.sees_all:
                beside = {each.job["job_key"] for each in queries.neighbours(job) if each.job}
                assert beside == {other["job_key"] for other in rows if _are_beside(row, other)}
            for neighbour in queries.neighbours(job):
                assert neighbour.job is None or naive.visible(who, neighbour.job)
        amplified = {}
        for row in rows:
            factor = max(row["amplification"] or 0.0, 2.5 if "amplification" in row["kinds"] else 0.0)
            if factor > 1.5 and naive.visible(who, row):
                amplified[row["job_key"]] = factor
        listed = queries.amplified(who)
        assert {row["job_key"]: row["amplification"] for row in listed} == amplified
        assert [row["amplification"] for row in listed] == sorted(amplified.values(), reverse=True)
    queries.close()


def seen_by(queries: JobQueries, who: Principal, row: dict[str, Any]) -> VisibleJob:
    job = queries.job(who, row["job_key"])
    assert job is not None
    return job


def test_nobody_sees_nothing(tmp_path: Path) -> None:
    queries = _filled(tmp_path, [job_row(1, nodes=[], components=[], amplification=9.0, user="", account="")])
    assert queries.list_jobs(NOBODY, JobSelection()).jobs == []
    assert queries.count(NOBODY, JobSelection()) == 0
    queries.close()


@pytest.mark.parametrize(
    ("mdops", "load"),
    [(7.7, "33 MB"), (49.0, "33 MB"), (50.0, "50 metadata operations")],
)
def test_few_metadata_operations_beside_bytes_are_not_the_load(
    tmp_path: Path, mdops: float, load: str
) -> None:
    mine, other = (job_row(at, nodes=[f"n{at}"], components=["OST0"], amplification=None) for at in (1, 2))
    queries = _filled(tmp_path, [mine, other])
    moved = {"read_bytes": 0.0, "written_bytes": 31.0 * 2**20 * 60, "active_seconds": 60.0}
    rates = {"mean_read_mib_per_second": 0.0, "mean_written_mib_per_second": 31.0}
    row = summary_row(other | {"revision_at": 2}, mdops=mdops, **moved, **rates)
    write_rows(tmp_path, "job_summaries", [row])
    JobIndex(tmp_path).refresh()
    assert [n.text for n in queries.neighbours(seen_by(queries, ADMIN, mine))] == [
        f"a job with {load} a second"
    ]
    queries.close()


def test_a_neighbour_of_another_user_has_no_identity(tmp_path: Path) -> None:
    mine = job_row(1, nodes=["n1"], components=["OST0"], amplification=None)
    other = job_row(2, user="bob", account="chem", nodes=["n2"], components=["OST0"], amplification=None)
    queries = _filled(tmp_path, [mine, other])
    write_rows(tmp_path, "job_summaries", [summary_row(other | {"revision_at": 2}, mdops=4873.2)])
    JobIndex(tmp_path).refresh()
    assert [(n.text, n.job) for n in queries.neighbours(seen_by(queries, ALICE, mine))] == [
        ("a job with 4,900 metadata operations a second", None)
    ]
    (seen,) = queries.neighbours(seen_by(queries, ADMIN, mine))
    assert seen.job is not None
    assert seen.job["user"] == "bob"
    queries.close()


def test_history_and_below_history(tmp_path: Path) -> None:
    rows = [job_row(n, nodes=[], components=[], amplification=None) for n in range(1, 12)]
    write_rows(tmp_path, "jobs", rows)
    rates = [100.0] * 10 + [30.0]
    summaries = [summary_row(r, mean_read_mib_per_second=x) for r, x in zip(rows, rates, strict=True)]
    write_rows(tmp_path, "job_summaries", summaries)
    index = JobIndex(tmp_path)
    index.refresh()
    queries = JobQueries(index)
    history = queries.history(seen_by(queries, ALICE, rows[0]))
    assert history is not None
    assert (history.runs, history.median, history.p90) == (11, 100.0, 100.0)
    assert queries.job(Principal("bob", Role.USER), rows[0]["job_key"]) is None
    slow = queries.list_jobs(ALICE, JobSelection(below_history=0.5)).jobs
    assert [row["raw_id"] for row in slow] == [11]
    queries.close()


def test_cursors_belong_to_a_principal_and_a_list(tmp_path: Path) -> None:
    rows = [job_row(n, nodes=[], components=[], amplification=None) for n in range(1, 5)]
    queries = _filled(tmp_path, rows)
    page = queries.list_jobs(ALICE, JobSelection(), 2)
    assert [row["raw_id"] for row in page.jobs] == [4, 3]
    for who, wanted, text in (
        (ADMIN, JobSelection(), page.next_cursor),
        (ALICE, JobSelection(state="failed"), page.next_cursor),
        (ALICE, JobSelection(), page.next_cursor[:-3]),
        (ALICE, JobSelection(), "!"),
        (ALICE, JobSelection(), "é" * 5000),
    ):
        with pytest.raises(CursorError):
            queries.list_jobs(who, wanted, 2, text)
    queries.close()


@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(JobSelection) if f.type == "str" or f.type is str]
)
def test_sql_in_a_filter_is_text(tmp_path: Path, field: str) -> None:
    queries = _filled(tmp_path, [job_row(1, nodes=["n1"], components=["OST0"], amplification=None)])
    hostile = "x' or '1'='1"
    if field == "finding":
        with pytest.raises(ConfigError, match="amplification"):
            JobSelection(finding=hostile)
    else:
        assert queries.list_jobs(ADMIN, JobSelection(**{field: hostile})).jobs == []  # type: ignore[arg-type]
    assert queries.find(ADMIN, hostile) == []
    queries.close()


@pytest.mark.parametrize("few", [1, 20_000])
def test_jobs_below_a_share_of_their_history_come_in_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("laggard_aggregator.jobs.access.candidates._FEW", few)
    rows = [job_row(at, submit=int(EPOCH) + 86_400 * at) for at in range(1, 61)]
    write_rows(tmp_path, "jobs", rows)
    rates = {row["job_key"]: float(10 + 7 * at % 60) for at, row in enumerate(rows)}
    found = [summary_row(row, mean_read_mib_per_second=rates[row["job_key"]]) for row in rows]
    write_rows(tmp_path, "job_summaries", found)
    index = JobIndex(tmp_path)
    index.refresh()
    queries, wanted = JobQueries(index), JobSelection(below_history=0.7)
    median = sorted(rates.values())[29:31]
    expected = [row["job_key"] for row in rows if rates[row["job_key"]] < 0.7 * sum(median) / 2][::-1]
    assert len(expected) > 10
    assert [row["job_key"] for row in queries.every(ADMIN, wanted)] == expected
    paged, after = [], ""
    while True:
        page = queries.list_jobs(ADMIN, wanted, 4, after)
        paged += [row["job_key"] for row in page.jobs]
        after = page.next_cursor
        if not after:
            break
    assert paged == expected


def test_nodes_of_many_blocks_are_found_by_their_owners(tmp_path: Path) -> None:
    rng = random.Random(7)
    names = [f"n{at}" for at in range(200)]
    rows = [
        job_row(at, user=rng.choice(["alice", "bob"]), account=rng.choice(["physics", "chem"]))
        | {"nodes": rng.sample(names, rng.choice([1, 3, 150])), "components": [], "amplification": None}
        for at in range(1, 40)
    ]
    rows[0]["nodes"] = names
    _filled(tmp_path, rows)
    moved = [row | {"revision_at": 2, "nodes": rng.sample(names, 70)} for row in rows[:10]]
    given = moved[9] = moved[9] | {"user": "carol", "account": "bio"}  # and to another owner
    write_rows(tmp_path, "job_nodes", [node for row in moved for node in node_rows(row, row["nodes"])])
    write_rows(tmp_path, "jobs", moved)
    JobIndex(tmp_path).refresh()
    queries, rows = JobQueries(JobIndex(tmp_path)), moved + rows[10:]
    carol = Principal("carol", Role.USER)
    assert queries.list_jobs(carol, JobSelection(node=given["nodes"][0])).jobs
    manager = Principal("alice", Role.MANAGER, frozenset({"chem"}))
    for who in (ADMIN, ALICE, manager, carol):
        for node in names[::9] + names[62:66] + names[126:130] + names[-1:]:
            for wanted in (JobSelection(node=node), JobSelection(node=node, user="alice")):
                expected = [
                    row["job_key"]
                    for row in sorted(rows, key=lambda row: row["start"], reverse=True)
                    if naive.visible(who, row) and node in row["nodes"] and wanted.user in ("", row["user"])
                ]
                found = [row["job_key"] for row in queries.every(who, wanted)]
                assert sorted(found) == sorted(expected)
    queries.close()


def test_a_new_revision_changes_the_order_by_component(tmp_path: Path) -> None:
    rows = [job_row(at) for at in range(1, 4)]
    queries = _filled(
        tmp_path, [row | {"nodes": [], "components": ["OST0"], "amplification": 2.0} for row in rows]
    )
    for wanted in (JobSelection(component="OST0"), JobSelection(finding="amplification")):
        assert [row["raw_id"] for row in queries.list_jobs(ADMIN, wanted).jobs] == [3, 2, 1]
    later = rows[0] | {"revision_at": 2, "start": rows[2]["start"] + 50.0, "end": rows[2]["end"] + 60.0}
    write_rows(tmp_path, "jobs", [later])
    JobIndex(tmp_path).refresh()
    for wanted in (JobSelection(component="OST0"), JobSelection(finding="amplification")):
        assert [row["raw_id"] for row in queries.list_jobs(ADMIN, wanted).jobs] == [1, 3, 2]


def test_an_export_goes_on_when_its_last_job_changes_hands(tmp_path: Path) -> None:
    rows = [job_row(number) for number in range(1, 1501)]
    write_rows(tmp_path, "jobs", rows)
    index = JobIndex(tmp_path)
    index.refresh()
    queries = JobQueries(index)
    found = queries.every(ALICE, JobSelection())
    first = [next(found)["job_key"] for _ in range(1000)]
    last = next(row for row in rows if row["job_key"] == first[-1])
    write_rows(tmp_path, "jobs", [last | {"user": "bob", "revision_at": 9}])
    index.refresh()
    assert len({*first, *(row["job_key"] for row in found)}) == 1500


def test_a_text_that_is_no_utf8_finds_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path, "jobs", [job_row(1)])
    index = JobIndex(tmp_path)
    index.refresh()
    assert JobQueries(index).find(ADMIN, "\udc80") == JobQueries(index).find(ADMIN, "c/\udc80/1") == []
    with pytest.raises(ConfigError, match="user: is not UTF-8"):
        JobSelection(user="\udc80")


@pytest.mark.parametrize(
    ("known", "active", "rate"),
    [(77.0, 150.0, 77.0), (None, 160.0, 60.0), (None, 100.0, 90.0), (None, 20.0, 90.0), (None, None, 60.0)],
)
def test_a_rate_is_never_the_sum_of_what_did_not_overlap(
    tmp_path: Path, known: float | None, active: float | None, rate: float
) -> None:
    row = job_row(1, nodes=[], components=[], amplification=None)
    moved = {"read_bytes": 6000.0 * 2**20, "written_bytes": 3000.0 * 2**20, "active_seconds": active}
    means = {"mean_read_mib_per_second": 60.0, "mean_written_mib_per_second": 60.0}  # 100 s and 50 s
    queries = _filled(tmp_path, [row])
    write_rows(
        tmp_path,
        "job_summaries",
        [summary_row(row | {"revision_at": 2}, mib_per_second=known, **moved, **means)],
    )
    JobIndex(tmp_path).refresh()
    assert seen_by(queries, ADMIN, row)["rate"] == pytest.approx(rate)
    queries.close()
