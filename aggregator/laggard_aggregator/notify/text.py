"""How names from the network and factors are put in a mail: they are never more than text."""

import math

from laggard_aggregator.status import formatting

MAX_NAME_CHARS = 160


def plain(text: str, most: int = MAX_NAME_CHARS) -> str:
    """`text` on one line of printable characters, at most so many."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def moment(at: float) -> str:
    """A time, to the minute."""
    return f"{formatting.moment(at)[:16]} UTC"


def claim(severity: float) -> str:
    """What is wrong with a component, as the end of a sentence that begins with it."""
    if not math.isfinite(severity):
        return "behaves unlike its peers"
    return f"is {formatting.factor(severity).rstrip('×')} times slower than its peers"
