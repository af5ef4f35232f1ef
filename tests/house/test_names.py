"""A class name stands for one thing in the whole product."""

from collections import defaultdict

from tests.house.source import sources

TWICE: dict[str, str] = {
    "App": "the agent and the aggregator, each the one object of its daemon",
}
"""Names that two classes may have, and why."""


def places() -> dict[str, list[str]]:
    """Where each class name is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in sources():
        for of in source.classes():
            found[of.name.lstrip("_")].append(f"{source.name}:{of.lineno}")
    return found


def test_a_class_name_stands_for_one_thing() -> None:
    found = places()
    assert len(found) > 100
    assert {name: at for name, at in found.items() if len(at) > 1 and name not in TWICE} == {}


def test_every_exception_is_needed() -> None:
    found = places()
    assert [name for name in TWICE if len(found[name]) < 2] == []
