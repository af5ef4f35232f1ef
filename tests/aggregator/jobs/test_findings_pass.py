"""Stored verdicts: once a join, of the last revision in lists and filters, without identity of neighbours."""

import asyncio
import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.access.filter import FINDINGS, JobSelection
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.background import BackgroundTask
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.join_pass import Joined, JoinPass
from laggard_aggregator.jobs.verdict.findings_pass import OLDEST_NS, FindingsPass
from laggard_aggregator.jobs.verdict.judge import JobJudge, RunReport
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.status.background import BackgroundWork
from laggard_common.errors import ConfigError
from tests.aggregator.jobs.test_job_verdict import usual
from tests.aggregator.jobs.test_neighbour_cause import PRINCIPALS, SEES, add_load, asked, disturbed
from tests.support.builders.job_tables import DAY, EPOCH, summary_row, write_rows
from tests.support.clock import FakeClock

NOW_NS = int(EPOCH + 3 * DAY) * 10**9
SECOND = 10**9
ADMIN = Principal("", Role.ADMIN)


def joined(folder: Path, job: dict[str, Any], at_ns: int, mdops: float = 10.0) -> None:
    """A join of a job at that time."""
    row = summary_row(
        job | {"revision_at": at_ns},
        read_bytes=0.0, written_bytes=1e11, mdops=mdops, coverage=1.0, shared=False,
    )  # fmt: skip
    write_rows(folder, "job_summaries", [row], job["end"] // DAY * DAY)


def flooded(folder: Path) -> list[dict[str, Any]]:
    """13 runs, the last slow beside a flood of another user's; all of them joined a minute ago."""
    jobs = disturbed(folder, [*usual(np.random.default_rng(11)), 930.0])
    start = jobs[-1]["start"]
    add_load(folder, 77700777, start + 437, start + 1793, metadata=4900.0)
    for job in jobs:
        joined(folder, job, NOW_NS - 60 * SECOND)
    return jobs


def verdicts(folder: Path) -> dict[str, str]:
    queries = JobQueries(JobIndex(folder))
    try:
        return {row["job"]: row["verdict"] for row in queries.every(ADMIN, JobSelection())}
    finally:
        queries.close()


def test_each_join_is_judged_once_and_again_when_it_is_revised(tmp_path: Path) -> None:
    jobs = flooded(tmp_path)
    index = JobIndex(tmp_path)
    work = FindingsPass(tmp_path, "s", index)
    assert work.run(NOW_NS) == len(jobs)
    found = verdicts(tmp_path)
    assert found.pop("77700777") is None, "it was joined long ago"
    assert found == {str(at): "too few runs" for at in range(5)} | {
        str(at): "as usual" for at in range(5, 12)
    } | {"12": "slow"}
    assert work.run(NOW_NS + SECOND) == 0
    joined(tmp_path, jobs[-1], NOW_NS + SECOND, mdops=4000.0)
    assert work.run(NOW_NS + 2 * SECOND) == 1
    index.path.unlink()
    assert work.run(NOW_NS + 3 * SECOND) == 0, "the archive has them"
    queries = JobQueries(index)
    (row,) = queries.list_jobs(ADMIN, JobSelection(finding="slow")).jobs
    assert [each["kind"] for each in row["findings"]] == ["own change", "neighbour", "metadata rate"]
    queries.close()


def test_a_slow_job_is_judged_again_once_a_neighbour_was_joined(tmp_path: Path) -> None:
    jobs = disturbed(tmp_path, [*usual(np.random.default_rng(11)), 930.0])
    for job in jobs:
        joined(tmp_path, job, NOW_NS - 60 * SECOND)
    work = FindingsPass(tmp_path, "s", JobIndex(tmp_path))
    assert work.run(NOW_NS) == len(jobs)
    assert _causes(tmp_path) == []
    start = jobs[-1]["start"]
    flood = add_load(tmp_path, 77700777, start + 437, start + 1793, metadata=4900.0)
    elsewhere = add_load(tmp_path, 77700778, start + 4e5, start + 5e5, metadata=4900.0)
    for each in (flood, elsewhere):
        joined(tmp_path, each, NOW_NS + SECOND, mdops=4900.0)
    assert work.run(NOW_NS + 2 * SECOND) == 3
    assert _causes(tmp_path) == ["neighbour"]
    assert work.run(NOW_NS + 3 * SECOND) == 0
    assert FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS + 4 * SECOND) == 0


