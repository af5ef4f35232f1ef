"""Pages and files of components, metadata servers and amplification, for each principal."""

import asyncio
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp

from laggard_aggregator.ingest.node_view import NodeView
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.loads.metadata import MetadataBy, MetadataLoad
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.settings.aggregator import PeakTable
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages.job_loads import metadata_table
from laggard_aggregator.web.pages.tables import Query
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.aggregator.web.test_jobs_access import HOSTILE, PRINCIPALS, SEEN, acting
from tests.naive_jobs import NaiveReading
from tests.support.builders import live_status
from tests.support.builders.job_tables import JobRow, job_row, summary_row, write_rows

NOW = live_status.NOW
HOUR = 3600.0
SUBMIT = int(NOW - 6 * HOUR)
JOBS = {
    "own": job_row(1, user="alice", account="physics", application="secret_own", submit=SUBMIT),
    "project": job_row(2, user="paul", account="physics", application="secret_project", submit=SUBMIT),
    "other": job_row(3, user="otto", account="chem", application="secret_other" + HOSTILE, submit=SUBMIT),
}
PATHS = ("/metadata", "/metadata?by=user", "/metadata?by=project", "/amplification")
ALL = (*PATHS, "/loads")


def load_archive(folder: Path) -> Path:
    """Three jobs with metadata operations and amplification, and a forwarder that grows busier."""
    rows: list[JobRow] = list(JOBS.values())
    write_rows(folder, "jobs", rows, day=SUBMIT)
    volumes = {"client_read_bytes": 1e9, "client_written_bytes": 0.0, "server_written_bytes": 0.0}
    summaries = [
        summary_row(
            job,
            metadata_operations=3600.0 * at,
            amplification=1.5 + at,
            server_read_bytes=(1.5 + at) * 1e9,
            **volumes,
        )
        for at, job in enumerate(rows, 1)
    ]
    write_rows(folder, "job_summaries", summaries, day=SUBMIT)
    JobIndex(folder).refresh()
    start, value, readings = int((NOW - 3 * HOUR) // 60 * 60) * 1000, 0, []
    for second in range(0, 601, 10):
        value += 0 if second == 0 else 10 * 1000 * (max(second - 1, 0) // 60 + 1)
        tick = start + second * 1000
        readings.append(NaiveReading(tick, tick, {"read_bytes_sum": value, "write_bytes_sum": 0}))
    write_parts(folder, [[job_batch("fwd1", "fs", readings, lsn=1, received_ns=start * MS)]], start * MS)
    RollupPass(folder).run(int((NOW + 48 * HOUR) * 1e9), 30)
    return folder


def view() -> live_status.MadeView:
    """The made-up site with two forwarders, one without counters."""
    made = live_status.site()
    forwarders = [NodeView(name, "forwarding", "up", True, NOW - 1, 0.0) for name in ("fwd1", "fwd2")]
    return replace(made, nodes_=(*made.nodes_, *forwarders))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return load_archive(tmp_path_factory.mktemp("archive"))


def ask(
    archive: Path | None, who: Principal, paths: Sequence[str], app: ASGIApp | None = None
) -> list[httpx.Response]:
    async def run() -> list[httpx.Response]:
        asked = app or acting(make_app(view(), archive), who)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(asked), base_url="http://l") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


def formatted(path: str, form: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}format={form}"


@pytest.mark.parametrize("who", PRINCIPALS)
def test_jobs_of_others_are_in_no_page_file_or_sum(archive: Path, who: str) -> None:
    paths = [*PATHS, *(formatted(path, form) for path in PATHS for form in ("csv", "json"))]
    answers = dict(zip(paths, ask(archive, PRINCIPALS[who], paths), strict=True))
    for path, answer in answers.items():
        assert answer.status_code == 200, path
        for job, row in JOBS.items():
            if job not in SEEN[who]:
                assert f"secret_{job}" not in answer.text, path
                assert row["user"] not in answer.text, path
    listed = answers["/amplification?format=json"].json()
    assert listed["total"] == len(SEEN[who])
    assert {row["job"] for row in listed["amplification"]} == {JOBS[job]["job"] for job in SEEN[who]}
    load = answers["/metadata?format=json"].json()["metadata"]
    names = {JOBS[job]["application"]: 3600.0 * at for at, job in enumerate(JOBS, 1) if job in SEEN[who]}
    assert {row["name"]: row["operations"] for row in load} == pytest.approx(names)
    assert sum(row["share"] for row in load) == pytest.approx(1.0 if load else 0.0)


@pytest.mark.parametrize("who", PRINCIPALS)
def test_loads_are_for_support_and_administrators(archive: Path, who: str) -> None:
    paths = ["/loads", "/loads?format=json", "/loads?format=csv", "/loads?from=never"]
    found = ask(archive, PRINCIPALS[who], [*paths, "/none", "/jobs"])
    *answers, absent, jobs = found
    if who in ("support", "admin"):
        assert [each.status_code for each in answers] == [200, 200, 200, 400]
        assert 'href="./loads"' in jobs.text
    else:
        assert {each.content for each in answers} == {absent.content}
        assert 'href="./loads"' not in jobs.text


def test_a_forwarders_load_by_classes_of_its_peak(archive: Path) -> None:
    begun = (NOW - 3 * HOUR) // 60 * 60
    paths = [f"/loads?from={begun:.0f}&to={begun + 600:.0f}", "/loads?of=forwarders&format=csv"]
    page, text, listed = ask(archive, PRINCIPALS["admin"], [*paths, "/loads?format=json"])
    first, second = listed.json()["loads"]
    assert (first["component"], second["component"]) == ("fwd1", "fwd2")
    assert first["peak"] == 10_000.0
    assert first["largest"] == 10_000.0
    assert (first["mean"], first["mean_share"], first["unit"]) == (5_500.0, 0.55, "bytes")
    assert first["steps"] == 10
    shares = [first[f"time_{name}"] for name in ("above_90", "to_90", "to_50", "to_10")]
    assert shares == pytest.approx([0.1, 0.4, 0.4, 0.1])
    unknown = ("largest", "peak", "time_to_10")
    assert [second[name] for name in unknown] == [None] * 3
    rows = list(csv.DictReader(io.StringIO(text.text, newline="")))
    assert [row["component"] for row in rows] == ["fwd1", "fwd2"]
    maps = re.findall(r'<svg class="strip".*?</svg>', page.text, re.DOTALL)
    assert len(maps) == 2
    assert [level for level in range(7) if f'class="l{level}"' in maps[0]] == [2, 3, 4, 6]
    assert "<path" not in maps[1], "a gap is empty"
    assert 'aria-label="fwd2: no data"' in maps[1]


def test_hostile_names_are_escaped_and_links_lead_to_jobs(archive: Path) -> None:
    for page in ask(archive, PRINCIPALS["admin"], PATHS):
        assert "<script>alert" not in page.text
        assert not {"\x1b", "\u202e"} & set(page.text)
    amplified, load = ask(archive, PRINCIPALS["admin"], ["/amplification", "/metadata"])
    links = re.findall(r'href="\./(jobs/c%2F[^"]+)"', amplified.text)
    assert len(links) == 3
    links += [link.replace("&amp;", "&") for link in re.findall(r'href="\./(jobs\?app=[^"]+)"', load.text)]
    assert len(links) == 6
    for link, answer in zip(links, ask(archive, PRINCIPALS["admin"], links), strict=True):
        assert answer.status_code == 200
        assert "No job that you may see" not in answer.text, link


MISTAKES = (
    "sort=none",
    "by=secret",
    "from=never",
    "format=xml",
    "table=none&format=csv",
    "x=1",
    "from=-1h&to=-2h",
)


@pytest.mark.parametrize("query", MISTAKES)
@pytest.mark.parametrize("path", ["/metadata", "/loads", "/amplification"])
def test_mistakes_in_a_query_are_told(archive: Path, path: str, query: str) -> None:
    (answer,) = ask(archive, PRINCIPALS["admin"], [f"{path}?{query}"])
    assert answer.status_code == 400
    assert answer.json()["error"].isprintable()


def test_the_query_sorts_filters_and_chooses_the_time(archive: Path) -> None:
    paths = ["/amplification?sort=amplification&format=json", "/amplification?user=OTTO&format=json"]
    paths += ["/metadata?from=-2h&format=json", "/loads?component=2&format=json"]
    rising, ottos, none, second = ask(archive, PRINCIPALS["admin"], paths)
    assert [row["amplification"] for row in rising.json()["amplification"]] == [2.5, 3.5, 4.5]
    assert [row["user"] for row in ottos.json()["amplification"]] == ["otto"]
    assert none.json()["metadata"] == []
    assert [row["component"] for row in second.json()["loads"]] == ["fwd2"]


def test_without_an_archive_there_is_no_load() -> None:
    codes = [each.status_code for each in ask(None, PRINCIPALS["admin"], ALL)]
    assert codes == [503] * len(PATHS) + [404]


def test_a_site_without_loads_is_not_asked_for_those_of_forwarders(tmp_path: Path) -> None:
    (answer,) = ask(tmp_path, PRINCIPALS["admin"], ["/loads"], acting(
        make_app(live_status.site(), tmp_path), PRINCIPALS["admin"]
    ))  # fmt: skip
    assert "Load of components</h1>" in answer.text
    assert "The archive has no load of forwarders, OSTs" in answer.text


def test_operations_of_jobs_without_length_have_no_share() -> None:
    (row,) = metadata_table([MetadataLoad("app", 1, 0.0, 0.0)], MetadataBy.APPLICATION, Query({})).page.items
    assert row["share"] == 0.0


PEAKS = (PeakTable("gone-[12]/scratch", "throughput", 4e6, source="nfs_mount"),)
GIVEN = {"gone-1": (3_000_000, "forwarding"), "gone-2": (1_000, "forwarding"), "cn-1": (9_000_000, "compute")}
"""Bytes a second and role of nodes that are not up any more."""


@pytest.mark.parametrize(
    ("peaks", "full", "above"), [((), 3e6, [1.0, 0.0]), (PEAKS, 4e6, [0.0, 0.0])], ids=["reached", "known"]
)
def test_the_forwarders_are_those_of_the_archive(
    tmp_path: Path, peaks: Sequence[PeakTable], full: float, above: list[float]
) -> None:
    start = int((NOW - 3 * HOUR) // 60 * 60) * 1000
    batches = []
    for lsn, (node, (rate, role)) in enumerate(GIVEN.items(), 1):
        readings = [
            NaiveReading(
                tick, tick, {"READ_bytes_recv": (tick - start) // 1000 * rate, "WRITE_bytes_sent": 0}
            )
            for tick in range(start, start + 600_001, 10_000)
        ]
        made = job_batch(
            node,
            "m1",
            readings,
            lsn=lsn,
            received_ns=start * MS,
            source="nfs_mount",
            name="scratch",
            role=role,
        )
        batches.append(made)
    write_parts(tmp_path, [batches], start * MS)
    RollupPass(tmp_path).run(int((NOW + 48 * HOUR) * 1e9), 30)
    app = acting(make_app(live_status.site(), tmp_path, peaks=peaks), PRINCIPALS["admin"])
    (answer,) = ask(tmp_path, PRINCIPALS["admin"], ["/loads?of=forwarders&format=json"], app)
    first, second = answer.json()["loads"]
    assert [first["component"], second["component"]] == ["gone-1", "gone-2"], "the busier one first"
    assert [first["mean"], second["mean"]] == [3e6, 1e3]
    assert [first["peak"], second["peak"]] == [full, full]
    assert [first["time_above_90"], second["time_above_90"]] == above


CLIENTS = {"login1": 400, "login2": 60, "cn-1": 40, "cn-2": 20, "fwd-1": 30}
"""Opens a second; fwd-1 does those of compute nodes."""
MINUTES = 10


def metadata_site(folder: Path) -> Path:
    """A login node that floods, and a job on the compute nodes; counted by clients and by two MDTs."""
    start = int((NOW - 3 * HOUR) // 60 * 60)
    mdts = {"scratch-MDT0000": 390, "scratch-MDT0001": 130}
    made = [(node, "m1", "lustre_llite", "mount", rate, role_of(node)) for node, rate in CLIENTS.items()]
    made += [("mds1", f"t{name}", "lustre_mdt", name, rate, "metadata") for name, rate in mdts.items()]
    batches = []
    for lsn, (node, component, source, name, rate, role) in enumerate(made, 1):
        readings = [
            NaiveReading((start + at) * 1000, (start + at) * 1000, {"open_samples": at * rate})
            for at in range(0, MINUTES * 60 + 1, 10)
        ]
        batch = job_batch(
            node, component, readings, lsn=lsn, received_ns=start * 10**9, source=source, name=name, role=role
        )
        batches.append(batch)
    write_parts(folder, [batches], start * 10**9)
    RollupPass(folder).run(int((NOW + 48 * HOUR) * 1e9), 30)
    job = job_row(7, application="dndc", submit=start, start=float(start)) | {"end": start + MINUTES * 60.0}
    write_rows(folder, "jobs", [job], day=start)
    operations = 60.0 * MINUTES * (CLIENTS["cn-1"] + CLIENTS["cn-2"])
    write_rows(folder, "job_summaries", [summary_row(job, metadata_operations=operations)], day=start)
    JobIndex(folder).refresh()
    return folder


def role_of(node: str) -> str:
    return "forwarding" if node.startswith("fwd") else "compute"


def test_what_no_job_did_is_first_where_it_is_more(tmp_path: Path) -> None:
    paths = [f"/metadata?by={by}&format=json" for by in ("application", "job", "nodes", "target")]
    pages = [path.removesuffix("&format=json") for path in paths]
    pages[2] += "&sort=-share"
    found = ask(metadata_site(tmp_path), PRINCIPALS["admin"], [*paths, *pages])
    by_application, by_job, nodes, targets = [each.json()["metadata"] for each in found[:4]]
    seconds = 60 * MINUTES
    for rows, name in ((by_application, "dndc"), (by_job, "c/7/")):
        assert [row["operations"] for row in rows] == [460 * seconds, 60 * seconds]
        assert rows[0]["name"] == "outside finished jobs"
        assert rows[1]["name"].startswith(name)
        assert rows[1]["share"] == pytest.approx(60 / 520)
    assert [(row["name"], row["nodes"], row["busiest"], row["operations"]) for row in nodes] == [
        ("login* (compute)", 2, "login1", 460 * seconds),
        ("cn-* (compute)", 2, "cn-1", 60 * seconds),
        ("fwd-* (forwarding)", 1, "fwd-1", 30 * seconds),
    ]
    shares = [row["share"] for row in nodes]
    assert shares == [pytest.approx(460 / 520), pytest.approx(60 / 520), None], "a forwarder adds none"
    assert [(row["name"], row["share"]) for row in targets] == [
        ("scratch-MDT0000", 0.75),
        ("scratch-MDT0001", 0.25),
    ]
    assert [each.status_code for each in found] == [200] * 8
    assert "outside finished jobs" in found[4].text
    denied = ask(tmp_path, PRINCIPALS["user"], [*paths[2:], paths[0]])
    assert [each.status_code for each in denied] == [400, 400, 200]
    assert "outside" not in denied[2].text
