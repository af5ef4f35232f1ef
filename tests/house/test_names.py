"""A class name stands for one thing in the whole product, and a local is named by what it holds."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.house.source import Source, sources

EMPTY_WORDS = {"found", "each", "of"}
"""Names of locals and parameters that hide what they hold, where a noun of the field fits."""

TWICE: dict[str, str] = {
    "App": "the agent and the aggregator, each the one object of its daemon",
}
"""Names that two classes may have, and why."""


def places() -> dict[str, list[str]]:
    """Where each class name is defined."""
    lines: dict[str, list[str]] = defaultdict(list)
    for source in sources():
        for class_ in source.classes():
            lines[class_.name.lstrip("_")].append(f"{source.name}:{class_.lineno}")
    return lines


def test_a_class_name_stands_for_one_thing() -> None:
    lines = places()
    assert len(lines) > 100
    assert {name: at for name, at in lines.items() if len(at) > 1 and name not in TWICE} == {}


def test_every_exception_is_needed() -> None:
    lines = places()
    assert [name for name in TWICE if len(lines[name]) < 2] == []


def locals_of(source: Source) -> Iterator[tuple[str, int]]:
    """Names of parameters and of variables within functions and comprehensions, with their lines."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.comprehension):
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield name.id, name.lineno


def test_locals_are_named_by_what_they_hold() -> None:
    named = {(source.name, line, name) for source in sources() for name, line in locals_of(source)}
    assert len(named) > 10_000
    assert sorted(place for place in named if place[2] in EMPTY_WORDS) == []
