"""ComponentArrays of a group's components: found by name, freed by name, kept as plain data."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.laggard.component_arrays import ComponentArrays


class Pair(ComponentArrays):
    """One number and two numbers a component."""

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]] = {"one": (), "two": (2,)}
    one: FloatArray
    two: FloatArray


def filled() -> Pair:
    pair = Pair()
    at = pair.places(["a", "b", "c"])
    pair.one[at] = [1.0, 2.0, 3.0]
    pair.two[:, at] = [[10.0, 20.0, 30.0], [0.1, 0.2, 0.3]]
    return pair


def test_places_follow_the_names_in_any_order() -> None:
    pair = filled()
    assert pair.one[pair.places(("c", "a"))].tolist() == [3.0, 1.0]
    assert pair.two[:, pair.places(("b",))].tolist() == [[20.0], [0.2]]


def test_a_new_component_begins_at_0_and_moves_no_other() -> None:
    pair = filled()
    at = pair.places(["d", "b"])
    assert pair.one[at].tolist() == [0.0, 2.0]
    assert pair.two[:, at].tolist() == [[0.0, 20.0], [0.0, 0.2]]
    assert pair.names == ["a", "b", "c", "d"]


def test_a_forgotten_component_leaves_nothing_and_the_others_stay() -> None:
    pair = filled()
    components = ("a", "b", "c")
    pair.places(components)
    pair.forget({"a", "unknown"})
    assert pair.names == ["b", "c"]
    assert pair.one.tolist() == [2.0, 3.0]
    # The same tuple as before: places kept from the last call would be of the old columns.
    at = pair.places(components)
    assert pair.one[at].tolist() == [0.0, 2.0, 3.0]
    assert pair.two[:, at].tolist() == [[0.0, 20.0, 30.0], [0.0, 0.2, 0.3]]


def test_state_goes_on_exactly() -> None:
    pair = filled()
    pair.one /= 3.0
    state = json.loads(json.dumps(pair.state()))
    other = Pair().restored(state)
    assert other.state() == pair.state()
    for columns in (pair, other):
        columns.forget({"b"})
        at = columns.places(["e", "c"])
        columns.one[at] += 0.1
    assert other.state() == pair.state()


def test_the_state_of_no_component_is_restored() -> None:
    empty = Pair().restored(json.loads(json.dumps(Pair().state())))
    assert empty.two.shape == (2, 0)
    at = empty.places(["a"])
    assert empty.one[at].tolist() == [0.0]


@pytest.mark.parametrize(
    "damage",
    [
        {"names": None},
        {"names": ["a", "b"]},
        {"one": [1.0, 2.0]},
        {"one": [1.0, 2.0, "three"]},
        {"two": [[10.0, 20.0, 30.0], [0.1, 0.2]]},
        {"two": {"a": 1.0}},
    ],
)
def test_a_damaged_state_raises(damage: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Pair().restored({**filled().state(), **damage})


def test_a_state_without_names_raises() -> None:
    state = filled().state()
    del state["names"]
    with pytest.raises(KeyError):
        Pair().restored(state)
