"""Groups of components made to be judged, and what a detector says of one over time."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import Persistence
from laggard_aggregator.detect.interface import GroupWindow, Verdicts
from laggard_aggregator.detect.laggard.detector import LaggardDetector
from laggard_aggregator.detect.settings import DetectSettings

Values = NDArray[np.float64]
WINDOW, SHIFT, INTERVAL = 60, 30, 15.0


def autocorrelated(rng: np.random.Generator, rows: int, ticks: int, rho: float, spread: float) -> Values:
    """AR(1) series (rows, ticks) with standard deviation `spread`."""
    series: Values = rng.normal(0.0, spread, (rows, ticks))
    series[:, 1:] *= np.sqrt(1.0 - rho**2)
    for t in range(1, ticks):
        series[:, t] += rho * series[:, t - 1]
    return series


def healthy(seed: int, rows: int = 12, ticks: int = 900, noise: float = 0.15, rho: float = 0.4) -> Values:
    """Latencies, ms, of a group under one changing load, with noise that lasts from tick to tick."""
    rng = np.random.default_rng(seed)
    common = np.log(8.0) + 0.4 * np.sin(np.arange(ticks) / 90.0) + autocorrelated(rng, 1, ticks, 0.9, 0.2)
    values: Values = np.exp(common + autocorrelated(rng, rows, ticks, rho, noise))
    return values


@dataclass
class ComponentHistory:
    """What a detector said of a group over time; arrays (windows, components)."""

    verdicts: list[Verdicts] = field(default_factory=list)
    alarms: list[list[bool]] = field(default_factory=list)

    @property
    def alarmed(self) -> set[int]:
        return {int(c) for c in np.flatnonzero(np.any(self.alarms, axis=0))}

    @property
    def anomalous(self) -> NDArray[np.bool_]:
        return np.array([v.anomalous for v in self.verdicts])

    @property
    def score(self) -> Values:
        return np.array([v.score for v in self.verdicts])

    @property
    def notes(self) -> list[str]:
        return [v.note for v in self.verdicts]


def detector_of(rows: int, window: int = WINDOW, shift: int = SHIFT) -> LaggardDetector:
    budget = DetectSettings(window_samples=window, shift_samples=shift, tests_at_once=max(rows, 1))
    return LaggardDetector(budget, "await")


def windows_of(
    values: Values,
    load: dict[str, Values] | None = None,
    names: tuple[str, ...] | None = None,
    window: int = WINDOW,
    shift: int = SHIFT,
    worse: int = 1,
) -> list[GroupWindow]:
    names = names or tuple(f"oss/{c}" for c in range(len(values)))
    return [
        GroupWindow(
            "g",
            names,
            (end - window) * INTERVAL,
            end * INTERVAL,
            0,
            {"await": values[:, end - window : end]},
            {name: loads[:, end - window : end] for name, loads in (load or {}).items()},
            {"await": worse},
        )
        for end in range(window, values.shape[1] + 1, shift)
    ]


def course_of(windows: list[GroupWindow], detector: LaggardDetector | None = None) -> ComponentHistory:
    first = windows[0]
    shift = round((windows[1].end - first.end) / INTERVAL)
    detector = detector or detector_of(len(first.components), first.metrics["await"].shape[1], shift)
    course, persistence = ComponentHistory(), Persistence(3)
    for window in windows:
        course.verdicts.append(detector.observe(window))
        rows = persistence.update(window.components, window.start, course.verdicts[-1])
        course.alarms.append(persistence.faulty[rows].tolist())
    return course


def slowed(values: Values, factors: dict[int, float], since: int = 0) -> Values:
    values = values.copy()
    for row, factor in factors.items():
        values[row, since:] *= factor
    return values
