"""The slow, obvious twin of the aggregator's store (DESIGN.md 1, 6): one component, reading by reading."""

from collections.abc import Sequence
from itertools import pairwise

StoreReading = tuple[int, int, tuple[int, ...]]
"""Nominal time, time of reading (both ns), counters."""


def store_differences(
    arrived: Sequence[Sequence[StoreReading] | int], interval_ns: int, bridge: int
) -> dict[int, tuple[tuple[int, ...], float, int]]:
    """Rises, seconds and span of each interval of one component, by interval number, without the missing.

    `arrived`: messages in order of arrival, and between them the ends (ns) at which windows were closed.
    """
    closed_until = 0
    boundaries: dict[int, StoreReading] = {}
    resets: set[int] = set()
    newest: StoreReading | None = None
    for item in arrived:
        if isinstance(item, int):
            closed_until = item
            continue
        message = [reading for reading in item if reading[0] > closed_until]
        for before, after in pairwise(message):
            if _fell(before, after):
                resets.add(-(-after[0] // interval_ns))
        if message and newest and newest[0] < message[0][0] and _fell(newest, message[0]):
            resets.add(-(-message[0][0] // interval_ns))
        for reading in message:
            interval = -(-reading[0] // interval_ns)
            if interval not in boundaries or boundaries[interval][0] < reading[0]:
                boundaries[interval] = reading
        if message and (newest is None or message[-1][0] > newest[0]):
            newest = message[-1]
    found = {}
    for last, interval in pairwise(sorted(boundaries)):
        before, after = boundaries[last], boundaries[interval]
        span, seconds = interval - last, (after[1] - before[1]) / 1e9
        if span <= bridge and seconds > 0 and interval not in resets and not _fell(before, after):
            rises = tuple(b - a for a, b in zip(before[2], after[2], strict=True))
            for spanned in range(last + 1, interval + 1):
                found[spanned] = (rises, seconds, span)
    return found


def _fell(before: StoreReading, after: StoreReading) -> bool:
    return any(b < a for a, b in zip(before[2], after[2], strict=True))
