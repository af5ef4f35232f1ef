"""DBSCAN over the phases of runs, as the paper judges a job: the baseline."""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

NOISE = -1
EPSILON = 0.3
"""Distance of neighbours; durations and volumes are multiples of the median of the runs."""
LEAST_POINTS = 4
"""Neighbours of a core point, itself included: twice the dimensions."""


def dbscan(points: FloatArray, epsilon: float, least_points: int) -> NDArray[np.int64]:
    """Cluster of each of `points`, shape (n, d), NOISE where none; shape (n,).

    Ester et al. 1996. Clusters are numbered by their first core point; a border point of several goes to the
    first of them.
    """
    distances = np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(2))
    near = distances <= epsilon
    is_core = near.sum(1) >= least_points
    cluster = np.full(len(points), NOISE, np.int64)
    count = 0
    for first in np.flatnonzero(is_core):
        if cluster[first] != NOISE:
            continue
        reached = np.zeros(len(points), np.bool_)
        grown = np.arange(len(points)) == first
        while (grown & ~reached).any():
            reached |= grown
            grown = near[reached & is_core].any(0)
        cluster[reached & (cluster == NOISE)] = count
        count += 1
    return cluster


def is_outlier(durations: FloatArray, volumes: FloatArray) -> bool:
    """Whether the last of several phases lies in no cluster of durations and volumes, shape (n,) each."""
    scaled = np.column_stack([_by_median(durations), _by_median(volumes)])
    return bool(dbscan(scaled, EPSILON, LEAST_POINTS)[-1] == NOISE)


def _by_median(values: FloatArray) -> FloatArray:
    middle = float(np.median(values[:-1]))
    return values / middle if middle > 0 else values
