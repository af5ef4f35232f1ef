"""Vectors over functions, and their distances (HotDep, "Feature-Vector")."""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from laggard_aggregator.detect.interface import FloatArray, FunctionWindow

MIN_SECONDS: Mapping[str, float] = {"samples": 0.004, "count": 1.0, "time": 1.0}
"""Time from which a function counts: 100 samples of 100,000 cycles, or 1 s (HotDep, "Dimensionality")."""


UNITS = "functions"
"""Table of a thresholds file: functions that count from the first window on, and the units of their sums.

Others count as soon as they take `MIN_SECONDS` in one window of one server, in the typical unit. Thresholds
hold only together with them."""
_BLOCK_DISTANCES = 1 << 22


def functions_of(window: FunctionWindow, metric: str) -> set[str]:
    """The functions that matter in a window of a server (HotDep, "Feature-Vector Dimensionality")."""
    with np.errstate(invalid="ignore"):
        enough = (window.seconds >= MIN_SECONDS[metric]).any(axis=0)
    return {window.functions[f] for f in np.flatnonzero(enough)}


def feature_vectors(
    window: FunctionWindow, metric: str, functions: Collection[str], spread: Mapping[str, float]
) -> tuple[tuple[str, ...], NDArray[np.intp], FloatArray]:
    """Which of `functions` the window has (K,), by name; where the live servers are; vectors (live, K)."""
    columns = sorted(
        (f for f, name in enumerate(window.functions) if name in functions), key=window.functions.__getitem__
    )
    names = tuple(window.functions[f] for f in columns)
    values = window.metrics[metric]
    live = np.flatnonzero(~np.isnan(values).any(axis=1))
    vectors = values[live][:, columns]
    if spread:
        typical = float(np.median(list(spread.values())))
        vectors = vectors / np.array([spread.get(name, typical) for name in names])
    return names, live, vectors


def median_distances(vectors: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """For each of `vectors` (n, K), n >= 2, the median L1 distance to the others, and the median node.

    The median node is the peer at that distance (the nearer of two for an even number of peers).
    """
    n = len(vectors)
    distance, middle = np.empty(n), np.empty(n, dtype=np.intp)
    low, high = (n - 2) // 2, (n - 1) // 2
    rows = max(1, _BLOCK_DISTANCES // n)
    for at in range(0, n, rows):
        block = cdist(vectors[at : at + rows], vectors, "cityblock")
        own = np.arange(len(block))
        block[own, at + own] = np.inf  # the server itself is none of the others
        order = np.argsort(block, axis=1, kind="stable")
        middle[at : at + rows] = order[:, low]
        distance[at : at + rows] = (block[own, order[:, low]] + block[own, order[:, high]]) / 2
    return distance, middle
