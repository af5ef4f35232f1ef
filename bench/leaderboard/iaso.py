"""IASO's idea: a score that rises by multiplication and falls by addition, and clusters of scores.

Source: Panda et al., "IASO: A Fail-Slow Detection and Mitigation Framework for Distributed Storage Services"
(ATC '19). IASO counts the timeouts that peers see of each other. Drives have none: as in the comparison by
Kratos' authors, a drive's excess over the median latency of its peers takes the place of the share of
timeouts. Constants are theirs: the score lies in 1 to 100, at most doubles in an epoch, and falls from 100 to
1 in 2 minutes; each minute the 30th percentile of the last 10 minutes of each drive is clustered by DBSCAN
with a distance of 3 and 2 members. An epoch is an interval of the series. A score that is noise is slow only
if it is above the median of the scores, as IASO's score has a direction; in the comparison any noise is.
"""

import numpy as np

from bench.leaderboard.series import Scores, Series
from laggard_aggregator.detect.interface import BoolArray, FloatArray

LEAST, MOST = 1.0, 100.0
RECOVERY_SECONDS = 120.0
DECISION_SECONDS = 60.0
WINDOW_SECONDS = 600.0
PERCENTILE = 30.0
DISTANCE = 3.0
PUBLISHED_RATE, PUBLISHED_DAYS = 0.3, 7
"""Kratos' authors: shares of a day's decisions, summed over 7 days."""


def peer_scores(latency: FloatArray, interval_seconds: float) -> FloatArray:
    """The score of each drive after each interval, (C, T); an interval without a sample leaves it."""
    some = np.isfinite(latency).any(axis=0)
    median = np.full(latency.shape[1], np.nan)
    median[some] = np.nanmedian(latency[:, some], axis=0)
    excess = np.minimum(latency / median - 1.0, 1.0)
    fall = MOST * interval_seconds / RECOVERY_SECONDS
    scores, now = np.empty(latency.shape), np.full(len(latency), LEAST)
    for t in range(latency.shape[1]):
        step = excess[:, t]
        moved = np.where(step > 0, now * (1.0 + step), now - fall)
        now = np.where(np.isnan(step), now, np.clip(moved, LEAST, MOST))
        scores[:, t] = now
    return scores


def apart(scores: FloatArray) -> BoolArray:
    """Who has nobody within the distance, noise to DBSCAN with 2 members, above the median of scores (C,)."""
    order = np.argsort(scores)
    gaps = np.diff(scores[order], prepend=-np.inf, append=np.inf)
    alone = np.zeros(scores.size, dtype=np.bool_)
    alone[order] = (gaps[:-1] > DISTANCE) & (gaps[1:] > DISTANCE)
    return alone & (scores > np.median(scores))


def decisions(series: Series) -> BoolArray:
    """Who is slow by the latest decision, after each interval, (C, T)."""
    scores = peer_scores(series.latency, series.interval_seconds)
    every, span = series.samples(DECISION_SECONDS), series.samples(WINDOW_SECONDS)
    slow = np.zeros(scores.shape, dtype=np.bool_)
    for t in range(every - 1, scores.shape[1], every):
        typical = np.percentile(scores[:, max(t + 1 - span, 0) : t + 1], PERCENTILE, axis=1)
        slow[:, t : t + every] = apart(typical)[:, None]
    return slow


def iaso(series: Series) -> Scores:
    """The alarm follows the decisions."""
    slow = decisions(series)
    return Scores(slow.astype(np.float64), 2 * series.by_window(slow))


def iaso_daily(series: Series) -> Scores:
    """The share of slow decisions of each day, summed over 7 days, known at each day's end."""
    slow = decisions(series)
    shares = np.column_stack([slow[:, day].mean(axis=1) for day in series.days])
    sums = series.over_days(shares, PUBLISHED_DAYS)
    return Scores(series.after_days(sums), 2 * series.by_window(slow))