def test_reports_of_a_process_that_was_killed_are_given_again(tmp_path: Path) -> None:
    jobs = flooded(tmp_path)
    lost: list[str] = []
    killed = FindingsPass(tmp_path, "s", JobIndex(tmp_path), lambda job, _: lost.append(job["job_key"]))
    assert killed.run(NOW_NS) == len(jobs)
    again: list[str] = []
    work = FindingsPass(tmp_path, "s", JobIndex(tmp_path), lambda job, _: again.append(job["job_key"]))
    work.run(NOW_NS + 3600 * SECOND)
    assert sorted(again) == sorted(lost)
    assert work.run(NOW_NS + 3600 * SECOND + SECOND) == 0


def test_a_slow_job_is_judged_again_once_its_last_hour_was_rolled_up(tmp_path: Path) -> None:
    jobs = disturbed(tmp_path, [*usual(np.random.default_rng(11)), 930.0])
    end_ns = int(jobs[-1]["end"]) * SECOND
    assert jobs[-1]["end"] % 3600 == 0, "so its last hour is the next one"
    for job in jobs:
        joined(tmp_path, job, end_ns + 900 * SECOND)
    told: list[str] = []
    work = FindingsPass(tmp_path, "s", JobIndex(tmp_path), lambda job, report: told.append(report.verdict))
    assert work.run(end_ns + 960 * SECOND) == len(jobs)
    assert "slow" not in told, "its owner is told with all of the evidence"
    assert work.run(end_ns + (3600 + 719) * SECOND) == 0
    assert work.run(end_ns + (3600 + 720) * SECOND) == 1
    assert told[-1] == "slow"
    assert work.run(end_ns + (3600 + 721) * SECOND) == 0


