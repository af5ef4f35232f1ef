"""docs/api.md names every field that the API answers, and no other."""

import re
from dataclasses import replace
from pathlib import Path

from laggard_aggregator.ingest.node_view import CollectorView
from laggard_aggregator.web import api
from laggard_aggregator.web.pages.page_state import StateReader
from tests.support.builders import live_status

DOCUMENT = (Path(__file__).parents[3] / "docs" / "api.md").read_text()


def documented(section: str) -> set[str]:
    text = DOCUMENT.partition(f"## `{section}`")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_stragglers() -> None:
    assert documented("/api/v1/stragglers") == set(
        api.stragglers(StateReader(live_status.site()).now())["stragglers"][0]
    )


def test_groups() -> None:
    assert documented("/api/v1/groups") == set(api.groups(StateReader(live_status.site()).now())["groups"][0])


def test_component() -> None:
    got = api.component(StateReader(live_status.site()).now(), "luns", "oss-1/wwn-2")
    named = DOCUMENT.partition("## `/api/v1/components/")[2]
    for field in got:
        assert f'"{field}":' in named
    assert set(got["metrics"][0]) == documented("/api/v1/stragglers")
    assert set(got["group"]) == documented("/api/v1/groups")


def test_a_node_whose_outbox_keeps_files_is_told() -> None:
    view = live_status.site()
    kept = CollectorView(False, 0.0, "1.jobs: is no regular file: Is a directory")
    view.nodes_ = tuple(
        replace(node, healthy=False, collectors={**node.collectors, "outbox": kept}) if at < 2 else node
        for at, node in enumerate(view.nodes_)
    )
    said = api.nodes(StateReader(view).now())["failing"]["outbox"]
    assert said == (
        f"outbox of {view.nodes_[0].node} (and of 1 more nodes) keeps files: "
        "1.jobs: is no regular file: Is a directory"
    )
