"""The page of a job: its answer comes first, and names the slow component without any history."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.demo.recorded_job import write_recorded_job
from laggard_aggregator.demo.recording import read_recording
from laggard_aggregator.demo.site import make_site
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages.job import SHOWN, ComponentsTable, answer
from tests.aggregator.jobs.test_job_verdict import window_rows, write_alarms
from tests.support.builders import live_status

SLOW_PART = "oss-08/loop27 took 4.79 ms a write, 23 times the median of the 11 others"


def demo_archive(folder: Path) -> Path:
    recording = read_recording()
    site = make_site(folder, recording.luns, 0.1)
    write_recorded_job(recording, site, recording.samples[-1].time)
    return site.archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's."""
    return demo_archive(tmp_path_factory.mktemp("demo"))


def page(archive: Path, path: str, view: live_status.MadeView | None = None) -> str:
    app = make_app(view or live_status.site(), archive)

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "principal": Principal("", Role.ADMIN)}, receive, send)

    async def ask() -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(call), base_url="http://l") as client:
            return (await client.get(path)).text

    return asyncio.run(ask())


def test_the_demos_job_names_its_slow_component_first(archive: Path) -> None:
    text = page(archive, "/jobs/1")
    (lead,) = re.findall(r'<p class="lead">([^<]*)', text)
    assert lead == f"Slow in this job: {SLOW_PART}."
    headings = re.findall(r"<h2[^>]*>([^<]*)", text)
    assert headings[:4] == ["When, and how fast", "Where", "Other jobs on its components", "What to do"]
    rows = re.findall(r"<tr[^>]*><th scope=\"row\">(?:<a[^>]*>)?(loop\d+)", text)
    assert rows[0] == "loop27"
    assert len(rows) == len(set(rows)) == 12, "one row each"
    assert text.count('<tr class="hot">') == 1


def test_the_timeline_marks_when_the_slow_component_was_slow(tmp_path: Path, archive: Path) -> None:
    own, start = demo_archive(tmp_path), read_recording().start
    begun = start + 60.0
    windows = [
        *window_rows("oss-08/loop27", begun, begun + 300, 19.0),
        *window_rows("oss-08/loop27", start + 86_400, start + 86_700, 7.0),
        *window_rows("oss-01/loop20", begun, begun + 300, 3.0),
    ]
    write_alarms(own, windows, "verdicts")
    text = page(own, "/jobs/1")
    assert "<title>oss-08/loop27 was slow, 19×</title>" in text
    assert text.count('class="phase slow"') == 1
    (line,) = re.findall(r"<li><strong>oss-08/loop27</strong>.*?</li>", text)
    assert re.sub(r"<[^>]*>", "", line).endswith(
        "was anomalous from 2026-11-21 07:13:05 UTC to 2026-11-21 07:18:05 UTC, 19×"
    )
    assert "does not tell when it was slow" not in text
    assert "does not tell when it was slow" in page(archive, "/jobs/1")


@pytest.mark.parametrize(("later", "ranged"), [(60.0, False), (86_400.0, True)])
def test_a_component_of_an_old_job_is_shown_at_its_time(archive: Path, later: float, ranged: bool) -> None:
    names = ("oss-08/loop27", "b", "c", "d")
    calm = live_status.judgement("luns", names, [0] * 4, [1.0] * 4, [False] * 4)
    end = read_recording().samples[-1].time
    view = live_status.MadeView(groups_=(live_status.group("luns", 4),), judgements_=(calm,), now=end + later)
    (query,) = re.findall(r'/component/luns/oss-08/loop27([^"]*)">loop27', page(archive, "/jobs/1", view))
    assert query.startswith("?from=") == ranged


def test_the_command_names_it_too(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "1", "--archive", str(archive)]) == 0
    shown = capsys.readouterr().out
    assert f"    {SLOW_PART}. Tell the storage operators that oss-08/loop27 was slow\n" in shown
    assert shown.count(SLOW_PART) == 1, "said once"
    assert main(["jobs", "--archive", str(archive)]) == 0
    assert "too few runs; oss-08/loop27 slow, 23×\n" in capsys.readouterr().out
    assert "2026-11-21 07:12:05 UTC to 2026-11-21 07:23:05 UTC" in shown
    assert main(["job", "1", "--archive", str(archive), "--slow-components", "laggard"]) == 0
    assert "  no slow component by laggard: the detector saw none" in capsys.readouterr().out


def record(**changes: Any) -> dict[str, Any]:
    own = {"verdict": "too few runs", "sentence": "Too few runs", "end": 1.0, "phases": [{}], "findings": []}
    return own | {"slow_components": "", "components": [], "coverage": None} | changes


def finding(cause: str, kind: str = "straggler", advice: str = "Tell the operators") -> dict[str, Any]:
    return {"kind": kind, "cause": cause, "factor": 4.0, "text": f"{cause} was slow", "advice": advice}


def part(name: str, **changes: Any) -> dict[str, Any]:
    own = {"component": name, "node": "oss-1", "layer": "server", "slow": False, "factor": None}
    return own | {"requests": {"read": {"seconds": None}}} | changes


def test_a_slow_job_leads_with_its_verdict_and_says_a_component_once() -> None:
    job = record(
        verdict="slow",
        sentence="Writing took 3 times; OST7 was a straggler",
        slow_components="oss-1/OST7 took 9 ms a write",
        components=[part("OST7", slow=True, factor=9.0)],
        findings=[finding("OST7"), finding("x", advice="Use collective I/O")],
    )
    said = answer(job)
    assert (said.look, said.lead, said.more) == ("bad", "Writing took 3 times; OST7 was a straggler.", ())
    assert said.todo == ("Tell the operators", "Use collective I/O")
    other = answer(job | {"sentence": "Writing took 3 times; no cause is known"})
    assert other.more == ("Slow in this job: oss-1/OST7 took 9 ms a write.",)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({}, "can only be told beside earlier runs"),
        ({"verdict": "not judged", "phases": []}, "An agent on its nodes"),
        ({"verdict": "not judged", "end": None, "phases": []}, "after its end"),
        ({"verdict": "different work"}, "other volumes"),
    ],
)
def test_a_job_without_a_verdict_says_what_would_help(changes: dict[str, Any], hint: str) -> None:
    said = answer(record(**changes))
    assert said.look == ""
    assert hint in said.lead


def test_components_that_a_finding_names_are_marked_and_come_first() -> None:
    parts = [part(f"scratch-OST{at:04}-osc-ffff") for at in range(20)]
    table = ComponentsTable.of(parts, [finding("scratch-OST0019"), finding("scratch-OST0003", "neighbour")])
    assert (table.rows[0]["component"], table.rows[0]["blame"]) == (
        "scratch-OST0019-osc-ffff",
        ("straggler", 4.0),
    )
    assert [each["blame"] for each in table.rows[1:]] == [None] * (SHOWN - 1)
    assert (len(table.more), table.with_times, table.directions) == (20 - SHOWN, False, ("read",))
