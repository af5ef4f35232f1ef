"""Reference of a component: the leave-one-out median of its trusted peers, and the choice of those.

And the samples of a window that no earlier one had, which `laggard` judges once.
"""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import BoolArray, FloatArray, GroupWindow

MAD_TO_SIGMA = 1.4826
SPIKE_SHARE = 0.15
"""Share of the weight at the upper end that a `trimmed_mean` leaves out."""


def new_samples(window: GroupWindow, metric: str, before: float | None, interval_seconds: float) -> int:
    """Number of columns of `window` after `before`, the end of the window before it, None for a first one."""
    new: int = window.metrics[metric].shape[1] - window.history
    if before is None:
        return new
    return min(max(round((window.end - before) / interval_seconds), 0), new)


def mad_spread(values: FloatArray) -> float:
    """The standard deviation of values, shape (n,), by their median absolute deviation, as of a normal
    distribution.
    """
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def row_median(values: FloatArray) -> FloatArray:
    """The median of each row of `values` (R, T) over its finite entries; (R,), NaN for a row without any."""
    rows, ticks = values.shape
    if ticks == 0:
        return np.full(rows, np.nan)
    ordered = np.sort(values, axis=1)  # NaN sorts last
    count = np.isfinite(ordered).sum(axis=1)
    low, high, row = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, ticks - 1), np.arange(rows)
    median: FloatArray = np.where(count > 0, 0.5 * (ordered[row, low] + ordered[row, high]), np.nan)
    return median


def trimmed_mean(logs: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """The log of the mean of each row of exp(`logs`) (R, T), less the highest SPIKE_SHARE; (R,).

    A mean, as what is slow for a part of the time costs that part; but a spike is no slowness. `weights`
    (R, T), 0 or more, 1 by default; entries that are not finite have none. NaN for a row without any.
    """
    known = np.isfinite(logs)
    if weights is None:  # the same as with weights of 1, in half the time
        ratios = np.exp(np.sort(np.where(known, logs, np.inf), axis=1))  # those that are not known last
        counted = (1.0 - SPIKE_SHARE) * known.sum(axis=1)
        kept = np.clip(counted[:, None] - np.arange(logs.shape[1]), 0.0, 1.0)
    else:
        known &= weights > 0
        order = np.argsort(np.where(known, logs, np.inf), axis=1)
        ratios = np.exp(np.take_along_axis(np.where(known, logs, np.inf), order, 1))
        weight = np.take_along_axis(np.where(known, weights, 0.0), order, 1)
        upper = np.cumsum(weight, axis=1)
        kept = np.maximum(np.minimum(upper, (1.0 - SPIKE_SHARE) * upper[:, -1:]) - (upper - weight), 0.0)
        counted = kept.sum(axis=1)
    sums = (kept * np.where(kept > 0.0, ratios, 0.0)).sum(axis=1)
    mean = np.divide(sums, counted, out=np.full(len(logs), np.nan), where=counted > 0)
    logarithm: FloatArray = np.log(mean)
    return logarithm


def faster_half_mean(logs: FloatArray) -> FloatArray:
    """The mean of the lower half of each row of `logs` (R, T), the middle included; (R,).

    On real drives it varies less than the median, and without its heavy tails: slow episodes, which healthy
    drives have, hardly touch it. Entries that are not finite do not count; NaN for a row without any.
    """
    known = np.isfinite(logs)
    ordered = np.sort(np.where(known, logs, np.inf), axis=1)
    half = (known.sum(axis=1) + 1) // 2
    sums = np.where(np.arange(logs.shape[1]) < half[:, None], ordered, 0.0).sum(axis=1)
    mean: FloatArray = np.divide(sums, half, out=np.full(len(logs), np.nan), where=half > 0)
    return mean


def leave_one_out_median(values: FloatArray, trusted: BoolArray) -> FloatArray:
    """For each component and tick the median over the trusted *other* components.

    `values` (C, T), NaN = missing; `trusted` (C,). Returns (C, T), NaN where no trusted peer has a value. One
    sort a tick: taking one value out of a sorted row moves each middle by at most one place.
    """
    counted = np.ascontiguousarray(np.where(trusted[:, None], values, np.nan).T)
    ordered = np.sort(counted, axis=1)  # NaN sorts last
    count = np.isfinite(counted).sum(axis=1)
    ticks = np.arange(count.size)

    def at(place: NDArray[np.intp]) -> FloatArray:
        within = np.minimum(np.maximum(place, 0), values.shape[0] - 1)  # np.clip takes longer than the rest
        there: FloatArray = ordered[ticks, within][:, None]
        return there

    everyone = 0.5 * (at((count - 1) // 2) + at(count // 2))
    low, high = (count - 2) // 2, (count - 1) // 2  # the middle places among one fewer
    with np.errstate(invalid="ignore"):
        without = np.where(counted <= at(low), at(low + 1), at(low))
        without += np.where(counted <= at(high), at(high + 1), at(high))
    median = np.where(np.isfinite(counted), 0.5 * without, everyone)
    median[(count == 1)[:, None] & np.isfinite(counted)] = np.nan
    return median.T


def shortest_half(values: FloatArray) -> tuple[float, float]:
    """Centre and length of the shortest interval that holds just over half of the finite `values` (C,).

    Unlike median and MAD it stays with the majority when just under half of the values lie far to one side
    (Rousseeuw's shortest half). Both are NaN when nothing is finite.
    """
    ordered = np.sort(values[np.isfinite(values)])
    if ordered.size == 0:
        return np.nan, np.nan
    half = ordered.size // 2 + 1
    lengths = ordered[half - 1 :] - ordered[: ordered.size - half + 1]
    first = int(np.argmin(lengths))
    return float(ordered[first : first + half].mean()), float(lengths[first])


def slower_part(values: FloatArray) -> FloatArray:
    """Of each row of `values` (R, C), all finite, the one that about a quarter exceed; (R,)."""
    ordered = np.sort(values, axis=1)
    edge: FloatArray = ordered[:, 3 * (values.shape[1] - 1) // 4]
    return edge


def most_trusted(suspicion: FloatArray, live: BoolArray) -> BoolArray:
    """The live components with a suspicion below 1, and always the least suspect majority; (C,) each."""
    majority = int(live.sum()) // 2 + 1
    ranked = np.sort(np.where(live, suspicion, np.inf))
    limit = ranked[majority - 1]
    trusted: BoolArray = live & ((suspicion < 1.0) | (suspicion <= limit))
    return trusted
