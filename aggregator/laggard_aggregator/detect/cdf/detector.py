"""The Intrepid paper's detector: CDF distances between peers against trained thresholds (4.2).

For each window of one metric: a trailing moving average; histograms over the whole group's range; the
distance of every pair of cumulative histograms; a component is anomalous when more than half of its distances
exceed its own threshold. Distances are unsigned: a component that is faster than its peers is anomalous too.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.cdf.binned_group import CdfOptions, binned, options_of, smoothed_samples
from laggard_aggregator.detect.cdf.pivots import far_majority
from laggard_aggregator.detect.cdf.training import TRAINING
from laggard_aggregator.detect.interface import (
    TOO_FEW,
    FloatArray,
    GroupWindow,
    IntArray,
    Verdicts,
    not_judged,
)
from laggard_aggregator.detect.peers import leave_one_out_median
from laggard_aggregator.detect.registry import Detector, register
from laggard_aggregator.detect.settings import DetectSettings

Scalar = TypeVar("Scalar", bound=np.generic)


@register
class CdfDetector(Detector[GroupWindow]):
    """Judges windows by CDF distance. It has no state: every window stands alone.

    Thresholds are `settings.thresholds[metric][component]`, in bins; `options` default to the bins that the
    settings name. A component without a threshold is a peer of the others but is not judged itself.
    """

    name = "cdf"
    version = 1
    needs_thresholds = True
    training = TRAINING
    distributions = smoothed_samples

    def __init__(self, settings: DetectSettings, metric: str, options: CdfOptions | None = None) -> None:
        super().__init__(settings, metric)
        self._options = options or options_of(settings.options)
        self.history_samples = self._options.moving_average_samples - 1
        if not 1 <= self._options.bin_limit <= np.iinfo(np.int16).max:
            raise ValueError(f"bin limit: expected 1-32767, got {self._options.bin_limit}")
        self._components: tuple[str, ...] = ()
        self._by_component = np.empty(0)

    def observe(self, window: GroupWindow) -> Verdicts:
        """The verdicts on `window`; `score` is the distance to the componentwise median over the threshold.

        The median is that of the components with the commonest number of samples, and a threshold below one
        step of a CDF (1 / WinSize) counts as one step in the score. `severity`, `observed` and `reference`
        come from the mean of the component's samples and the median of its peers' means.
        """
        n = len(window.components)
        group = binned(window.metrics[self._metric], window.history, self._options)
        if group is None:
            return not_judged(n, TOO_FEW)
        thresholds = self._thresholds_of(window.components)[group.live]
        known = np.isfinite(thresholds)
        if not known.any():
            return not_judged(n, "no thresholds")
        majority = far_majority(group.members, thresholds, known, self._options.pair_budget)
        step = 1 / (window.metrics[self._metric].shape[1] - window.history)
        score = np.where(majority.decided, majority.to_median / np.maximum(thresholds, step), 0.0)
        everyone = np.ones(group.means.size, dtype=np.bool_)
        peers = leave_one_out_median(group.means[:, None], everyone)[:, 0]
        slower = _times_slower(group.means, peers, window.worse.get(self._metric, 1))
        return Verdicts(
            judged=_spread(n, group.live, majority.decided, absent=False),
            anomalous=_spread(n, group.live, majority.far, absent=False),
            score=_spread(n, group.live, score, absent=0.0),
            severity=_spread(n, group.live, slower, absent=np.nan),
            observed=_spread(n, group.live, group.means, absent=np.nan),
            reference=_spread(n, group.live, peers, absent=np.nan),
            undecided=majority.undecided,
        )

    def _thresholds_of(self, components: tuple[str, ...]) -> FloatArray:
        """Thresholds (C,), NaN where there is none; looked up again only when the components change."""
        if components is not self._components and components != self._components:
            self._by_component = np.array([self._thresholds.get(c, np.nan) for c in components])
        self._components = components
        return self._by_component


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
