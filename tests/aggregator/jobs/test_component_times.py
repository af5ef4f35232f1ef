"""Times of a job's requests on its components: the slow one is named, without history and in short jobs."""

from typing import Any

import pytest

from laggard_aggregator.jobs.verdict.evidence.component_times import component_times, slow_sentence

SIZE = 65_536.0


def row(component: str, ms: float | None, direction: str = "write", **changes: Any) -> dict[str, Any]:
    """A component with 1,000 requests of a mean time."""
    count = changes.pop("operations", 1000.0)
    latency = None if ms is None else ms / 1000 * count
    own: dict[str, Any] = {"layer": "server", "node": "oss-1", "component": component, "direction": direction}
    own |= {"bytes": SIZE * count, "operations": count, "latency_seconds": latency, "shared": False}
    return own | changes


def peers(count: int = 5, ms: float = 0.2) -> list[dict[str, Any]]:
    return [row(f"loop{at}", ms * (1 + 0.02 * at)) for at in range(count)]


def test_the_slow_component_comes_first_and_is_named_with_its_figures() -> None:
    found = component_times([*peers(), row("loop27", 4.8), row("loop27", 0.1, "read")])
    first = found[0]
    assert (first.component, first.slow, len(found)) == ("loop27", True, 6), "one for both directions"
    assert first.requests["write"].factor == pytest.approx(4.8 / 0.208)
    assert first.lost_seconds == pytest.approx(1000 * (4.8 - 0.208) / 1000)
    assert not any(each.slow for each in found[1:])
    assert slow_sentence(found) == "oss-1/loop27 took 4.8 ms a write, 23 times the median of the 5 others"


def test_a_component_that_is_slow_on_several_nodes_is_said_once() -> None:
    mounts = [
        row(f"filer-{at}", 8.0, node=f"cn-{node}", layer="client") for at in range(6) for node in range(4)
    ]
    slow = [row("filer-9", 56.0 + node, node=f"cn-{node}", layer="client") for node in range(4)]
    said = slow_sentence(component_times([*mounts, *slow]))
    assert said == "filer-9 took up to 59 ms a write on 4 nodes, 7.0 to 7.4 times the median of the others"


def test_the_rest_are_sorted_by_lost_time_and_then_by_volume() -> None:
    rows = [*peers(4), row("quiet", None, bytes=1.0), row("most", None, bytes=1e12)]
    found = [each.component for each in component_times(rows)]
    assert found == ["loop3", "loop2", "most", "loop0", "loop1", "quiet"]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([*peers(2), row("x", 4.8)], "two others are no peers"),
        ([*peers(), row("x", 4.8, operations=50.0)], "too few requests"),
        ([*peers(), row("x", 0.35)], "less than twice the others"),
        ([row(f"l{at}", 0.1 * 2**at) for at in range(6)], "the others differ as much"),
        ([*peers(), row("x", 4.8, bytes=SIZE * 4000)], "its requests are larger"),
        (
            [*peers(), row("x", 4.8, shared=True, bytes=SIZE * 2100, operations=2100.0)],
            "busy with other jobs",
        ),
        ([*peers(), row("x", 4.8, layer="client")], "of another layer"),
        ([*peers(), row("x", None)], "its times are unknown"),
        ([*(row(f"l{at}", None) for at in range(5)), row("x", 4.8)], "those of the others are unknown"),
    ],
)
def test_nothing_is_called_slow_without_grounds(rows: list[dict[str, Any]], why: str) -> None:
    found = component_times(rows)
    assert not any(each.slow for each in found), why
    assert slow_sentence(found) == ""


def test_components_without_io_are_left_out_and_of_many_slow_ones_two_are_named() -> None:
    rows = [*peers(9), *(row(f"slow{at}", 5.0 + at) for at in range(3)), row("none", None, operations=0.0)]
    found = component_times(rows)
    assert [each.component for each in found[:3]] == ["slow2", "slow1", "slow0"]
    assert "none" not in {each.component for each in found}
    assert slow_sentence(found).endswith("; 1 more slow")
    assert slow_sentence(found).count(" took ") == 2


def test_the_record_has_both_directions() -> None:
    record = component_times([*peers(), row("x", 4.8), row("x", 0.2, "read")])[0].record()
    assert (record["component"], record["slow"], set(record["requests"])) == ("x", True, {"read", "write"})
    assert record["factor"] == record["requests"]["write"]["factor"] > 20
    assert record["requests"]["read"]["factor"] is None, "no others read"
