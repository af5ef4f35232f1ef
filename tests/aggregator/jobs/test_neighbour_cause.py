"""Neighbours as causes: a flood on a shared MDT or OST is named as far as the asker may see it."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.access.principals import NOBODY, READ_PROJECT, Principal, Role
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.client_traces import COMPONENT
from laggard_aggregator.jobs.verdict.evidence.neighbours import shared_components
from laggard_aggregator.web.app import make_app
from tests.aggregator.jobs.test_job_verdict import GIB, archive_of, usual, verdict_on
from tests.aggregator.web.test_jobs_access import acting, serving
from tests.support.builders import live_status
from tests.support.builders.job_tables import DAY, component_row, job_row, node_rows, summary_row, write_rows

MDT, OST = "scratch-MDT0000", "scratch-OST0042"
TIME = re.compile(r"\d\d:(\d\d)")
PRINCIPALS = {
    "user": Principal("alice", Role.USER),
    "manager": Principal("mona", Role.MANAGER, frozenset({"physics"})),
    "support": Principal("sue", Role.SUPPORT),
    "admin": Principal("root", Role.ADMIN),
    "api": Principal("grafana", Role.API, scopes=frozenset({READ_PROJECT + "physics"})),
    "nobody": NOBODY,
}
SEES = {"support", "admin"}


def add_load(
    folder: Path,
    number: int,
    start: float,
    end: float,
    metadata: float = 0.0,
    written: float = 0.0,
    **own: Any,
) -> dict[str, Any]:
    """A job of another user with this many metadata operations or bytes a second on the MDT or OST."""
    job = job_row(
        number,
        submit=int(start) - 60,
        start=start,
        end=end,
        **{"user": "otto", "account": "secret_chem", "name": "secret_flood", "application": "secret_app"}
        | own,
    )
    seconds, day = end - start, end // DAY * DAY
    rows = []
    if metadata:
        rows.append(
            component_row(job, MDT, "metadata") | {"direction": "metadata", "operations": metadata * seconds}
        )
    if written:
        rows.append(component_row(job, OST) | {"direction": "write", "bytes": written * seconds})
    write_rows(folder, "job_nodes", node_rows(job, ["cn-9"]), day)
    write_rows(folder, "jobs", [job], day)
    write_rows(folder, "job_components", rows, day)
    write_rows(
        folder, "job_summaries", [summary_row(job, mdops=metadata, written_bytes=written * seconds)], day
    )
    return job


def disturbed(folder: Path, seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Runs that do 10 metadata operations a second on the MDT, and write an eighth to the OST."""
    jobs = archive_of(folder, seconds)
    for job in jobs:
        used = component_row(job, MDT, "metadata") | {"direction": "metadata", "operations": 36_000.0}
        carried = component_row(job, OST) | {"direction": "write", "bytes": 12.5 * GIB}
        write_rows(folder, "job_components", [used, carried], job["end"] // DAY * DAY)
    return jobs


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The last of 13 runs took three times as long, beside a job with 4,900 operations a second."""
    folder = tmp_path_factory.mktemp("archive")
    jobs = disturbed(folder, [*usual(np.random.default_rng(11)), 930.0])
    start = jobs[-1]["start"]
    add_load(folder, 77700777, start + 437, start + 1793, metadata=4900.0)
    JobIndex(folder).refresh()
    return folder, jobs[-1]


def test_a_flood_on_a_shared_mdt_is_the_cause(flooded: tuple[Path, dict[str, Any]]) -> None:
    folder, job = flooded
    found = verdict_on(folder, job)
    assert found.verdict == "slow"
    (cause,) = found.findings
    assert (cause.kind, cause.cause.split("/")[1]) == ("neighbour", "77700777")
    assert (
        "job 77700777 of otto ran with 4,900 metadata operations a second on scratch-MDT0000"
        in found.sentence
    )
    assert "which usually has no load" in found.sentence


def test_a_neighbour_at_the_usual_load_is_innocent(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = disturbed(tmp_path, [*usual(rng), 930.0])
    for at, job in enumerate(jobs):
        load = 4900.0 * float(np.exp(rng.normal(0, 0.1)))
        add_load(tmp_path, 800 + at, job["start"], job["end"], metadata=load)
    found = verdict_on(tmp_path, jobs[-1])
    assert (found.verdict, found.findings) == ("slow", [])
    assert found.sentence.endswith("; no cause is known")


def test_a_neighbour_with_a_few_operations_is_innocent(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = disturbed(tmp_path, [*usual(rng), 930.0])
    add_load(tmp_path, 800, jobs[-1]["start"], jobs[-1]["end"], metadata=49.0, written=2.0**20 - 1)
    assert verdict_on(tmp_path, jobs[-1]).findings == []


def test_a_writer_on_a_shared_ost_is_named_and_one_that_ended_before_is_not(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    jobs = disturbed(tmp_path, [*usual(rng), 930.0])
    start = jobs[-1]["start"]
    add_load(tmp_path, 778, start, start + 3000, written=2 * GIB)
    add_load(tmp_path, 779, start - 5000, start - 10, written=50 * GIB)
    for at, job in enumerate(jobs[:-1]):
        add_load(tmp_path, 900 + at, job["start"], job["end"], written=0.01 * GIB)
    found = verdict_on(tmp_path, jobs[-1])
    assert [each.cause.split("/")[1] for each in found.findings] == ["778"]
    assert "ran with 2,100 MB a second on scratch-OST0042, 200 times the usual load" in found.sentence


def test_a_load_on_components_that_the_job_does_not_use_is_innocent(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    add_load(tmp_path, 778, jobs[-1]["start"], jobs[-1]["end"], metadata=9000.0)
    assert verdict_on(tmp_path, jobs[-1]).findings == []


@pytest.mark.parametrize("beside", [True, False])
def test_a_burst_counts_when_it_falls_into_the_phase(
    tmp_path: Path, rng: np.random.Generator, beside: bool
) -> None:
    jobs = disturbed(tmp_path, [*usual(rng), 930.0])
    start = jobs[-1]["start"]
    flood = add_load(tmp_path, 778, start, start + 3600, metadata=4900.0)
    rates = np.zeros(360)
    rates[slice(60, 153) if beside else slice(200, 293)] = 1e6
    rates[:5] = np.nan
    row = {
        **{name: flood[name] for name in ("job_key", "revision_at")},
        "layer": "metadata",
        "resolution_seconds": 10.0,
        "start": start,
        "metadata_operations": [None if np.isnan(each) else each for each in rates.tolist()],
    }
    write_rows(tmp_path, "job_series", [row], flood["end"] // DAY * DAY)
    found = verdict_on(tmp_path, jobs[-1])
    assert [each.kind for each in found.findings] == ["neighbour"] * beside
    assert not beside or "with 19,000 metadata operations a second" in found.sentence


@pytest.mark.parametrize("who", PRINCIPALS)
def test_only_who_may_see_the_neighbour_reads_who_it_is(
    flooded: tuple[Path, dict[str, Any]], who: str
) -> None:
    folder, job = flooded
    key = job["job_key"].replace("/", "%2F")
    api, page = asyncio.run(asked(folder, PRINCIPALS[who], [f"/api/v1/jobs/{key}", f"/jobs/{key}"]))
    if who == "nobody":
        assert (api.status_code, page.status_code) == (404, 404)
        return
    (record,) = api.json()["jobs"]
    (cause,) = [each for each in record["findings"] if each["kind"] == "neighbour"]
    assert cause["text"] in record["sentence"]
    for text in (cause["text"], api.text, page.text):
        assert "4,900 metadata operations a second" in text
        seen = {each for each in ("77700777", "otto", "secret") if each in text}
        assert who in SEES or not seen
    minutes = [int(each) % 10 for each in TIME.findall(cause["text"])]
    assert len(minutes) == 2
    if who in SEES:
        assert "job 77700777 of otto" in cause["text"]
        assert any(minutes)
    else:
        assert minutes == [0, 0]
        assert cause["text"].endswith("(times rounded to 10 minutes)")
        assert cause["cause"] == "a job with 4,900 metadata operations a second"
        assert cause["factor"] == float(f"{cause['factor']:.2g}")


@pytest.mark.parametrize("who", PRINCIPALS)
def test_the_command_shows_no_more_than_the_server_gives(
    flooded: tuple[Path, dict[str, Any]], who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, job = flooded

    def run(url: str) -> None:
        for more in ([], ["--json"]):
            assert (main(["job", job["job_key"], "--url", url, *more]) == 0) == (who != "nobody")
            shown = capsys.readouterr().out
            assert ("4,900 metadata operations a second" in shown) == (who != "nobody")
            assert all((each in shown) == (who in SEES) for each in ("77700777", "otto"))

    asyncio.run(serving(acting(make_app(live_status.site(), folder), PRINCIPALS[who]), run))


async def asked(archive: Path, principal: Principal, paths: Sequence[str]) -> list[httpx.Response]:
    app = acting(make_app(live_status.site(), archive), principal)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://l") as client:
        return [await client.get(path) for path in paths]


def test_the_command_names_it_to_a_reader_of_the_archive(
    flooded: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, job = flooded
    assert main(["job", job["job_key"], "--archive", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "job 77700777 of otto ran with 4,900 metadata operations a second on scratch-MDT0000" in shown
    assert main(["job", job["job_key"], "--archive", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["verdict"] == "slow"


def test_a_neighbour_on_the_same_volume_is_named_by_its_clients(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Bricks count for all clients together: what they moved for both jobs is the load of neither."""
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    first = jobs[-1]["start"] + 600
    other = add_load(tmp_path, 900, first, first + 900)
    rows = [
        component_row(job, "data", "client")
        | {"node": node, "direction": "write", "bytes": 100 * GIB, "operations": 1e5}
        for job, node in [*((job, "cn-1") for job in jobs), (other, "cn-9")]
    ]
    rows += [
        component_row(job, "/srv/b0", "server") | {"direction": "write", "bytes": 200 * GIB, "shared": True}
        for job in (jobs[-1], other)
    ]
    write_rows(tmp_path, "job_components", rows, jobs[-1]["end"] // DAY * DAY)
    found = verdict_on(tmp_path, jobs[-1])
    assert re.search(
        r"job 900 of otto ran with \d+ MB a second on data, which usually has no load", found.sentence
    )
    assert re.search(r"\d\d:\d\d to \d\d:\d\d UTC", found.sentence), "the day is named once"


def test_jobs_that_are_known_by_their_traces_share_nothing_by_these() -> None:
    """Each node of each such job has the component `I/O trace`; it is no file system."""
    row = {"layer": "client", "node": "cn-1", "component": COMPONENT}
    assert list(shared_components(row)) == ["cn-1/I/O trace"]
    assert "scratch" in shared_components(row | {"component": "scratch"})
