"""Decisions over HTTP: requests with real credentials, over a core with a standing alarm."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.overrides import (
    MOST_COMMENT_CHARS,
    MOST_TICKET_CHARS,
    Decision,
    checked_ticket,
)
from laggard_aggregator.control import storage
from laggard_aggregator.control.requests import RequestHandler
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.settings.http import HttpSettings
from laggard_aggregator.status.view import Status
from laggard_aggregator.web import actions
from laggard_aggregator.web.actions import API_PATH, FORM_PATH, MAX_BODY_BYTES, Actions
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.auth import Credentials, authenticated, new_token, read_credentials
from laggard_common.errors import ConfigError
from tests.support.builders.site import SECOND, START, close, new_core, receive, steps
from tests.support.clock import HandClock
from tests.support.thorough import examples
from tests.support.window_clock import window_clock

COMPONENT = "/component/storage%2Fdiskstats/oss-5/wwn-0"
OWN = {"Origin": "http://laggard:9464", "Sec-Fetch-Site": "same-origin"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
TICKET = "https://tickets.example.org/4711?a=1&b=2#c"


def form_token(text: str) -> str:
    """The token in the form of a page."""
    found: list[str] = re.findall(r'name="token" value="([0-9a-f]{64})"', text)
    return found[0]


@dataclass
class Site:
    """The application with an operator and a reader."""

    state: Path
    core: Machine
    clock: HandClock
    actions: Actions
    app: Any
    tokens: Mapping[str, str]

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: str | bytes = b"",
        user: str = "alice",
    ) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=("192.0.2.7", 1))
            bearer = {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}
            async with httpx.AsyncClient(transport=transport, base_url="http://laggard:9464") as client:
                return await client.request(
                    method, path, headers={**bearer, **(headers or {})}, content=content
                )

        return asyncio.run(asked())

    def send(
        self, body: Any, headers: Mapping[str, str] | None = None, user: str = "alice"
    ) -> httpx.Response:
        """The answer to JSON."""
        return self.ask("POST", API_PATH, {**JSON, **(headers or {})}, json.dumps(body), user)

    def token(self, user: str = "alice", act: str = "silence") -> str:
        """The token in a form of the component's page."""
        text = self.ask("GET", f"{COMPONENT}?act={act}", user=user).text
        return form_token(text)

    def fill(
        self, headers: Mapping[str, str] | None = None, user: str = "alice", **fields: str
    ) -> httpx.Response:
        """The answer to a form."""
        return self.ask("POST", FORM_PATH, {**FORM, **OWN, **(headers or {})}, urlencode(fields), user)

    def audit(self) -> list[dict[str, Any]]:
        path = self.state / storage.AUDIT_FILE
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def untouched(self) -> bool:
        return not self.core.overrides.standing and not self.core.overrides.restarts and not self.audit()


def made(state: Path, operators: tuple[str, ...] = ("alice", "bob")) -> Site:
    core = new_core()
    clock = HandClock(START + 130 * SECOND)
    view = Status(core, window_clock(clock))
    for messages, now_ns in steps(26):
        receive(core, messages)
        view.judged(close(core, now_ns))

    def changed(events: list[AlarmEvent]) -> None:
        view.alarms_changed(events)

    requests = RequestHandler(state, core, clock, (asyncio.Lock(),), changed)
    found = Actions(operators)
    found.answer = requests.answer
    named = {name: new_token(name) for name in ("alice", "bob", "grafana")}
    path = state / "credentials"
    path.write_text("\n".join(line for _, line in named.values()) + "\n")
    path.chmod(0o600)
    known = read_credentials(path, operators)
    app = authenticated(make_app(view, actions=found), known)
    return Site(state, core, clock, found, app, {name: token for name, (token, _) in named.items()})


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Site:
    return made(tmp_path)


@pytest.fixture(name="still", scope="module")
def _still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site, `untouched` after each of its tests, that takes the requests of all of them in a minute."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(actions, "MOST_PER_MINUTE", 1000)
        yield made(tmp_path_factory.mktemp("still"))


