"""Accumulated evidence: log ratios to peers, averaged over the last 1 to 32 windows at once.

A short average sees a large fault at once, a long one a small steady fault. All are causal. Averages are kept
by component name, so that components may come, go and change places.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray

SCALES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
"""Lengths of the averages, in windows."""
SEVERITY = 2
"""Which of them the severity is told by."""
RECENT = 1
"""Which of them tells how things are now: two windows outweigh what was before them eight times."""
IDLE_HALF_LIFE = 32.0
"""Windows without I/O after which half of the evidence is forgotten."""
SPREAD_MEMORY = 96.0
"""Windows over which a component's mean square is averaged."""
NOISE_MEMORY = 32.0
"""Windows over which a component's own noise is averaged."""
TINY_LENGTH = 0.01

_PER_SCALE = ("average", "moment")
_SINGLE = ("slowness", "windows", "seen", "noise", "heard", "score")


class Evidence:
    """What is known of each of N components of a group; float64 arrays, one column a component.

    `average` (K, N): mean of what counts as evidence over SCALES windows, each bounded; `slowness` (N,): mean
    log ratio of the metric itself over SCALES[SEVERITY] windows, unbounded. `windows` (N,): windows behind
    them. `moment` (K, N): mean square of the average about the group's centre in single-window units, over
    `seen` (N,) windows. `noise` (N,): squared standard error of one whole window's evidence, over `heard`
    (N,) windows. `score` (N,): the last one.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.average: FloatArray = np.zeros((SCALES.size, 0))
        self.moment: FloatArray = np.zeros((SCALES.size, 0))
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
        """Takes one window's evidence `excess` (C,), which counts up to `bound`, and log ratios `felt` (C,).

        `weight` (C,): the share of the window that told anything. Where it was less than 1 the evidence
        decays for the rest; 0 is idleness or absence.
        """
        windows = self.windows[places] * 0.5 ** (np.maximum(1.0 - weight, 0.0) / IDLE_HALF_LIFE) + weight
        self.windows[places] = np.minimum(windows, SCALES[-1])
        known = weight > 0
        rows, share = places[known], weight[known]
        fading = share * 2.0 / (SCALES[:, None] + 1.0)
        gain = np.minimum(np.maximum(fading, share / self.windows[rows]), 1.0)
        self.average[:, rows] += gain * (np.clip(excess[known], -bound, bound) - self.average[:, rows])
        self.slowness[rows] += gain[SEVERITY] * (felt[known] - self.slowness[rows])

    def add_noise(self, places: NDArray[np.intp], variance: FloatArray) -> None:
        """Takes each component's squared standard error (C,) in this window; NaN = unknown."""
        known = np.isfinite(variance)
        rows = places[known]
        self.heard[rows] = np.minimum(self.heard[rows] + 1.0, NOISE_MEMORY)
        self.noise[rows] += (variance[known] - self.noise[rows]) / self.heard[rows]

    def add_squares(self, places: NDArray[np.intp], square: FloatArray, weight: FloatArray) -> None:
        """Takes the squares (K, C), in single-window units, of the averages; `weight` (C,) as in `add`."""
        rows, share = places[weight > 0], np.minimum(weight[weight > 0], 1.0)
        self.seen[rows] = np.minimum(self.seen[rows] + share, SPREAD_MEMORY)
        self.moment[:, rows] += share / self.seen[rows] * (square[:, weight > 0] - self.moment[:, rows])

    def start_again(self, rows: NDArray[np.intp]) -> None:
        """Forgets for `rows` what lies before the recent average, mean squares and noise included."""
        recent = self.average[RECENT, rows]
        self.average[RECENT + 1 :, rows] = recent
        self.slowness[rows] = recent
        self.windows[rows] = np.minimum(self.windows[rows], SCALES[RECENT])
        self.moment[:, rows] = 0.0
        for kept in (self.seen, self.noise, self.heard):
            kept[rows] = 0.0

    def lengths(self, places: NDArray[np.intp]) -> FloatArray:
        """How many windows each average rests on; (K, C), more than 0."""
        lengths: FloatArray = np.minimum(SCALES[:, None], self.windows[places][None, :])
        return np.maximum(lengths, TINY_LENGTH)

    def forget(self, components: Collection[str]) -> None:
        """Frees what is known of `components`."""
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
            setattr(evidence, name, np.array(state[name], dtype=np.float64).reshape(SCALES.size, -1))
        for name in _SINGLE:
            setattr(evidence, name, np.array(state[name], dtype=np.float64))
        return evidence
