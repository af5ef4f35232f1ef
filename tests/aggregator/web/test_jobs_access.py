"""Every route about jobs, asked by every principal: nobody learns of a job that is not theirs to see."""

import asyncio
import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.access.principals import NOBODY, READ_PROJECT, Principal, Role
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.settings.identity import IdentityTable
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.auth import authenticated
from laggard_aggregator.web.identity import Identity
from laggard_aggregator.web.jobs_api import FILTERS
from laggard_aggregator.web.server import HttpServer
from tests.aggregator.web.test_identity import AUDIENCE, EC, ISSUER, jwks, public, token
from tests.support.builders import live_status
from tests.support.builders.job_tables import component_row, job_row, node_rows, summary_row, write_rows
from tests.support.counted_index import CountedIndex

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e=cmd()\n"
SQL = "' or 1=1 --"
PRINCIPALS = {
    "user": Principal("alice", Role.USER),
    "manager": Principal("mona", Role.MANAGER, frozenset({"physics"})),
    "support": Principal("sue", Role.SUPPORT),
    "admin": Principal("root", Role.ADMIN),
    "api": Principal("grafana", Role.API, scopes=frozenset({READ_PROJECT + "physics"})),
    "nobody": NOBODY,
}
JOBS = {
    "own": job_row(1, user="alice", account="physics", name="secret_own"),
    "project": job_row(2, user="paul", account="physics", name="secret_project"),
    "other": job_row(3, user="otto", account="chem", name="secret_other" + HOSTILE),
}
SEEN = {
    "user": {"own"},
    "manager": {"own", "project"},
    "support": set(JOBS),
    "admin": set(JOBS),
    "api": {"own", "project"},
    "nobody": set[str](),
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs at one time on one node and one OST."""
    folder = tmp_path_factory.mktemp("archive")
    rows = list(JOBS.values())
    write_rows(folder, "job_nodes", [row for job in rows for row in node_rows(job, ["cn-1"])])
    write_rows(folder, "job_components", [component_row(job, "OST0") for job in rows])
    write_rows(folder, "jobs", rows)
    summaries = [
        summary_row(job, read_bytes=2e9, written_bytes=1e9, mdops=4900.0, amplification=2.0) for job in rows
    ]
    write_rows(folder, "job_summaries", summaries)
    JobIndex(folder).refresh()
    return folder


def acting(app: ASGIApp, principal: Principal) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "principal": principal}, receive, send)

    return call


def ask(archive: Path | None, principal: Principal, paths: Sequence[str]) -> list[httpx.Response]:
    async def run() -> list[httpx.Response]:
        app = acting(make_app(live_status.site(), archive), principal)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://l") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


def routes(archive: Path) -> Iterator[str]:
    """Paths of all routes of the application, but the stream that never ends."""
    found: list[Any] = []

    class Noting(Starlette):
        """Keeps the routes."""

        def __init__(self, **arguments: Any) -> None:
            found.extend(arguments["routes"])
            super().__init__(**arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laggard_aggregator.web.app.Starlette", Noting)
        make_app(live_status.site(), archive)
    return (each.path for each in found if "GET" in each.methods and each.path != "/events")


@pytest.mark.parametrize("who", PRINCIPALS)
def test_a_crawl_of_all_routes_finds_no_job_of_others(archive: Path, who: str) -> None:
    paths = []
    for route in routes(archive):
        if "{" not in route:
            ends = [f"?{name}={value}" for name in ("user", "node") for value in ("otto", "cn-1")]
            paths += [route, route + "?format=csv", route + "?format=json", route + "?count=1"]
            paths += [route + end for end in ends] + [route + "?q=secret", route + "?project=chem"]
        else:
            base = route.partition("{")[0]
            paths += [base + quote(row["job_key"], safe="") for row in JOBS.values()]
            paths += [base + row["job_key"] for row in JOBS.values()]
            paths += [base + each for each in ("1", "2", "3", "4", "..", "%00", "c%2F9%2F9")]
    answers = ask(archive, PRINCIPALS[who], paths)
    known = {path.partition("?")[0] for path in paths}
    assert {"/jobs", "/api/v1/jobs", "/amplification", "/metadata", "/forwarders"} <= known
    for path, answer in zip(paths, answers, strict=True):
        for job in JOBS.keys() - SEEN[who]:
            assert f"secret_{job}" not in answer.text, (who, path)


@pytest.mark.parametrize("who", PRINCIPALS)
def test_a_job_of_others_is_as_one_that_never_was(archive: Path, who: str) -> None:
    keys = {job: row["job_key"] for job, row in JOBS.items()} | {"absent": "c/9/9"}
    for shown in (lambda key: quote(key, safe=""), lambda key: key, lambda key: key.split("/")[1]):
        found = ask(archive, PRINCIPALS[who], [f"/api/v1/jobs/{shown(key)}" for key in keys.values()])
        answers = dict(zip(keys, found, strict=True))
        assert {job for job, each in answers.items() if each.status_code == 200} == SEEN[who]
        absent = answers["absent"]
        assert absent.status_code == 404
        pages = ask(archive, PRINCIPALS[who], [f"/jobs/{shown(key)}" for key in keys.values()])
        assert [each.status_code for each in pages] == [each.status_code for each in found]
        assert {each.content for each in pages if each.status_code == 404} == {absent.content}
        for job in JOBS.keys() - SEEN[who]:
            assert answers[job].content == absent.content
            assert answers[job].headers == absent.headers


@pytest.mark.parametrize("who", PRINCIPALS)
@pytest.mark.parametrize("base", ["/api/v1/jobs/", "/jobs/"])
def test_a_job_of_others_takes_the_work_of_one_that_never_was(
    archive: Path, who: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in steps of SQLite's machine and statements, as times on a busy machine tell nothing."""
    index = CountedIndex(archive)
    monkeypatch.setattr("laggard_aggregator.web.jobs_api.JobIndex", lambda _: index)
    theirs = [row for job, row in JOBS.items() if job not in SEEN[who]]
    for given, absent in (
        ([quote(row["job_key"], safe="") for row in theirs], ["c%2F9%2F9", "d%2F3%2F1"]),
        ([row["job"] for row in theirs], ["9", "0", "30"]),
    ):
        work = set()
        for text in [*given, *absent]:
            (answer,), steps, statements = index.work(ask, archive, PRINCIPALS[who], [base + text])
            assert answer.status_code == 404
            work.add((steps, statements))
        assert len(work) == 1, text


@pytest.mark.parametrize("who", PRINCIPALS)
def test_lists_counts_and_exports_agree(archive: Path, who: str) -> None:
    paths = ["/api/v1/jobs?count=1", "/api/v1/jobs?format=csv", "/api/v1/jobs?node=cn-1&count=1"]
    paths += ["/api/v1/jobs?ost=OST0&finding=amplification&count=1"]
    listed, exported, *more = ask(archive, PRINCIPALS[who], paths)
    expected = {JOBS[job]["job"] for job in SEEN[who]}
    assert {job["job"] for job in listed.json()["jobs"]} == expected
    assert listed.json()["count"] == len(expected)
    assert {row["job"] for row in csv.DictReader(io.StringIO(exported.text, newline=""))} == expected
    assert [each.json()["count"] for each in more] == [len(expected)] * 2


def test_neighbours_of_others_have_no_identity(archive: Path) -> None:
    (answer,) = ask(archive, PRINCIPALS["user"], ["/api/v1/jobs/1"])
    (job,) = answer.json()["jobs"]
    assert [each["job"] for each in job["neighbours"]] == [None, None]
    assert {each["load"] for each in job["neighbours"]} == {"a job with 4,900 metadata operations a second"}
    assert job["nodes"] == ["cn-1"]
    assert "otto" not in answer.text


def test_pages_by_cursor_hold_each_job_once(archive: Path) -> None:
    found, cursor = [], ""
    for _ in range(4):
        (answer,) = ask(archive, PRINCIPALS["admin"], [f"/api/v1/jobs?limit=1&cursor={quote(cursor)}"])
        found += [job["job"] for job in answer.json()["jobs"]]
        cursor = answer.json()["next"] or ""
        if not cursor:
            break
    assert found == ["3", "2", "1"]
    (stolen,) = ask(archive, PRINCIPALS["admin"], ["/api/v1/jobs?limit=1"])
    (answer,) = ask(archive, PRINCIPALS["user"], [f"/api/v1/jobs?cursor={quote(stolen.json()['next'])}"])
    assert answer.status_code == 400


@pytest.mark.parametrize("name", FILTERS)
def test_sql_in_a_filter_finds_nothing(archive: Path, name: str) -> None:
    text = quote(SQL)
    paths = [f"/api/v1/jobs?{name}={text}", f"/api/v1/jobs?{name}={text}&count=1&format=json"]
    for answer in ask(archive, PRINCIPALS["user"], [*paths, f"/api/v1/jobs/{text}"]):
        assert answer.status_code in (400, 404) or answer.json()["jobs"] == []


MISTAKES = ("limit=0", "limit=1001", "limit=x", "format=xml", "user=a&user=b", "magic=1", "from=yesterday")
MORE = ("below_history=nan", "cursor=%00", "min_nodes=-1", "user=" + "x" * 600)


@pytest.mark.parametrize("query", [*MISTAKES, *MORE])
def test_mistakes_are_told(archive: Path, query: str) -> None:
    (answer,) = ask(archive, PRINCIPALS["admin"], [f"/api/v1/jobs?{query}"])
    assert answer.status_code == 400
    assert json.loads(answer.text)["error"].isprintable()


def test_without_an_archive_or_an_index(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        answers = ask(
            folder, PRINCIPALS["admin"], ["/api/v1/jobs", "/api/v1/jobs/1", "/api/v1/jobs?format=csv"]
        )
        assert [each.status_code for each in answers] == [503, 503, 503]


def test_the_commands_ask_a_server_with_a_token(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = jwks(tmp_path, public(EC, kid="e"))
    settings = IdentityTable(path, ISSUER, AUDIENCE)
    app = authenticated(make_app(live_status.site(), archive), None, Identity(settings))

    def given(content: bytes) -> list[str]:
        file = tmp_path / "token"
        file.write_bytes(content)
        return ["--token-file", str(file)]

    def run(url: str) -> None:
        alice = ["--url", url, *given(token(EC, "ES256", "e"))]
        assert main(["jobs", *alice, "--json"]) == 0
        assert [json.loads(line)["job"] for line in capsys.readouterr().out.splitlines()] == ["1"]
        assert main(["job", "1", *alice]) == 0
        assert "beside a job with 4,900" in capsys.readouterr().out
        assert main(["job", "3", *alice]) != 0
        assert "404" in capsys.readouterr().err
        for refused in (token(EC, "ES256", "e", exp=1.0), b"a.b.c"):
            assert main(["jobs", "--url", url, *given(refused)]) != 0
            assert "401" in capsys.readouterr().err

    asyncio.run(serving(app, run))


async def serving(app: ASGIApp, use: Callable[[str], None]) -> None:
    """Serves `app` while `use` runs in a thread."""
    server, stop = HttpServer(app, "127.0.0.1:0"), asyncio.Event()
    server.bind()
    task = asyncio.create_task(server.run(stop))
    try:
        await asyncio.to_thread(use, server.url)
    finally:
        stop.set()
        await task
        server.close()


def test_a_request_without_a_user_sees_nothing(archive: Path) -> None:
    async def run() -> httpx.Response:
        app = authenticated(make_app(live_status.site(), archive), None)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://l") as client:
            return await client.get("/api/v1/jobs?count=1", headers={"x-remote-user": "root"})

    assert asyncio.run(run()).json() == {"jobs": [], "next": None, "count": 0}


def test_pages_escape_hostile_names_and_link_their_jobs(archive: Path) -> None:
    listed, one = ask(archive, PRINCIPALS["admin"], ["/jobs", "/jobs/3"])
    assert (listed.status_code, one.status_code) == (200, 200)
    for page in (listed, one):
        assert "<script>alert" not in page.text
        assert not {"\x1b", "\u202e"} & set(page.text)
        assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "secret_other&lt;script&gt;" in one.text
    links = re.findall(r'href="\./(jobs/c%2F[^"]+)"', listed.text)
    assert len(links) == 3
    assert all(each.status_code == 200 for each in ask(archive, PRINCIPALS["admin"], links))
    (empty,) = ask(archive, PRINCIPALS["nobody"], ["/jobs"])
    assert "does not know who you are" in empty.text
    (own,) = ask(archive, PRINCIPALS["user"], ["/jobs?user=otto"])
    assert "You see your own jobs and those of your accounts." in own.text
    (every,) = ask(archive, PRINCIPALS["admin"], ["/jobs?user=nobody"])
    assert ">No job matches.<" in every.text


def test_a_page_says_which_components_were_shared(tmp_path: Path) -> None:
    """Nodes of its own, on a volume that another job used: gl-1 has the bytes of both."""
    job = job_row(1, user="alice")
    write_rows(tmp_path, "jobs", [job])
    write_rows(tmp_path, "job_nodes", node_rows(job, ["cn-1"]))
    own = component_row(job, "data", "client") | {"node": "cn-1", "bytes": 1e8}
    both = component_row(job, "/srv/b0") | {"node": "gl-1", "bytes": 6e8, "shared": True}
    write_rows(tmp_path, "job_components", [own, both])
    write_rows(tmp_path, "job_summaries", [summary_row(job, read_bytes=1e8, coverage=1.0, shared=True)])
    JobIndex(tmp_path).refresh()
    (page,) = ask(tmp_path, PRINCIPALS["admin"], ["/jobs/1"])
    assert "It shared nodes or servers with other jobs." in page.text
    assert "Its nodes were shared" not in page.text
    rows = re.findall(r"<tr>.*?</tr>", page.text, re.DOTALL)
    shared = [row for row in rows if "badge" in row and ">shared<" in row]
    assert [("/srv/b0" in row, "gl-1" in row) for row in shared] == [(True, True)]
