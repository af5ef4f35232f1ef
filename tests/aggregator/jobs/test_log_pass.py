"""Darshan logs of jobs: on the page and in the verdict of the right job alone, with the figures of `mine`."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.background import LOGS, BackgroundTask
from laggard_aggregator.jobs.darshan.log_pass import LogFile, LogPass, is_of_job, recent_logs
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.verdict.findings_pass import FindingsPass
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.status.background import BackgroundWork
from tests.aggregator.jobs.test_findings_pass import joined
from tests.aggregator.jobs.test_job_verdict import archive_of
from tests.aggregator.jobs.test_neighbour_cause import asked
from tests.support.builders.darshan_log import LogWriter
from tests.support.builders.job_tables import DAY, EPOCH, job_row, node_rows, write_rows
from tests.support.clock import FakeClock
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
MIB = 1 << 20
SECOND = 10**9
NUMBER = 77
NOW_NS = int(EPOCH + 2 * DAY) * SECOND
ALICE = Principal("alice", Role.USER)
BOB = Principal("bob", Role.USER)


def a_job(folder: Path, **changes: Any) -> dict[str, Any]:
    job = job_row(NUMBER, **({"uid": os.getuid()} | changes))
    write_rows(folder, "job_nodes", node_rows(job, ["cn-1"]))
    write_rows(folder, "jobs", [job])
    return job


def write_log(
    folder: Path, written: float, number: int = NUMBER, name: str = "", slow_ost: bool = True, inside: int = 0
) -> Path:
    """A log of 32 ranks that wrote a file on an OST each; OST 14 took 40 times as long."""
    log = LogWriter(job=inside or number, processes=32, start=int(EPOCH) + NUMBER + 60, seconds=300)
    for rank in range(32):
        took = 200.0 if slow_ost and rank == 14 else 5.0
        target = f"/scratch/{rank}"
        counters = {"requests": 64, "bytes": 64 * MIB, "CONSEC_WRITES": 63, "SEQ_WRITES": 63}
        log.posix(target, rank, "write", 1.0, 1.0 + took, **counters)
        log.stripes(target, [rank], rank)
    folder.mkdir(parents=True, exist_ok=True)
    path = log.write(folder / (name or f"alice_app_id{number}-4711_11-20-{round(written)}_1.darshan"))
    os.utime(path, (written, written))
    return path


def end_of(job: dict[str, Any]) -> float:
    return float(job["end"])


def work(archive: Path, logs: Path) -> LogPass:
    index = JobIndex(archive)
    index.refresh()
    return LogPass(archive, "s", index, logs)


def shown(archive: Path, who: Principal = ALICE, job: int = NUMBER) -> dict[str, Any]:
    JobIndex(archive).refresh()
    (answer,) = asyncio.run(asked(archive, who, [f"/api/v1/jobs/{job}"]))
    if answer.status_code == 404:
        return {}
    record: dict[str, Any] = answer.json()["jobs"][0]
    return record


def test_a_job_s_page_has_the_figures_of_mine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    job = a_job(archive)
    path = write_log(logs / "2025" / "11" / "20", end_of(job))
    assert work(archive, logs).run(NOW_NS) == [job["job_key"]]
    assert main(["mine", str(path), "--json"]) == 0
    mined = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    record = shown(archive)
    assert record["darshan"]["logs"] == [str(path)]
    assert record["summary"]["mode"]["N-N"] == 1.0  # a file a rank
    for kind, names in (("io", "io"), ("finding", "findings"), ("not_judged", "not_judged")):
        own = record["darshan"][names]
        expected = [each for each in mined if each["record"] == kind]
        assert own == [{name: each[name] for name in own[0]} for each in expected] if expected else own == []
    (ost,) = [each for each in record["darshan"]["findings"] if each["kind"] == "ost"]
    assert ost["component"] == "OST14"
    (page,) = asyncio.run(asked(archive, ALICE, [f"/jobs/{NUMBER}"]))
    assert 'id="darshan"' in page.text
    assert "OST 14" in page.text
    assert shown(archive, BOB) == {}


def test_counters_and_log_are_one_verdict(tmp_path: Path) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    jobs = archive_of(archive, [300.0] * 12 + [930.0], mdops=[4000.0] * 13)
    slow = jobs[-1] | {"uid": os.getuid(), "revision_at": 2}
    write_rows(archive, "jobs", [slow], slow["end"] // DAY * DAY)
    write_rows(archive, "job_nodes", node_rows(slow, ["cn-1"]), slow["end"] // DAY * DAY)
    for job in jobs:
        joined(archive, job, NOW_NS - 60 * SECOND, mdops=4000.0)
    log = write_log(logs, end_of(slow), slow["raw_id"])
    index = JobIndex(archive)
    index.refresh()
    verdicts, reading = FindingsPass(archive, "s", index), LogPass(archive, "s", index, logs)
    assert verdicts.run(NOW_NS) == len(jobs)
    before = shown(archive, job=slow["raw_id"])
    assert before["sentence"].endswith("no cause is known")
    verdicts.judge_again(reading.run(NOW_NS + SECOND))
    assert verdicts.run(NOW_NS + 2 * SECOND) == 1
    after = shown(archive, job=slow["raw_id"])
    kinds = [each["kind"] for each in after["findings"]]
    assert after["verdict"] == "slow"
    assert {"ost", "metadata rate"} <= set(kinds), "of the log, and of the counters"
    assert "OST 14" in after["sentence"]
    assert after["darshan"]["logs"] == [str(log)]
    listed, page = asyncio.run(
        asked(archive, ALICE, ["/api/v1/jobs?finding=slow", f"/jobs/{slow['raw_id']}"])
    )
    assert listed.json()["jobs"][0]["findings"] == after["findings"]
    assert after["sentence"].replace("'", "&#39;") in page.text
    assert verdicts.run(NOW_NS + 3 * SECOND) == 0


def test_the_daemon_follows_the_folder_and_goes_on_without_it(tmp_path: Path) -> None:
    archive, logs, work = tmp_path / "archive", tmp_path / "logs", BackgroundWork()
    jobs = archive_of(archive, [300.0] * 12 + [930.0])
    slow = jobs[-1] | {"uid": os.getuid(), "revision_at": 2}
    write_rows(archive, "jobs", [slow], slow["end"] // DAY * DAY)
    for job in jobs:
        joined(archive, job, NOW_NS - 60 * SECOND)
    task = BackgroundTask(
        ArchiveTable(archive), JobsTable(darshan_logs=logs), "s", work, clock=FakeClock(NOW_NS)
    )
    assert not task.attempt()
    assert set(work.failing) == {LOGS}, "the folder is not there, and the jobs are judged all the same"
    assert work.judged_jobs == len(jobs)
    write_log(logs, end_of(slow), slow["raw_id"])
    again = BackgroundTask(
        ArchiveTable(archive), JobsTable(darshan_logs=logs), "s", work, clock=FakeClock(NOW_NS + SECOND)
    )
    assert again.attempt(), work.failing
    record = shown(archive, job=slow["raw_id"])
    assert "ost" in [each["kind"] for each in record["findings"]]
    assert record["darshan"]["io"]


def test_a_log_is_judged_once_and_with_a_further_one_again(tmp_path: Path) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    job = a_job(archive)
    write_log(logs, end_of(job) - 100)
    reading = work(archive, logs)
    assert [reading.run(NOW_NS), reading.run(NOW_NS + SECOND)] == [[job["job_key"]], []]
    assert work(archive, logs).run(NOW_NS + SECOND) == [], "the archive has it"
    write_log(logs, end_of(job))
    assert reading.run(NOW_NS + 2 * SECOND) == [job["job_key"]]
    record = shown(archive)
    assert len(record["darshan"]["logs"]) == 2
    assert [each["bytes"] for each in record["darshan"]["io"]] == [2 * 32 * 64 * MIB]


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"uid": 4711}, 0.0),
        ({"uid": None, "user": "somebody else"}, 0.0),
        ({}, -4000.0),
        ({}, 700.0),
        ({"end": None, "state": "RUNNING"}, 0.0),
    ],
)
def test_a_log_of_another_user_or_time_is_no_evidence(
    tmp_path: Path, changes: dict[str, Any], written: float
) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    a_job(archive, **changes)
    write_log(logs, EPOCH + NUMBER + 3600 + written)
    assert work(archive, logs).run(NOW_NS) == []


def test_a_log_with_another_job_inside_is_not_judged(tmp_path: Path) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    job = a_job(archive)
    write_log(logs, end_of(job), inside=78)
    work(archive, logs).run(NOW_NS)
    record = shown(archive)
    assert record["darshan"]["findings"] == record["darshan"]["io"] == []
    assert record["darshan"]["not_judged"] == [{"what": "job", "reason": "the log is of job 78"}]


def test_a_damaged_log_is_named_and_read_once(tmp_path: Path) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    job = a_job(archive)
    path = write_log(logs, end_of(job))
    path.write_bytes(b"3.41 and nothing")
    os.utime(path, (end_of(job), end_of(job)))
    reading = work(archive, logs)
    assert [reading.run(NOW_NS), reading.run(NOW_NS + SECOND)] == [[job["job_key"]], []]
    (left,) = shown(archive)["darshan"]["not_judged"]
    assert left["what"] == path.name


def test_a_log_that_may_not_be_read_is_tried_again_once_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    archive, logs = tmp_path / "archive", tmp_path / "logs"
    job = a_job(archive)
    write_log(logs, end_of(job))
    reading = work(archive, logs)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert [reading.run(NOW_NS), reading.run(NOW_NS + SECOND)] == [[], []]
    assert caplog.text.count("Darshan logs cannot be read") == 1
    assert reading.run(NOW_NS + 2 * SECOND) == [job["job_key"]]


def test_names_and_days_are_looked_at_before_files(tmp_path: Path) -> None:
    for place in ("2025/11/20", "2025/9/1", "2024/12/31", "2025/11/20/more", "alice", "2026"):
        write_log(tmp_path / place, EPOCH, name=f"a_b_id7_{place.replace('/', '-')}.darshan")
    for name in ("a_b_id7.darshan", "a_b_idx_1.darshan", "a_b_id7_1.darshan_partial", "note"):
        write_log(tmp_path, EPOCH, name=name)
    write_log(tmp_path, EPOCH - 100, name="a_b_id7_old.darshan")
    (tmp_path / "a_b_id7_link.darshan").symlink_to(tmp_path / "alice" / "a_b_id7_alice.darshan")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {each.path.name for each in recent_logs(tmp_path, EPOCH - 1)}
    assert found == {
        f"a_b_id7_{place}.darshan" for place in ("2025-11-20", "2025-11-20-more", "alice", "2026")
    }
    with pytest.raises(FileNotFoundError):
        list(recent_logs(tmp_path / "none", 0.0))


def test_the_user_of_a_job_without_a_number_is_known_by_name() -> None:
    log = LogFile(Path("x"), NUMBER, os.getuid(), EPOCH + 100, 1)
    import pwd  # noqa: PLC0415

    job = job_row(NUMBER, submit=int(EPOCH), uid=None, user=pwd.getpwuid(os.getuid()).pw_name)
    assert is_of_job(log, job)
    assert not is_of_job(log, job | {"user": "other"})
