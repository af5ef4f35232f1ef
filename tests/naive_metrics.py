"""Slow, obvious twins of what metrics do over time and over components."""

from collections.abc import Sequence
from math import isnan, nan
from statistics import median

Rows = Sequence[Sequence[float]]


def share_over_time(
    events: Rows, trials: Rows, harmless: float, intervals: int, strength: float
) -> list[list[float]]:
    """The share of each component at each interval, by the formula of `metrics.shares`."""
    steps = len(events[0])
    m = strength / harmless
    found: list[list[float]] = [[] for _ in events]
    for t in range(steps):
        sums = []
        for happened, tried in zip(events, trials, strict=True):
            span = range(max(t - intervals + 1, 0), t + 1)
            told = [s for s in span if not isnan(happened[s]) and not isnan(tried[s])]
            sums.append((sum(happened[s] for s in told), sum(tried[s] for s in told), t in told))
        plain = [x / n for x, n, there in sums if there and n > 0]
        middle = median(plain) if plain else 0.0
        for row, (x, n, there) in zip(found, sums, strict=True):
            row.append((x + m * middle) / (n + m) + harmless if there else nan)
    return found


def sums_by_name(rows: Rows, names: Sequence[str]) -> dict[str, list[float]]:
    """The sum of the rows of each name, interval by interval; NaN where none of them is known."""
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(names):
        own = [row for row, of in zip(rows, names, strict=True) if of == name]
        found[name] = []
        for t in range(len(rows[0])):
            known = [row[t] for row in own if not isnan(row[t])]
            found[name].append(sum(known) if known else nan)
    return found
