"""Thresholds from fault-free windows, and whether those windows look fault-free (Intrepid 4.2.1)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.interface import GroupWindow

Series = tuple[str, str]
"""Group and metric."""


@dataclass(slots=True)
class Curves:
    """Mean of each component over each window, for the paper's overlay plot."""

    points: dict[Series, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)

    def add(self, window: GroupWindow) -> None:
        """Adds a window."""
        for metric, values in window.metrics.items():
            inside = values[:, window.history :]
            known = np.isfinite(inside)
            counts = known.sum(axis=1)
            means = np.where(known, inside, 0.0).sum(axis=1) / np.maximum(counts, 1)
            curves = self.points.setdefault((window.group, metric), {})
            for component in np.flatnonzero(counts):
                curve = curves.setdefault(window.components[component], [])
                curve.append((window.end, float(means[component])))

    def of(self, series: Series) -> Mapping[str, NDArray[np.float64]]:
        """By component, window ends and means (N, 2), epoch seconds and the metric's unit; NaN in a gap."""
        return {name: _with_gaps(np.array(points)) for name, points in sorted(self.points[series].items())}


def _with_gaps(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The points, with a NaN mean inserted wherever the next window is much later than usual."""
    steps = np.diff(points[:, 0])
    gaps = np.flatnonzero(steps > 3 * np.median(steps)) + 1 if steps.size else np.zeros(0, dtype=np.intp)
    return np.insert(points, gaps, np.stack([points[gaps, 0], np.full(gaps.size, np.nan)], axis=1), axis=0)


def outstanding(judgements: Iterator[Judgement]) -> list[Alarm]:
    """Alarms of the default detector in data that should be fault-free, one a component, slowest first.

    Training with a fault in it dampens the threshold of that component alone, so the others remain usable.
    A `worst_severity` of 0: the detector gives none.
    """
    alarms: dict[Key, Alarm] = {}
    for judged in judgements:
        for transition in judged.transitions:
            alarm = transition.alarm
            before = alarms[alarm.key].worst_severity if alarm.key in alarms else 0.0
            alarms[alarm.key] = replace(alarm, worst_severity=max(before, alarm.worst_severity))
    return sorted(alarms.values(), key=lambda outlier: -outlier.worst_severity)
