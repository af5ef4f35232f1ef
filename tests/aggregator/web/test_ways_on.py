"""No page is a dead end: errors have a way on, tabs lead to data, search finds jobs, alerts a runbook."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from markupsafe import Markup

from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages.runbook import runbook
from laggard_aggregator.web.pages.site import _parts_of_name
from tests.aggregator.web.test_jobs_access import acting
from tests.support.builders import live_status
from tests.support.builders.job_tables import job_row, node_rows, write_rows

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ADMIN = Principal("root", Role.ADMIN)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    jobs = [job_row(4711, user="alice", account="climate", name="solver"), job_row(4712, user="bob")]
    write_rows(folder, "job_nodes", [row for job in jobs for row in node_rows(job, ["cn-1"])])
    write_rows(folder, "jobs", jobs)
    JobIndex(folder).refresh()
    return folder


def ask(
    *paths: str,
    archive: Path | None = None,
    headers: dict[str, str] = BROWSER,
    who: Principal = NOBODY,
) -> Sequence[httpx.Response]:
    async def asked() -> list[httpx.Response]:
        app = acting(make_app(live_status.site(), archive), who)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://aggregator", headers=headers
        ) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("path", "status", "heading"),
    [
        ("/nope", 404, "Not Found"),
        ("/jobs/99", 404, "Not Found"),
        ("/component/luns", 400, "Bad Request"),
        ("/jobs?colour=red", 400, "Bad Request"),
        ("/runbook/LaggardNothing", 404, "Not Found"),
    ],
)
def test_a_browser_gets_a_page_with_a_way_on(path: str, status: int, heading: str, archive: Path) -> None:
    (answer,) = ask(path, archive=archive)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert f"<h1>{heading}</h1>" in answer.text
    assert "<title>" in answer.text
    assert re.search(r'<main.*href="(\./|(\.\./)+)', answer.text, re.DOTALL)
    assert "Traceback" not in answer.text


def test_jobs_that_are_not_there_yet_are_a_page_that_asks_again(tmp_path: Path) -> None:
    (answer,) = ask("/jobs", archive=tmp_path)
    assert answer.status_code == 503
    assert '<meta http-equiv="refresh" content="20">' in answer.text
    assert "<h1>Not there yet</h1>" in answer.text


def test_a_job_that_nobody_may_see_is_the_page_of_one_that_never_was(archive: Path) -> None:
    hidden, never = ask("/jobs/4712", "/jobs/99", archive=archive, who=Principal("alice", Role.USER))
    assert (hidden.status_code, hidden.text) == (404, never.text)
    assert "or you may not see it" in hidden.text


@pytest.mark.parametrize("path", ["/nope", "/jobs/99", "/api/v1/nothing"])
def test_a_program_gets_json(path: str, archive: Path) -> None:
    (answer,) = ask(path, archive=archive, headers={"accept": "application/json"})
    assert answer.json()["status"] == answer.status_code == 404
    (answer,) = ask("/api/v1/nothing", archive=archive)
    assert answer.json()["status"] == 404


def test_the_navigation_has_only_pages_with_data(tmp_path: Path, archive: Path) -> None:
    for folder, has_jobs in ((None, False), (tmp_path, False), (archive, True)):
        (answer,) = ask("/", archive=folder)
        links = re.findall(r'<li><a href="([^"]*)"[^>]*>([^<]*)</a></li>', answer.text)
        names = [name for _, name in links]
        assert names[0] == "Overview"
        assert ("Jobs" in names) is has_jobs


def test_lists_of_jobs_lead_only_to_loads_that_there_are(archive: Path) -> None:
    (answer,) = ask("/jobs", archive=archive, who=ADMIN)
    tabs = re.findall(
        r">([^<]+)</a>", answer.text.partition('aria-label="Lists of jobs"')[2].partition("</nav>")[0]
    )
    roles = {role for role, _ in live_status.site().node_counts()}
    assert ("Metadata load" in tabs) is ("metadata" in roles)
    assert ("Forwarders" in tabs) is ("forwarding" in roles)
    assert tabs[0] == "All jobs"


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/4711", "/amplification", "/search?q=oss", "/nope"])
def test_every_page_switches_the_zone(path: str, archive: Path) -> None:
    (answer,) = ask(path, archive=archive, who=ADMIN)
    assert '<button id="zone"' in answer.text
    assert re.search(r'<script src="[^"]*static/(zone|page)\.js', answer.text)


@pytest.mark.parametrize(
    ("words", "kind", "link"),
    [
        ("alice", "User", "jobs?user=alice"),
        ("climate", "Project", "jobs?project=climate"),
        ("4711", "Job", "jobs/"),
    ],
)
def test_search_finds_jobs_and_users(words: str, kind: str, link: str, archive: Path) -> None:
    (answer,) = ask(f"/search?q={words}", archive=archive, who=ADMIN)
    (hit,) = re.findall(rf'<li>{kind} <a href="\./([^"]*)">{words}</a>', answer.text)
    assert hit.startswith(link)
    assert "<h1>1 match for" in answer.text


def test_search_finds_no_jobs_of_others(archive: Path) -> None:
    for words in ("bob", "4712"):
        others, unknown = ask(
            f"/search?q={words}", "/search?q=none", archive=archive, who=Principal("alice", Role.USER)
        )
        assert others.text.replace(words, "none") == unknown.text
    own, foreign = (
        ask("/search?q=4711", archive=archive, who=Principal(name, Role.USER))[0] for name in ("alice", "bob")
    )
    assert "<li>Job " in own.text
    assert "<li>Job " not in foreign.text


def test_every_alert_has_its_page_of_the_runbook(archive: Path) -> None:
    names = [name for name, _ in runbook().sections.values()]
    assert len(names) > 25
    for answer, name in zip(ask(*(f"/runbook/{name}" for name in names)), names, strict=True):
        assert answer.status_code == 200
        assert f"<h1>{name}</h1>" in answer.text
        assert "<strong>Means.</strong>" in answer.text
    (whole,) = ask("/runbook")
    ids = set(re.findall(r' id="([^"]*)"', whole.text))
    assert {name.lower() for name in names} <= ids
    assert set(re.findall(r'href="\./runbook#([^"]*)"', whole.text)) <= ids


def test_a_name_wraps_at_its_slashes_alone() -> None:
    assert _parts_of_name("oss-12/loop<1>") == Markup(
        '<span class="part">oss-12/</span><wbr><span class="part">loop&lt;1&gt;</span>'
    )
    assert 'class="long"' in _parts_of_name("oss/" + "w" * 60)
    group = _parts_of_name("storage/diskstats/INTEL_SSDPE2KX040T8_ssd_4TB")
    assert '<span class="part">INTEL_</span><wbr><span class="part">SSDPE2KX040T8_</span><wbr>' in group
    assert "long" not in group


def test_jobs_are_sorted_by_a_click_on_a_heading(archive: Path) -> None:
    newest, by_user, falling, wrong = ask(
        "/jobs", "/jobs?sort=user", "/jobs?sort=-user", "/jobs?sort=colour", archive=archive, who=ADMIN
    )

    def users(answer: httpx.Response) -> list[str]:
        return re.findall(r'<td data-label="User">([^<]+)', answer.text)

    assert "<caption>Newest first</caption>" in newest.text
    assert 'href="./jobs?sort=user">User</a>' in newest.text
    assert users(by_user) == ["alice", "bob"]
    assert 'aria-sort="ascending"><a href="./jobs?sort=-user">User</a>' in by_user.text
    assert "<caption>By user, of the 2 newest jobs</caption>" in by_user.text
    assert users(falling) == ["bob", "alice"]
    assert 'href="./jobs?sort=-written">Written</a>' in falling.text, "numbers begin with the largest"
    assert wrong.status_code == 400
