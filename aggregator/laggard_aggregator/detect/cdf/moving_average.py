"""The trailing moving average that smooths a metric before its distribution is taken (Intrepid 4.2)."""

from dataclasses import dataclass

import numpy as np

from laggard_aggregator.detect.interface import FloatArray, IntArray

MAX_VALUE = 1e300
"""Values beyond this, which no storage metric reaches, count as missing: sums of them would overflow."""


@dataclass(frozen=True, slots=True)
class Smoothed:
    """A smoothed window of C components, samples first, so that later steps run along components.

    `values` (W, C): NaN where the sample is missing. `samples` (C,): how many are there. `means` (C,): of the
    window's raw samples, NaN where there is none.
    """

    values: FloatArray
    samples: IntArray
    means: FloatArray

    @property
    def complete(self) -> bool:
        """True when no sample is missing."""
        return bool((self.samples == len(self.values)).all())

    def of(self, components: IntArray) -> "Smoothed":
        """The same window of some components only, given by position."""
        if len(components) == len(self.samples):
            return self
        return Smoothed(self.values[:, components], self.samples[components], self.means[components])


def smooth(values: FloatArray, history: int, width: int) -> Smoothed:
    """The moving average of `values` (C, history + W), NaN or infinite = missing, over its last W samples.

    Each smoothed sample is the mean of those of the last `width` samples, itself included, that are present,
    added up from the oldest to the newest; where fewer than `width` lie before, of those there are. A missing
    sample stays missing: it is absent from the distribution, never bridged by its neighbours.
    """
    window = values.shape[1] - history
    before = min(history, width - 1)
    series = np.ascontiguousarray(values[:, history - before :].T)
    raw = series[before:]
    if series.min(initial=0.0) >= -MAX_VALUE and series.max(initial=0.0) <= MAX_VALUE and before == width - 1:
        total = _sums(series, window, width)
        total /= width
        samples = np.full(series.shape[1], window)
        return Smoothed(total, samples, raw.sum(axis=0) / window)
    with np.errstate(invalid="ignore"):
        here = np.abs(series) <= MAX_VALUE
    lead = ((width - 1 - before, 0), (0, 0))  # missing where the history is shorter
    filled = np.pad(np.where(here, series, 0.0), lead)
    seen = _sums(np.pad(here.astype(np.float64), lead), window, width)
    samples = np.count_nonzero(here[before:], axis=0)
    with np.errstate(invalid="ignore"):
        means = filled[-window:].sum(axis=0) / samples
        smoothed = np.where(here[before:], _sums(filled, window, width) / seen, np.nan)
    return Smoothed(smoothed, samples, means)


def _sums(series: FloatArray, window: int, width: int) -> FloatArray:
    """Sums (window, C) over `width` rows of `series` (window + width - 1, C), added in their order."""
    total = series[:window].copy()
    for k in range(1, width):
        total += series[k : k + window]
    return total
