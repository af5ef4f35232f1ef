"""HTML reports: small, without a network, names escaped; and CSV."""

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.darshan.convert import convert, opened_job
from laggard_aggregator.jobs.darshan.job_list import JobFilter
from laggard_aggregator.jobs.darshan.report import MAX_LINES, job_report, jobs_report
from laggard_aggregator.jobs.darshan.store_build import MineSources, build
from laggard_aggregator.jobs.darshan.verdict import judge
from tests.support.builders import mine_store
from tests.support.builders.darshan_log import LogWriter
from tests.support.darshan import skip_without_darshan
from tests.support.processes import run_command
from tests.support.wait import LIMIT_SECONDS

HOSTILE = "</script><script>alert(1)</script>\"'&\x1b[2J"


def job_table(count: int, name: str = "app") -> pa.Table:
    chance = np.random.default_rng(1)
    return pa.table(
        {
            "job_id": np.arange(count),
            "application": [f"{name}{at % 17}" for at in range(count)],
            "processes": chance.integers(1, 10_000, count),
            "node_count": pa.nulls(count, pa.int64()),
            "bytes": chance.integers(1, 10**13, count),
            "busy_us": chance.integers(1, 10**10, count),
            "mib_per_second": chance.lognormal(3, 2, count),
            "small": chance.uniform(0, 1, count),
            "nonconsecutive": pa.array(chance.uniform(0, 1, count), mask=chance.uniform(0, 1, count) < 0.2),
            "collective": chance.integers(0, 2, count),
            "osts": chance.integers(0, 248, count),
            "processes_per_ost": chance.lognormal(1, 2, count),
            "metadata": chance.uniform(0, 1, count),
        }
    )


class Elements(HTMLParser):
    """Names of the elements, and addresses that they would load."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]


def elements(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    return found


@pytest.mark.parametrize("count", [0, 1, MAX_LINES, MAX_LINES + 1, 20_000])
def test_a_report_of_jobs_is_small_and_loads_nothing(count: int) -> None:
    text = jobs_report(job_table(count), JobFilter("write"))
    assert len(text.encode()) < 2_000_000
    found = elements(text)
    assert found.loaded == []
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert ('"density"' in text) == (count > MAX_LINES)


def test_hostile_names_of_applications_are_escaped() -> None:
    text = jobs_report(job_table(40, HOSTILE), JobFilter("read"))
    assert elements(text).names.count("script") == 2
    assert "alert(1)</script>" not in text
    assert "\x1b" not in text


def test_hostile_names_of_files_are_escaped(tmp_path: Path) -> None:
    skip_without_darshan()
    log = LogWriter(command=f"/bin/{HOSTILE}")
    log.posix(f"/scratch/{HOSTILE}", 0, "write", 1.0, 2.0)
    convert(log.write(tmp_path / "a.darshan"), 1, tmp_path)
    text = job_report(judge(opened_job([tmp_path])))
    assert re.search(r'title="[^"]*, 1 s"', text)
    found = elements(text)
    assert "script" not in found.names
    assert found.loaded == []
    assert "\x1b" not in text


def test_hostile_names_in_all_outputs_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file and a node that findings name."""
    skip_without_darshan()
    pytest.importorskip("duckdb")
    name, node = f"/scratch/=cmd|'\x1b]0;x\x07{HOSTILE}\u202e", "n3;reboot<b>\x1b[2J"
    striped = LogWriter(job=1, processes=1024, seconds=800, command="/bin/=app<b>\x1b[2J")
    counters = {"requests": 70_000, "bytes": 640 << 30, "seconds": 503.0, "CONSEC_WRITES": 69_000}
    striped.posix(name, -1, "write", 1.0, 740.0, **counters)
    striped.stripes(name, [29])
    traced = LogWriter(job=2, processes=16)
    for rank in range(16):
        took, amount = (60.0 if rank > 11 else 5.0), 256 << 20
        traced.posix(
            f"{name}{rank}", rank, "write", 1.0, 1.0 + took, requests=256, bytes=amount, CONSEC_WRITES=255
        )
        traced.trace(
            f"{name}{rank}", rank, node if rank > 11 else f"n{rank // 4}", [(0, amount, 1.0, 1.0 + took)]
        )
    logs = [log.write(tmp_path / f"{log.job}.darshan") for log in (striped, traced)]
    store, page = tmp_path / "store", tmp_path / "page.html"
    build(store, MineSources(darshan=logs), 1)
    of_store = ["--store", str(store)]
    outputs = []
    for arguments in (
        [*map(str, logs)],
        [*map(str, logs), "--json"],
        ["job", "2", *of_store],
        ["job", "1", *of_store, "--json", "--html", str(page)],
        ["jobs", *of_store, "--csv"],
        ["jobs", *of_store, "--factors"],
        [
            "query",
            "select name, application from darshan_file f, darshan_job j where f.log = j.log",
            "--csv",
            *of_store,
        ],
        ["query", "select name from darshan_file", *of_store],
        ["query", "select name from darshan_file", "--json", *of_store],
        ["stats", "applications", *of_store],
    ):
        capsys.readouterr()
        assert main(["mine", *arguments]) == 0
        outputs.append(capsys.readouterr().out)
        assert all(line.isprintable() for line in outputs[-1].split("\n")), arguments
    assert "striping" in outputs[1]
    assert '"kind": "node"' in outputs[1]
    assert "sbatch" not in outputs[0]
    assert "'=app" in outputs[4]
    found = elements(page.read_text(encoding="utf-8"))
    assert not {"script", "b"} & set(found.names)
    assert found.loaded == []
    assert "\x1b" not in page.read_text(encoding="utf-8")
    assert "\u202e" not in page.read_text(encoding="utf-8")


