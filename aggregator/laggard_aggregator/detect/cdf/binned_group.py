"""The binned distributions of a peer group over one window, from samples that a moving average smooths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from laggard_aggregator.detect.cdf import BIN_LIMIT, BIN_LIMIT_MODE, BinLimitMode
from laggard_aggregator.detect.cdf.bins import freedman_diaconis
from laggard_aggregator.detect.cdf.distributions import Population, population
from laggard_aggregator.detect.interface import MIN_PEERS, FloatArray, IntArray

MIN_PRESENT_SHARE = 0.75
"""A component with fewer of a window's samples (45 of 60) is absent from the comparison."""
MAX_VALUE = 1e300
"""Values beyond this, which no storage metric reaches, count as missing: sums of them would overflow."""


@dataclass(frozen=True, slots=True)
class CdfOptions:
    """The paper's constants (moving average, bin limit) and the choice it leaves open (the limit's mode).

    Thresholds hold only for the options that they were trained with. `pair_budget`: how many pair distances
    one window may compute; components beyond it are not judged. 100 million are all pairs of 10,000
    components, some seconds of one core.
    """

    moving_average_samples: int = 15
    bin_limit: int = BIN_LIMIT
    bin_limit_mode: BinLimitMode = BIN_LIMIT_MODE
    pair_budget: int = 100_000_000


def options_of(values: Mapping[str, Any]) -> CdfOptions:
    """The options with those of `values` that a thresholds file has."""
    return CdfOptions(**{name: values[name] for name in ("bin_limit", "bin_limit_mode") if name in values})


@dataclass(frozen=True, slots=True)
class BinnedGroup:
    """A group's live members in one window: positions `live` (n,), distributions, raw means (n,)."""

    live: IntArray
    members: Population
    means: FloatArray


def smooth(values: FloatArray, history: int, width: int) -> tuple[FloatArray, IntArray, FloatArray]:
    """The moving average of `values` (C, history + W), NaN or infinite = missing, over its last W samples.

    Each smoothed sample is the mean of those of the last `width` samples, itself included, that are present,
    added up from the oldest to the newest; where fewer than `width` lie before, of those there are. A missing
    sample stays missing: it is absent from the distribution, never bridged by its neighbours. Returns the
    means (W, C), samples first, so that later steps run along components; how many are there (C,); and the
    means of the window's raw samples (C,), NaN where there is none.
    """
    window = values.shape[1] - history
    before = min(history, width - 1)
    series = np.ascontiguousarray(values[:, history - before :].T)
    raw = series[before:]
    if series.min(initial=0.0) >= -MAX_VALUE and series.max(initial=0.0) <= MAX_VALUE and before == width - 1:
        total = _sums(series, window, width)
        total /= width
        samples = np.full(series.shape[1], window)
        return total, samples, raw.sum(axis=0) / window
    with np.errstate(invalid="ignore"):
        here = np.abs(series) <= MAX_VALUE
    lead = ((width - 1 - before, 0), (0, 0))  # missing where the history is shorter
    filled = np.pad(np.where(here, series, 0.0), lead)
    seen = _sums(np.pad(here.astype(np.float64), lead), window, width)
    samples = np.count_nonzero(here[before:], axis=0)
    with np.errstate(invalid="ignore"):
        means = filled[-window:].sum(axis=0) / samples
        smoothed = np.where(here[before:], _sums(filled, window, width) / seen, np.nan)
    return smoothed, samples, means


def _sums(series: FloatArray, window: int, width: int) -> FloatArray:
    """Sums (window, C) over `width` rows of `series` (window + width - 1, C), added in their order."""
    total = series[:window].copy()
    for k in range(1, width):
        total += series[k : k + window]
    return total


def smoothed_samples(values: FloatArray, history: int) -> FloatArray:
    """The samples (W, C) of `values` (C, H + W) that are compared, before binning; NaN: absent components."""
    smoothed, samples, _ = smooth(values, history, CdfOptions().moving_average_samples)
    return np.where(samples >= MIN_PRESENT_SHARE * len(smoothed), smoothed, np.nan)


def binned(values: FloatArray, history: int, options: CdfOptions) -> BinnedGroup | None:
    """The live members' distributions from `values` (C, H + W); None with fewer than MIN_PEERS."""
    smoothed, samples, means = smooth(values, history, options.moving_average_samples)
    live = np.flatnonzero(samples >= MIN_PRESENT_SHARE * len(smoothed))
    if live.size < MIN_PEERS:
        return None
    if live.size < samples.size:
        smoothed, samples, means = smoothed[:, live], samples[live], means[live]
    missing = None if (samples == len(smoothed)).all() else np.isnan(smoothed)
    known = smoothed.ravel() if missing is None else smoothed[~missing]
    bins = freedman_diaconis(known, len(smoothed), options.bin_limit, options.bin_limit_mode)
    indexes = bins.indexes(smoothed if missing is None else np.where(missing, bins.low, smoothed))
    if missing is not None:
        indexes[missing] = bins.count
    return BinnedGroup(live, population(indexes, samples, bins.count), means)
