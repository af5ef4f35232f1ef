"""Training of `manhattan` on fault-free runs: functions, their spread, and a threshold for every server.

The runs should stress the servers to their limits: that is when healthy ones differ most (HotDep, "Threshold
selection").
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from laggard_aggregator.detect.interface import MIN_PEERS, FunctionWindow, VectorWindow
from laggard_aggregator.detect.manhattan.vectors import (
    MIN_SECONDS,
    UNITS,
    ManhattanOptions,
    feature_vectors,
    functions_of,
    median_distances,
)
from laggard_aggregator.detect.registry import FaultFree, Trained, Training, TrainingOption

THRESHOLD_MARGIN = 2.0
"""The paper doubles thresholds, to mask the effect of a fault elsewhere on a healthy server."""
MIN_SPREAD_SHARE = 0.1
"""Spreads are at least this share of the typical one, so that a function that never varied does not rule."""


class FunctionsLearner:
    """The functions that matter in a window of a server (HotDep, "Feature-Vector Dimensionality")."""

    def __init__(self) -> None:
        self.functions: set[str] = set()

    def add(self, window: VectorWindow) -> None:
        """Adds a fault-free window."""
        self.functions |= functions_of(window, MIN_SECONDS[window.metric])


class SpreadLearner:
    """By function, how far servers' sums lie from their window's median over servers (root mean square).

    The paper's future work divides by it.
    """

    def __init__(self, functions: Collection[str]) -> None:
        self._squares: dict[str, float] = dict.fromkeys(functions, 0.0)
        self._servers = 0

    def add(self, window: VectorWindow) -> None:
        """Adds a fault-free window."""
        names, live, vectors = feature_vectors(window, self._squares, {})
        if live.size:
            self._servers += live.size
            squares = ((vectors - np.median(vectors, axis=0)) ** 2).sum(axis=0)
            for name, square in zip(names, squares.tolist(), strict=True):
                self._squares[name] += square

    def spread(self) -> dict[str, float]:
        """The spreads, none below MIN_SPREAD_SHARE of the typical one; empty where nothing ever varied."""
        spread = {name: math.sqrt(sum_ / max(self._servers, 1)) for name, sum_ in self._squares.items()}
        varied = [value for value in spread.values() if value > 0]
        if not varied:
            return {}
        least = MIN_SPREAD_SHARE * float(np.median(varied))
        return {name: max(value, least) for name, value in spread.items()}


class ThresholdsLearner:
    """By server, twice the smallest integer threshold at which no window is anomalous.

    That is where the paper's binary search ends. A server that is never live among peers gets none.
    """

    def __init__(self, options: ManhattanOptions) -> None:
        self._options = options
        self._largest: dict[str, float] = {}

    def add(self, window: VectorWindow) -> None:
        """Adds a fault-free window."""
        _, live, vectors = feature_vectors(window, self._options.functions, self._options.spread)
        if live.size >= MIN_PEERS:
            for server, distance in zip(live, median_distances(vectors)[0].tolist(), strict=True):
                name = window.servers[server]
                self._largest[name] = max(self._largest.get(name, 0.0), distance)

    def thresholds(self) -> dict[str, float]:
        """The thresholds by server."""
        return {server: THRESHOLD_MARGIN * math.ceil(distance) for server, distance in self._largest.items()}


class _Learner(Protocol):
    def add(self, window: VectorWindow) -> None: ...


Series = tuple[str, str]
"""Group and metric."""
Learner = TypeVar("Learner", bound=_Learner)


def fed(learner: Learner, windows: Iterable[VectorWindow]) -> Learner:
    """`learner` after all `windows`."""
    for window in windows:
        learner.add(window)
    return learner


def learn(windows: FaultFree, options: Mapping[str, Any]) -> Trained:
    """Thresholds and functions by group and metric (HotDep, "Threshold selection").

    Each pass over the windows builds on the one before. `options["divided"]`: by each function's fault-free
    spread.
    """
    taken = _pass(windows, lambda _: FunctionsLearner())
    units = {series: dict.fromkeys(sorted(own.functions), 1.0) for series, own in taken.items()}
    if options.get("divided"):
        spreads = _pass(windows, lambda series: SpreadLearner(units[series]))
        units = {series: own.spread() or units[series] for series, own in spreads.items()}
    learned = _pass(
        windows, lambda series: ThresholdsLearner(ManhattanOptions(frozenset(units[series]), units[series]))
    )
    known = {series: own.thresholds() for series, own in learned.items()}
    known = {series: own for series, own in sorted(known.items()) if own}
    return Trained(_nested(known), {UNITS: _nested({series: units[series] for series in known})})


def _pass(windows: FaultFree, make: Callable[[Series], Learner]) -> dict[Series, Learner]:
    learners: dict[Series, Learner] = {}
    for window, _ in windows():
        if isinstance(window, FunctionWindow):
            for metric in window.metrics:
                series = (window.group, metric)
                if series not in learners:
                    learners[series] = make(series)
                learners[series].add(window.of(metric))
    return learners


def _nested(by_series: Mapping[Series, dict[str, float]]) -> dict[str, dict[str, dict[str, float]]]:
    nested: dict[str, dict[str, dict[str, float]]] = {}
    for (group, metric), own in by_series.items():
        nested.setdefault(group, {})[metric] = own
    return nested


TRAINING = Training(
    learn,
    options=(
        TrainingOption(
            "divided",
            "manhattan: divide the sums of each function by its spread over healthy servers",
            default=False,
            kept=False,
        ),
    ),
    tables=(UNITS,),
)
