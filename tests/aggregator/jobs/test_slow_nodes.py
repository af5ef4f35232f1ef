"""Nodes of a job that took longer than its others, by latencies or by the time in which they were active."""

from typing import Any

from laggard_aggregator.jobs.join.client_traces import COMPONENT
from laggard_aggregator.jobs.verdict.evidence.slow_nodes import slow_nodes

NODES = ("n1", "n2", "n3", "n4")
SERVED_BY = dict.fromkeys(NODES, "fwd-1")


def written(busy: dict[str, float], component: str = COMPONENT, requests: int = 1000) -> list[dict[str, Any]]:
    """Rows of a run whose nodes wrote as much each."""
    is_traced = component == COMPONENT
    return [
        {
            "layer": "client",
            "node": node,
            "component": component,
            "direction": "write",
            "bytes": 1e9,
            "operations": requests,
            "latency_seconds": None if is_traced else seconds,
            "busy_seconds": seconds if is_traced else None,
        }
        for node, seconds in busy.items()
    ]


def slow(now: list[dict[str, Any]], *earlier: list[dict[str, Any]]) -> list[str]:
    return [part.component for part in slow_nodes(now, earlier, SERVED_BY, ["write"])]


ALIKE = dict.fromkeys(NODES, 60.0)


def test_a_traced_node_that_writes_for_longer_than_the_others_is_slow() -> None:
    now, usual = written({**ALIKE, "n2": 180.0}), written(ALIKE)
    assert slow(now, usual, usual) == ["n2"]
    (part,) = slow_nodes(now, [usual], SERVED_BY, ["write"])
    assert part.factor == 3.0
    assert "took 3.0 times as long as on the 3 other nodes of the job" in part.text
    assert slow(usual, usual) == []


def test_a_traced_node_that_always_writes_for_longer_is_not_slow() -> None:
    longer = written({**ALIKE, "n2": 180.0})
    assert slow(longer, longer, longer) == []


def test_busy_times_are_not_compared_with_latencies() -> None:
    counted = written({"n2": 900.0, "n3": 900.0, "n4": 900.0}, "fs")
    assert slow([*written({"n1": 60.0}), *counted], written(ALIKE)) == []
