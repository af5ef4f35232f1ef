"""OpenZFS' sit-out of slow children of a RAID-Z vdev: Tukey's fence (Tukey 1977) with a multiplier of 50.

Source: openzfs/zfs#16900 and its successor #17227, as merged for 2.4 (`vdev_child_slow_outlier`); zfs(4),
`vdev_raidz_outlier_insensitivity`, `vdev_read_sit_out_secs`. The check runs once a second there, here once an
interval of the series. OpenZFS compares mean read latencies from histograms with buckets of powers of two,
here the means themselves. Two drives may sit out at once, as in raidz2; one that sits out is not read.
"""

import numpy as np

from bench.leaderboard.series import Scores, Series
from laggard_aggregator.detect.interface import BoolArray, FloatArray

INSENSITIVITY = 50.0
SIT_OUT_SECONDS = 600.0
OUTLIER_LIMIT = 20
PARITY = 2
MIN_CHILDREN = 5


def fences(latency: FloatArray, insensitivity: float) -> tuple[FloatArray, FloatArray]:
    """The fence and the interquartile range of each interval, (T,), of latencies (C, T) without NaN.

    The quartiles are medians of the lower and upper half; the range is at least a quarter of the lower one.
    The fence is the upper quartile + `insensitivity` ranges.
    """
    ordered = np.sort(latency, axis=0)
    half, odd = divmod(len(ordered), 2)
    lower, upper = np.median(ordered[:half], axis=0), np.median(ordered[half + odd :], axis=0)
    span: FloatArray = np.maximum(upper - lower, lower / 4)
    return upper + insensitivity * span, span


def sit_outs(latency: FloatArray, insensitivity: float, intervals: int) -> tuple[BoolArray, BoolArray]:
    """Who was the outlier of each interval, and who sits out after it, both (C, T).

    Only the slowest drive of an interval may be one, and only where all drives have a latency. It gets 1 to 5
    points, by how far it lies beyond the fence; beyond 20 it sits out for `intervals`, with a latency of 0,
    and all points are forgotten. For each C points given, all drives lose two.
    """
    count = len(latency)
    outliers, sitting = np.zeros((2, *latency.shape), dtype=np.bool_)
    if count < MIN_CHILDREN:
        return outliers, sitting
    complete = np.isfinite(latency).all(axis=0)
    fence, span = fences(np.where(complete, latency, 1.0), insensitivity)
    points, given = np.zeros(count, dtype=np.int64), 0
    for t in np.flatnonzero(complete).tolist():
        values, limit, unit = latency[:, t], fence[t], span[t]
        if sitting[:, t].any():
            if sitting[:, t].sum() >= PARITY:
                continue
            values = np.where(sitting[:, t], 0.0, values)
            limit, unit = (each[0] for each in fences(values[:, None], insensitivity))
        drive = int(values.argmax())
        if values[drive] <= limit:
            continue
        outliers[drive, t] = True
        more = int(np.clip((values[drive] - limit) // unit, 1, OUTLIER_LIMIT // 4))
        given += more
        if given >= count:
            points = np.maximum(points - 2, 0)
            given = 0
        points[drive] += more
        if points[drive] > OUTLIER_LIMIT:
            sitting[drive, t : t + intervals] = True
            points[:] = 0
    return outliers, sitting


def openzfs(series: Series, insensitivity: float = INSENSITIVITY) -> Scores:
    """The alarm stands while a drive sits out; a window is slow if half of it is that, or outliers."""
    outliers, sitting = sit_outs(series.latency, insensitivity, series.samples(SIT_OUT_SECONDS))
    return Scores(sitting.astype(np.float64), 2 * series.by_window(outliers | sitting))
