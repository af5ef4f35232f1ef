"""The operator's regular expressions on names."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_REMEMBERED = 4096


def any_of(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    """Tells whether one of `patterns` matches the whole of a name; None when there are no patterns.

    Each is compiled for itself, so that it may have flags and groups of its own.
    """
    if not patterns:
        return None
    compiled = [re.compile(pattern) for pattern in patterns]
    return lru_cache(_REMEMBERED)(lambda name: any(pattern.fullmatch(name) for pattern in compiled))
