"""The embedded broker's access rules, held against `deploy/mosquitto/acl`."""

import pytest

from laggard_aggregator.embedded.acl import may_publish, may_receive, may_subscribe

MINE = "laggard/1/site/storage/oss-1"
DATA = [f"{MINE}/data/diskstats", f"{MINE}/schema/diskstats", f"{MINE}/status"]
ODD = [
    f"{MINE}/data/a/b",
    f"{MINE}/data",
    f"{MINE}/other",
    "laggard/1/site/ack/a/b",
    "laggard/2/site/ack/oss-1",
    "laggard/1/site/lease",
    "",
]


@pytest.mark.parametrize(
    "name", ["oss-1", "oss-2", "laggard-aggregator", "laggard-aggregator-2", "laggard-broker", ""]
)
def test_who_may_do_what(name: str) -> None:
    aggregator = name.startswith("laggard-")
    for topic in DATA:
        assert may_publish(name, topic) == (name == "oss-1")
        assert may_receive(name, topic) == may_subscribe(name, topic) == aggregator
    for node in ("oss-1", "oss-2"):
        topic = f"laggard/1/site/ack/{node}"
        assert may_publish(name, topic) == aggregator
        assert may_receive(name, topic) == (name == node)
        assert (
            may_subscribe(name, topic)
            == may_subscribe(name, f"laggard/1/+/ack/{node}")
            == (aggregator or name == node)
        )
    for topic in ODD:
        assert not may_publish(name, topic)
        assert not may_receive(name, topic)


@pytest.mark.parametrize(
    "pattern", ["#", "laggard/#", "laggard/1/#", "laggard/1/+/ack/+", "laggard/1/+/ack/#", "+/+"]
)
def test_a_node_subscribes_to_no_pattern_of_others(pattern: str) -> None:
    assert not may_subscribe("oss-1", pattern)
    assert may_subscribe("laggard-aggregator", pattern) == pattern.startswith("laggard/1/")
