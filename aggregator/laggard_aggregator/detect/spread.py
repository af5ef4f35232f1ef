"""The group's own spread: how far healthy members lie from their peers, over one window and over many."""

import numpy as np

from laggard_aggregator.detect.peers import row_median, shortest_half
from laggard_aggregator.detect.seam import BoolArray, FloatArray

PRIOR = 24.0
"""Weight, in independent values, of the law by which spread falls with the length of an average."""
BATCHES = 4
TINY = 1e-6


def standard_error(length: FloatArray) -> FloatArray:
    """The spread of a mean over `length` windows, in units of one window's: length ** -1/4.

    Healthy components wander: an independent window-to-window noise would give length ** -1/2, a constant
    difference 1. The fourth root is what fault-free drives show (docs/detection.md); each group corrects it.
    """
    root: FloatArray = length**-0.25
    return root


def normal_shortest_half(members: int) -> float:
    """The expected length of the shortest half of `members` standard normal values, roughly."""
    return 1.349 * (1.0 - float(np.sqrt(1.0 / (members + 1)))) + 0.3


def cross_spread(excess: FloatArray) -> float:
    """A standard deviation of `excess` (C,) that just under half of it cannot inflate; NaN below two."""
    finite = excess[np.isfinite(excess)]
    if finite.size < 2:
        return np.nan
    _, length = shortest_half(finite)
    return length / normal_shortest_half(finite.size)


def batch_spread(deviations: FloatArray) -> float:
    """The standard error of a row's middle that its own course over time tells, typical over rows.

    `deviations` (C, T): log ratios by tick, NaN = missing. By batch means (four a row), so that noise that
    is correlated from tick to tick is not underrated; the median over rows, so that few rows do not matter.
    """
    length = deviations.shape[1] // BATCHES
    if length < 2:
        return np.nan
    middles = np.stack(
        [row_median(deviations[:, b * length : (b + 1) * length]) for b in range(BATCHES)], axis=1
    )
    whole = middles[np.isfinite(middles).all(axis=1)]
    if whole.shape[0] == 0:
        return np.nan
    # The median of chi-square with 3 degrees of freedom is 2.366.
    variance = np.median(whole.var(axis=1, ddof=1)) * 3.0 / 2.366
    return float(np.sqrt(variance / BATCHES))


def spread_now(excess: FloatArray, deviations: FloatArray, trusted: BoolArray) -> float:
    """The spread that this window alone shows: the larger of across components and along time."""
    both = [TINY, cross_spread(excess[trusted]), batch_spread(deviations[trusted])]
    return float(np.nanmax(both))


def pooled_spread(
    moment: FloatArray, seen: FloatArray, scales: FloatArray, trusted: BoolArray
) -> tuple[FloatArray, float]:
    """The spread of each length of average in single-window units, and the independent values behind it.

    `moment` (K, C): each component's mean square, times the square root of the average's length; `seen` (C,):
    windows that it rests on. Long averages yield few independent values, so they lean on the shortest.
    """
    weight = seen[trusted]
    total = max(float(weight.sum()), 1.0)
    square = moment[:, trusted] @ weight / total
    values = total / scales
    pooled = (PRIOR * square[0] + values * square) / (PRIOR + values)
    pooled[0] = square[0]
    return np.sqrt(np.maximum(pooled, TINY**2)), total - 1.0