def test_a_job_report_has_the_joined_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skip_without_darshan()
    pytest.importorskip("duckdb")
    mine_store.logs(tmp_path / "logs", 3)
    slurm, lmt = mine_store.sacct(tmp_path / "sacct.txt", 3), mine_store.lmt(tmp_path / "lmt.sqlite3")
    sources = MineSources(
        darshan=[tmp_path / "logs"], slurm=[slurm], lmt=[lmt], slurm_zone="America/New_York", lmt_zone="UTC"
    )
    build(tmp_path / "store", sources, 1)
    page = tmp_path / "job.html"
    assert main(["mine", "job", "1", "--store", str(tmp_path / "store"), "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Slurm: step 1.0, 2 nodes" in text
    assert "LMT: its OSTs wrote" in text
    assert "on average: below 1 MiB 25%" in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_the_script_draws_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "jobs.html"
    page.write_text(jobs_report(job_table(300), JobFilter("write")), encoding="utf-8")
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    command += ["--dump-dom", page.as_uri()]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = run_command(command, env=environment)
    assert "300 of 300 jobs" in done.stdout


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_an_axis_can_be_brushed(tmp_path: Path) -> None:
    """A drag along the axis of metadata keeps the jobs in that part of it; a click releases them."""
    playwright_api = pytest.importorskip("playwright.sync_api")
    table = job_table(300)
    page_file = tmp_path / "jobs.html"
    page_file.write_text(jobs_report(table, JobFilter("write")), encoding="utf-8")
    complaints: list[str] = []
    with playwright_api.sync_playwright() as playwright:
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=alone)
        page = browser.new_context(offline=True, viewport={"width": 1400, "height": 900}).new_page()
        page.set_default_timeout(1000 * LIMIT_SECONDS)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_file.as_uri())
        assert page.text_content("#kept") == "300 of 300 jobs"
        box = page.locator("#plot").bounding_box()
        assert box is not None
        axes = page.evaluate("axes")
        (at,) = (place for place, axis in enumerate(axes) if axis["name"] == "metadata")
        across = box["x"] + 50 + at * (box["width"] - 100) / (len(axes) - 1)
        low, high = 0.9, 0.95  # of the length of the axis, which has 40 above and 30 below
        down = [box["y"] + box["height"] - 30 - part * (box["height"] - 70) for part in (low, high)]
        page.mouse.move(across, down[0])
        page.mouse.down()
        page.mouse.move(across, down[1], steps=4)
        page.mouse.up()
        brushed = page.text_content("#kept") or ""
        page.mouse.click(across, down[0])
        released = page.text_content("#kept")
        browser.close()
    assert complaints == []
    axis = axes[at]
    shares = {
        job: (share - axis["low"]) / (axis["high"] - axis["low"])
        for job, share in zip(table["job_id"].to_pylist(), table["metadata"].to_pylist(), strict=True)
    }
    kept, _, listed = brushed.partition(": ")
    named = {int(each) for each in listed.split(",")}
    margin = 0.006  # the pointer's place is in whole pixels
    assert kept == f"{len(named)} of 300 jobs"
    assert named >= {job for job, share in shares.items() if low + margin < share < high - margin} != set()
    assert named <= {job for job, share in shares.items() if low - margin < share < high + margin}
    assert released == "300 of 300 jobs"
