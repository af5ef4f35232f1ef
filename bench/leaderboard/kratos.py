"""Kratos: how often a drive stands out, as a distribution, against those of its peers.

Source: ucare-uchicago/kratos-failslow, `all_algorithms_runner` (2026; no paper was at hand). In each interval
a drive whose latency per byte is two standard deviations above its peers' mean is flagged. A count rises with
each flagged interval and falls with each other, not below 0. At the day's end the drive's distribution of
counts is compared with each peer's: the sum of the Kullback-Leibler divergences. A day scores 1 to 100 by
that sum, if the drive's sum is 1.5 standard deviations above the others' (the largest left out) and its count
was above 0 in more than 10 % of the day. Scores of 15 days are summed; 1,000 is the published threshold, and
needs ten days of 100. On the PERSEUS data latency per byte is the mean latency over the throughput, as there;
without a load it is the latency.
"""

import numpy as np

from bench.leaderboard.series import Scores, Series, quotient
from laggard_aggregator.detect.interface import FloatArray

DEVIATIONS = 2.0
BINS = 10
SMALL = 1e-6
Z, SHARE = 1.5, 0.10
STEPS, POINTS = (0.5, 1.0, 1.5, 3.0), (1.0, 5.0, 10.0, 25.0, 100.0)
"""A sum up to a step scores its points, beyond the last step 100."""
PUBLISHED, LOOK_BACK_DAYS = 1000.0, 15


def counts(values: FloatArray) -> FloatArray:
    """The count of each drive after each interval, (C, T), NaN where it has no value; of values (C, T).

    A random walk with a floor: the sum of the steps less the lowest it ever was, 0 included.
    """
    present = np.isfinite(values)
    enough = present.sum(axis=0) >= 2
    compared = np.where(enough, values, 0.0)
    mean, deviation = np.nanmean(compared, axis=0), np.nanstd(compared, axis=0, ddof=1)
    flagged = enough & (compared >= mean + DEVIATIONS * deviation)
    sums = np.cumsum(np.where(present, np.where(flagged, 1.0, -1.0), 0.0), axis=1)
    lowest = np.minimum(np.minimum.accumulate(sums, axis=1), 0.0)
    return np.where(present, sums - lowest, np.nan)


def divergence(own: FloatArray, other: FloatArray) -> float:
    """Kullback-Leibler divergence of two samples, over 10 bins of their common range, in nats."""
    low, high = min(own.min(), other.min()), max(own.max(), other.max())
    if low == high:
        return 0.0
    p, q = (np.histogram(one, BINS, (low, high))[0] / (one.size + 1) + SMALL for one in (own, other))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def day_scores(day: FloatArray) -> FloatArray:
    """The score of each drive for one day, (C,), of its latencies per byte (C, T)."""
    walks = counts(day)
    own = [walk[np.isfinite(walk)] for walk in walks]
    known = [c for c, walk in enumerate(own) if walk.size]
    sums = np.full(len(day), np.nan)
    for c in known:
        sums[c] = sum(divergence(own[c], own[other]) for other in known if other != c)
    scores = np.zeros(len(day))
    rest = sums[np.isfinite(sums) & (sums != np.nanmax(sums, initial=0.0))]
    if rest.size < 2:
        return scores
    z = quotient(sums - rest.mean(), np.full(sums.shape, rest.std(ddof=1)))
    for c in known:
        if z[c] > Z and (own[c] > 0).mean() > SHARE:
            scores[c] = POINTS[int(np.searchsorted(STEPS, sums[c]))]
    return scores


def kratos(series: Series) -> Scores:
    """Sums of 15 days, known at each day's end; all windows of a day have the day's score."""
    per_byte = series.latency
    if series.load is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            per_byte = np.where(series.load > 0, per_byte / series.load, per_byte / SMALL)
    scores = np.column_stack([day_scores(per_byte[:, day]) for day in series.days])
    sums = series.over_days(scores, LOOK_BACK_DAYS)
    return Scores(series.after_days(sums), scores[:, series.window_days()])
