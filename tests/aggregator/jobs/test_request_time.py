"""How long nodes wait for requests, from rows of `job_components`."""

from typing import Any

import pytest

from laggard_aggregator.jobs.verdict.analysis.advised_gain import UNKNOWN_WAITS, RequestWaits
from laggard_aggregator.jobs.verdict.evidence.requests import waiting

JOB = {"start": 1000.0, "end": 1100.0, "s_active_seconds": 80.0}


def row(node: str = "cn-1", direction: str = "write", **more: Any) -> dict[str, Any]:
    own = {"layer": "client", "component": "data", "operations": 1000.0, "latency_seconds": 20.0}
    return {**own, "node": node, "direction": direction, "coverage": 1.0, "shared": False, **more}


def test_it_is_the_mean_of_the_nodes_over_all_their_mounts() -> None:
    rows = [row(), row(component="other"), row("cn-2"), row("cn-2", "metadata", latency_seconds=7.0)]
    idle = row("cn-3", operations=0.0, latency_seconds=None)
    assert waiting(JOB, [*rows, idle]) == RequestWaits(100.0, 80.0, reads=0.0, writes=30.0, metadata=7.0)


def test_servers_do_not_say_how_long_a_client_waits() -> None:
    assert waiting(JOB, [row(layer="server")]) == RequestWaits(100.0, 80.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "odd",
    [{"latency_seconds": None}, {"shared": True}, {"coverage": 0.89}, {"component": "nfs-1:/export"}],
    ids=["no latency", "shared", "gaps", "an export of NFS"],
)
def test_a_direction_with_requests_that_do_not_tell_is_unknown(odd: dict[str, Any]) -> None:
    found = waiting(JOB, [row(), row("cn-2", **odd), row("cn-1", "read")])
    assert found == RequestWaits(100.0, 80.0, reads=20.0, writes=None, metadata=0.0)


def test_a_job_without_a_length_has_none() -> None:
    assert waiting(JOB | {"start": None}, [row()]) == UNKNOWN_WAITS
    assert waiting(JOB | {"end": 1000.0}, [row()]) == UNKNOWN_WAITS
