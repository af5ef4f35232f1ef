"""Peer groups whose windows differ in what makes comparing them dear: how far apart their members lie."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray, GroupWindow

SHAPES = ("homogeneous", "two clusters", "four clusters", "bursty", "heavy-tailed")
HISTORY = 14
WINDOW = 60
INTERVAL_SECONDS = 15.0

Rows = NDArray[np.float64]


class PeerGroup:
    """`components` members whose await, in ms, is drawn anew for every span of samples; nobody is slow."""

    def __init__(self, shape: str, components: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._draw: Callable[[tuple[int, int]], Rows] = {
            "homogeneous": self._even,
            "two clusters": self._even,
            "four clusters": self._even,
            "bursty": self._bursts,
            "heavy-tailed": self._heavy,
        }[shape]
        clusters = {"two clusters": [1.0, 3.0], "four clusters": [1.0, 2.0, 4.0, 8.0]}.get(shape, [1.0])
        self._level = np.resize(clusters, components)[:, np.newaxis]
        self._level = self._level * np.exp(self._rng.normal(0, 0.03, self._level.shape))
        self.names = tuple(f"nsd{c // 96}/sd{c % 96}" for c in range(components))

    def samples(self, count: int) -> FloatArray:
        """The next `count` samples of all members, (components, count)."""
        drawn: FloatArray = self._draw((len(self.names), count)) * self._level
        return drawn

    def window(self) -> GroupWindow:
        """A window of its own, with the history before it."""
        return self.slice(self.samples(HISTORY + WINDOW))

    def slice(self, values: FloatArray) -> GroupWindow:
        """`values` (components, HISTORY + WINDOW) as a window."""
        return GroupWindow("g", self.names, 0.0, WINDOW * INTERVAL_SECONDS, HISTORY, {"await": values})

    def _even(self, size: tuple[int, int]) -> Rows:
        return self._rng.gamma(4.0, 2.0, size)

    def _bursts(self, size: tuple[int, int]) -> Rows:
        """Nearly idle, with bursts of ten samples that begin in one sample of fifty."""
        begins = self._rng.random(size) < 0.02
        inside = begins.copy()
        for k in range(1, 10):
            inside[:, k:] |= begins[:, :-k]
        return np.where(inside, self._rng.gamma(2.0, 20.0, size), self._rng.gamma(2.0, 0.3, size))

    def _heavy(self, size: tuple[int, int]) -> Rows:
        return 2.0 + self._rng.pareto(2.2, size) * 3.0
