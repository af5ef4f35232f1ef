"""The binned distributions of a peer group over one window, from smoothed samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from laggard_aggregator.detect.cdf.bins import BinLimitMode, freedman_diaconis
from laggard_aggregator.detect.cdf.distributions import Population, population
from laggard_aggregator.detect.cdf.moving_average import Smoothed, smooth
from laggard_aggregator.detect.interface import MIN_PEERS, FloatArray, IntArray

MIN_PRESENT_SHARE = 0.75
"""A component with fewer of a window's samples (45 of 60) is absent from the comparison."""


@dataclass(frozen=True, slots=True)
class CdfOptions:
    """The paper's constants (moving average, bin limit) and the choice it leaves open (the limit's mode).

    Thresholds hold only for the options that they were trained with. `pair_budget`: how many pair distances
    one window may compute; components beyond it are not judged. 100 million are all pairs of 10,000
    components, some seconds of one core.
    """

    moving_average_samples: int = 15
    bin_limit: int = 1000
    bin_limit_mode: BinLimitMode = "widen"
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


def present(smoothed: Smoothed) -> IntArray:
    """Positions of the components with enough samples."""
    return np.flatnonzero(smoothed.samples >= MIN_PRESENT_SHARE * len(smoothed.values))


def smoothed_samples(values: FloatArray, history: int) -> FloatArray:
    """The samples (W, C) of `values` (C, H + W) that are compared, before binning; NaN: absent components."""
    smoothed = smooth(values, history, CdfOptions().moving_average_samples)
    absent = np.ones(len(values), dtype=np.bool_)
    absent[present(smoothed)] = False
    return np.where(absent, np.nan, smoothed.values)


def binned(values: FloatArray, history: int, options: CdfOptions) -> BinnedGroup | None:
    """The live members' distributions from `values` (C, H + W); None with fewer than MIN_PEERS."""
    smoothed = smooth(values, history, options.moving_average_samples)
    live = present(smoothed)
    if live.size < MIN_PEERS:
        return None
    smoothed = smoothed.of(live)
    values, missing = smoothed.values, None if smoothed.complete else np.isnan(smoothed.values)
    known = values.ravel() if missing is None else values[~missing]
    bins = freedman_diaconis(known, len(values), options.bin_limit, options.bin_limit_mode)
    indexes = bins.indexes(values if missing is None else np.where(missing, bins.low, values))
    if missing is not None:
        indexes[missing] = bins.count
    return BinnedGroup(live, population(indexes, smoothed.samples, bins.count), smoothed.means)
