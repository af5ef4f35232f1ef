"""Shares of a job's bytes by component, and of those that were busy for others."""

from typing import Any

import pytest

from laggard_aggregator.jobs.verdict.evidence.path_shares import carried_shares


def moved(node: str, volume: float, *, shared: bool = False, layer: str = "server") -> dict[str, Any]:
    component = "/srv/b0" if layer == "server" else "data"
    return {"layer": layer, "node": node, "component": component, "bytes": volume, "shared": shared}


def test_shares_are_of_the_layer() -> None:
    rows = [moved("cn-1", 600, layer="client"), moved("gl-1", 150), moved("gl-2", 450)]
    found = carried_shares(rows)
    assert (found["gl-1//srv/b0"], found["gl-2//srv/b0"], found["cn-1/data"]) == (0.25, 0.75, 1.0)


def test_a_target_is_the_same_on_clients_and_servers() -> None:
    rows = [
        moved("cn-1", 300, layer="client") | {"component": "scratch-OST0001-osc-ffff"},
        moved("cn-1", 100, layer="client") | {"component": "scratch-OST0002-osc-ffff"},
        moved("oss-1", 300) | {"component": "scratch-OST0001"},
        moved("oss-1", 300) | {"component": "scratch-OST0002"},
    ]
    assert carried_shares(rows) == {"scratch-OST0001": 0.75, "scratch-OST0002": 0.5}


@pytest.mark.parametrize(
    ("hog", "shared", "is_named"),
    [(1240, True, False), (1240, False, True), (300, True, True), (200, True, True)],
)
def test_a_server_that_is_busy_for_others_is_no_straggler(hog: float, shared: bool, is_named: bool) -> None:
    rows = [moved("gl-1", hog, shared=shared), *(moved(f"gl-{n}", 200, shared=shared) for n in (2, 3, 4))]
    found = carried_shares(rows)
    assert ("gl-1//srv/b0" in found) == is_named
    assert "gl-2//srv/b0" in found


def test_without_peers_nothing_is_known_to_be_busy() -> None:
    rows = [moved("gl-1", 900, shared=True), moved("gl-2", 100, shared=True)]
    assert carried_shares(rows)["gl-1//srv/b0"] == pytest.approx(0.9)
