"""Accumulated evidence: log ratios to peers, averaged over the last 1 to 32 windows at once.

A short average sees a large fault at once, a long one a small steady fault. All are causal. Averages are kept
by component name, so that components may come, go and change places.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray

SCALE_WINDOWS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
"""Lengths of the averages, in windows."""
SEVERITY_SCALE = 2
"""Index of the average that gives the severity."""
RECENT_SCALE = 1
"""Index of the average that gives the present state: its two windows outweigh the past eight times."""
IDLE_HALF_LIFE_WINDOWS = 32.0
"""Windows without I/O after which half of the evidence is forgotten."""
SPREAD_MEMORY_WINDOWS = 96.0
"""Windows over which a component's mean square is averaged."""
NOISE_MEMORY_WINDOWS = 32.0
"""Windows over which a component's own noise is averaged."""
MIN_LENGTH_WINDOWS = 0.01

_PER_SCALE = ("average", "moment")
_SINGLE = ("slowness", "windows", "seen", "noise", "heard", "score")


class Evidence:
    """Evidence on each of N components of a group; float64 arrays, one column a component.

    `average` (K, N): mean of the evidence over SCALE_WINDOWS windows, each bounded; `slowness` (N,): mean log
    ratio of the metric itself over SCALE_WINDOWS[SEVERITY_SCALE] windows, unbounded. `windows` (N,): windows
    behind them. `moment` (K, N): mean square of the average about the group's centre in single-window units,
    over `seen` (N,) windows. `noise` (N,): squared standard error of one whole window's evidence, over
    `heard` (N,) windows. `score` (N,): the last one.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.average: FloatArray = np.zeros((SCALE_WINDOWS.size, 0))
        self.moment: FloatArray = np.zeros((SCALE_WINDOWS.size, 0))
        self.slowness: FloatArray = np.zeros(0)
        self.windows: FloatArray = np.zeros(0)
        self.seen: FloatArray = np.zeros(0)
        self.noise: FloatArray = np.zeros(0)
        self.heard: FloatArray = np.zeros(0)
        self.score: FloatArray = np.zeros(0)
        self._rows: dict[str, int] = {}
        self._last: tuple[Sequence[str], NDArray[np.intp]] = ((), np.zeros(0, dtype=np.intp))

    def places(self, components: Sequence[str]) -> NDArray[np.intp]:
        """The columns of `components`, made where they are new; cheap when asked again for the same ones."""
        if self._last[0] is not components:
            new = [name for name in components if name not in self._rows]
            self._rows.update(zip(new, range(len(self.names), len(self.names) + len(new)), strict=True))
            self.names.extend(new)
            for name in _PER_SCALE:
                setattr(self, name, np.pad(getattr(self, name), ((0, 0), (0, len(new)))))
            for name in _SINGLE:
                setattr(self, name, np.pad(getattr(self, name), (0, len(new))))
            places = np.fromiter(map(self._rows.__getitem__, components), np.intp, len(components))
            self._last = (components, places)
        return self._last[1]

    def add(
        self,
        places: NDArray[np.intp],
        excess: FloatArray,
        felt: FloatArray,
        weight: FloatArray,
        bound: float,
    ) -> None:
        """Adds one window's evidence `excess` (C,), which counts up to `bound`, and log ratios `felt` (C,).

        `weight` (C,): the share of the window with usable samples. Where it was less than 1 the evidence
        decays for the rest; 0 is idleness or absence.
        """
        windows = (
            self.windows[places] * 0.5 ** (np.maximum(1.0 - weight, 0.0) / IDLE_HALF_LIFE_WINDOWS) + weight
        )
        self.windows[places] = np.minimum(windows, SCALE_WINDOWS[-1])
        known = weight > 0
        rows, share = places[known], weight[known]
        fading = share * 2.0 / (SCALE_WINDOWS[:, None] + 1.0)
        gain = np.minimum(np.maximum(fading, share / self.windows[rows]), 1.0)
        self.average[:, rows] += gain * (np.clip(excess[known], -bound, bound) - self.average[:, rows])
        self.slowness[rows] += gain[SEVERITY_SCALE] * (felt[known] - self.slowness[rows])

    def add_noise(self, places: NDArray[np.intp], variance: FloatArray) -> None:
        """Adds each component's squared standard error (C,) in this window; NaN = unknown."""
        known = np.isfinite(variance)
        rows = places[known]
        self.heard[rows] = np.minimum(self.heard[rows] + 1.0, NOISE_MEMORY_WINDOWS)
        self.noise[rows] += (variance[known] - self.noise[rows]) / self.heard[rows]

    def add_squares(self, places: NDArray[np.intp], square: FloatArray, weight: FloatArray) -> None:
        """Adds the squares (K, C), in single-window units, of the averages; `weight` (C,) as in `add`."""
        rows, share = places[weight > 0], np.minimum(weight[weight > 0], 1.0)
        self.seen[rows] = np.minimum(self.seen[rows] + share, SPREAD_MEMORY_WINDOWS)
        self.moment[:, rows] += share / self.seen[rows] * (square[:, weight > 0] - self.moment[:, rows])

    def restart(self, rows: NDArray[np.intp]) -> None:
        """Restarts the evidence of `rows` from the recent average, without mean squares and noise."""
        recent = self.average[RECENT_SCALE, rows]
        self.average[RECENT_SCALE + 1 :, rows] = recent
        self.slowness[rows] = recent
        self.windows[rows] = np.minimum(self.windows[rows], SCALE_WINDOWS[RECENT_SCALE])
        self.moment[:, rows] = 0.0
        for kept in (self.seen, self.noise, self.heard):
            kept[rows] = 0.0

    def lengths(self, places: NDArray[np.intp]) -> FloatArray:
        """How many windows each average rests on; (K, C), more than 0."""
        lengths: FloatArray = np.minimum(SCALE_WINDOWS[:, None], self.windows[places][None, :])
        return np.maximum(lengths, MIN_LENGTH_WINDOWS)

    def forget(self, components: Collection[str]) -> None:
        """Frees the evidence on `components`."""
        kept = np.array([row for row, name in enumerate(self.names) if name not in components], dtype=np.intp)
        self.names = [self.names[row] for row in kept]
        self._rows = {name: row for row, name in enumerate(self.names)}
        for name in (*_PER_SCALE, *_SINGLE):
            setattr(self, name, getattr(self, name)[..., kept])
        self._last = ((), np.zeros(0, dtype=np.intp))

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` goes on exactly."""
        arrays = {name: getattr(self, name).tolist() for name in (*_PER_SCALE, *_SINGLE)}
        return {"names": list(self.names), **arrays}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "Evidence":
        """The evidence that `state` was taken of."""
        evidence = cls()
        evidence.names = [str(name) for name in state["names"]]
        evidence._rows = {name: row for row, name in enumerate(evidence.names)}
        for name in _PER_SCALE:
            setattr(evidence, name, np.array(state[name], dtype=np.float64).reshape(SCALE_WINDOWS.size, -1))
        for name in _SINGLE:
            setattr(evidence, name, np.array(state[name], dtype=np.float64))
        return evidence
