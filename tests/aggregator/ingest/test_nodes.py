import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.ingest.node_view import MOST_COLLECTORS, QUANTILES, quantiles
from laggard_aggregator.ingest.nodes import (
    MAX_COLLECTORS,
    MAX_UNHEARD,
    OFFSET_HORIZON_NS,
    ClockOffset,
    Nodes,
)
from tests.support.builders.messages import NOW, SECOND

STATUS: dict[str, Any] = {
    "state": "up",
    "role": "storage",
    "version": "0.1.0",
    "interval_ns": SECOND,
    "batch_ticks": 5,
    "collectors": {"diskstats": {"success": True, "seconds": 0.001, "error": ""}},
    "spool_bytes": 4096,
    "dropped_samples": 3,
    "missed_ticks": 1,
    "cpu_seconds": 1.5,
    "resident_bytes": 30_000_000,
}


def book(**changed: Any) -> Nodes:
    nodes = Nodes()
    nodes.add("oss-1", "storage", NOW)
    nodes.announced("oss-1", SECOND, 5)
    nodes.status("oss-1", {**STATUS, **changed}, NOW, NOW)
    return nodes


def test_a_status_becomes_a_view() -> None:
    view = book().view("oss-1", NOW)
    assert view is not None
    assert (view.state, view.healthy, view.role, view.version) == ("up", True, "storage", "0.1.0")
    assert (view.spool_bytes, view.dropped_samples, view.missed_ticks) == (4096, 3, 1)
    assert (view.cpu_seconds, view.resident_bytes) == (1.5, 30_000_000)
    assert view.collectors["diskstats"].success
    assert math.isnan(view.last_sample)


def test_a_node_is_silent_when_three_spans_went_by_without_data() -> None:
    nodes = book()
    nodes.data("oss-1", NOW, NOW + SECOND)
    assert nodes.counts(NOW + 16 * SECOND) == {("storage", "up"): 1}
    assert nodes.counts(NOW + 17 * SECOND) == {("storage", "silent"): 1}
    assert [node.node for node in nodes.unhealthy(NOW + 17 * SECOND)] == ["oss-1"]
    nodes.data("oss-1", NOW + 20 * SECOND, NOW + 20 * SECOND)
    assert nodes.unhealthy(NOW + 21 * SECOND) == ()


def test_names_without_a_sample_are_not_all_told_of_and_hide_nobody() -> None:
    nodes = book()
    nodes.data("oss-1", NOW, NOW)
    for number in range(MAX_UNHEARD + 10):
        nodes.add(f"n{number}", "compute", NOW)
    late = NOW + 60 * SECOND
    unhealthy = nodes.unhealthy(late)
    assert len(unhealthy) == MAX_UNHEARD + 1
    assert unhealthy[-1].node == "oss-1"
    assert nodes.counts(late)["compute", "silent"] == MAX_UNHEARD + 10


def test_last_will_and_orderly_end_are_told_apart() -> None:
    nodes = book()
    nodes.status("oss-1", {"state": "down", "role": "storage", "version": "0.1.0"}, NOW - 10**15, NOW)
    view = nodes.view("oss-1", NOW)
    assert view is not None
    assert (view.state, view.healthy, view.spool_bytes) == ("down", False, 4096)
    nodes.status("oss-1", {**STATUS, "state": "stopped"}, NOW, NOW)
    assert nodes.counts(NOW) == {("storage", "stopped"): 1}


def test_a_failing_collector_makes_a_node_unhealthy() -> None:
    nodes = book(collectors={"diskstats": {"success": False, "seconds": 0.1, "error": "no such file"}})
    (view,) = nodes.unhealthy(NOW)
    assert view.collectors["diskstats"].error == "no such file"


def test_a_wrong_clock_makes_a_node_unhealthy() -> None:
    nodes = book()
    nodes.data("oss-1", NOW + 3 * SECOND, NOW + SECOND)
    (view,) = nodes.unhealthy(NOW + SECOND)
    assert view.clock_offset_seconds == 2.0


@given(
    st.integers(-(10**10), 10**10),
    st.lists(st.integers(0, 10**12), min_size=1, max_size=30),
)
def test_delays_loosen_the_offset_and_never_tighten_it(offset: int, delays: list[int]) -> None:
    estimate = ClockOffset()
    for at, delay in enumerate(delays):
        estimate.add(NOW + at + offset - delay, NOW + at)
    assert estimate.seconds * 1e9 == (offset - min(delays)) / 1e9 * 1e9


def test_replayed_messages_do_not_confirm_the_clock_of_a_start() -> None:
    """They were compared with the clock of an earlier run; the host's may be wrong since."""
    nodes = book()
    nodes.listening(NOW + 400 * 86_400 * SECOND)
    assert nodes.latest_offsets(0) == []
    nodes.status("oss-1", STATUS, NOW + SECOND, NOW + 400 * 86_400 * SECOND)
    assert nodes.latest_offsets(120 * SECOND) == [SECOND - 400 * 86_400 * SECOND]


