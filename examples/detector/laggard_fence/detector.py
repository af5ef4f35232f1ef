"""Detector `fence`: Tukey, Exploratory Data Analysis (1977), the outer fence over the means of a window.

Larger is taken as worse, whatever the metric: an example, no advice.
"""

import numpy as np

from laggard_aggregator.detect.interface import TOO_FEW, BoolArray, GroupWindow, Verdicts, not_judged
from laggard_aggregator.detect.registry import Detector, register

LEAST_PEERS = 4
WIDTH = 3.0


@register
class FenceDetector(Detector[GroupWindow]):
    """Judges each window alone; it has no state."""

    name = "fence"
    version = 1

    def observe(self, window: GroupWindow) -> Verdicts:
        """The verdicts on `window`; `score` is the mean over the fence, 1 at the fence."""
        values = window.metrics[self._metric][:, window.history :]
        judged: BoolArray = np.asarray(np.isfinite(values).any(axis=1))
        if judged.sum() < LEAST_PEERS:
            return not_judged(len(window.components), TOO_FEW)
        means = np.full(len(values), np.nan)
        means[judged] = np.nanmean(values[judged], axis=1)
        low, middle, high = np.nanpercentile(means, (25, 50, 75))
        fence = high + WIDTH * (high - low)
        with np.errstate(invalid="ignore", divide="ignore"):
            score, severity = means / fence, means / middle
        return Verdicts(
            judged=judged,
            anomalous=judged & (means > fence),
            score=np.where(judged & np.isfinite(score), score, 0.0),
            severity=np.where(np.isfinite(severity), severity, np.nan),
            observed=means,
            reference=np.where(judged, middle, np.nan),
        )
