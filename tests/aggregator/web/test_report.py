"""The report of a centre: its numbers by hand, and a file that needs nothing else and trusts no name."""

import asyncio
import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from laggard_aggregator.archive.schemas import VERDICTS
from laggard_aggregator.archive.table import Table, day_of, rows_table
from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.web.app import make_app
from tests.aggregator.web.test_jobs_access import acting
from tests.support.builders import live_status
from tests.support.builders.forwarder_site import NODES, OSTS, ForwarderSite, Work
from tests.support.builders.job_tables import EPOCH, job_row, summary_row, write_rows
from tests.support.pages import served

HOSTILE = "</td><script src=//evil>x</script>\x1b[31m"
GB = 1e9
HOUR = 3600.0
pytest.importorskip("duckdb")


def finished(raw_id: int, end: float, **changes: Any) -> dict[str, Any]:
    return job_row(raw_id, start=end - HOUR, end=end, **changes)


def slow(job: dict[str, Any], slowdown: float, sentence: str) -> dict[str, Any]:
    own = {"job_key": job["job_key"], "revision_at": 1, "joined_at": 1}
    return {**own, "verdict": "slow", "slowdown": slowdown, "sentence": sentence, "rank": 0}


def amplified(job: dict[str, Any], factor: float) -> dict[str, Any]:
    found = slow(job, 4.0, "Unknown loss")
    return found | {
        "rank": 1,
        "kind": "amplification",
        "factor": factor,
        "cause": "",
        "text": "",
        "advice": "",
    }


def archive_of_jobs(folder: Path) -> None:
    """Four jobs that end within a day, one before it and one after."""
    jobs = [
        finished(1, EPOCH + 5 * HOUR, user="ann", application="wrf", cpus=2000),
        finished(2, EPOCH + 6 * HOUR, user="ann", application="wrf", cpus=10),
        finished(3, EPOCH + 7 * HOUR, user=HOSTILE, application=HOSTILE, cpus=None),
        finished(4, EPOCH + 8 * HOUR, user="bo", application="cfd", cpus=10),
        finished(5, EPOCH - HOUR, user="bo", application="before", cpus=10),
        finished(6, EPOCH + 25 * HOUR, user="bo", application="after", cpus=10),
    ]
    write_rows(folder, "jobs", jobs)
    amounts = {1: (3 * GB, 1 * GB), 2: (0.1 * GB, 0.0), 3: (0.0, 5 * GB), 5: (9 * GB, 0.0), 6: (9 * GB, 0.0)}
    summaries = [
        summary_row(job, read_bytes=read, written_bytes=write, metadata_operations=7.0, active_seconds=600.0)
        for job in jobs
        if (both := amounts.get(job["raw_id"])) is not None
        for read, write in [both]
    ]
    write_rows(folder, "job_summaries", summaries)
    findings = [
        slow(jobs[0], 2.0, "Twice as long"),
        slow(jobs[2], 3.0, f"Because of {HOSTILE}"),
        slow(jobs[4], 9.0, "Before"),
        amplified(jobs[3], 3.5),
    ]
    write_rows(folder, "job_findings", findings)


def windows(folder: Path, component: str, hour: float, course: list[tuple[bool, int]]) -> None:
    """Windows of five minutes with these anomalies and persistences."""
    rows = [
        {
            **dict.fromkeys(VERDICTS.names, 0),
            "group": "oss/lustre_ost/s",
            "metric": "latency",
            "component": component,
            "level": "component",
            "start": hour + 300.0 * at,
            "end": hour + 300.0 * (at + 1) - 1,
            "causes": [],
            "straggler": False,
            "anomalous": anomalous,
            "persistence": count,
            "score": 0.0,
            "severity": 2.0,
        }
        for at, (anomalous, count) in enumerate(course)
    ]
    table = rows_table(VERDICTS, rows)
    Table(folder, "verdicts", site="s").append(day_of(hour), [table], round(hour * 1e9), VERDICTS)


def reported(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    day = ["--from", f"{EPOCH:.0f}", "--to", f"{EPOCH + 24 * HOUR:.0f}"]
    assert main(["report", "--archive", str(folder), *day, *more]) == 0
    return capsys.readouterr().out


def records(folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in reported(folder, capsys, "--json").splitlines()]
    return [record for record in found if record["record"] == kind]


def every_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in reported(folder, capsys, "--json").splitlines()]


