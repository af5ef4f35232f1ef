"""The spread of healthy members' averages: of one window, of each length, and of one component's course."""

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.evidence import LENGTHS, SCALE_WINDOWS
from laggard_aggregator.detect.peers import row_median, shortest_half, trimmed_mean

MIN_SPREAD = 1e-6
"""Least spread of logs, by which differences in groups of constants are divided."""
BATCHES = 4
"""Parts of a window whose means tell its standard error."""
MIN_TICKS = 2 * BATCHES
"""Ticks of a window from which they do; of a shorter one its course from window to window does."""
CROSS_TO_OWN_RATIO = 1.7
"""Spread across healthy members over the standard error of their own course over a window.

Members also wander from window to window and differ for good, so it is above 1: 1.6-2.1 on real drives."""
MIN_CROSS_TO_OWN_RATIO, MAX_CROSS_TO_OWN_RATIO = 1.2, 2.0
"""Limits of that ratio in one window. Few members may be alike by chance. Members of two kinds differ more
than by their course, and that is no spread."""
PRIOR_VALUES = 12.0
"""Weight of what is expected. Of a spread, in independent values: of one window by that ratio, of longer
averages by the next shorter one's and the law of `standard_error`. Of a component's own noise, in windows
like its peers'. A group is young for as many windows."""
MAX_YOUNG = 1.06
"""Factor by which the spread of a young group may be underrated."""
SQUARE_MEDIAN, SQUARE_MEDIAN_VALUES = 0.455, 0.37
"""The median of squares of standard normal values, and the values behind a variance by it, for each."""
MAX_MEAN_SQUARE_RATIO = 2.0
"""Upper limit of a component's mean square over the typical one: a straggler not yet known is no noise."""


def standard_error(length: FloatArray) -> FloatArray:
    """The spread of a mean over `length` windows, in units of one window's: length ** -1/4.

    Healthy components wander: an independent window-to-window noise would give length ** -1/2, a constant
    difference 1. Fault-free drives show the fourth root (docs/detection.md); each group corrects it.
    Parts of a window (`length` below 1) do hold independent noise.
    """
    root: FloatArray = np.where(length < 1.0, length**-0.5, length**-0.25)
    return root


def cross_spread(excess: FloatArray) -> float:
    """A standard deviation of `excess` (C,) that just under half of it cannot inflate; NaN below two."""
    finite = excess[np.isfinite(excess)]
    if finite.size < 2:
        return np.nan
    _, length = shortest_half(finite)
    # The expected length of the shortest half of standard normal values, roughly.
    return length / (1.349 * (1.0 - float(np.sqrt(1.0 / (finite.size + 1)))) + 0.3)


def batch_variance(deviations: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """The squared standard error of each row's mean, from its own course over time; (C,).

    `deviations` (C, T): log ratios by tick, NaN = missing; of their `trimmed_mean` by `weights` (C, T). By
    batch means (four a row, of the ticks that it has), so that noise that is correlated from tick to tick is
    not underrated. NaN for a row of fewer than four, and where T is less than MIN_TICKS.
    """
    if deviations.shape[1] < MIN_TICKS:
        return np.full(deviations.shape[0], np.nan)
    rows, longest = deviations.shape[0], deviations.shape[1] // BATCHES
    known = np.isfinite(deviations)
    length = (known.sum(axis=1) // BATCHES)[:, None, None]
    within = np.arange(longest)
    place = (length * np.arange(BATCHES)[:, None] + within).reshape(rows, -1)
    tick = np.take_along_axis(np.argsort(~known, axis=1, kind="stable"), place, 1)

    def batches(values: FloatArray) -> FloatArray:
        """A row a batch, (C * BATCHES, T // BATCHES), NaN beyond its end."""
        parts = np.take_along_axis(values, tick, 1).reshape(rows, BATCHES, longest)
        return np.where(within < length, parts, np.nan).reshape(-1, longest)

    middles = trimmed_mean(batches(deviations), None if weights is None else batches(weights))
    variance: FloatArray = middles.reshape(rows, BATCHES).var(axis=1, ddof=1) / BATCHES
    return variance


def typical_variance(variance: FloatArray) -> float:
    """The typical one of `variance` (C,), each resting on four batches; NaN when nothing is known."""
    known = variance[np.isfinite(variance)]
    # The median of chi-square with 3 degrees of freedom is 2.366.
    return float(np.median(known)) * 3.0 / 2.366 if known.size else np.nan


def spread_now(excess: FloatArray, variance: FloatArray, members: BoolArray) -> float:
    """The spread that this window alone shows: across `members` (C,), within what their course allows."""
    across, along = cross_spread(excess[members]), float(np.sqrt(typical_variance(variance[members])))
    if np.isfinite(along):
        across = float(np.clip(across, MIN_CROSS_TO_OWN_RATIO * along, MAX_CROSS_TO_OWN_RATIO * along))
    return max(across, MIN_SPREAD)


def young(seen: FloatArray) -> float:
    """By how much more than its spread says the group may vary, by the windows `seen` (C,) of its members."""
    return 1.0 + (MAX_YOUNG - 1.0) / max(float(np.median(seen)) / PRIOR_VALUES, 1.0)


def pooled_spread(
    moment: FloatArray, seen: FloatArray, counted: BoolArray, typical: float, squares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The spread of each length of average in single-window units, and the values behind it; (K,) each.

    `moment` (K, C): each component's mean square in single-window units over `seen` (C,) windows; `counted`
    (C,): whose count; `typical`: standard error of one window. Each length leans on the next shorter one, so
    that a group whose windows are independent is soon known for it. Wandering members yield new values only
    with the square root of the windows, which is the law of `standard_error` again.

    `squares` (K, C): of the averages now, in the same units, NaN = unknown. Where members differ for good,
    mean squares are too low: the upper limit cuts them in half, and in a young group they are of shorter
    averages. The middle of the squares now is not, and counts where it is larger, the more the larger the
    group. It is at most their mean: in a group of two halves all squares are alike, and their middle is not
    that of normal ones.
    """
    weight = np.where(counted, seen, 0.0)
    total = float(weight.sum())
    if total == 0.0:
        prior = np.full(LENGTHS, PRIOR_VALUES)
        return np.full(LENGTHS, max(CROSS_TO_OWN_RATIO * typical, MIN_SPREAD)), prior
    most = MAX_MEAN_SQUARE_RATIO * row_median(np.where(weight > 0.0, moment, np.nan))[:, None]
    square = np.minimum(moment, most) @ weight / total
    longest = float(weight.max())
    values = np.maximum(total / longest * np.sqrt(np.maximum(longest / SCALE_WINDOWS, 1.0)) - 1.0, 0.0)
    pooled = np.empty(LENGTHS)
    before = (CROSS_TO_OWN_RATIO * typical) ** 2
    for scale in range(LENGTHS):
        before = (PRIOR_VALUES * before + values[scale] * square[scale]) / (PRIOR_VALUES + values[scale])
        pooled[scale] = before
    present = np.where(counted, squares, np.nan)
    told = np.isfinite(present).sum(axis=1)
    mean = np.nansum(present, axis=1) / np.maximum(told, 1)
    now, known = np.fmin(row_median(present) / SQUARE_MEDIAN, mean), SQUARE_MEDIAN_VALUES * told
    pooled = np.maximum(pooled, (PRIOR_VALUES * pooled + known * now) / (PRIOR_VALUES + known))
    return np.maximum(np.sqrt(pooled), MIN_SPREAD), PRIOR_VALUES + values
