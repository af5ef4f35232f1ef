"""Thresholds from fault-free windows, and whether those windows look fault-free (Intrepid 4.2.1)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.cdf.detector import CdfOptions
from laggard_aggregator.detect.cdf.training import largest_deviation
from laggard_aggregator.detect.interface import FunctionWindow, GroupWindow, MetricWindow, VectorWindow
from laggard_aggregator.detect.manhattan.detector import ManhattanOptions
from laggard_aggregator.detect.manhattan.training import FunctionsTaken, SpreadTaken, ThresholdsTaken
from laggard_aggregator.detect.settings import DetectSettings

Series = tuple[str, str]
"""Group and metric."""


@dataclass(slots=True)
class CdfTraining:
    """Learns the largest deviation of each component from its peers, by group and metric."""

    options: CdfOptions
    thresholds: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def series(self) -> int:
        """Number of thresholds."""
        return sum(len(known) for metrics in self.thresholds.values() for known in metrics.values())

    def add(self, window: GroupWindow, interval_seconds: float) -> None:
        """Adds a fault-free window."""
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


class _Learner(Protocol):
    def add(self, window: VectorWindow) -> None: ...


Learner = TypeVar("Learner", bound=_Learner)


class ManhattanTraining:
    """Thresholds of `manhattan` by group and metric (HotDep, "Threshold selection").

    Each pass builds on the previous one, so the windows are read two or three times.
    """

    def __init__(
        self, windows: Callable[[], Iterable[tuple[FunctionWindow, DetectSettings]]], *, divided: bool
    ) -> None:
        """`windows` iterates the fault-free windows. `divided`: divide by functions' spread."""
        self._windows = windows
        self.settings: list[DetectSettings] = []
        taken = self._learn(lambda _: FunctionsTaken())
        units = {series: dict.fromkeys(sorted(own.functions), 1.0) for series, own in taken.items()}
        if divided:
            spreads = self._learn(lambda series: SpreadTaken(units[series]))
            units = {series: own.spread() or units[series] for series, own in spreads.items()}
        learned = self._learn(
            lambda series: ThresholdsTaken(ManhattanOptions(frozenset(units[series]), units[series]))
        )
        known = {series: own.thresholds() for series, own in learned.items()}
        self.thresholds = _nested({series: own for series, own in known.items() if own})
        self.functions = _nested({series: units[series] for series, own in known.items() if own})

    def _learn(self, make: Callable[[Series], Learner]) -> dict[Series, Learner]:
        learners: dict[Series, Learner] = {}
        for window, settings in self._windows():
            if settings not in self.settings:
                self.settings.append(settings)
            for metric in window.metrics:
                series = (window.group, metric)
                if series not in learners:
                    learners[series] = make(series)
                learners[series].add(window.of(metric))
        return learners


def _nested(by_series: Mapping[Series, dict[str, float]]) -> dict[str, dict[str, dict[str, float]]]:
    nested: dict[str, dict[str, dict[str, float]]] = {}
    for (group, metric), own in sorted(by_series.items()):
        nested.setdefault(group, {})[metric] = own
    return nested


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


@dataclass(frozen=True, slots=True)
class Unfit:
    """An outlier among its peers in data that should be fault-free."""

    group: str
    component: str
    metric: str
    severity: float


def unfit(judgements: Iterator[Judgement]) -> list[Unfit]:
    """Components with an alarm of the default detector in the training data, slowest first.

    Training with a fault in it dampens the threshold of that component alone, so the others remain usable.
    Severity 0: the detector gives none.
    """
    found: dict[tuple[str, str, str], float] = {}
    for judged in judgements:
        for transition in judged.transitions:
            alarm = transition.alarm
            found[alarm.key] = max(found.get(alarm.key, 0.0), alarm.worst_severity)
    return sorted((Unfit(*key, severity) for key, severity in found.items()), key=lambda each: -each.severity)
