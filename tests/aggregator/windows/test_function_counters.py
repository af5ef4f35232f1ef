"""A node's functions against the slow twin: rises, gaps, resets, functions that come and go."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.detect.settings import OF_FUNCTIONS
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.registry import FUNCTIONS
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.function_counters import NodeFunctions
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_common.wire.schema import Component, Schema
from tests import naive
from tests.support.builders.batches import SECOND, schema_of
from tests.support.thorough import examples

NAMES = ("a", "b", "c", "d")
INTERVAL = 10
INTERVALS = 6

steps = st.lists(
    st.fixed_dictionaries(
        {
            "rise": st.lists(st.integers(0, 1000), min_size=4, max_size=4),
            "told": st.lists(st.booleans(), min_size=4, max_size=4),
            "sent": st.sampled_from([True] * 3 + [False] * 2),
            "reset": st.sampled_from([False] * 12 + [True]),
            "forgotten": st.sampled_from([None] * 8 + [0, 1, 2, 3]),
            "late": st.floats(0, 2),
        }
    ),
    min_size=2,
    max_size=30,
)


def node_of(names: tuple[str, ...] = NAMES) -> NodeFunctions:
    schema = replace(schema_of(), components=tuple(Component(name, name) for name in names))
    node = NodeFunctions(schema, 1, INTERVALS, INTERVAL * SECOND)
    node.grow(schema, np.arange(len(names)), np.arange(len(names)))
    return node


def reading_of(found: naive.FunctionReading) -> Block:
    told = [NAMES.index(name) for name in found.counters]
    tick = found.at * SECOND
    return Block(
        indexes=np.array(told, dtype=np.int64),
        values=np.array([[[found.counters[NAMES[row]]] for row in told]], dtype=np.int64).reshape(1, -1, 1),
        tick_ns=np.array([tick]),
        read_ns=np.array([tick + int(found.late * SECOND)]),
        present=None,
        idle=0,
    )


def readings_of(drawn: list[dict[str, Any]]) -> list[naive.FunctionReading]:
    totals, found = dict.fromkeys(NAMES, 0), []
    for at, step in enumerate(drawn, 1):
        if step["reset"]:
            totals = dict.fromkeys(NAMES, 0)
        if step["forgotten"] is not None:  # it loses its row and begins anew
            totals[NAMES[step["forgotten"]]] = 0
            step["told"][step["forgotten"]] = False
        for name, rise in zip(NAMES, step["rise"], strict=True):
            totals[name] += rise
        if step["sent"]:
            told = {name: totals[name] for name, tell in zip(NAMES, step["told"], strict=True) if tell}
            found.append(naive.FunctionReading(at * INTERVAL, step["late"], told))
    return found


@given(steps, st.integers(1, 5))
@settings(max_examples=examples(300), deadline=None)
def test_sums_are_the_naive_twins(drawn: list[dict[str, Any]], shift: int) -> None:
    readings = readings_of(drawn)
    node = node_of()
    watermark = 0
    for end in range(shift, len(drawn) + 1, shift):
        for found in readings:
            if watermark * INTERVAL < found.at <= end * INTERVAL:
                node.add(reading_of(found))
        node.close(watermark, end)
        watermark = end
        so_far = [found for found in readings if found.at <= end * INTERVAL]
        sums, covered = naive.function_sums(so_far, end * INTERVAL, INTERVAL, INTERVALS)
        assert node.covered(INTERVALS) == pytest.approx(covered, abs=1e-6)
        if covered > 0:
            expected = [sums.get(name, 0.0) * 60.0 / covered for name in NAMES]
            assert node.sums(60.0)[:, 0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_fall_inside_a_message_cuts_its_interval_out() -> None:
    node = node_of(("a",))
    node.add(reading_of(naive.FunctionReading(10, 0.0, {"a": 100})))
    inside = replace(
        reading_of(naive.FunctionReading(11, 0.0, {"a": 0})),
        values=np.array([[[110]], [[5]], [[200]]]),
        tick_ns=np.array([11, 12, 20]) * SECOND,
        read_ns=np.array([11, 12, 20]) * SECOND,
    )
    assert node.add(inside) == 1
    node.add(reading_of(naive.FunctionReading(30, 0.0, {"a": 230})))
    node.close(0, 6)
    assert node.covered(INTERVALS) == 10.0
    assert node.sums(60.0).tolist() == [[180.0]]  # 30 in the 10 s that are known


def test_messages_out_of_order_are_put_in_order() -> None:
    one, other = node_of(), node_of()
    readings = [naive.FunctionReading(at * 10, 0.0, {"a": at * 7, "b": at * at}) for at in range(1, 7)]
    for node, order in ((one, readings), (other, readings[::-1])):
        for found in order:
            node.add(reading_of(found))
        node.close(0, 6)
    assert one.sums(60.0).tolist() == other.sums(60.0).tolist()
    assert one.covered(INTERVALS) == 50.0


GROUP = PeerGroup("g", "fnprofile", "", ("samples",), OF_FUNCTIONS)


def joined(store: FunctionStore, schema: Schema) -> tuple[NodeFunctions | None, int]:
    return store.join(schema, range(len(schema.components)))


def announced(node: str, names: tuple[str, ...], epoch: int = 1, stream: bytes = b"s" * 16) -> Schema:
    components = tuple(Component(name, name) for name in names)
    return replace(schema_of(node), components=components, epoch=epoch, stream=stream)


def test_a_later_epoch_goes_on_an_earlier_one_changes_nothing_another_stream_starts_over() -> None:
    store = FunctionStore(GROUP, FUNCTIONS["fnprofile"], 0)
    first, later = announced("n", ("a",)), announced("n", ("a", "b"), epoch=2)
    node, _ = joined(store, first)
    assert node is not None
    node.add(replace(reading_of(naive.FunctionReading(10, 0.0, {"a": 1}))))
    assert joined(store, later)[0] is node
    assert joined(store, first)[0] is node
    assert node.ids.tolist() == [0, 1]
    other, _ = joined(store, announced("n", ("b", "c"), stream=b"t" * 16))
    assert other is not node
    assert other is not None
    assert other.ids.tolist() == [1, 2]


def test_names_that_nobody_has_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.windows.function_store.MAX_NAMES", 4)
    store = FunctionStore(GROUP, FUNCTIONS["fnprofile"], 0)
    joined(store, announced("n", ("a", "b")))
    joined(store, announced("m", ("b", "c")))
    assert joined(store, announced("o", ("d", "e")))[1] == 1  # e finds no room
    node, left_out = joined(store, announced("n", ("x", "b"), stream=b"t" * 16))  # n had a
    assert left_out == 0
    assert node is not None
    for at in range(7):
        counters = {"a": 5 * at, "b": 9 * at}  # by its own rows: x and b
        store.add(node, reading_of(naive.FunctionReading(at * 10 + 1, 0.0, counters)), (at * 10 + 1) * SECOND)
    window = store.close(60 * SECOND)
    assert window is not None
    assert window.functions == ("b", "x")
    assert window.metrics["samples"][0].argmax() == 0


def test_of_too_many_functions_those_that_took_most_are_in_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laggard_aggregator.windows.function_store.MAX_FUNCTIONS", 2)
    store = FunctionStore(GROUP, FUNCTIONS["fnprofile"], 0)
    for name, own in (
        ("n", {"a": 5, "b": 9, "c": 7, "d": 1}),
        ("m", {"a": 6, "b": 1, "c": 1, "d": 1}),  # on another node they take little
    ):
        node, _ = joined(store, announced(name, NAMES))
        assert node is not None
        for at in range(7):
            counters = {function: rise * at for function, rise in own.items()}
            store.add(
                node, reading_of(naive.FunctionReading(at * 10 + 1, 0.0, counters)), (at * 10 + 1) * SECOND
            )
    window = store.close(60 * SECOND)
    assert window is not None
    assert (window.functions, window.left_out) == (("b", "c"), 2)
    assert window.metrics["samples"] == pytest.approx(window.seconds * 997)  # of CPU time, at 997 Hz
    assert window.seconds.sum() > 0


def test_late_and_future_ticks_are_counted_and_skipped() -> None:
    store = FunctionStore(GROUP, FUNCTIONS["fnprofile"], 100 * SECOND)
    node, _ = joined(store, announced("n", ("a",)))
    assert node is not None
    ticks = np.array([90, 100, 110, 500]) * SECOND
    message = Block(np.array([0]), np.arange(4).reshape(4, 1, 1), None, ticks, ticks, 0)
    store.add(node, message, 110 * SECOND)
    assert (store.counts.late, store.counts.future) == (2, 1)
