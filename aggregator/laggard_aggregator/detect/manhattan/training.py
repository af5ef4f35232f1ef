"""Training of `manhattan` on fault-free runs: functions, their spread, and a threshold for every server.

The runs should stress the servers to their limits: that is when healthy ones differ most (HotDep, "Threshold
selection").
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import MIN_PEERS, FunctionWindow, Window
from laggard_aggregator.detect.manhattan import TRAINING_OPTIONS
from laggard_aggregator.detect.manhattan.vectors import (
    UNITS,
    feature_vectors,
    functions_of,
    median_distances,
)
from laggard_aggregator.detect.registry import FaultFree, Trained, Training

THRESHOLD_MARGIN = 2.0
"""The paper doubles thresholds, to mask the effect of a fault elsewhere on a healthy server."""
MIN_SPREAD_SHARE = 0.1
"""Spreads are at least this share of the typical one, so that a function that never varied does not rule."""


Series = tuple[str, str]
"""Group and metric."""
Units = dict[str, float]
"""Functions that count, and the units of their sums."""


def functions(windows: Iterable[Window]) -> dict[Series, Units]:
    """By series the functions that matter in a window of a server, in plain units."""
    names: dict[Series, set[str]] = {}
    for series, window in _each(windows):
        names.setdefault(series, set()).update(functions_of(window, series[1]))
    return {series: dict.fromkeys(sorted(own), 1.0) for series, own in names.items()}


def spreads(windows: Iterable[Window], units: Mapping[Series, Units]) -> dict[Series, Units]:
    """By function, how far servers' sums lie from their window's median over servers (root mean square).

    None below MIN_SPREAD_SHARE of the typical one; `units` where nothing ever varied. The paper's future work
    divides by it.
    """
    squares = {series: dict.fromkeys(own, 0.0) for series, own in units.items()}
    servers = Counter[Series]()
    for series, window in _each(windows):
        names, live, vectors = feature_vectors(window, series[1], units[series], {})
        if live.size:
            servers[series] += live.size
            sums = ((vectors - np.median(vectors, axis=0)) ** 2).sum(axis=0)
            for name, square in zip(names, sums.tolist(), strict=True):
                squares[series][name] += square
    known = dict(units)
    for series, own in squares.items():
        spread = {name: math.sqrt(sum_ / max(servers[series], 1)) for name, sum_ in own.items()}
        varied = [value for value in spread.values() if value > 0]
        if varied:
            least = MIN_SPREAD_SHARE * float(np.median(varied))
            known[series] = {name: max(value, least) for name, value in spread.items()}
    return known


def thresholds(windows: Iterable[Window], units: Mapping[Series, Units]) -> dict[Series, dict[str, float]]:
    """By server, twice the smallest integer threshold at which no window is anomalous.

    That is where the paper's binary search ends. A server that is never live among peers gets none.
    """
    largest: dict[Series, dict[str, float]] = {}
    for series, window in _each(windows):
        own = largest.setdefault(series, {})
        _, live, vectors = feature_vectors(window, series[1], units[series], units[series])
        if live.size >= MIN_PEERS:
            for server, distance in zip(live, median_distances(vectors)[0].tolist(), strict=True):
                name = window.components[server]
                own[name] = max(own.get(name, 0.0), distance)
    return {
        series: {server: THRESHOLD_MARGIN * math.ceil(distance) for server, distance in own.items()}
        for series, own in largest.items()
    }


def learn(windows: FaultFree, options: Mapping[str, Any]) -> Trained:
    """Thresholds and functions by group and metric (HotDep, "Threshold selection").

    Each pass over the windows builds on the one before. `options["divided"]`: by each function's fault-free
    spread.
    """
    units = functions(windows())
    if options.get("divided"):
        units = spreads(windows(), units)
    known = {series: own for series, own in sorted(thresholds(windows(), units).items()) if own}
    return Trained(_nested(known), {UNITS: _nested({series: units[series] for series in known})})


def _each(windows: Iterable[Window]) -> Iterator[tuple[Series, FunctionWindow]]:
    for window in windows:
        if isinstance(window, FunctionWindow):
            for metric in window.metrics:
                yield (window.group, metric), window


def _nested(by_series: Mapping[Series, Units]) -> dict[str, dict[str, Units]]:
    nested: dict[str, dict[str, Units]] = {}
    for (group, metric), own in by_series.items():
        nested.setdefault(group, {})[metric] = own
    return nested


TRAINING = Training(learn, TRAINING_OPTIONS, tables=(UNITS,))
