"""Filters of names by the operator's regular expressions."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_CACHED_NAMES = 4096


def any_of(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    """A predicate: one of `patterns` matches the whole name; None without patterns.

    Each pattern is compiled by itself and may have its own flags and groups.
    """
    if not patterns:
        return None
    compiled = [re.compile(pattern) for pattern in patterns]
    return lru_cache(_CACHED_NAMES)(lambda name: any(pattern.fullmatch(name) for pattern in compiled))
