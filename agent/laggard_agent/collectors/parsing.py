"""Checks of input that all parsers share: numbers, names, and the operator's choice of names."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from laggard_agent.collectors.interface import read_file
from laggard_common.errors import CollectError
from laggard_common.wire.limits import MAX_NAME_CHARS

MOST = 2**64
_MOST_DIGITS = 20
_CACHED_NAMES = 4096


def number(word: bytes | str) -> int | None:
    """An unsigned 64-bit number; None for anything else."""
    if not word.isdigit() or not word.isascii() or len(word) > _MOST_DIGITS:
        return None
    value = int(word)
    return value if value < MOST else None


def numbers(words: Sequence[bytes]) -> tuple[int, ...] | None:
    """Unsigned 64-bit numbers; None without any, or when a word is none."""
    if not b"".join(words).isdigit():
        return None
    try:
        values = tuple(map(int, words))
    except ValueError:  # thousands of digits
        return None
    return values if max(values) < MOST else None


def printable(text: str) -> str:
    """The text with a question mark for each unprintable character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def attribute(path: str) -> str:
    """A file of sysfs with single blanks; empty when it is absent, unreadable or unprintable."""
    try:
        text = " ".join(read_file(path).decode("ascii", "replace").split())
    except CollectError:
        return ""
    return text[:MAX_NAME_CHARS] if text.isprintable() else ""


def choice(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool | None]:
    """The operator's choice of a name by regular expressions on whole names.

    True for an included one, False for an excluded or, with any `include`, not included one, otherwise None.
    Each pattern is compiled by itself and may have its own flags and groups.
    """
    wanted, unwanted = (tuple(map(re.compile, patterns)) for patterns in (include, exclude))

    @lru_cache(_CACHED_NAMES)
    def chosen(name: str) -> bool | None:
        if any(pattern.fullmatch(name) for pattern in unwanted):
            return False
        return any(pattern.fullmatch(name) for pattern in wanted) if wanted else None

    return chosen
