"""Accumulated evidence: log ratios to peers, averaged over the last 1 to 32 windows at once.

A short average sees a large fault at once, a long one a small steady fault. All are causal. Averages are kept
by component name, so that components may come, go and change places.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.seam import BoolArray, FloatArray

SCALES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
"""Lengths of the averages, in windows."""
IDLE_HALF_LIFE = 32.0
"""Windows without I/O after which half of the evidence is forgotten."""
MEMORY = 96.0
"""Windows over which a component's mean square is averaged."""
CLIP = 3.0
"""Deviations enter the mean square up to so many spreads."""

_PER_SCALE = ("average", "moment")
_SINGLE = ("windows", "seen", "score")


class Evidence:
    """What is known of each of N components of a group.

    `average` (K, N): mean log ratio over SCALES windows. `windows` (N,): windows behind it. `moment` (K, N):
    mean square of the average about the group's centre, times the square root of its length, over `seen` (N,)
    windows. `score` (N,): the last one.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self.average: FloatArray = np.zeros((SCALES.size, 0))
        self.moment: FloatArray = np.zeros((SCALES.size, 0))
        self.windows: FloatArray = np.zeros(0)
        self.seen: FloatArray = np.zeros(0)
        self.score: FloatArray = np.zeros(0)
        self._last: tuple[Sequence[str], NDArray[np.intp]] = ((), np.zeros(0, dtype=np.intp))

    def places(self, components: Sequence[str]) -> NDArray[np.intp]:
        """The rows of `components`, made where they are new; cheap when asked again for the same ones."""
        if self._last[0] is not components:
            new = [name for name in components if name not in self.rows]
            self.rows.update(zip(new, range(len(self.names), len(self.names) + len(new)), strict=True))
            self.names.extend(new)
            for name in _PER_SCALE:
                setattr(self, name, np.pad(getattr(self, name), ((0, 0), (0, len(new)))))
            for name in _SINGLE:
                setattr(self, name, np.pad(getattr(self, name), (0, len(new))))
            places = np.fromiter(map(self.rows.__getitem__, components), np.intp, len(components))
            self._last = (components, places)
        return self._last[1]

    def add(self, places: NDArray[np.intp], excess: FloatArray, live: BoolArray) -> None:
        """Takes one window's log ratios `excess` (C,) of the `live` components; others' evidence decays."""
        self.windows[places[~live]] *= 0.5 ** (1.0 / IDLE_HALF_LIFE)
        rows = places[live]
        self.windows[rows] = np.minimum(self.windows[rows] + 1.0, SCALES[-1])
        gain = np.maximum(2.0 / (SCALES[:, None] + 1.0), 1.0 / np.maximum(self.windows[rows], 1.0)[None, :])
        self.average[:, rows] += gain * (excess[live] - self.average[:, rows])

    def add_squares(self, places: NDArray[np.intp], square: FloatArray, live: BoolArray) -> None:
        """Takes the squares (K, C), in single-window units, of the `live` components' averages."""
        rows = places[live]
        self.seen[rows] = np.minimum(self.seen[rows] + 1.0, MEMORY)
        self.moment[:, rows] += (square[:, live] - self.moment[:, rows]) / self.seen[rows]

    def lengths(self, places: NDArray[np.intp]) -> FloatArray:
        """How many windows each average rests on; (K, C)."""
        lengths: FloatArray = np.maximum(np.minimum(SCALES[:, None], self.windows[places][None, :]), 1.0)
        return lengths

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` goes on exactly."""
        arrays = {name: getattr(self, name).tolist() for name in (*_PER_SCALE, *_SINGLE)}
        return {"names": list(self.names), **arrays}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "Evidence":
        """The evidence that `state` was taken of."""
        evidence = cls()
        evidence.names = [str(name) for name in state["names"]]
        evidence.rows = {name: row for row, name in enumerate(evidence.names)}
        for name in _PER_SCALE:
            setattr(evidence, name, np.array(state[name], dtype=np.float64).reshape(SCALES.size, -1))
        for name in _SINGLE:
            setattr(evidence, name, np.array(state[name], dtype=np.float64))
        return evidence
