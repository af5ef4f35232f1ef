"""docs/api.md names every field that the API answers, and no other."""

import re
from pathlib import Path

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