def test_a_raised_alarm_is_decided_from_its_row(site: Site) -> None:
    def links() -> list[str]:
        found = re.findall(r'href="(\./alarms\?act=[^"]*target=[^"]*)"', site.ask("GET", "/alarms").text)
        return [each for each in found if "act=end" not in each]

    silence, comment = links()
    assert silence == "./alarms?act=silence&amp;target=oss-5#act"
    assert comment == "./alarms?act=comment&amp;target=oss-5#act"
    form = site.ask("GET", silence.removeprefix(".").replace("&amp;", "&").removesuffix("#act")).text
    assert 'value="oss-5"' in form
    assert "2 hours, until 2027-01-15 10:" in form
    site.fill(token=form_token(form), do="silence", back="/alarms", target="oss-5", seconds="7200")
    assert links() == [comment], "a silence in force is ended in the table of decisions"
    text = site.ask("GET", "/alarms").text
    assert '<span class="flag">silenced</span>' in text
    assert "act=silence" not in site.ask("GET", "/alarms", user="grafana").text, "readers decide nothing"


def test_a_form_silences(site: Site) -> None:
    text = site.ask("GET", f"{COMPONENT}?act=silence").text
    assert 'value="oss-5/wwn-0"' in text
    answer = site.fill(
        token=site.token(),
        do="silence",
        back=COMPONENT,
        kind="",
        target="oss-5/wwn-0",
        seconds="7200",
        comment="disk ordered",
        ticket=TICKET,
    )
    assert answer.status_code == 200, answer.text
    assert "<h1>oss-5/wwn-0 is silenced until <time" in answer.text
    assert f'<a href=".{COMPONENT}">Back</a>' in answer.text
    (decision,) = site.core.overrides.standing
    assert (decision.kind, decision.target, decision.by) == ("silence", "oss-5/wwn-0", "alice")
    assert (decision.comment, decision.ticket) == ("disk ordered", TICKET)
    assert decision.until == decision.at + 7200
    assert storage.load(site.state).standing == (decision,)
    assert site.audit() == [
        {
            "at": "2027-01-15T08:02:10Z",
            "by": "alice",
            "from": "page 192.0.2.7",
            "do": "silence",
            "target": "oss-5/wwn-0",
            "seconds": 7200.0,
            "comment": "disk ordered",
            "ticket": TICKET,
        }
    ]
    page = site.ask("GET", COMPONENT, user="grafana").text
    assert 'class="flag"' in page
    assert "disk ordered" in page
    assert 'href="https://tickets.example.org/4711?a=1&amp;b=2#c" rel="noreferrer"' in page


def test_json_decides_likewise_and_is_audited(site: Site) -> None:
    answer = site.send({"do": "comment", "target": "oss-5", "comment": "firmware on Thursday"})
    assert answer.json() == {"count": 2, "components": ["oss-5/sd0", "oss-5/sd1"]}
    site.clock.ns += SECOND
    assert site.send({"do": "comment", "target": "oss-5", "ticket": TICKET}, user="bob").status_code == 200
    got = site.ask("GET", API_PATH).json()["decisions"]
    assert [(each["kind"], each["by"], each["comment"], each["ticket"]) for each in got] == [
        ("comment", "alice", "firmware on Thursday", ""),
        ("comment", "bob", "", TICKET),
    ]
    assert [line["from"] for line in site.audit()] == ["api 192.0.2.7"] * 2
    straggler = site.ask("GET", "/api/v1/stragglers").json()["stragglers"][0]
    assert straggler["silenced"] is None
    assert straggler["comments"][0]["ticket"] == TICKET
    assert site.send({"do": "end", "kind": "comment", "target": "oss-5"}).status_code == 200
    assert site.core.overrides.standing == ()


