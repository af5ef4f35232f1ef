"""The Intrepid paper's detector: CDF distances between peers against trained thresholds (4.2).

For each window of one metric: a trailing moving average; histograms over the whole group's range; the
distance of every pair of cumulative histograms; a component is anomalous when more than half of its distances
exceed its own threshold. Distances are unsigned: a component that is faster than its peers is anomalous too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.cdf.bins import Bins, freedman_diaconis
from laggard_aggregator.detect.cdf.distributions import Population, population
from laggard_aggregator.detect.cdf.moving_average import smooth
from laggard_aggregator.detect.cdf.pivots import far_majority
from laggard_aggregator.detect.interface import (
    MIN_PEERS,
    FloatArray,
    IntArray,
    MetricWindow,
    Verdicts,
    not_judged,
)
from laggard_aggregator.detect.peers import leave_one_out_median
from laggard_aggregator.detect.settings import BinLimitMode, DetectSettings

Scalar = TypeVar("Scalar", bound=np.generic)

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


def options_of(settings: DetectSettings) -> CdfOptions:
    """The options that go with `settings` and the thresholds in them."""
    return CdfOptions(bin_limit=settings.bin_limit, bin_limit_mode=settings.bin_limit_mode)


class CdfDetector:
    """Judges windows by CDF distance. It has no state: every window stands alone.

    Thresholds are `settings.thresholds[metric][component]`, in bins; `options` default to the bins that the
    settings name. A component without a threshold is a peer of the others but is not judged itself. Raises
    ValueError on thresholds that are negative or not finite.
    """

    name = "cdf"
    version = 1

    def __init__(self, settings: DetectSettings, metric: str, options: CdfOptions | None = None) -> None:
        self._options = options or options_of(settings)
        self._thresholds = dict(settings.thresholds.get(metric, {}))
        self.history_samples = self._options.moving_average_samples - 1
        if not 1 <= self._options.bin_limit <= np.iinfo(np.int16).max:
            raise ValueError(f"bin limit: expected 1-32767, got {self._options.bin_limit}")
        if not all(0 <= t < np.inf for t in self._thresholds.values()):
            raise ValueError("cdf thresholds: expected finite numbers of 0 or more")
        self._components: tuple[str, ...] = ()
        self._by_component = np.empty(0)

    def observe(self, window: MetricWindow) -> Verdicts:
        """The verdicts on `window`; `score` is the distance to the componentwise median over the threshold.

        The median is that of the components with the commonest number of samples, and a threshold below one
        step of a CDF (1 / WinSize) counts as one step in the score. `severity`, `observed` and `reference`
        come from the mean of the component's samples and the median of its peers' means.
        """
        n = len(window.components)
        group = binned(window, self._options)
        if group is None:
            return not_judged(n, "too few members")
        thresholds = self._thresholds_of(window.components)[group.live]
        known = np.isfinite(thresholds)
        if not known.any():
            return not_judged(n, "no thresholds")
        found = far_majority(group.members, thresholds, known, self._options.pair_budget)
        step = 1 / (window.values.shape[1] - window.history)
        score = np.where(found.decided, found.to_median / np.maximum(thresholds, step), 0.0)
        everyone = np.ones(group.means.size, dtype=np.bool_)
        peers = leave_one_out_median(group.means[:, None], everyone)[:, 0]
        return Verdicts(
            judged=_spread(n, group.live, found.decided, absent=False),
            anomalous=_spread(n, group.live, found.far, absent=False),
            score=_spread(n, group.live, score, absent=0.0),
            severity=_spread(n, group.live, _times_slower(group.means, peers, window.worse), absent=np.nan),
            observed=_spread(n, group.live, group.means, absent=np.nan),
            reference=_spread(n, group.live, peers, absent=np.nan),
            undecided=found.undecided,
        )

    def forget(self, components: Collection[str]) -> None:
        """Does nothing: no state is kept."""

    def state(self) -> dict[str, Any]:
        """Nothing but name and version."""
        return {"name": self.name, "version": self.version}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Accepts a state of this name and version. Raises ValueError on any other."""
        if state.get("name") != self.name or state.get("version") != self.version:
            raise ValueError(f"not a state of {self.name} {self.version}")

    def _thresholds_of(self, components: tuple[str, ...]) -> FloatArray:
        """Thresholds (C,), NaN where there is none; looked up again only when the components change."""
        if components is not self._components and components != self._components:
            self._by_component = np.array([self._thresholds.get(c, np.nan) for c in components])
        self._components = components
        return self._by_component


@dataclass(frozen=True, slots=True)
class BinnedGroup:
    """A group's live members in one window: positions `live` (n,), distributions, raw means (n,)."""

    live: IntArray
    members: Population
    means: FloatArray


def binned(window: MetricWindow, options: CdfOptions) -> BinnedGroup | None:
    """The live members' binned distributions; None with fewer than MIN_PEERS of them."""
    smoothed = smooth(window.values, window.history, options.moving_average_samples)
    live = np.flatnonzero(smoothed.samples >= MIN_PRESENT_SHARE * len(smoothed.values))
    if live.size < MIN_PEERS:
        return None
    smoothed = smoothed.of(live)
    if smoothed.complete:
        bins = _bins(smoothed.values.ravel(), len(smoothed.values), options)
        indexes = bins.indexes(smoothed.values)
    else:
        missing = np.isnan(smoothed.values)
        bins = _bins(smoothed.values[~missing], len(smoothed.values), options)
        indexes = bins.indexes(np.where(missing, bins.low, smoothed.values))
        indexes[missing] = bins.count
    return BinnedGroup(live, population(indexes, smoothed.samples, bins.count), smoothed.means)


def _bins(values: FloatArray, window_samples: int, options: CdfOptions) -> Bins:
    return freedman_diaconis(values, window_samples, options.bin_limit, options.bin_limit_mode)


def _times_slower(means: FloatArray, peers: FloatArray, worse: int) -> FloatArray:
    """How many times slower than the peers, NaN where there is no ratio."""
    above, below = (means, peers) if worse > 0 else (peers, means)
    ratio = np.full(len(means), np.nan)
    if worse != 0:
        np.divide(above, below, out=ratio, where=below > 0)
    return ratio


def _spread(size: int, live: IntArray, values: NDArray[Scalar], absent: float) -> NDArray[Scalar]:
    """`values` of the live components at their places among all `size`, `absent` elsewhere."""
    if len(live) == size:
        return values
    spread = np.full(size, absent, dtype=values.dtype)
    spread[live] = values
    return spread
