"""Name patterns of nodes and components, as operators use them."""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase, translate


def covers(target: str, names: Iterable[str]) -> bool:
    """Whether `target` names one of `names`, or the node that one of them begins with."""
    pattern = _is_pattern(target)
    return any(name == target or (pattern and fnmatchcase(name, target)) for name in _with_nodes(names))


def covering(targets: Iterable[str]) -> Callable[[Iterable[str]], bool]:
    """`covers` for any of `targets`, compiled: the cost of a component does not grow with exact targets."""
    exact = frozenset(targets)
    patterns = [re.compile(translate(target)).match for target in exact if _is_pattern(target)]

    def covered(names: Iterable[str]) -> bool:
        return any(name in exact or any(match(name) for match in patterns) for name in _with_nodes(names))

    return covered


def _is_pattern(target: str) -> bool:
    return any(sign in target for sign in "*?[")


def _with_nodes(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield name
        yield name.partition("/")[0]