def test_numbers_of_jobs_are_those_of_the_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive_of_jobs(tmp_path)
    (total,) = records(tmp_path, capsys, "total")
    assert (total["jobs"], total["non_trivial_jobs"], total["jobs_without_cores"]) == (4, 2, 1)
    assert (total["read_bytes"], total["written_bytes"]) == (3.1 * GB, 6 * GB)
    assert (total["core_hours"], total["metadata_operations"]) == (2020.0, 21.0)
    assert (total["slow_jobs"], total["amplified_jobs"]) == (3, 1)
    classes = {row["name"]: row["jobs"] for row in records(tmp_path, capsys, "class")}
    assert classes == {"0-1K": 2, "1K-10K": 1, "10K-100K": 0, "100K-1000K": 0, "above 1000K": 0}
    names = [row["name"] for row in records(tmp_path, capsys, "application")]
    assert names == [HOSTILE, "wrf", "cfd"]  # 5, 4.1 and 0 GB
    lost = [(row["job"], row["lost_seconds"]) for row in records(tmp_path, capsys, "slow")]
    assert lost == [("3", pytest.approx(400.0)), ("1", pytest.approx(300.0)), ("4", None)]
    (amplification,) = records(tmp_path, capsys, "amplified")
    assert (amplification["job"], amplification["amplification"]) == ("4", 3.5)


def test_the_numbers_are_a_csv_file_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive_of_jobs(tmp_path / "archive")
    folder = tmp_path / "new" / "tables"
    said = reported(tmp_path / "archive", capsys, "--csv", str(folder))
    named = {f"{record['record']}.csv" for record in every_record(tmp_path / "archive", capsys)}
    assert {file.name for file in folder.iterdir()} == named
    assert all(name in said for name in named)
    with (folder / "slow.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lost = {row["job"]: row["lost_seconds"] for row in rows}
    assert (lost.pop("4"), list(lost)) == ("", ["3", "1"])
    assert [float(seconds) for seconds in lost.values()] == pytest.approx([400.0, 300.0])
    assert "\x1b" not in (folder / "slow.csv").read_text()
    both = ["--from", "-1d", "--csv", str(folder), "-o", str(tmp_path / "x.html")]
    assert main(["report", "--archive", str(tmp_path / "archive"), *both]) == 2
    assert not (tmp_path / "x.html").exists()


def test_a_number_that_is_none_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN is no JSON, wherever the archive has one."""
    job = finished(1, EPOCH + 5 * HOUR)
    write_rows(tmp_path, "jobs", [job])
    nan = float("nan")
    write_rows(tmp_path, "job_summaries", [summary_row(job, read_bytes=nan, active_seconds=nan)])
    write_rows(tmp_path, "job_findings", [slow(job, nan, "Odd"), amplified(job, nan)])
    text = reported(tmp_path, capsys, "--json")
    assert "NaN" not in text
    found = {record["record"]: record for record in map(json.loads, text.splitlines())}
    assert (found["slow"]["lost_seconds"], found["total"]["read_bytes"]) == (None, None)
    assert "nan" not in reported(tmp_path, capsys).lower()


def test_components_are_ranked_by_persistence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive_of_jobs(tmp_path)
    stays = [(True, 1), (True, 2), (True, 3)]
    windows(tmp_path, "OST1", EPOCH + HOUR, stays)
    windows(tmp_path, "OST1", EPOCH + 2 * HOUR, [(True, 4), (True, 5), (False, 4)])
    windows(tmp_path, "OST2", EPOCH + 2 * HOUR, [(True, 1), (False, 0), (True, 1)])
    windows(tmp_path, "OST3", EPOCH + 2 * HOUR, [(True, 1), (False, 0)])  # healthy at the end
    windows(tmp_path, "OST4", EPOCH + 30 * HOUR, stays)  # another day
    hours = [
        (row["hour"] - EPOCH, row["component"], row["persistence"])
        for row in records(tmp_path, capsys, "persistent_hour")
    ]
    assert hours == [(HOUR, "OST1", 3), (2 * HOUR, "OST1", 4), (2 * HOUR, "OST2", 1)]
    ranked = [
        (row["component"], row["persistence"], row["anomalous_hours"])
        for row in records(tmp_path, capsys, "persistent")
    ]
    assert ranked == [("OST1", 4, 2), ("OST2", 1, 1)]


def test_modes_and_loads_are_those_of_traces_and_counters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four nodes write 1 GiB each into one file in one job, into files of their own in the other."""
    site = ForwarderSite(tmp_path, 60)
    for number, forwarder, shared in ((1, "fwd-1", True), (2, "fwd-2", False)):
        nodes = NODES[forwarder]
        job = site.job(number, nodes, 0, 30, cpus=4)
        site.works(nodes, 5, 25, Work(osts=OSTS[:2]), number)
        site.traced(job, nodes, 6, shared=shared)
    site.judge()
    modes = {row["mode"]: row for row in records(tmp_path, capsys, "mode")}
    assert {name: (row["jobs"], row["amount"]) for name, row in modes.items()} == {
        "N-1": (1, 4 * 2.0**30),
        "N-N": (1, 4 * 2.0**30),
    }
    loads = {row["name"]: row for row in records(tmp_path, capsys, "load") if row["kind"] == "OSTs"}
    assert set(loads) == set(OSTS[:2])  # each half of 8 nodes with 60 MiB a minute
    assert loads[OSTS[0]]["largest"] == pytest.approx(4 * 2**20 / 1e6)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_file_needs_nothing_else_and_trusts_no_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive_of_jobs(tmp_path)
    windows(tmp_path, HOSTILE, EPOCH + HOUR, [(True, 1)])
    text = reported(tmp_path, capsys)
    page = _Page()
    page.feed(text)
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "base", "a"})
    assert page.attributes.isdisjoint({"src", "href", "onload", "onclick"})
    assert "svg" in page.tags
    assert "\x1b" not in text
    assert not re.search(r"https?:|url\(|@import", text)
    assert "Because of &lt;/td&gt;&lt;script" in text
    assert "Twice as long" in text
    assert "Before" not in text


