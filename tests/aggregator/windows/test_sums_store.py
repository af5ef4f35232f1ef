"""Sums over components of one node or of one address, from their own counters."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.definition import Metric
from laggard_aggregator.metrics.sums import JoinedMetrics, summed
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.sums_store import SumsStore
from tests.naive_metrics import sums_by_name

SECOND = 10**9
START = 1_700_000_000 * SECOND
PER = JoinedMetrics(
    source="per",
    defaults=("sent_per_read",),
    metrics={
        "sent_per_read": Metric("1", 1, ("sent", "read"), lambda d: d["sent"] / np.maximum(d["read"], 1.0))
    },
    parts={"net": ("sent",), "disk": ("read",)},
)


class Node:
    """A store of windows of four seconds, and what was read of components."""

    def __init__(self, source: JoinedMetrics = PER) -> None:
        detect = DetectSettings(interval_seconds=1.0, window_samples=4, shift_samples=2)
        group = PeerGroup("g", source.source, "", source.defaults, detect)
        self.store = SumsStore(group, source, 0, START)

    def read(self, source: str, key: str, *values: int, first: int = 1) -> "Node":
        """A component's only counter, second by second from `first` on."""
        (row,) = self.store.rows_of([self.store.key(source, key)]).tolist()
        column = {"net": 0, "disk": 1}[source]
        counters = np.zeros((len(values), 1, 2), dtype=np.int64)
        counters[:, 0, column] = values
        ticks = START + (first + np.arange(len(values))) * SECOND
        self.store.add(Block(np.array([row]), counters, None, ticks, ticks, 0), int(ticks[-1]))
        return self

    def found(self, end: int = 5) -> dict[str, list[float]]:
        window = self.store.close(START + end * SECOND)
        if window is None:
            return {}
        return dict(zip(window.components, window.metrics["sent_per_read"].tolist(), strict=True))


def test_components_are_summed_by_their_node() -> None:
    node = Node().read("net", "a/eth0", 0, 10, 20, 30, 40).read("net", "a/eth1", 0, 2, 4, 6, 8)
    node.read("disk", "a/sda", 0, 3, 6, 9, 12).read("disk", "a/sdb", 5, 6, 7, 8, 9)
    node.read("net", "b/eth0", 0, 7, 14, 21, 28).read("disk", "b/sda", 0, 1, 2, 3, 4)
    assert node.found() == {"a/per": [3.0] * 4, "b/per": [7.0] * 4}
    assert (node.store.compared, node.store.live, node.store.series) == (["a/per", "b/per"], 2, 2)


def test_one_name_in_two_sources_is_two_components() -> None:
    assert Node().read("net", "a/x", 0, 8, 16).read("disk", "a/x", 0, 2, 4).found(3)["a/per"][-2:] == [
        4.0,
        4.0,
    ]


def test_a_node_without_one_part_is_not_compared() -> None:
    node = Node().read("disk", "a/sda", 0, 1, 2, 3, 4)
    assert node.found() == {}
    assert (node.store.compared, node.store.live) == ([], 0)


def test_a_part_that_was_not_read_is_unknown_and_not_zero() -> None:
    node = Node().read("net", "a/eth0", 0, 10, 20, 30, 40).read("disk", "a/sda", 0, 1, 2)
    np.testing.assert_array_equal(node.found()["a/per"], [10.0, 10.0, np.nan, np.nan])


def test_a_reset_of_one_component_costs_it_that_interval_alone() -> None:
    node = Node().read("net", "a/eth0", 0, 10, 20, 30, 40).read("disk", "a/sda", 0, 1, 2, 3, 4)
    node.read("net", "a/eth1", 900, 1000, 5, 105, 205)
    assert node.found()["a/per"] == [110.0, 10.0, 110.0, 110.0]


def test_what_has_gone_is_forgotten_with_the_last_of_it() -> None:
    node = Node().read("net", "a/eth0", 0, 1).read("net", "a/eth1", 0, 1).read("disk", "a/sda", 0, 1)
    node.read("net", "b/eth0", 0, 1).read("disk", "b/sda", 0, 1)
    row = {key: at for at, key in enumerate(node.store.components)}
    assert node.store.forget(np.array([row[node.store.key("net", "a/eth1")]])) == []
    row = {key: at for at, key in enumerate(node.store.components)}
    assert node.store.forget(np.array([row[node.store.key("disk", "a/sda")]])) == ["a/per"]
    assert node.store.compared == ["b/per"]


def test_a_component_is_meant_by_its_own_name_and_its_sums() -> None:
    store = Node().read("net", "a/eth0", 0, 1).store
    (key,) = store.components
    assert store.names_of(key) == ("a/eth0", "a/per")


def test_it_goes_on_from_its_state_as_if_nothing_had_been() -> None:
    node = Node().read("net", "a/eth0", 0, 10, 20, 30).read("disk", "a/sda", 0, 1, 2, 3)
    node.read("net", "b/eth0", 0, 40, 80, 120).read("disk", "b/sda", 0, 1, 2, 3)
    assert set(node.found(3)) == {"a/per", "b/per"}
    again = Node()
    again.store.restore(node.store.state())
    for each in (node, again):
        each.read("net", "a/eth0", 50, first=5).read("disk", "a/sda", 4, first=5)
        each.read("net", "b/eth0", 130, first=5).read("disk", "b/sda", 5, first=5)
    found = node.found(5)
    assert again.found(5) == found == {"a/per": [10.0, 10.0, 10.0, 20.0], "b/per": [40.0, 40.0, 40.0, 5.0]}
    assert again.store.compared == node.store.compared == ["a/per", "b/per"]


ROWS = st.integers(1, 6).flatmap(
    lambda t: st.lists(
        st.lists(st.one_of(st.just(float("nan")), st.integers(0, 99).map(float)), min_size=t, max_size=t),
        min_size=1,
        max_size=8,
    )
)


@given(ROWS, st.data())
def test_sums_are_the_naive_twins(rows: list[list[float]], data: st.DataObject) -> None:
    names = [data.draw(st.sampled_from("abc")) for _ in rows]
    expected = sums_by_name(rows, names)
    places = {name: at for at, name in enumerate(expected)}
    found = summed(np.array(rows), np.array([places[name] for name in names]), len(places))
    np.testing.assert_array_equal(found, np.array(list(expected.values())))
