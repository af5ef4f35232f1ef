"""The Intrepid paper's detector: CDF distances between peers against trained thresholds (4.2).

For each window of one metric: a trailing moving average; histograms over the whole group's range; the
distance of every pair of cumulative histograms; a component is anomalous when more than half of its distances
exceed its own threshold. Distances are unsigned: a component that is faster than its peers is anomalous too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from laggard_aggregator.detect.binning import BinLimitMode, freedman_diaconis
from laggard_aggregator.detect.distributions import IntArray, Population, population
from laggard_aggregator.detect.leave_one_out import leave_one_out_median
from laggard_aggregator.detect.moving_average import moving_average, present
from laggard_aggregator.detect.pivots import far_majority
from laggard_aggregator.detect.seam import (
    MIN_PEERS,
    BoolArray,
    FloatArray,
    MetricWindow,
    Verdicts,
    not_judged,
)
from laggard_aggregator.detect.settings import DetectSettings

LEAST_PRESENT = 0.75
"""A component with fewer of a window's samples (45 of 60) is absent from the comparison."""


@dataclass(frozen=True, slots=True)
class CdfOptions:
    """What the paper fixes (moving average, bin limit) and what it leaves open (the limit's mode).

    Thresholds hold only for the options that they were trained with. `pair_budget`: how many pair distances
    one window may compute; components beyond it are not judged. 100 million are all pairs of 10,000
    components, some seconds of one core.
    """

    moving_average_samples: int = 15
    bin_limit: int = 1000
    bin_limit_mode: BinLimitMode = "widen"
    pair_budget: int = 100_000_000


class CdfDetector:
    """Judges windows by CDF distance. It has no state: every window stands alone.

    Thresholds are `settings.thresholds[metric][component]`, in bins. A component without one is a peer of the
    others but is not judged itself. Raises ValueError on thresholds that are negative or not finite.
    """

    name = "cdf"
    version = 1

    def __init__(self, settings: DetectSettings, metric: str, options: CdfOptions | None = None) -> None:
        self._options = options or CdfOptions()
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
        live, members = binned(window, self._options)
        if members is None:
            return not_judged(n, "too few members")
        thresholds = self._thresholds_of(window.components)
        known = np.isfinite(thresholds)
        if not known.any():
            return not_judged(n, "no thresholds")
        judged, anomalous, score = np.zeros((3, n))
        own = thresholds[live]
        found = far_majority(members, own, known[live], self._options.pair_budget)
        judged[live], anomalous[live] = found.decided, found.far
        step = 1 / (window.values.shape[1] - window.history)
        score[live] = np.where(found.decided, found.to_median / np.maximum(own, step), 0.0)
        observed, reference, severity = _against_peers(window, live)
        return Verdicts(
            judged=judged.astype(np.bool_),
            anomalous=anomalous.astype(np.bool_),
            score=score,
            severity=severity,
            observed=observed,
            reference=reference,
            undecided=found.undecided,
        )

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


def binned(window: MetricWindow, options: CdfOptions) -> tuple[IntArray, Population | None]:
    """Positions of the live components, and their distributions: None with fewer than MIN_PEERS of them."""
    smoothed = moving_average(window.values, window.history, options.moving_average_samples)
    samples = np.count_nonzero(~np.isnan(smoothed), axis=0)
    live = np.flatnonzero(samples >= LEAST_PRESENT * len(smoothed))
    if live.size < MIN_PEERS:
        return live, None
    if live.size < len(window.components):
        smoothed, samples = smoothed[:, live], samples[live]
    here = ~np.isnan(smoothed)
    values = smoothed.ravel() if here.all() else smoothed[here]
    bins = freedman_diaconis(values, len(smoothed), options.bin_limit, options.bin_limit_mode)
    indexes = bins.indexes(np.where(here, smoothed, bins.low))
    indexes[~here] = bins.count
    return live, population(indexes, samples, bins.count)


def _against_peers(window: MetricWindow, live: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, the median of the peers' means and their ratio, each (C,), NaN for absent components."""
    values = window.values[live, window.history :]
    here: BoolArray = present(values)
    means = np.where(here, values, 0.0).sum(axis=1) / np.count_nonzero(here, axis=1)
    peers = leave_one_out_median(means)
    slower, faster = (means, peers) if window.worse > 0 else (peers, means)
    ratio = np.full(live.size, np.nan)
    if window.worse != 0:
        np.divide(slower, faster, out=ratio, where=faster > 0)
    observed, reference, severity = np.full((3, len(window.components)), np.nan)
    observed[live], reference[live], severity[live] = means, peers, ratio
    return observed, reference, severity
