"""Thresholds from fault-free windows, and whether those windows look fault-free (Intrepid 4.2.1)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.cdf import CdfOptions
from laggard_aggregator.detect.deviation import largest_deviation
from laggard_aggregator.detect.seam import MetricWindow
from laggard_aggregator.engine import GroupWindow, Judgement

Series = tuple[str, str]
"""Group and metric."""


@dataclass(slots=True)
class CdfTraining:
    """For each component the largest deviation from its peers in any window, by group and metric."""

    options: CdfOptions
    thresholds: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def series(self) -> int:
        """How many thresholds there are."""
        return sum(len(known) for metrics in self.thresholds.values() for known in metrics.values())

    def add(self, window: GroupWindow, interval_seconds: float) -> None:
        """Takes a fault-free window in."""
        for metric, values in window.metrics.items():
            deviation = largest_deviation(
                MetricWindow(
                    metric=metric,
                    components=window.components,
                    values=values,
                    history=window.history,
                    start=window.start,
                    end=window.end,
                    interval_seconds=interval_seconds,
                ),
                self.options,
            )
            known = self.thresholds.setdefault(window.group, {}).setdefault(metric, {})
            for component in np.flatnonzero(np.isfinite(deviation)):
                name = window.components[component]
                known[name] = max(known.get(name, 0.0), float(deviation[component]))


@dataclass(slots=True)
class Curves:
    """Each component's mean over each window: what the paper plots on top of each other to see a fault."""

    points: dict[Series, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)

    def add(self, window: GroupWindow) -> None:
        """Takes a window in."""
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
    """The points with a NaN mean wherever the next window is much later than usual."""
    steps = np.diff(points[:, 0])
    gaps = np.flatnonzero(steps > 3 * np.median(steps)) + 1 if steps.size else np.zeros(0, dtype=np.intp)
    return np.insert(points, gaps, np.stack([points[gaps, 0], np.full(gaps.size, np.nan)], axis=1), axis=0)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A component that stands out from its peers in data that should be fault-free."""

    group: str
    component: str
    metric: str
    severity: float


def unfit(judgements: Iterator[Judgement]) -> list[Unfit]:
    """Who raised an alarm of the default detector in the training data, the slowest first.

    Training with a fault in it dampens the threshold of that component alone, so the others remain usable.
    """
    found: dict[tuple[str, str, str], float] = {}
    for judged in judgements:
        for transition in judged.transitions:
            alarm = transition.alarm
            found[alarm.key] = max(found.get(alarm.key, 0.0), alarm.worst_severity)
    return sorted((Unfit(*key, severity) for key, severity in found.items()), key=lambda each: -each.severity)
