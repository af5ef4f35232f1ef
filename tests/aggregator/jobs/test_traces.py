"""Traces in the archive: records of a job, each byte of a log once, and the modes of its volume."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.verdict.judge import JobJudge
from laggard_common.wire.trace_document import TraceDocument
from tests.support.builders.job_tables import DAY, EPOCH
from tests.support.builders.traced_site import ADMIN, GIB, TracedSite, part, record


def test_records_of_the_job_come_back(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key, other = site.job(), site.job(78)
    site.sent(part(1, 5), part(5, 9), part(1, 3, job="78", log="/m@1"), part(1, 4, job="", log="/n@1"))
    assert site.records(key) == [*part(1, 5).records, *part(5, 9).records]
    assert site.records(other) == list(part(1, 3).records)
    assert site.records(key, Principal("mallory", Role.USER)) == []


def test_records_of_other_times_and_nodes_are_of_other_jobs(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key = site.job()
    strange = TraceDocument("77", "/x@1", 1, 0, 9, [record(EPOCH + 600, host="cn-9")])
    site.sent(part(1, 3), part(1, 4, at=EPOCH - DAY, log="/old@1"), strange)
    site.sent(part(20, 30, log="/forged@1"), node="cn-9")
    site.sent(part(3, 5), day=6)
    site.sent(part(5, 8), day=9)
    assert site.records(key) == [*part(1, 3).records, *part(3, 5).records]


def test_a_record_between_two_runs_of_a_job_is_of_one(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    begin = int(EPOCH)
    runs = [
        site.job(submit=submit, start=float(start), end=float(end))
        for submit, start, end in ((begin, begin, begin + 600), (begin + 605, begin + 610, begin + 1200))
    ]
    times = (begin + 590.0, begin + 604.0, begin + 605.0, begin + 615.0)
    site.sent(TraceDocument("77", "/l@1", 1, 0, 9, [record(at, f"/{at}") for at in times]))
    found = [[each.first_ns for each in site.records(key)] for key in runs]
    assert found == [[round(at * 1e9) for at in part] for part in (times[:2], times[2:])]


@pytest.mark.parametrize("seed", range(3))
def test_each_byte_of_a_log_counts_once_however_often_its_agent_crashed(tmp_path: Path, seed: int) -> None:
    rng, site = random.Random(seed), TracedSite(tmp_path)
    key = site.job()
    for log in ("/a@1", "/b@1"):
        starts, written = {1}, 1
        for session in range(1, 9):
            written = rng.randint(written, 99)
            begin = rng.choice(sorted(starts))
            cuts = sorted({begin, written, *(rng.randrange(begin, written + 1) for _ in range(3))})
            site.sent(*(part(*pair, log=log, session=session) for pair in pairwise(cuts)))
            starts = {each for each in starts if each <= begin} | set(cuts)
        site.sent(part(begin, 100, log=log, session=9))
    assert sorted(each.size for each in site.records(key)) == sorted([*range(1, 100)] * 2)


@pytest.mark.parametrize(
    ("files", "mode"), [(["/out"] * 4, "N-1"), (["/out.0", "/out.1", "/out.2", "/out.3"], "N-N")]
)
def test_the_verdict_has_the_mode(tmp_path: Path, files: Sequence[str], mode: str) -> None:
    site = TracedSite(tmp_path)
    nodes = [f"cn-{n}" for n in range(40)]
    key, untraced = site.job(nodes=nodes, volume=40.0 * GIB), site.job(78, volume=GIB)
    for n, host in enumerate(nodes):
        path = files[0] if mode == "N-1" else f"/out.{n}"
        found = TraceDocument("77", "/l@1", 1, 0, 9, [record(EPOCH + 600, path, process=n, host=host)])
        site.sent(found, node=host)
    queries = site.queries()
    judge = JobJudge(tmp_path, queries)
    row, plain = queries.job(ADMIN, key), queries.job(ADMIN, untraced)
    assert row is not None
    assert plain is not None
    report, unknown = judge.verdict(row), judge.verdict(plain)
    queries.close()
    assert report.modes is not None
    assert report.modes[mode] == 1.0
    assert unknown.modes is None
    assert ["shared file" in each.kind for each in report.findings] == ([True] if mode == "N-1" else [])
