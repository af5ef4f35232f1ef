"""What `manhattan` learns from fault-free runs: functions, their spread, and a threshold for every server.

The runs should stress the servers to their limits: that is when healthy ones differ most (HotDep, "Threshold
selection").
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from laggard_aggregator.detect.manhattan import (
    LEAST_SECONDS,
    ManhattanOptions,
    feature_vectors,
    functions_of,
    median_distances,
)
from laggard_aggregator.detect.seam import VectorWindow

CUSHION = 2.0
"""The paper doubles thresholds, to mask what a fault elsewhere does to a healthy server."""
LEAST_SPREAD = 0.1
"""Spreads are at least this share of the typical one, so that a function that never varied does not rule."""


def fault_free_functions(windows: Iterable[VectorWindow]) -> frozenset[str]:
    """The functions that matter in a window of a server (HotDep, "Feature-Vector Dimensionality")."""
    return frozenset().union(*(functions_of(window, LEAST_SECONDS[window.metric]) for window in windows))


def fault_free_spread(windows: Sequence[VectorWindow], functions: frozenset[str]) -> dict[str, float]:
    """By function, how far servers' sums lie from their window's median over servers (root mean square).

    This is what the paper's future work divides by. Empty where nothing ever varied.
    """
    squares: dict[str, float] = dict.fromkeys(functions, 0.0)
    servers = 0
    for window in windows:
        names, live, vectors = feature_vectors(window, functions, {})
        if live.size:
            servers += live.size
            for name, square in zip(
                names, ((vectors - np.median(vectors, axis=0)) ** 2).sum(axis=0), strict=True
            ):
                squares[name] += float(square)
    spread = {name: math.sqrt(square / max(servers, 1)) for name, square in squares.items()}
    varied = [value for value in spread.values() if value > 0]
    if not varied:
        return {}
    least = LEAST_SPREAD * float(np.median(varied))
    return {name: max(value, least) for name, value in spread.items()}


def fault_free_thresholds(windows: Iterable[VectorWindow], options: ManhattanOptions) -> dict[str, float]:
    """By server, twice the smallest integer threshold at which none of `windows` is anomalous.

    That is where the paper's binary search ends. A server that is never live among peers gets none.
    """
    largest: dict[str, float] = {}
    for window in windows:
        _, live, vectors = feature_vectors(window, options.functions, options.spread)
        if live.size >= 2:
            for server, distance in zip(live, median_distances(vectors)[0], strict=True):
                name = window.servers[server]
                largest[name] = max(largest.get(name, 0.0), float(distance))
    return {server: CUSHION * math.ceil(distance) for server, distance in largest.items()}
