"""The HotDep paper's detector: servers whose functions behave unlike their peers', by Manhattan distance.

For each window of one behaviour metric (samples, count or time): a vector over functions per server; the L1
distance of every pair of servers; a server is anomalous when the median distance to the others exceeds its
own trained threshold. Windows are 60 s, moved by 30 s; both are the caller's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from laggard_aggregator.detect.seam import MIN_PEERS, FloatArray, VectorWindow, Verdicts, not_judged
from laggard_aggregator.detect.settings import DetectSettings

LEAST_SECONDS: Mapping[str, float] = {"samples": 0.004, "count": 1.0, "time": 1.0}
"""Time from which a function counts: 100 samples of 100,000 cycles, or 1 s (HotDep, "Dimensionality")."""
TOP_FUNCTIONS = 10
_BLOCK_DISTANCES = 1 << 22


@dataclass(frozen=True, slots=True)
class ManhattanOptions:
    """What training found beside the thresholds, which hold only together with it.

    `functions` are looked at from the first window on, others as soon as they take `LEAST_SECONDS` in one
    window of one server. `spread`: by function, the unit its sums are divided by (the paper's future work;
    from `fault_free_spread`), a function that is not in it by the typical one; empty: plain sums, as in the
    paper.
    """

    functions: frozenset[str] = frozenset()
    spread: Mapping[str, float] = field(default_factory=dict)


class ManhattanDetector:
    """Judges the windows of one group of servers and one behaviour metric, in order of time.

    Thresholds are `settings.thresholds[metric][server]`. A server without one is a peer of the others but
    is not judged itself. Raises ValueError on thresholds that are negative or not finite, and KeyError on a
    metric that is not in LEAST_SECONDS.
    """

    name = "manhattan"
    version = 1

    def __init__(
        self, settings: DetectSettings, metric: str, options: ManhattanOptions | None = None
    ) -> None:
        self._options = options or ManhattanOptions()
        self._least_seconds = LEAST_SECONDS[metric]
        self._thresholds = dict(settings.thresholds.get(metric, {}))
        if not all(0 <= t < np.inf for t in self._thresholds.values()):
            raise ValueError("manhattan thresholds: expected finite numbers of 0 or more")
        self._confirm = settings.confirm
        self._functions = set(self._options.functions)
        self._differences: dict[str, dict[str, float]] = {}
        self._normal_run: dict[str, int] = {}

    def observe(self, window: VectorWindow) -> Verdicts:
        """The verdicts on `window`: `score` is the median distance over the threshold (at least 1).

        `observed` and `reference` are a server's sum over the functions and the median of its peers' sums.
        `causes`: the top ten functions by distance to the median node, summed over the episode's windows.
        """
        n = len(window.servers)
        self._functions |= functions_of(window, self._least_seconds)
        functions, live, vectors = feature_vectors(window, self._functions, self._options.spread)
        if live.size < MIN_PEERS:
            return not_judged(n, "too few members")
        thresholds = np.array([self._thresholds.get(server, np.nan) for server in window.servers])
        known = np.isfinite(thresholds[live])
        if not np.isfinite(thresholds).any():
            return not_judged(n, "no thresholds")
        distance, middle = median_distances(vectors)
        own = thresholds[live]
        judged, anomalous = np.zeros((2, n), dtype=np.bool_)
        score, (observed, reference) = np.zeros(n), np.full((2, n), np.nan)
        judged[live], anomalous[live] = known, known & (distance > own)
        score[live] = np.where(known, distance / np.maximum(np.where(known, own, 1.0), 1.0), 0.0)
        totals = np.where(np.isin(window.functions, functions), window.values, 0.0).sum(axis=1)
        observed[live], reference[live] = totals[live], totals[live[middle]]
        for row, server in enumerate(live):
            if judged[server]:
                difference = np.abs(vectors[row] - vectors[middle[row]]) if anomalous[server] else None
                self._take(window.servers[server], functions, difference)
        return Verdicts(
            judged=judged,
            anomalous=anomalous,
            score=score,
            severity=np.full(n, np.nan),
            observed=observed,
            reference=reference,
            causes={window.servers[s]: self._top(window.servers[s]) for s in np.flatnonzero(anomalous)},
        )

    def _take(self, server: str, functions: tuple[str, ...], difference: FloatArray | None) -> None:
        """Adds an anomalous window's differences; after `confirm` normal windows the episode is over."""
        if difference is None:
            self._normal_run[server] = self._normal_run.get(server, 0) + 1
            if self._normal_run[server] >= self._confirm:
                self._differences.pop(server, None)
            return
        self._normal_run[server] = 0
        sums = self._differences.setdefault(server, {})
        for f in np.flatnonzero(difference):
            sums[functions[f]] = sums.get(functions[f], 0.0) + float(difference[f])

    def _top(self, server: str) -> tuple[tuple[str, float], ...]:
        ranked = sorted(self._differences[server].items(), key=lambda item: (-item[1], item[0]))
        return tuple(ranked[:TOP_FUNCTIONS])

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            "name": self.name,
            "version": self.version,
            "functions": sorted(self._functions),
            "differences": {server: dict(sums) for server, sums in self._differences.items()},
            "normal_run": dict(self._normal_run),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state. Raises ValueError when it is of another detector or version."""
        if state.get("name") != self.name or state.get("version") != self.version:
            raise ValueError(f"not a state of {self.name} {self.version}")
        self._functions = set(state["functions"])
        self._differences = {server: dict(sums) for server, sums in state["differences"].items()}
        self._normal_run = dict(state["normal_run"])


def functions_of(window: VectorWindow, least_seconds: float) -> set[str]:
    """The functions that take at least `least_seconds` of `window` on one server."""
    with np.errstate(invalid="ignore"):
        enough = (window.seconds >= least_seconds).any(axis=0)
    return {window.functions[f] for f in np.flatnonzero(enough)}


def feature_vectors(
    window: VectorWindow, functions: Collection[str], spread: Mapping[str, float]
) -> tuple[tuple[str, ...], NDArray[np.intp], FloatArray]:
    """Which of `functions` the window has (K,), by name; where the live servers are; vectors (live, K)."""
    columns = sorted(
        (f for f, name in enumerate(window.functions) if name in functions), key=window.functions.__getitem__
    )
    names = tuple(window.functions[f] for f in columns)
    live = np.flatnonzero(~np.isnan(window.values).any(axis=1))
    vectors = window.values[live][:, columns]
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