def test_drain_and_replaced_take_effect_with_the_next_window(site: Site) -> None:
    assert site.send({"do": "drain", "target": "oss-5", "seconds": 60}).status_code == 200
    token = site.token(act="replaced")
    assert site.fill(token=token, do="replaced", target="oss-6/sd1", back="/alarms").status_code == 200
    kept = storage.load(site.state)
    store = site.core.stores["storage/diskstats"]
    drained, restart = kept.at_close("storage/diskstats", store.compared, site.core.names)
    assert drained == ("oss-5/wwn-0", "oss-5/wwn-1")
    assert "oss-6/wwn-1" in restart
    assert [line["do"] for line in site.audit()] == ["drain", "replaced"]


@pytest.mark.parametrize("path", [COMPONENT, "/node/oss-5", "/alarms"])
@pytest.mark.parametrize("act", ["silence", "drain", "replaced", "comment", "end"])
def test_a_link_opens_a_form_and_decides_nothing(still: Site, path: str, act: str) -> None:
    text = still.ask("GET", f"{path}?act={act}&kind=drain&target=oss-5").text
    assert text.count('<form class="act"') == 1
    assert f'name="do" value="{act}"' in text
    labels = set(re.findall(r'<label for="([^"]+)"', text))
    fields = set(re.findall(r'<(?:input|select) id="([^"]+)"', text))
    assert {"act-target", "act-comment"} <= fields - {"q"} <= labels
    assert 'http-equiv="refresh"' not in text, "the form would be lost"
    assert still.ask("GET", f"{path}?act=nothing").text.count('<form class="act"') == 0
    assert still.untouched()


def test_readers_see_no_form_and_decide_nothing(still: Site) -> None:
    text = still.ask("GET", f"{COMPONENT}?act=silence", user="grafana").text
    assert "You may read, but not decide" in text
    assert '<form class="act' not in text
    for answer in (
        still.fill(user="grafana", token=still.token(), do="silence", target="oss-5"),
        still.send({"do": "silence", "target": "oss-5"}, user="grafana"),
    ):
        assert answer.status_code == 403
    assert still.ask("POST", API_PATH, JSON, b"{}", user="").status_code == 401
    assert still.untouched()


def test_a_cached_page_of_an_operator_is_not_shown_to_others(site: Site) -> None:
    own = site.token()
    assert own not in site.ask("GET", f"{COMPONENT}?act=silence", user="grafana").text
    assert own not in site.ask("GET", f"{COMPONENT}?act=silence", user="bob").text
    assert "Decisions" not in site.ask("GET", COMPONENT, user="grafana").text.partition("<footer>")[0]


def test_without_operators_pages_say_how_to_switch_decisions_on(tmp_path: Path) -> None:
    site = made(tmp_path, operators=())
    for path in (COMPONENT, "/node/oss-5", "/alarms"):
        text = site.ask("GET", f"{path}?act=silence").text
        assert text.count("Read-only. To silence or drain from the page, set credentials_file") == 1
        assert '<form class="act' not in text
    site.actions.state = "/srv/a state"
    command = "laggard silence oss-5/wwn-0 --for 2h --state &#39;/srv/a state&#39;"
    (block,) = re.findall(r"<pre data-copy[^>]*><code>(.*?)</code>", site.ask("GET", COMPONENT).text)
    assert block == command, "it has a button that copies it"
    assert site.send({"do": "silence", "target": "oss-5"}).status_code == 403
    assert site.fill(do="silence", target="oss-5").status_code == 403
    assert site.untouched()


def test_without_authentication_nobody_is_an_operator(site: Site) -> None:
    app = make_app(Status(site.core, window_clock(HandClock(START))), actions=site.actions)
    bare = Site(site.state, site.core, site.clock, site.actions, app, site.tokens)
    for user in ("", "alice"):
        assert bare.send({"do": "silence", "target": "oss-5"}, user=user).status_code == 403
    assert site.untouched()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://laggard:9465"},
        {"Origin": "http://laggard:9464.evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": ""},
    ],
)
def test_pages_of_other_origins_decide_nothing(still: Site, headers: dict[str, str]) -> None:
    token = still.token()
    for answer in (
        still.fill(headers, token=token, do="silence", target="oss-5"),
        still.send({"do": "silence", "target": "oss-5"}, {**OWN, **headers}),
    ):
        assert answer.status_code in (403, 415), headers
    assert still.untouched()


