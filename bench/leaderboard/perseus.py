"""PERSEUS: latency regressed on throughput by node, and what lies above the bound.

Source: Lu et al., "Perseus: A Fail-Slow Detection Framework for Cloud Storage Systems" (FAST '23). The steps
and the 99.9 % bound are the paper's, as far as public text tells; what it leaves open is taken from the
comparison by Kratos' authors (ucare-uchicago/kratos-failslow), marked *.

For each node and day: entries (throughput, latency) of all drives, standardised; DBSCAN (distance 0.125*, 5
members*) leaves out what is not in the largest cluster; a polynomial (degree 4*) is fitted to the rest; the
slowdown ratio of every entry is its latency over the upper end of the prediction interval. PCA comes before
DBSCAN; without rescaling* it turns the axes and changes no distance, so it is left out. A drive is slow in
each 5 minutes* whose median ratio exceeds 1. The day's risk follows from the mean ratio and the time of these
(`RISKS`*), and is summed over 15 days*; a sum of 50* is reported.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from bench.leaderboard.dbscan import largest_cluster
from bench.leaderboard.series import Scores, Series
from laggard_aggregator.detect.interface import BoolArray, FloatArray

DISTANCE, MEMBERS, DEGREE = 0.125, 5, 4
SPAN_SECONDS = 300.0
RISKS = ((5.0, (10.0, 25.0, 100.0)), (2.0, (5.0, 10.0, 25.0)), (1.0, (1.0, 5.0, 10.0)))
"""By the least mean ratio, the points of a day with at least 30, 60 and 120 minutes of slowdown."""
MINUTES = (30.0, 60.0, 120.0)
PUBLISHED, LOOK_BACK_DAYS = 50.0, 15


@dataclass(frozen=True, slots=True)
class Options:
    """`coverage` of the two-sided prediction interval; which `quantile` of a span's ratios must exceed 1."""

    coverage: float = 0.999
    quantile: float = 0.5


COMPARISON = Options(coverage=0.95, quantile=0.75)
"""Of the comparison by Kratos' authors: 95 %, and the median of the upper half."""


def upper_bounds(load: FloatArray, latency: FloatArray, keep: BoolArray, coverage: float) -> FloatArray:
    """The upper end of the prediction interval at each of `load` (N,), fitted to the entries in `keep` (N,).

    With the design matrix X of the fit and a row x: x b + t sqrt(s2 (1 + x (X'X)^-1 x')), t being Student's
    quantile.
    """
    scaled = (load - load[keep].mean()) / (load[keep].std() or 1.0)
    design = np.vander(scaled, DEGREE + 1)
    inverse = np.linalg.pinv(design[keep])
    coefficients = inverse @ latency[keep]
    free = int(keep.sum()) - design.shape[1]
    variance = ((latency[keep] - design[keep] @ coefficients) ** 2).sum() / free
    leverage = ((design @ (inverse @ inverse.T)) * design).sum(axis=1)
    quantile = stats.t.ppf((1 + coverage) / 2, free)
    bound: FloatArray = design @ coefficients + quantile * np.sqrt(variance * (1 + leverage))
    return bound


def slowdown_ratios(load: FloatArray, latency: FloatArray, coverage: float) -> FloatArray:
    """The slowdown ratio of each entry of a node's day, (C, T) like both inputs; NaN where one is missing."""
    ratios = np.full(latency.shape, np.nan)
    there = np.isfinite(load) & np.isfinite(latency)
    if there.sum() < 4 * (DEGREE + 1):
        return ratios
    entries = np.column_stack([load[there], latency[there]])
    deviation = entries.std(axis=0)
    standard = (entries - entries.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    normal = largest_cluster(standard, DISTANCE, MEMBERS)
    if normal.sum() > 2 * (DEGREE + 1):
        bound = upper_bounds(entries[:, 0], entries[:, 1], normal, coverage)
        ratios[there] = np.where(bound > 0, entries[:, 1] / np.where(bound > 0, bound, 1.0), np.nan)
    return ratios


def risk(mean_ratio: float, minutes: float) -> float:
    """The points of a day on which a drive was slow for so long, by a mean ratio of so much."""
    points = next((points for least, points in RISKS if mean_ratio >= least), (0.0, 0.0, 0.0))
    reached = sum(minutes >= least for least in MINUTES)
    return points[reached - 1] if reached else 0.0


def spans(ratios: FloatArray, samples: int, quantile: float) -> FloatArray:
    """That quantile of the ratios of each span of `samples` intervals, (C, T / samples); NaN without any."""
    count = -(-ratios.shape[1] // samples)
    padded = np.full((len(ratios), count * samples), np.nan)
    padded[:, : ratios.shape[1]] = ratios
    by_span = padded.reshape(len(ratios), count, samples)
    some = np.isfinite(by_span).any(axis=2)
    values = np.full(some.shape, np.nan)
    values[some] = np.nanquantile(by_span[some], quantile, axis=1)
    return values


def perseus(series: Series, options: Options) -> Scores:
    """Sums of a day's risks over 15 days, known at each day's end; a window's score is its mean slowdown."""
    if series.load is None:
        raise ValueError("PERSEUS needs the load of the drives")
    span = series.samples(SPAN_SECONDS)
    slowdown = np.full(series.latency.shape, np.nan)
    risks = np.zeros((len(slowdown), len(series.days)))
    for number, day in enumerate(series.days):
        ratios = slowdown_ratios(series.load[:, day], series.latency[:, day], options.coverage)
        values = spans(ratios, span, options.quantile)
        slow = values > 1.0
        slowdown[:, day] = np.repeat(np.where(slow, values, 0.0), span, axis=1)[:, : ratios.shape[1]]
        for c in np.flatnonzero(slow.any(axis=1)).tolist():
            minutes = slow[c].sum() * span * series.interval_seconds / 60.0
            risks[c, number] = risk(float(values[c, slow[c]].mean()), minutes)
    sums = series.over_days(risks, LOOK_BACK_DAYS)
    return Scores(series.after_days(sums), series.by_window(slowdown))
