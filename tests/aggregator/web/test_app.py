import asyncio

import httpx
import pytest

from laggard_aggregator.status.urls import ENDPOINTS
from laggard_aggregator.web.app import SECURITY_HEADERS, make_app
from tests.support.builders import live_status


def ask(
    path: str,
    view: live_status.MadeView | None = None,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    content: bytes | None = None,
) -> httpx.Response:
    """The answer of the application over `view`, decompressed."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(view or live_status.site()), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
            return await client.request(method, path, headers=headers, content=content)

    return asyncio.run(asked())


def test_metrics_are_plain_text_unless_asked_otherwise() -> None:
    answer = ask("/metrics", headers={"Accept-Encoding": "identity"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'laggard_alarm_active{component="oss-1/wwn-2",' in answer.text
    assert "\nprocess_cpu_seconds_total " in answer.text
    assert "python_info" not in answer.text


def test_prometheus_gets_openmetrics_gzipped() -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = ask("/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.endswith("# EOF\n")  # httpx has unpacked it


@pytest.mark.parametrize(
    "accept", ["text/plain;version=one", "application/openmetrics-text;version=x.y", ";;,="]
)
def test_a_nonsensical_accept_header_gets_plain_text(accept: str) -> None:
    answer = ask("/metrics", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"][:10]) == (200, "text/plain")


def test_metrics_of_every_node() -> None:
    answer = ask("/metrics/nodes")
    assert 'laggard_node_up{node="oss-1",role="storage"} 1.0' in answer.text
    assert "laggard_messages_total" not in answer.text


def test_health_and_readiness() -> None:
    assert ask("/healthz").json() == {"status": "ok"}
    assert ask("/readyz").json() == {"ready": True}
    waiting = ask("/readyz", view=live_status.MadeView(unready="not connected to the broker"))
    assert (waiting.status_code, waiting.json()) == (
        503,
        {"ready": False, "reason": "not connected to the broker"},
    )


def test_stragglers_are_ranked_by_persistence() -> None:
    got = ask("/api/v1/stragglers").json()
    assert got["time"] == live_status.NOW
    assert [(s["component"], s["persistence"], s["alarm"]) for s in got["stragglers"]] == [
        ("oss-1/wwn-2", 6, True),
        ("oss-3/wwn-5", 2, False),
        ('oss-9/"odd\\name', None, True),
    ]
    assert got["stragglers"][0] == {
        "group": "luns",
        "component": "oss-1/wwn-2",
        "name": "oss-1/sdb",
        "level": "component",
        "metric": "await",
        "straggler": True,
        "anomalous": True,
        "judged": True,
        "persistence": 6,
        "score": 30.0,
        "factor": 4.0,
        "severity": 4.0,
        "worst_severity": 6.0,
        "slow_share": None,
        "slow_severity": None,
        "stops": None,
        "observed": 8.0,
        "reference": 2.0,
        "unit": "ms",
        "since": live_status.NOW - 300,
        "window_end": live_status.NOW - 40,
        "alarm": True,
        "raised_at": live_status.NOW - 120,
        "causes": [],
        "located_level": "lun",
        "located_component": "oss-1/wwn-2",
        "located_name": "oss-1/sdb",
        "evidence": "await of oss-1/sdb 4.0×: the disk",
        "beside": [],
        "silenced": None,
        "comments": [],
    }


def test_what_is_not_known_is_null() -> None:
    unjudged = ask("/api/v1/stragglers").json()["stragglers"][1]
    assert (unjudged["judged"], unjudged["severity"], unjudged["score"]) == (False, None, None)
    assert (unjudged["worst_severity"], unjudged["raised_at"]) == (None, None)


def test_groups_say_why_they_got_no_verdict() -> None:
    got = {group["group"]: group for group in ask("/api/v1/groups").json()["groups"]}
    assert got["luns"]["note"] == ""
    assert (got["luns"]["live"], got["luns"]["silent"], got["luns"]["window_end"]) == (
        5,
        1,
        live_status.NOW - 40,
    )
    assert got["storage/net/10 Gb"]["note"] == "too few members"
    view = live_status.MadeView(groups_=(live_status.group("new", 4),))
    new = ask("/api/v1/groups", view=view).json()["groups"][0]
    assert (new["note"], new["window_end"]) == ("no window has closed yet", None)


@pytest.mark.parametrize(
    "path",
    [
        "luns/oss-1/wwn-2",
        "luns/oss-1%2Fwwn-2",
        "luns/oss-1/sdb",  # by its name of the day
    ],
)
def test_a_component_by_either_name_with_its_slash_encoded_or_not(path: str) -> None:
    got = ask(f"/api/v1/components/{path}").json()
    assert (got["component"], got["name"], got["group"]["group"]) == ("oss-1/wwn-2", "oss-1/sdb", "luns")
    assert [(metric["metric"], metric["persistence"]) for metric in got["metrics"]] == [("await", 6)]


def test_a_healthy_component_is_told_too() -> None:
    got = ask("/api/v1/components/luns/oss-2/wwn-4").json()
    assert [(m["straggler"], m["severity"], m["since"]) for m in got["metrics"]] == [(False, 0.9, None)]


def test_a_component_that_only_its_alarm_remembers() -> None:
    got = ask("/api/v1/components/luns/oss-9%2F%22odd%5Cname").json()
    assert [(m["alarm"], m["judged"], m["severity"]) for m in got["metrics"]] == [(True, False, 4.0)]


def test_a_group_with_a_slash_and_a_space() -> None:
    got = ask("/api/v1/components/storage%2Fnet%2F10%20Gb/oss-1/eth0").json()
    assert got["group"]["note"] == "too few members"
    assert got["metrics"][0]["judged"] is False


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        (
            "/api/v1/components/luns/oss-7/none",
            404,
            "no component 'oss-7/none' in a closed window of group 'luns'",
        ),
        ("/api/v1/components/none/oss-1/wwn-1", 404, "no group 'none'"),
        ("/api/v1/components/luns", 400, "expected <group>/<component>"),
        ("/api/v1/components/luns/", 400, "expected <group>/<component>"),
        ("/api/v1/components/luns/%ff%fe", 400, "not UTF-8 after percent-decoding"),
        ("/api/v1/nothing", 404, "Not Found"),
        ("/etc/passwd", 404, "Not Found"),
    ],
)
def test_errors_are_json_with_the_right_code(path: str, status: int, says: str) -> None:
    answer = ask(path)
    assert answer.status_code == status
    assert answer.json() == {"error": says, "status": status}


def test_other_methods_are_refused() -> None:
    answer = ask("/api/v1/stragglers", method="POST")
    assert (answer.status_code, answer.json()["error"]) == (405, "Method Not Allowed")
    assert "GET" in answer.headers["allow"]


def test_a_body_is_refused() -> None:
    answer = ask("/healthz", content=b"x" * 10)
    assert (answer.status_code, answer.json()["error"]) == (413, "requests have no body here")


def test_a_request_with_two_lengths_is_refused_and_its_connection_ends() -> None:
    """A proxy may take the other one, and so see another request in the rest."""
    answer = ask("/", headers={"Content-Length": "0", "Transfer-Encoding": "chunked"})
    assert (answer.status_code, answer.headers["connection"]) == (400, "close")


def test_an_error_of_our_own_tells_nothing_but_that() -> None:
    class Broken(live_status.MadeView):
        def groups(self):  # type: ignore[no-untyped-def]
            raise RuntimeError("secret")

    answer = ask("/api/v1/groups", view=Broken())
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error", "status": 500})
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/stragglers", "/nothing"])
def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = ask(path).headers
    for name, value in SECURITY_HEADERS:
        assert headers[name.decode()] == value.decode()


def test_the_page_links_to_everything_and_its_links_work() -> None:
    page = ask("/", view=live_status.MadeView(site="<site>"))
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<span>&lt;site&gt;</span>" in page.text
    for path, _ in ENDPOINTS:
        assert f'href=".{path}"' in page.text
        assert ask(path).status_code == 200
