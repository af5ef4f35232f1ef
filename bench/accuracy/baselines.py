"""The obvious detectors that a published one must beat: ratios to peers, with one threshold for everyone."""

from collections import deque

import numpy as np

from laggard_aggregator.detect.interface import FloatArray, GroupWindow, Verdicts
from laggard_aggregator.detect.peers import leave_one_out_median, row_median
from laggard_aggregator.detect.registry import Detector
from laggard_aggregator.detect.settings import DetectSettings

SPREAD_WINDOWS = 36
ALPHA = 0.1


class RatioDetector(Detector[GroupWindow]):
    """Log ratio to the peers' median over a window, against one threshold.

    `kind`: `ratio` as it is; `spread` in units of the group's own spread (median over the last 36 windows of
    1.48 times the median absolute deviation); `ewma` the same, averaged with alpha 0.1. It is no part of the
    product: its thresholds are chosen on the very labels that it is scored by.
    """

    name = "ratio"
    version = 1

    def __init__(self, settings: DetectSettings, metric: str, kind: str, threshold: float) -> None:
        super().__init__(settings, metric)
        self._kind = kind
        self._threshold = threshold
        self._spreads: deque[float] = deque(maxlen=SPREAD_WINDOWS)
        self._average: FloatArray = np.zeros(0)

    def observe(self, window: GroupWindow) -> Verdicts:
        """The verdicts on `window`; components must not come or go."""
        values = window.metrics[self._metric]
        logs = np.where(values > 0, np.log(np.where(values > 0, values, 1.0)), np.nan)
        everyone = np.ones(len(window.components), dtype=np.bool_)
        ratio = row_median(logs - leave_one_out_median(logs, everyone))
        judged = np.isfinite(ratio)
        score = ratio
        if self._kind != "ratio":
            away = np.abs(ratio[judged] - np.median(ratio[judged]))
            self._spreads.append(1.4826 * float(np.median(away)))
            score = ratio / max(float(np.median(self._spreads)), 1e-6)
        if self._kind == "ewma":
            if self._average.size == 0:
                self._average = np.zeros(score.size)
            self._average += np.where(judged, ALPHA * (score - self._average), 0.0)
            score = self._average.copy()
        observed = row_median(values)
        anomalous = judged & (score > self._threshold)
        return Verdicts(judged, anomalous, score, np.exp(ratio), observed, observed * np.exp(-ratio))
