"""Wording common to all channels. Names come from the network and are reduced to one printable line."""

import math

from laggard_aggregator.status import formatting

MAX_NAME_CHARS = 160


def plain(text: str, most: int = MAX_NAME_CHARS) -> str:
    """`text` on one line of at most `most` printable characters."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def spaced(text: str) -> str:
    """`text` with no-break spaces, which pages use between figure and unit, replaced by spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def minute(at: float) -> str:
    """A time to the minute, UTC."""
    return f"{formatting.moment(at)[:16]} UTC"


def slower(severity: float) -> str:
    """The predicate of a sentence about a slow component."""
    if not math.isfinite(severity):
        return "behaves unlike its peers"
    return f"is {formatting.factor(severity).rstrip('×')} times slower than its peers"
