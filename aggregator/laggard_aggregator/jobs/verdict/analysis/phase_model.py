"""Duration of a phase given its volume, learned from earlier runs.

Log duration is a straight line over log volume. With little history, or volumes that hardly differ, its slope
is 1: twice the data, twice the time. Single slow runs in the history weigh nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

_SLOPE_SPREAD = 0.15
"""Standard deviation of slopes around 1: latency and metadata do not grow with the volume."""
_NOISE = 0.12
_NOISE_RUNS = 10.0
"""Usual noise of a phase's log duration, and the runs that this knowledge weighs as many as."""
_OUTLIER = 3.5
"""Spreads beyond which a run weighs nothing (Tukey's biweight)."""
_GAUSSIAN_MAD = 0.6745
_BIWEIGHT = 1.35
"""Variance of normal noise by its biweighted mean square."""
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class PhaseModel:
    """A fitted line: `centre` of log volumes, `level` of log durations there, and their uncertainties."""

    centre: float
    level: float
    slope: float
    slope_variance: float
    noise: float
    runs: float
    """Runs that weigh, a sum of weights."""

    @classmethod
    def fitted(cls, log_durations: FloatArray, log_volumes: FloatArray) -> Self:
        """The line through the phases of earlier runs, shape (n,) each, n >= 1; robust to a third of them."""
        slope = 1.0
        residuals = log_durations - log_volumes
        level, centre, slope_variance = float(np.median(residuals)), 0.0, _SLOPE_SPREAD**2
        weights = np.ones_like(residuals)
        first = float(np.median(np.abs(residuals - level))) / _GAUSSIAN_MAD
        noise = _shrunk(min(first, 2 * _NOISE) ** 2, residuals.size)
        for _ in range(_ROUNDS):
            residuals = log_durations - level - slope * (log_volumes - centre)
            weights = np.maximum(1 - (residuals / (_OUTLIER * noise)) ** 2, 0.0) ** 2
            total = float(weights.sum())
            if total <= 0:
                weights, total = np.ones_like(residuals), float(residuals.size)
            centre = float(weights @ log_volumes) / total
            level = float(weights @ log_durations) / total
            x, y = log_volumes - centre, log_durations - level
            precision = float(weights @ x**2) / noise**2 + 1 / _SLOPE_SPREAD**2
            slope = (float(weights @ (x * y)) / noise**2 + 1 / _SLOPE_SPREAD**2) / precision
            slope_variance = 1 / precision
            squares = float(weights @ (y - slope * x) ** 2) / total * _BIWEIGHT
            noise = _shrunk(squares, total)
        return cls(centre, level, slope, slope_variance, noise, float(weights.sum()))

    def expected(self, log_volume: float) -> float:
        """Log duration of a phase with this volume."""
        return self.level + self.slope * (log_volume - self.centre)

    def spread(self, log_volume: float) -> float:
        """Standard deviation of the log duration of a new phase around `expected`."""
        line = self.noise**2 * (1 + 1 / self.runs) + self.slope_variance * (log_volume - self.centre) ** 2
        return float(np.sqrt(line))


def _shrunk(variance: float, runs: float) -> float:
    free = max(runs - 1, 0.0)
    return float(np.sqrt((_NOISE_RUNS * _NOISE**2 + free * variance) / (_NOISE_RUNS + free)))
