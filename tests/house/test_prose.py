"""Docstrings, comments, log lines and help texts in plain technical English, as far as a program can tell.

Run as a program, it prints the places: `python -m tests.house.test_prose`.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.house.source import Source, sources

MOST_WHAT_IN_10_000_WORDS = 5
ODD_OPENING = re.compile(r"(What|Who|Which|How|From)\b")
PHRASES = re.compile(r"\b(what is told|takes in that|anew|so many)\b", re.IGNORECASE)
NO_METHODS = {"take", "look", "tell", "begin", "give_back"}
WORD = re.compile(r"[A-Za-z']+")

Place = tuple[str, int, str]


def whats(source: Source) -> Iterator[Place]:
    """Docstrings in which "what" stands."""
    for line, text, _ in source.docstrings():
        for found in text.splitlines():
            if any(word.lower() == "what" for word in WORD.findall(found)):
                yield source.name, line, found.strip()


def odd_openings(source: Source) -> Iterator[Place]:
    """Module docstrings that open with a question word."""
    for line, text, of_module in source.docstrings():
        if of_module and ODD_OPENING.match(text):
            yield source.name, line, text.splitlines()[0]


def phrases(source: Source) -> Iterator[Place]:
    """Strings and comments with a phrase that nobody else uses."""
    for line, text in source.texts():
        for found in PHRASES.finditer(text):
            around = text[max(found.start() - 40, 0) : found.end() + 40]
            yield source.name, line, " ".join(around.split())


def methods(source: Source) -> Iterator[Place]:
    """Methods whose name says nothing."""
    for of in source.classes():
        for node in of.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in NO_METHODS:
                yield source.name, node.lineno, f"{of.name}.{node.name}"


def words() -> tuple[int, int]:
    """How many words docstrings have, and how many of them are "what"."""
    found = [
        word.lower()
        for source in sources()
        for _, text, _ in source.docstrings()
        for word in WORD.findall(text)
    ]
    return len(found), found.count("what")


def test_docstrings_say_what_it_is_and_not_what() -> None:
    in_all, found = words()
    assert in_all > 10_000
    assert found / in_all * 10_000 <= MOST_WHAT_IN_10_000_WORDS, [p for s in sources() for p in whats(s)]


def test_no_module_opens_with_a_question_word() -> None:
    assert [place for source in sources() for place in odd_openings(source)] == []


def test_no_phrase_of_our_own() -> None:
    assert [place for source in sources() for place in phrases(source)] == []


def test_methods_are_named_by_what_they_do() -> None:
    assert [place for source in sources() for place in methods(source)] == []


def main() -> None:
    """Prints the places by package."""
    in_all, found = words()
    print(f'"what": {found} in {in_all} docstring words, {found / in_all * 10_000:.1f} in 10,000')
    by_room: dict[str, list[str]] = defaultdict(list)
    for source in sources():
        for kind, places in (
            ("what", whats(source)),
            ("opening", odd_openings(source)),
            ("phrase", phrases(source)),
            ("method", methods(source)),
        ):
            by_room[f"{source.package}/{source.room}"] += [
                f"  {kind:8} {name}:{line}: {text}" for name, line, text in places
            ]
    for room, lines in sorted(by_room.items()):
        if lines:
            print(f"\n{room}: {len(lines)}", *lines, sep="\n")


if __name__ == "__main__":
    main()