def test_a_join_that_takes_an_hour_does_not_make_its_rollups_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were made before it; the next pass makes those of the hour that is due since."""
    jobs = disturbed(tmp_path, [*usual(np.random.default_rng(11)), 930.0])
    end_ns = int(jobs[-1]["end"]) * SECOND
    for job in jobs:
        joined(tmp_path, job, end_ns + 900 * SECOND)
    clock = FakeClock(end_ns + 960 * SECOND)
    told: list[str] = []
    task = BackgroundTask(
        ArchiveTable(tmp_path), JobsTable(enabled=True), "s", BackgroundWork(),
        clock=clock, judged=lambda _, report: told.append(report.verdict),
    )  # fmt: skip

    def slowly(*_: object) -> Joined:
        clock.sleep(3600.0)
        return Joined()

    monkeypatch.setattr(JoinPass, "run", slowly)
    monkeypatch.setattr(JoinPass, "run_early", lambda *_: 0)
    task.attempt()
    assert told
    assert "slow" not in told
    clock.sleep(600.0)
    task.attempt()
    assert told[-1] == "slow"


@pytest.mark.parametrize("now", [0.0, 0.01, 49.0])
def test_few_metadata_operations_are_no_cause(tmp_path: Path, now: float) -> None:
    jobs = disturbed(tmp_path, [*usual(np.random.default_rng(11)), 930.0])
    for job in jobs:
        joined(tmp_path, job, NOW_NS - 60 * SECOND, mdops=now if job is jobs[-1] else 0.0)
    FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS)
    assert _causes(tmp_path) == []


def test_a_verdict_after_a_step_of_the_clock_is_stored_once(tmp_path: Path) -> None:
    jobs = flooded(tmp_path)
    work = FindingsPass(tmp_path, "s", JobIndex(tmp_path))
    work.run(NOW_NS)
    joined(tmp_path, jobs[-1], NOW_NS - 50 * SECOND)
    assert [work.run(NOW_NS - 3600 * SECOND + at) for at in range(3)] == [1, 0, 0]


def test_a_job_that_cannot_be_judged_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = flooded(tmp_path)
    judged = JobJudge.verdict

    def failing(self: JobJudge, job: VisibleJob) -> RunReport:
        if job["job"] == "12":
            raise ZeroDivisionError
        return judged(self, job)

    monkeypatch.setattr(JobJudge, "verdict", failing)
    work = FindingsPass(tmp_path, "s", JobIndex(tmp_path))
    assert [work.run(NOW_NS), work.run(NOW_NS + SECOND)] == [len(jobs), 0]
    assert verdicts(tmp_path)["12"] == "not judged"
    assert "no verdict on" in caplog.text


def _causes(folder: Path) -> list[str]:
    """Kinds of the findings of the one slow job."""
    queries = JobQueries(JobIndex(folder))
    (row,) = queries.list_jobs(ADMIN, JobSelection(finding="slow")).jobs
    queries.close()
    return [each["kind"] for each in row["findings"]]


def test_old_joins_get_none(tmp_path: Path) -> None:
    flooded(tmp_path)
    assert FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS + OLDEST_NS) == 0


def test_a_stopped_pass_goes_on_later(tmp_path: Path) -> None:
    jobs = flooded(tmp_path)
    JobIndex(tmp_path).refresh()
    left = iter([True] * 3)
    work = FindingsPass(tmp_path, "s", JobIndex(tmp_path))
    first = work.run(NOW_NS, lambda: next(left, False))
    assert 0 < first < len(jobs)
    assert work.run(NOW_NS + SECOND) == len(jobs) - first


def test_a_page_shows_what_was_stored_and_judges_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded(tmp_path)
    FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS)
    before = asyncio.run(asked(tmp_path, PRINCIPALS["admin"], ["/api/v1/jobs/12"]))[0].json()

    def failing(*_: object) -> RunReport:
        raise AssertionError("judged again")

    monkeypatch.setattr(JobJudge, "verdict", failing)
    after = asyncio.run(asked(tmp_path, PRINCIPALS["admin"], ["/api/v1/jobs/12"]))[0].json()
    assert after == before
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "kind=job_findings")
    JobIndex(tmp_path).path.unlink()
    JobIndex(tmp_path).refresh()
    computed = asyncio.run(asked(tmp_path, PRINCIPALS["admin"], ["/api/v1/jobs/12"]))[0].json()
    assert computed == before, "the stored verdict is the one that the archive gives"


def test_filters_by_verdict_and_finding(tmp_path: Path) -> None:
    flooded(tmp_path)
    FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS)
    queries = JobQueries(JobIndex(tmp_path))
    for finding in FINDINGS:
        found = {row["job"] for row in queries.every(ADMIN, JobSelection(finding=finding))}
        assert found == ({"12"} if finding in ("slow", "neighbour") else set()), finding
        assert queries.count(ADMIN, JobSelection(finding=finding)) == len(found)
    queries.close()
    with pytest.raises(ConfigError, match="finding: expected one of slow, "):
        JobSelection(finding="magic")


@pytest.mark.parametrize("who", PRINCIPALS)
def test_lists_and_pages_show_one_verdict_that_names_neighbours_to_those_who_may_see_them(
    tmp_path: Path, who: str
) -> None:
    flooded(tmp_path)
    FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS)
    paths = [
        "/api/v1/jobs?finding=slow&count=1",
        "/jobs?finding=slow",
        "/api/v1/jobs?finding=slow&format=csv",
        "/api/v1/jobs/12",
        "/jobs/12",
    ]
    api, page, table, one, own_page = asyncio.run(asked(tmp_path, PRINCIPALS[who], paths))
    for answer in (api, page, table, one, own_page):
        assert who in SEES or not any(each in answer.text for each in ("77700777", "otto", "secret"))
    if who == "nobody":
        assert api.json() == {"jobs": [], "next": None, "count": 0}
        assert not list(csv.DictReader(io.StringIO(table.text)))
        return
    (job,) = api.json()["jobs"]
    assert (job["job"], job["verdict"]) == ("12", "slow")
    cause = job["findings"][0]
    assert (cause["cause"] == "a job with 4,900 metadata operations a second") == (who not in SEES)
    assert cause["cause"].startswith("c/77700777/") == (who in SEES)
    assert ("job 77700777 of otto ran" in cause["text"]) == (who in SEES)
    (shown,) = one.json()["jobs"]
    assert [shown[name] for name in ("verdict", "findings")] == [job["verdict"], job["findings"]]
    assert shown["sentence"].endswith(cause["text"])
    assert shown["sentence"] in own_page.text
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(table.text))] == ["slow"]
    assert '<span class="badge bad">slow</span>; <span class="soft">neighbour</span></td>' in page.text


def test_the_command_lists_and_filters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flooded(tmp_path)
    FindingsPass(tmp_path, "s", JobIndex(tmp_path)).run(NOW_NS)
    assert main(["jobs", "--archive", str(tmp_path), "--finding", "slow", "--json"]) == 0
    (record,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (record["job"], record["verdict"]) == ("12", "slow")
    assert main(["jobs", "--archive", str(tmp_path), "--finding", "neighbour"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[-1] == "verdict"
    assert [line.split()[-1] for line in shown[1:]] == ["slow"]


def test_the_daemon_stores_them(tmp_path: Path) -> None:
    flooded(tmp_path)
    work = BackgroundWork()
    table = JobsTable(enabled=True)
    task = BackgroundTask(
        ArchiveTable(tmp_path), table, "s", work, clock=FakeClock(NOW_NS), is_right=lambda: True
    )
    assert task.attempt(), work.failing
    assert work.judged_jobs >= 13
    assert verdicts(tmp_path)["12"] in ("slow", "not judged")
    assert (layout.folder(tmp_path, "job_findings", layout.OWN, "2025-11-21", "s")).is_dir()
