"""Packages and modules at the top of each part: their number, and that no imports run in a circle."""

from collections import defaultdict

import pytest

from tests.house.source import PACKAGES, sources

MOST_ROOMS = {"laggard_common": 12, "laggard_agent": 12, "laggard_aggregator": 25}


def rooms(package: str) -> set[str]:
    """The folders and modules at the top of a package."""
    return {source.room for source in sources() if source.package == package}


def imports(package: str) -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    known = rooms(package)
    for source in sources():
        for name in source.imported():
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if source.package == top == package and other in known - {source.room}:
                found[source.room].add(other)
    return found


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    """The rooms that `start` imports, directly or not."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def test_a_cycle_would_be_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert [room for room in sorted(graph) if room in reached(room, graph)] == ["a", "b", "c"]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_is_in_a_cycle(package: str) -> None:
    graph = imports(package)
    assert len(graph) > 3
    assert [room for room in sorted(graph) if room in reached(room, graph)] == []


@pytest.mark.parametrize(("package", "most"), MOST_ROOMS.items())
def test_the_top_of_a_package_is_seen_at_a_glance(package: str, most: int) -> None:
    assert len(rooms(package)) <= most, sorted(rooms(package))