def test_its_own_page_decides_with_the_same_token(site: Site) -> None:
    assert site.fill(token=site.token(), do="silence", target="oss-5").status_code == 200


@pytest.mark.parametrize("token", ["", "0" * 64, "é", None])
def test_a_form_needs_the_token_of_its_user(still: Site, token: str | None) -> None:
    wrong = still.token("bob") if token is None else token
    answer = still.fill(token=wrong, do="silence", target="oss-5")
    assert answer.status_code == 403
    assert "load it again" in answer.text
    assert '<form class="act' not in answer.text
    assert still.untouched()


def test_json_and_forms_do_not_stand_in_for_each_other(still: Site) -> None:
    token = still.token()
    body = json.dumps({"do": "silence", "target": "oss-5", "token": token})
    assert still.ask("POST", FORM_PATH, {**JSON, **OWN}, body).status_code == 415
    form = urlencode({"do": "silence", "target": "oss-5", "token": token})
    assert still.ask("POST", API_PATH, {**FORM, **OWN}, form).status_code == 415
    assert still.untouched()


def test_behind_a_proxy_its_address_is_the_own_origin(tmp_path: Path) -> None:
    site = made(tmp_path)
    site.actions.__init__(("alice",), "https://laggard.example.org/")  # type: ignore[misc]
    site.actions.answer = RequestHandler(tmp_path, site.core, HandClock(START), (), lambda _: None).answer
    headers = {"Origin": "https://laggard.example.org", "Host": "127.0.0.1:9465"}
    assert site.send({"do": "silence", "target": "oss-5"}, headers).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_post_decides(still: Site, method: str) -> None:
    query = urlencode({"do": "silence", "target": "oss-5", "token": still.token()})
    for path in (FORM_PATH, API_PATH):
        answer = still.ask(method, f"{path}?{query}", OWN)
        assert answer.status_code == (200 if path == API_PATH and method in ("GET", "HEAD") else 405)
    assert still.untouched()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"do": "forget", "target": "oss-5"}, "do: expected one of silence, drain, comment, replaced, end"),
        ({"do": "silence", "target": "oss-99"}, "oss-99: no node or component has this name"),
        ({"do": "silence", "target": "oss-5", "seconds": -1}, "seconds: expected"),
        ({"do": "silence", "target": "oss-5", "seconds": "soon"}, "seconds: expected"),
        ({"do": "silence", "target": "a\nb"}, "expected a node"),
        ({"do": "silence", "target": "oss-5", "comment": "a\x1b[1mb"}, "comment: expected at most 500"),
        (
            {"do": "silence", "target": "oss-5", "comment": "x" * (MOST_COMMENT_CHARS + 1)},
            "comment: expected",
        ),
        ({"do": "silence", "target": "oss-5", "ticket": "javascript:alert(1)"}, "ticket: expected http"),
        ({"do": "comment", "target": "oss-5"}, "comment: expected a text or a ticket"),
        ({"do": "end", "target": "oss-5", "kind": "drain"}, "oss-5: no drain of exactly this target"),
        ({"do": "end", "target": "oss-5", "kind": ["drain"]}, "kind: one of"),
        ({"do": "silence", "target": "\ud800"}, "expected a node"),
        ({"do": "silence", "targets": "oss-5"}, "expected an object with some of"),
        (["silence"], "expected an object"),
    ],
)
def test_what_is_refused_is_said_and_changes_nothing(still: Site, body: Any, said: str) -> None:
    answer = still.send(body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert still.untouched()


def test_a_refused_form_is_shown_again_with_what_was_typed(site: Site) -> None:
    answer = site.fill(token=site.token(), do="silence", target="oss-99", comment='"><b>x', back="//evil/")
    assert answer.status_code == 400
    assert "Oss-99: no node or component has this name" in answer.text
    assert 'value="&#34;&gt;&lt;b&gt;x"' in answer.text
    assert "evil" not in answer.text
    assert site.fill(token=form_token(answer.text), do="silence", target="oss-5").status_code == 200


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"]
)
def test_the_way_back_is_a_page_of_this_site(site: Site, back: str) -> None:
    answer = site.fill(token=site.token(), do="silence", target="oss-5", back=back)
    assert '<a href="./alarms">Back</a>' in answer.text