def test_an_offset_of_long_ago_is_forgotten() -> None:
    estimate = ClockOffset()
    estimate.add(NOW + 5 * SECOND, NOW)
    later = NOW + 2 * OFFSET_HORIZON_NS
    estimate.add(later, later)
    assert estimate.seconds == 0.0
    assert math.isnan(ClockOffset().seconds)


@given(
    st.dictionaries(
        st.sampled_from([*STATUS, "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
            lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
            max_leaves=8,
        ),
    )
)
def test_nothing_in_a_status_is_believed_unchecked(status: dict[str, Any]) -> None:
    nodes = book()
    nodes.status("oss-1", {"state": "up", **status}, NOW, NOW)
    view = nodes.view("oss-1", NOW)
    assert view is not None
    for count in (view.spool_bytes, view.dropped_samples, view.resident_bytes):
        assert count is None or 0 <= count < 2**63
    assert view.version.isprintable()


def test_what_agents_say_is_summed_over_their_role() -> None:
    nodes = book(resident_bytes=10, cpu_seconds=1.5)
    for name, bad in (("oss-2", False), ("oss-3", True)):
        nodes.add(name, "storage", NOW)
        collectors = {
            "diskstats": {"success": not bad, "seconds": 0.5},
            "net": {"success": True, "seconds": 2},
        }
        said = {**STATUS, "collectors": collectors, "resident_bytes": 30, "spool_bytes": None}
        nodes.status(name, said, NOW + (SECOND if bad else 0), NOW + SECOND)
    nodes.add("cn-1", "compute", NOW)
    compute, storage = nodes.roles()
    assert (compute.role, compute.spool_bytes, compute.collectors, compute.spool) == ("compute", 0, {}, {})
    assert storage.spool_bytes == 4096
    assert storage.resident_bytes == {0.5: 30, 0.99: 30, 1.0: 30}
    assert storage.spool == {0.5: 4096, 0.99: 4096, 1.0: 4096}
    assert storage.clock_offset_seconds == {0.5: 0, 0.99: 1, 1.0: 1}
    diskstats, net = storage.collectors["diskstats"], storage.collectors["net"]
    assert (diskstats.failing, diskstats.seconds) == (1, {0.5: 0.5, 0.99: 0.5, 1.0: 0.5})
    assert (net.failing, net.seconds[1.0]) == (0, 2.0)


def test_counters_of_a_role_only_grow() -> None:
    """The first status of an agent is where it begins."""
    nodes, grown = book(), []
    nodes.add("oss-2", "storage", NOW)
    for name, dropped, cpu in (
        ("oss-1", 5, 2.5),
        ("oss-2", 1000, 900.0),
        ("oss-2", 1001, 900.5),
        ("oss-1", 0, 0.25),  # started again
        ("oss-1", None, 0.5),
    ):
        nodes.status(name, {**STATUS, "dropped_samples": dropped, "cpu_seconds": cpu}, NOW, NOW)
        (storage,) = nodes.roles()
        grown.append((storage.dropped_samples, storage.cpu_seconds))
    assert grown == [(2, 1.0), (2, 1.0), (3, 1.5), (3, 1.75), (3, 2.0)]
    nodes.forget("oss-2")
    (storage,) = nodes.roles()
    assert (storage.dropped_samples, storage.cpu_seconds) == grown[-1]


def test_collectors_that_a_node_invents_do_not_add_up() -> None:
    nodes = book()
    for name in ("oss-2", "oss-3", "oss-4", "oss-5"):
        nodes.add(name, "storage", NOW)
        own = ["zfs"] if name in ("oss-4", "oss-5") else [f"{name}-{n}" for n in range(MAX_COLLECTORS)]
        nodes.status(name, {**STATUS, "collectors": {one: {"success": False} for one in own}}, NOW, NOW)
    (storage,) = nodes.roles()
    assert len(storage.collectors) == MOST_COLLECTORS
    assert storage.collectors["zfs"].failing == 2


@given(st.lists(st.floats(0, 1e9), max_size=30))
def test_quantiles_are_values_that_so_many_do_not_exceed(values: list[float]) -> None:
    found = quantiles(values)
    assert set(found) == (set(QUANTILES) if values else set())
    for q, figure in found.items():
        assert sum(value <= figure for value in values) >= q * len(values)
        assert figure in values
        assert sum(value < figure for value in values) < q * len(values)


def test_the_clocks_of_few_nodes_are_asked_for_until_half_of_them_were_heard() -> None:
    nodes = Nodes()
    for name in ("a", "b", "c", "d"):
        nodes.add(name, "storage", 0)
    assert nodes.latest_offsets(0) == []
    nodes.heard("a", 5 * SECOND, 0)
    nodes.heard("b", 6 * SECOND, 0)
    assert nodes.latest_offsets(5 * SECOND) == []
    nodes.heard("a", 8 * SECOND, 0)
    nodes.heard("c", 7 * SECOND, 0)
    assert sorted(nodes.latest_offsets(10 * SECOND)) == [6 * SECOND, 7 * SECOND, 8 * SECOND]
    nodes.heard("d", 9 * SECOND, 0)
    assert nodes.latest_offsets(69 * SECOND) == []
    assert nodes.latest_offsets(70 * SECOND) == [9 * SECOND]