def test_a_file_is_written_whole_and_wrong_times_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive_of_jobs(tmp_path / "archive")
    file = tmp_path / "report.html"
    assert reported(tmp_path / "archive", capsys, "-o", str(file)) == ""
    assert file.read_text().rstrip().endswith("</html>")
    wrong = ["report", "--archive", str(tmp_path / "archive"), "--from", "2026-02-01", "--to", "2026-01-01"]
    assert main(wrong) == 2
    assert capsys.readouterr().err == "laggard report: --from: expected a time before --to\n"
    assert main(["report", "--archive", str(tmp_path / "none"), "--from", "-7d"]) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_time_without_anything_is_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive_of_jobs(tmp_path)
    day = ["--from", "2001-01-01", "--to", "2001-01-02"]
    assert main(["report", "--archive", str(tmp_path), *day]) == 0
    text = capsys.readouterr().out
    assert "0 jobs" in text
    assert "No job was slower than its earlier runs." in text
    assert "have neither traces nor Darshan logs" in text


def view() -> live_status.MadeView:
    """The made-up site on the day after."""
    return replace(live_status.site(), now=EPOCH + 30 * HOUR)


def asked(archive: Path | None, who: Principal, path: str) -> httpx.Response:
    async def run() -> httpx.Response:
        app = acting(make_app(view(), archive), who)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://l") as client:
            return await client.get(path)

    return asyncio.run(run())


def test_the_aggregator_gives_it_to_those_who_see_the_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive_of_jobs(tmp_path)
    JobIndex(tmp_path).refresh()
    path = f"/report?from={EPOCH:.0f}&to={EPOCH + 24 * HOUR:.0f}"
    for role in (Role.SUPPORT, Role.ADMIN):
        given = asked(tmp_path, Principal("ada", role), f"{path}&format=json")
        assert given.text == reported(tmp_path, capsys, "--json")
        page = asked(tmp_path, Principal("ada", role), path)
        assert page.headers["content-disposition"] == 'attachment; filename="laggard-report.html"'
        assert "Twice as long" in page.text
    for who in (Principal("ann", Role.USER), Principal("ada", Role.MANAGER, frozenset({"physics"})), NOBODY):
        absent = asked(tmp_path, who, "/none")
        assert asked(tmp_path, who, path).content == absent.content
    assert asked(None, Principal("ada", Role.ADMIN), path).status_code == 404
    for wrong in ("from=never", "format=csv", "of=osts"):
        assert asked(tmp_path, Principal("ada", Role.ADMIN), f"/report?{wrong}").status_code == 400


def test_the_command_asks_an_aggregator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive_of_jobs(tmp_path)
    JobIndex(tmp_path).refresh()
    day = ["--from", f"{EPOCH:.0f}", "--to", f"{EPOCH + 24 * HOUR:.0f}"]

    async def run() -> None:
        app = acting(make_app(view(), tmp_path), Principal("ada", Role.ADMIN))
        async with served(view(), app) as url:
            assert await asyncio.to_thread(main, ["report", "--url", url, *day, "--json"]) == 0
            assert await asyncio.to_thread(main, ["report", "--url", f"{url}/no", *day]) != 0

    asyncio.run(run())
    there = capsys.readouterr()
    assert there.out == reported(tmp_path, capsys, "--json")
    assert "answered 404" in there.err
