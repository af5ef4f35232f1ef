"""Slow, obvious second implementations, which every fast path is held against. A section a detector."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# --- cdf (Intrepid 4.2) ---


def cdf_moving_average(series: Sequence[float], history: int, width: int) -> list[float]:
    """Each sample's mean of the present ones among the last `width`, oldest first; NaN where missing."""
    smoothed = []
    for at in range(history, len(series)):
        total, count = 0.0, 0
        for value in series[max(0, at - width + 1) : at + 1]:
            if not math.isnan(value):
                total += value
                count += 1
        smoothed.append(math.nan if math.isnan(series[at]) else total / count)
    return smoothed


def cdf_bins(values: Sequence[float], window: int, limit: int, mode: str) -> tuple[float, int]:
    """Size and number of bins for all samples of a group."""
    ordered = sorted(values)
    span = ordered[-1] - ordered[0]
    if span == 0:
        return 1.0, 1
    quartile = []
    for q in (0.25, 0.75):
        position = q * (len(ordered) - 1)
        below = math.floor(position)
        above = min(below + 1, len(ordered) - 1)
        quartile.append(ordered[below] + (ordered[above] - ordered[below]) * (position - below))
    size = 2 * (quartile[1] - quartile[0]) * window ** (-1 / 3)
    if size == 0:
        return span / limit, limit
    if span / size > limit:
        return (size if mode == "clip" else span / limit), limit
    return size, math.ceil(span / size)


def cdf_distances(
    values: NDArray[np.float64], history: int, width: int = 15, limit: int = 1000, mode: str = "widen"
) -> tuple[list[int], NDArray[np.float64]]:
    """Which rows of `values` (C, history + W) are live, and their pair distances from literal histograms."""
    window = values.shape[1] - history
    live: list[int] = []
    samples: list[list[float]] = []
    for c, series in enumerate(values.tolist()):
        own = [v for v in cdf_moving_average(series, history, width) if not math.isnan(v)]
        if 4 * len(own) >= 3 * window:
            live.append(c)
            samples.append(own)
    if len(live) < 4:
        return live, np.empty((0, 0))
    together = [v for own in samples for v in own]
    size, bins = cdf_bins(together, window, limit, mode)
    low = min(together)
    histograms = np.zeros((len(live), bins), dtype=np.int64)
    for row, own in enumerate(samples):
        for value in own:
            histograms[row, int(min((value - low) / size, bins - 1))] += 1
    cumulative = np.cumsum(histograms, axis=1)
    counts = cumulative[:, -1]
    distances = np.empty((len(live), len(live)))
    for i in range(len(live)):
        # |P(i) - Q(i)| over the common denominator, so that the sum is exact and rounded once
        difference = np.abs(cumulative[i] * counts[:, np.newaxis] - cumulative * counts[i])
        distances[i] = difference.sum(axis=1) / (counts[i] * counts)
    return live, distances


def cdf_verdicts(
    live: Sequence[int], distances: NDArray[np.float64], thresholds: Sequence[float]
) -> list[bool | None]:
    """True where more than half of a component's pair distances exceed its threshold; None: not judged."""
    verdicts: list[bool | None] = [None] * len(thresholds)
    for i, c in enumerate(live if len(live) >= 4 else ()):
        if not math.isnan(thresholds[c]):
            beyond = sum(distances[i, j] > thresholds[c] for j in range(len(live)) if j != i)
            verdicts[c] = bool(2 * beyond > len(live) - 1)
    return verdicts


# --- manhattan (HotDep) ------------------------------------------------------------------------------------


def manhattan_distances(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """For each server the sorted Manhattan distances to the others."""
    found = []
    for i, p in enumerate(vectors):
        others = [q for j, q in enumerate(vectors) if j != i]
        found.append(sorted(sum(abs(a - b) for a, b in zip(p, q, strict=True)) for q in others))
    return found


def manhattan_median(distances: Sequence[float]) -> float:
    """The median of sorted `distances`."""
    middle = len(distances) // 2
    return distances[middle] if len(distances) % 2 else (distances[middle - 1] + distances[middle]) / 2


def manhattan_threshold(medians: Sequence[float]) -> float:
    """Twice the smallest integer that none of a server's fault-free `medians` exceeds; by binary search."""
    low, high = -1, 1
    while any(median > high for median in medians):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if any(median > middle for median in medians):
            low = middle
        else:
            high = middle
    return 2.0 * high


def manhattan_kept(seconds: Sequence[NDArray[np.float64]], least: float) -> list[int]:
    """Which functions take at least `least` seconds in one of the windows (S, F) on one server."""
    functions = range(seconds[0].shape[1])
    return [f for f in functions if any(row[f] >= least for window in seconds for row in window.tolist())]