def test_bodies_are_bounded(still: Site) -> None:
    long = b"token=" + b"x" * MAX_BODY_BYTES
    assert still.ask("POST", FORM_PATH, {**FORM, **OWN}, long).status_code == 413
    assert still.ask("POST", API_PATH, JSON, b" " * (MAX_BODY_BYTES + 1)).status_code == 413
    assert still.ask("POST", API_PATH, JSON, b"[" * MAX_BODY_BYTES).status_code == 400
    assert still.ask("POST", "/api/v1/nodes", JSON, b"{}").status_code == 413
    assert still.ask("POST", "/metrics", JSON, b"{}").status_code == 413
    assert still.untouched()


def test_decisions_are_limited_for_each_operator(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_PER_MINUTE", 3)
    codes = [site.send({"do": "comment", "target": "oss-5", "comment": "x"}).status_code for _ in range(4)]
    assert codes == [200, 200, 200, 429]
    last = site.send({"do": "silence", "target": "oss-5"})
    assert last.headers["retry-after"] == "60"
    assert site.send({"do": "silence", "target": "oss-5"}, user="bob").status_code == 200


def test_before_the_state_is_loaded_nothing_is_decided(site: Site) -> None:
    asyncio.run(site.actions.close())
    assert site.send({"do": "silence", "target": "oss-5"}).status_code == 503
    assert site.untouched()


def test_a_decision_that_cannot_be_kept_is_said(site: Site) -> None:
    (site.state / storage.FILE).mkdir()
    answer = site.send({"do": "silence", "target": "oss-5"})
    assert answer.status_code == 500
    assert "done, but not saved, so a restart will forget it" in answer.json()["error"]
    form = site.fill(token=site.token(), do="drain", target="oss-5")
    assert "Drain of oss-5: done, but not kept" in form.text


def test_a_decision_is_executed_when_its_client_is_gone(site: Site) -> None:
    answer = site.actions.answer
    assert answer is not None

    async def story() -> None:
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(request: Mapping[str, Any], by: str, origin: str) -> dict[str, Any]:
            begun.set()
            await goes_on.wait()
            assert answer is not None
            return await answer(request, by, origin)

        site.actions.answer = slow
        transport = httpx.ASGITransport(site.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://laggard:9464") as client:
            headers = {**JSON, "Authorization": f"Bearer {site.tokens['alice']}"}
            body = json.dumps({"do": "silence", "target": "oss-5"})
            asking = asyncio.create_task(client.post(API_PATH, headers=headers, content=body))
            await begun.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        ending = asyncio.create_task(site.actions.close())
        goes_on.set()
        await ending

    asyncio.run(story())
    assert [each.target for each in storage.load(site.state).standing] == ["oss-5"]


def test_hostile_comments_are_text_wherever_they_are_shown(site: Site) -> None:
    hostile = "<script>alert(1)</script>\"'{{7*7}}"
    assert site.send({"do": "silence", "target": "oss-5/*", "comment": hostile}).status_code == 200
    for path in ("/", COMPONENT, "/alarms", "/node/oss-5", f"{COMPONENT}?act=silence&target={hostile}"):
        text = site.ask("GET", path).text
        assert "<script>alert" not in text, path
        assert "49" not in re.findall(r"&lt;script&gt;[^<]*", text or "")[:1], path


def test_comments_stand_in_the_straggler_list(site: Site) -> None:
    for number in range(3):
        site.core.overrides.add(
            Decision("comment", "oss-5", "bob", float(number), comment=f"comment {number}")
        )
    assert site.send({"do": "comment", "target": "oss-5", "comment": "latest"}).status_code == 200
    text = site.ask("GET", "/").text
    assert "latest" in text
    assert "and 3 more" in text
    assert "comment 0" not in text
    assert all(f"comment {number}" in site.ask("GET", COMPONENT).text for number in range(3))


def test_operators_are_names_of_the_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(new_token("alice")[1] + "\n")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"http\.operators: carol: not in .*credentials"):
        read_credentials(path, ("alice", "carol"))
    assert list(HttpSettings(operators=("alice",)).problems()) == [
        ("operators", "needs a credentials_file, which has their names")
    ]
    assert not HttpSettings().exposed
    assert HttpSettings("0.0.0.0:9464").exposed
    assert not HttpSettings("0.0.0.0:9464", cert_file=path).exposed


@pytest.mark.parametrize(
    "ticket", ["", TICKET, "http://rt:8080/Ticket/1", "https://a.example", "https://x/?q=%20"]
)
def test_tickets(ticket: str) -> None:
    assert checked_ticket(ticket) == ticket


@pytest.mark.parametrize(
    "ticket",
    [
        "4711",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://x/",
        "//x/",
        "https://",
        "https:///x",
        "https://a@b/",
        "https://x/ y",
        "https://x/\n",
        'https://x/"onclick=',
        "https://x/<b>",
        "https://x/\\",
        "https://bücher.example/",
        "HTTPS://x/",
        "https://x/" + "a" * MOST_TICKET_CHARS,
        7,
        None,
    ],
)
def test_what_is_no_ticket(ticket: object) -> None:
    with pytest.raises(ValueError, match="ticket: expected"):
        checked_ticket(ticket)


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.just("oss-5")
FIELD = st.sampled_from(("do", "target", "kind", "seconds", "comment", "ticket", "token", "back"))
DO = st.sampled_from((*actions.DOES, "forget"))
OBJECT = st.builds(
    lambda rest, do, target: {**rest, "do": do, "target": target},
    st.dictionaries(FIELD | st.text(max_size=5), VALUE, max_size=5),
    DO | VALUE,
    st.just("oss-5") | VALUE,
)
BOUNDED = with_settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check(site: Site, answer: httpx.Response) -> None:
    """An answer is one of those documented, and what was accepted can be restored and shown."""
    assert answer.status_code in (200, 400, 403, 413, 415), answer.text
    assert storage.load(site.state).state() == site.core.overrides.state() or site.untouched()
    for each in site.core.overrides.standing:
        assert each.kind in ("silence", "drain", "comment")
        assert (each.target + each.comment + "x").isprintable()
        assert checked_ticket(each.ticket) == each.ticket
        assert each.by == "alice"


@BOUNDED
@given(OBJECT.map(json.dumps) | st.binary(max_size=200) | st.text(max_size=200))
def test_any_json_is_answered(site: Site, body: str | bytes) -> None:
    site.actions._recent.clear()
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    check(site, site.ask("POST", API_PATH, JSON, content))


@BOUNDED
@given(
    st.lists(st.tuples(FIELD | st.text(max_size=5), st.text(max_size=40)), max_size=6),
    DO | st.text(max_size=8),
    st.binary(max_size=20),
)
def test_any_form_is_answered(site: Site, pairs: list[tuple[str, str]], do: str, tail: bytes) -> None:
    site.actions._recent.clear()
    rest = {name: value.encode("utf-8", "replace") for name, value in pairs}
    token = site.actions.token("alice")
    body = urlencode(
        {**rest, "do": do.encode("utf-8", "replace"), "target": "oss-5", "token": token}
    ).encode()
    check(site, site.ask("POST", FORM_PATH, {**FORM, **OWN}, body))
    check(site, site.ask("POST", FORM_PATH, {**FORM, **OWN}, body + b"&" + tail))


@given(st.text(max_size=30), st.sampled_from(("", "é", "0" * 64)))
def test_any_token_is_compared(user: str, given_: str) -> None:
    found = Actions((user,))
    assert found.token(user) == found.token(user) != given_
    assert Actions((user,)).token(user) != found.token(user)
    assert Credentials({}, {}).names == frozenset()
