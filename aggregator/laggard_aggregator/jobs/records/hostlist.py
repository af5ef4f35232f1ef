"""Node lists as schedulers write them: `node[01,03-04],login1`, `rack[1-2]n[1-4]`."""

import itertools
import re
from collections.abc import Iterator

from laggard_aggregator.jobs.records.model import JobDataError

MAX_NODES = 131_072
"""Nodes of one list; a longer one is refused before it is expanded."""
MAX_LIST_CHARS = 1 << 20
MAX_NODE_CHARS = 255
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)
_TOKEN = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)|,")
_NONE = frozenset(("", "None", "None assigned", "Unknown", "N/A", "(null)"))


def expand(text: str) -> tuple[str, ...]:
    """Names of the nodes in the order of the list, each once; none for a list that says so.

    Raises JobDataError for text that is no list, and for more than MAX_NODES nodes.
    """
    if text in _NONE:
        return ()
    if len(text) > MAX_LIST_CHARS:
        raise JobDataError(f"node list of {len(text)} characters, more than {MAX_LIST_CHARS}")
    if "[" not in text and "," not in text:
        return (_name(text),)
    names_in_order: dict[str, None] = {}
    left = MAX_NODES
    for parts in _words(text):
        count = 1
        for part in parts:
            count *= sum(high - low + 1 for low, high, _ in part) if isinstance(part, list) else 1
            if count > left:
                raise JobDataError(f"node list of more than {MAX_NODES} nodes: {text[:60]}")
        left -= count
        for names in itertools.product(*(_numbers(p) if isinstance(p, list) else (p,) for p in parts)):
            names_in_order[_name("".join(names))] = None
    return tuple(names_in_order)


def _words(text: str) -> Iterator[list[str | list[tuple[int, int, int]]]]:
    """The names of a list as their fixed and bracketed parts; a range is low, high and digits."""
    word: list[str | list[tuple[int, int, int]]] = []
    at = 0
    for match in _TOKEN.finditer(text):
        if match.start() != at:
            break
        at = match.end()
        if match[0] == ",":
            if word:
                yield word
            word = []
        else:
            word.append(match[2] if match[1] is None else [_range(part) for part in match[1].split(",")])
    if at != len(text):
        raise JobDataError(f"no node list: {text[:60]}")
    if word:
        yield word


def _range(text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise JobDataError(f"no range of nodes: {text[:40]}")
    low, high = int(match[1]), int(match[2] or match[1])
    if high < low:
        raise JobDataError(f"no range of nodes: {text[:40]}")
    return low, high, len(match[1])


def _numbers(ranges: list[tuple[int, int, int]]) -> Iterator[str]:
    for low, high, digits in ranges:
        for number in range(low, high + 1):
            yield f"{number:0{digits}d}"


def _name(text: str) -> str:
    if len(text) > MAX_NODE_CHARS or not text.isprintable() or " " in text:
        raise JobDataError(f"no name of a node: {text[:40]!r}")
    return text


def short_name(node: str) -> str:
    """A node's name without its domain, in lower case."""
    return node.partition(".")[0].lower()
