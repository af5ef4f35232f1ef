"""Laggard's own detectors as the product runs them: its windows, its budget of false alarms, its alarms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bench.accuracy.injected import judged
from bench.accuracy.perseus import deviations
from bench.leaderboard.series import METRIC, Scores, Series
from laggard_aggregator.detect.settings import ByMetric, DetectSettings
from laggard_aggregator.offline.sample_grid import Grid

Training = Callable[[Grid, DetectSettings], ByMetric]


def untrained(_grid: Grid, _settings: DetectSettings) -> ByMetric:
    """No thresholds."""
    return {}


def own_first_day(grid: Grid, settings: DetectSettings) -> ByMetric:
    """Those of `cdf`: the largest deviation of each drive that was there on the first day of `grid`."""
    by_drive = zip(grid.components, deviations(grid, settings).tolist(), strict=True)
    return {METRIC: {name: largest for name, largest in by_drive if np.isfinite(largest)}}


def known(thresholds: Mapping[str, ByMetric]) -> Training:
    """Thresholds by group that were learned elsewhere."""
    return lambda grid, _settings: thresholds.get(grid.group, {})


@dataclass(frozen=True)
class Product:
    """A detector of the product: its settings, and how it is trained."""

    settings: DetectSettings
    training: Training = untrained

    def __call__(self, series: Series) -> Scores:
        """1 where the alarm stands after a window, and where the detector calls a window anomalous."""
        grid = series.grid
        settings = replace(self.settings, thresholds=self.training(grid, self.settings))
        place = {name: c for c, name in enumerate(grid.components)}
        standing, anomalous = np.zeros((2, len(place), grid.blocks.size))
        for one in judged(grid, settings):
            block = round(one.end / settings.shift_seconds) - 1
            window = int(np.searchsorted(grid.blocks, block))
            rows = [place[name] for name in one.components]
            standing[rows, window] = one.straggler
            anomalous[rows, window] = one.verdicts.judged & one.verdicts.anomalous
        return Scores(series.after_windows(standing), anomalous)
