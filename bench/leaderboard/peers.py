"""Scores of a drive's latency against its peers of the same window: z, MAD, and HDFS' limit.

They are what most monitoring systems offer. Each takes values (C, W), one a drive and window, and returns
scores of that shape; NaN is left out, and a window with fewer than `MIN_PEERS` values has no scores.
"""

import numpy as np

from bench.leaderboard.series import Scores, Series, among_peers, k_of_windows, quotient
from laggard_aggregator.detect.interface import FloatArray

MIN_PEERS = 5
"""HDFS: `dfs.datanode.min.outlier.detection.disks`; the other sources name none."""
NORMAL = 1.4826
"""Standard deviations of normal values for a median absolute deviation of 1 (Leys et al. 2013)."""


def z_scores(values: FloatArray) -> FloatArray:
    """Distance from the peers' mean in standard deviations (of a sample), the drive itself included.

    With n drives no score exceeds (n - 1) / sqrt(n) (Shiffler 1988): 3.2 with 12.
    """

    def score(there: FloatArray) -> FloatArray:
        return quotient(there - np.nanmean(there, axis=0), np.nanstd(there, axis=0, ddof=1))

    return among_peers(values, MIN_PEERS, score)


def mad_scores(values: FloatArray) -> FloatArray:
    """Distance from the peers' median in MADs x 1.4826 (Iglewicz and Hoaglin 1993; Leys et al. 2013)."""

    def score(there: FloatArray) -> FloatArray:
        median, spread = _median_and_spread(there)
        return quotient(there - median, spread)

    return among_peers(values, MIN_PEERS, score)


def hdfs_ratios(values: FloatArray) -> FloatArray:
    """Latency over HDFS' limit: the larger of 3 medians and the median + 3 x 1.4826 MAD.

    Source: Hadoop's `OutlierDetector` (HDFS-11461), for slow disks and peers. Its floor, 20 ms for disks, is
    left out: no flash drive here is ever above it.
    """

    def ratio(there: FloatArray) -> FloatArray:
        median, spread = _median_and_spread(there)
        return quotient(there, np.maximum(3 * median, median + 3 * spread))

    return among_peers(values, MIN_PEERS, ratio)


def z_score(series: Series) -> Scores:
    """The z-score of each window's mean latency, confirmed by 3 of 5 windows."""
    return _confirmed(series, z_scores(series.by_window(series.latency)))


def mad_score(series: Series) -> Scores:
    """The MAD score of each window's mean latency, confirmed by 3 of 5 windows."""
    return _confirmed(series, mad_scores(series.by_window(series.latency)))


def hdfs(series: Series) -> Scores:
    """HDFS' limit on each window's mean latency, at once."""
    ratios = hdfs_ratios(series.by_window(series.latency))
    return Scores(series.after_windows(ratios), ratios)


def _confirmed(series: Series, scores: FloatArray) -> Scores:
    return Scores(series.after_windows(k_of_windows(scores)), scores)


def _median_and_spread(there: FloatArray) -> tuple[FloatArray, FloatArray]:
    median: FloatArray = np.nanmedian(there, axis=0)
    return median, NORMAL * np.nanmedian(np.abs(there - median), axis=0)
