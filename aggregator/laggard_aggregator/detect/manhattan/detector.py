"""The HotDep paper's detector: servers whose functions behave unlike their peers', by Manhattan distance.

For each window of one behaviour metric (samples, count or time): a vector over functions per server; the L1
distance of every pair of servers; a server is anomalous when the median distance to the others exceeds its
own trained threshold. Windows are 60 s, moved by 30 s; both are the caller's. Without any threshold servers
are held against each other's distances instead, which is not the paper's (docs/function-profiles.md).
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import (
    MAX_CAUSES,
    MIN_PEERS,
    TOO_FEW,
    FloatArray,
    FunctionWindow,
    Verdicts,
    not_judged,
)
from laggard_aggregator.detect.manhattan.training import TRAINING
from laggard_aggregator.detect.manhattan.vectors import (
    UNITS,
    feature_vectors,
    functions_of,
    median_distances,
)
from laggard_aggregator.detect.registry import Detector, register
from laggard_aggregator.detect.settings import DetectSettings

MAX_FUNCTIONS = 65_536
"""Limit of functions that mattered in some window; beyond it those that do not matter now are dropped."""
UNTRAINED_RATIO = 3.0
"""Untrained: how many times the peers' median distance is too much, and how many spreads beyond it."""
LEVEL_WINDOWS = 32
"""Untrained: windows over which the group's usual distance is known."""
MIN_DISTANCE_SHARE = 0.05
"""Untrained: distances below this share of a server's total are never anomalous."""
IDLE_TOTAL_SHARE = 0.25
"""Untrained: a server that does less than this share of the typical one is left out."""


@register
class ManhattanDetector(Detector[FunctionWindow]):
    """Judges the windows of one group of servers and one behaviour metric, in order of time.

    Thresholds are `settings.thresholds[metric][server]`, units `settings.options["functions"][metric]`. A
    server without a threshold is a peer of the others but is not judged itself; if no server has one, servers
    are compared by the shares of their functions, untrained.
    """

    name = "manhattan"
    version = 3
    compares = "functions"
    training = TRAINING

    def __init__(self, settings: DetectSettings, metric: str) -> None:
        super().__init__(settings, metric)
        self._units: dict[str, float] = settings.options.get(UNITS, {}).get(metric, {})
        self._functions = set(self._units)
        self._levels: deque[float] = deque(maxlen=LEVEL_WINDOWS)
        self._differences: dict[str, dict[str, float]] = {}
        self._normal_run: dict[str, int] = {}

    def observe(self, window: FunctionWindow) -> Verdicts:
        """The verdicts on `window`: `score` is the median distance over the threshold (at least 1).

        `observed` and `reference` are a server's sum over the functions and the sum of its median node.
        `causes`: the top ten functions by distance to the median node, summed over the episode's windows; of
        an untrained detector as if every server had done the same amount in all.
        """
        servers, n = window.components, len(window.components)
        now = functions_of(window, self._metric)
        self._functions |= now
        if len(self._functions) > MAX_FUNCTIONS:
            self._functions = now | self._units.keys()
        functions, live, vectors = feature_vectors(window, self._metric, self._functions, self._units)
        totals, thresholds = vectors.sum(axis=1), np.zeros(0)
        if self._thresholds:
            thresholds = np.array([self._thresholds.get(servers[s], np.nan) for s in live])
        else:
            busy = totals > (IDLE_TOTAL_SHARE * float(np.median(totals)) if totals.size else 0.0)
            live, totals = live[busy], totals[busy]
            typical = float(np.median(totals)) if totals.size else 0.0  # more than 0, where most are idle too
            vectors = vectors[busy] * (typical / totals[:, None])
        if live.size < MIN_PEERS:
            return not_judged(n, TOO_FEW)
        if self._thresholds and not np.isfinite(thresholds).any():
            return not_judged(n, "no thresholds")
        distance, middle = median_distances(vectors)
        if not self._thresholds:
            thresholds = typical * self._untrained(distance / typical)
        known = np.isfinite(thresholds)
        judged, anomalous = np.zeros((2, n), dtype=np.bool_)
        score, (observed, reference) = np.zeros(n), np.full((2, n), np.nan)
        judged[live], anomalous[live] = known, known & (distance > thresholds)
        score[live] = np.where(known, distance / np.maximum(np.where(known, thresholds, 1.0), 1.0), 0.0)
        observed[live], reference[live] = totals, totals[middle]
        for row, server in enumerate(live):
            if judged[server]:
                difference = np.abs(vectors[row] - vectors[middle[row]]) if anomalous[server] else None
                self._take(servers[server], functions, difference)
        return Verdicts(
            judged=judged,
            anomalous=anomalous,
            score=score,
            severity=np.full(n, np.nan),
            observed=observed,
            reference=reference,
            causes={servers[s]: self._top(servers[s]) for s in np.flatnonzero(anomalous)},
        )

    def _untrained(self, distance: FloatArray) -> FloatArray:
        """Thresholds (n,) for distances (n,) between shares: of the others' now, and of the group's usual."""
        n = distance.size
        others = np.tile(distance, (n, 1))[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1)
        middle = np.median(others, axis=1)
        spread = 1.4826 * np.median(np.abs(others - middle[:, None]), axis=1)
        usual = float(np.median(self._levels)) if self._levels else 0.0
        self._levels.append(float(np.median(distance)))
        level = UNTRAINED_RATIO * np.maximum(middle, usual)
        thresholds: FloatArray = np.maximum(
            np.maximum(level, middle + UNTRAINED_RATIO * spread), MIN_DISTANCE_SHARE
        )
        return thresholds

    def _take(self, server: str, functions: tuple[str, ...], difference: FloatArray | None) -> None:
        """Adds an anomalous window's differences; after `confirm` normal windows the episode is over."""
        if difference is None:
            self._normal_run[server] = self._normal_run.get(server, 0) + 1
            if self._normal_run[server] >= self._settings.confirm:
                self._differences.pop(server, None)
            return
        self._normal_run[server] = 0
        sums = self._differences.setdefault(server, {})
        for f in np.flatnonzero(difference):
            sums[functions[f]] = sums.get(functions[f], 0.0) + float(difference[f])

    def _top(self, server: str) -> tuple[tuple[str, float], ...]:
        ranked = sorted(self._differences[server].items(), key=lambda item: (-item[1], item[0]))
        return tuple(ranked[:MAX_CAUSES])

    def forget(self, components: Collection[str]) -> None:
        """Frees the state of `components`."""
        for server in components:
            self._differences.pop(server, None)
            self._normal_run.pop(server, None)

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            **super().state(),
            "functions": sorted(self._functions),
            "levels": list(self._levels),
            "differences": {server: dict(sums) for server, sums in self._differences.items()},
            "normal_run": dict(self._normal_run),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state. Raises ValueError when it is of another detector or version."""
        super().restore(state)
        self._functions = set(state["functions"])
        self._levels = deque(state["levels"], maxlen=LEVEL_WINDOWS)
        self._differences = {server: dict(sums) for server, sums in state["differences"].items()}
        self._normal_run = dict(state["normal_run"])
