"""A fixed threshold on latency: what an operator without a detector sets."""

import numpy as np

from bench.leaderboard.series import Scores, Series
from laggard_aggregator.detect.interface import FloatArray

WINDOW_SECONDS = 300.0
PUBLISHED = 50.0
"""Microseconds: the threshold in the comparison by Kratos' authors."""


def rolling_means(latency: FloatArray, samples: int) -> FloatArray:
    """Mean of the last `samples` values at each interval, (C, T); of those that are there, NaN if none is."""
    known = np.isfinite(latency)
    count = _rolling_sums(known.astype(np.float64), samples)
    with np.errstate(invalid="ignore"):
        means: FloatArray = _rolling_sums(np.where(known, latency, 0.0), samples) / count
    return means


def _rolling_sums(values: FloatArray, samples: int) -> FloatArray:
    sums = np.cumsum(values, axis=1)
    sums[:, samples:] -= sums[:, :-samples].copy()
    return sums


def threshold(series: Series) -> Scores:
    """The mean latency of the last 5 minutes, as in the comparison by Kratos' authors (`sliding_window`)."""
    means = rolling_means(series.latency, series.samples(WINDOW_SECONDS))
    return Scores(means, series.by_window(series.latency))
