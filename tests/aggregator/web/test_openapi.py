"""The OpenAPI document has every route of the API, and answers are as it says."""

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from laggard_aggregator.web import openapi
from laggard_aggregator.web.jobs_api import JobsService
from tests.aggregator.web.test_pages import ask
from tests.support.builders import live_status
from tests.support.openapi import problems

API = Path(openapi.__file__).with_name("app.py")


def test_every_route_is_described() -> None:
    jobs = [route for route in JobsService(None, lambda: 0.0).routes() if isinstance(route, Route)]
    served = {re.sub(r"\{.*", "", route.path) for route in jobs}
    served |= set(re.findall(r'"(/api/v1/[a-z]+)"', API.read_text()))
    served |= {"/api/v1/components/", "/api/v1/decisions"}
    assert {re.sub(r"\{.*", "", each.path) for each in openapi.OPERATIONS} == served


def test_the_document_is_served_and_whole() -> None:
    (answer,) = ask([openapi.PATH], live_status.site())
    document = answer.json()
    assert document == openapi.document()
    assert document["openapi"].startswith("3.1")
    named = set(re.findall(r"#/components/schemas/(\w+)", answer.text))
    assert named == document["components"]["schemas"].keys()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/api/v1/stragglers", ""),
        ("/api/v1/groups", ""),
        ("/api/v1/nodes", ""),
        ("/api/v1/alarms", ""),
        ("/api/v1/decisions", ""),
        ("/api/v1/components/{group}/{component}", "/api/v1/components/luns/oss-1/wwn-2"),
    ],
)
def test_answers_are_as_described(path: str, asked: str) -> None:
    (answer,) = ask([asked or path], live_status.site())
    assert answer.status_code == 200
    assert problems(answer.json(), path, openapi.document()) == []


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/api/v1/alarms", "/api/v1/alarms?limit=0"),
        ("/api/v1/components/{group}/{component}", "/api/v1/components/luns/none"),
        ("/api/v1/jobs", "/api/v1/jobs"),
    ],
)
def test_errors_are_as_described(path: str, asked: str) -> None:
    (answer,) = ask([asked], live_status.site())
    assert answer.status_code >= 400
    assert problems(answer.json(), path, openapi.document(), str(answer.status_code)) == []


def test_an_answer_that_differs_is_found() -> None:
    document = openapi.document()
    assert problems({"time": "now", "groups": [], "more": 1}, "/api/v1/groups", document) == [
        "answer.time: expected number, got 'now'",
        "answer.more: not in the document",
    ]
    assert problems({"time": 1.0}, "/api/v1/groups", document) == ["answer.groups: missing"]
