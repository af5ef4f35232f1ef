"""Ceph's proposal for OSDs that fail slow: MADs above the median of the cohort, three checks.

Source: ceph/ceph#69995 (open), `doc/dev/osd_internals/fail_slow_osd_detection.rst` and the proposed options
`mgr_fail_slow_osd_*`: at least 5 OSDs, a score of 10, a commit latency of 100 ms, a MAD of at least 1 ms, a
persistence of 3. A check runs here once an interval of the series (the proposal has a period of its own).
OSDs in recovery, backfill or scrub are left out there; here nothing is known of either. One OSD a device.
"""

from dataclasses import dataclass

import numpy as np

from bench.leaderboard.series import Scores, Series, among_peers, quotient
from laggard_aggregator.detect.interface import BoolArray, FloatArray

MIN_OSDS = 5
PERSISTENCE = 3


@dataclass(frozen=True, slots=True)
class Floors:
    """Microseconds: below `latency` no OSD is slow, a MAD counts for `mad` at least."""

    latency: float = 100_000.0
    mad: float = 1_000.0


def osd_scores(latency: FloatArray, mad_floor: float) -> FloatArray:
    """(latency - median) / MAD of each interval, (C, T); NaN where fewer than 5 have a latency."""

    def score(there: FloatArray) -> FloatArray:
        median = np.nanmedian(there, axis=0)
        mad = np.nanmedian(np.abs(there - median), axis=0)
        return quotient(there - median, np.maximum(mad, mad_floor))

    return among_peers(latency, MIN_OSDS, score)


def observations(slow: BoolArray) -> FloatArray:
    """The count of each device, (C, T): 1 more with each check in which it is slow, halved by another."""
    counts = np.zeros(slow.shape)
    now = np.zeros(len(slow))
    for t in range(slow.shape[1]):
        now = np.where(slow[:, t], now + 1, np.floor(now / 2))
        counts[:, t] = now
    return counts


def ceph(series: Series, floors: Floors, score: float = 10.0) -> Scores:
    """The alarm stands while a device is slow and was at three checks; a window is slow if half of it is."""
    latency = series.latency
    slow = (osd_scores(latency, floors.mad) >= score) & (latency >= floors.latency)
    standing = slow & (observations(slow) >= PERSISTENCE)
    return Scores(standing.astype(np.float64), 2 * series.by_window(slow))
