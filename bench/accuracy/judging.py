"""The detectors over one run, window by window: which each blames, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.measured import Measured
from bench.accuracy.simulation.functions import CALLED, SAMPLED, SAMPLES_PER_SECOND, Profiles
from bench.accuracy.simulation.scenario import Array, BoolArray, Scenario
from laggard_aggregator.alarms.alarms import Persistence
from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect.cdf.binned_group import CdfOptions
from laggard_aggregator.detect.cdf.detector import CdfDetector
from laggard_aggregator.detect.cdf.training import largest_deviation
from laggard_aggregator.detect.interface import FunctionWindow, GroupWindow
from laggard_aggregator.detect.manhattan.detector import ManhattanDetector
from laggard_aggregator.detect.manhattan.training import functions, spreads, thresholds
from laggard_aggregator.detect.manhattan.vectors import UNITS
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.topology import Topology

Thresholds = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Findings:
    """Stragglers of one source of one run: `ends` (W,) of the windows in seconds; by metric, flags (W, C).

    Where a parent was blamed all of its children are flagged; `parents` (server, controller, couplet) were.
    """

    source: str
    components: tuple[str, ...]
    ends: Array
    stragglers: Mapping[str, BoolArray]
    parents: frozenset[str] = frozenset()


def settings_of(scenario: Scenario, detector: str, tests: int, thresholds: Thresholds) -> DetectSettings:
    """The default configuration at the scenario's interval; thresholds for the detectors that need them."""
    return DetectSettings(
        detector=detector,
        interval_seconds=scenario.interval_seconds,
        tests_at_once=tests,
        thresholds=thresholds,
    )


def over_metrics(measured: Measured, run: int, settings: DetectSettings, topology: Topology) -> Findings:
    """What the detector that `settings` name finds in one run's metrics, through the product's engine."""
    ends = _ends(next(iter(measured.metrics.values())).shape[2], settings)
    group, known = measured.source.source, measured.components
    engine = Judge({group: settings}, topology=topology)
    children = {name: {name} for name in known}
    for level in topology.levels(known):
        for c, parent in enumerate(level.of.tolist()):
            children.setdefault(level.parents[parent], set()).add(known[c])
    found = {name: np.zeros((len(ends), len(known)), dtype=np.bool_) for name in measured.metrics}
    parents: set[str] = set()
    for at, end in enumerate(ends):
        longest = max(engine.history_samples(group, name) for name in found)
        columns, history = columns_of(int(end), settings, longest)
        window = GroupWindow(
            group,
            known,
            (end - settings.window_samples) * settings.interval_seconds,
            end * settings.interval_seconds,
            history,
            {name: values[run][:, columns] for name, values in measured.metrics.items()},
            {name: values[run][:, columns] for name, values in measured.load.items()},
            {name: measured.source.metrics[name].worse for name in found},
        )
        for judged in engine.evaluate(window):
            for c in np.flatnonzero(judged.straggler).tolist():
                name = judged.components[c]
                if judged.levels[c] != "component":
                    parents.add(name)
                found[judged.metric][at] |= [one in children[name] for one in known]
    return Findings(group, known, _seconds(ends, settings), found, frozenset(parents))


def columns_of(end: int, settings: DetectSettings, history: int) -> tuple[slice, int]:
    """The columns of the window that ends before sample `end`, with as much of `history` as there is."""
    start = end - settings.window_samples
    history = min(history, start)
    return slice(start - history, end), history


def train_cdf(measured: Measured, scenario: Scenario) -> Thresholds:
    """By metric and component the largest deviation over fault-free runs (Intrepid 4.2.1)."""
    settings = settings_of(scenario, "cdf", 1, {})
    history = CdfDetector(settings, "").history_samples
    thresholds = {}
    for name, values in measured.metrics.items():
        worst = np.zeros(len(measured.components))
        for run in range(len(values)):
            for end in _ends(values.shape[2], settings):
                columns, before = columns_of(int(end), settings, history)
                worst = np.fmax(worst, largest_deviation(values[run][:, columns], before, CdfOptions()))
        thresholds[name] = dict(zip(measured.components, worst.tolist(), strict=True))
    return thresholds


@dataclass(frozen=True, slots=True)
class Manhattan:
    """`manhattan` as trained, with or without its dimensions divided by their spread."""

    thresholds: Thresholds
    units: Mapping[str, Mapping[str, float]]

    def find(self, profiles: Profiles, run: int, scenario: Scenario) -> Findings:
        """What it finds in the profiles of one run."""
        settings = settings_of(scenario, "manhattan", 1, self.thresholds)
        settings = replace(settings, options={UNITS: self.units})
        servers = scenario.shape.server_names
        ends = _ends(scenario.samples, settings)
        found = {}
        for metric in self.units:
            detector = ManhattanDetector(settings, metric)
            persistence = Persistence(settings.confirm)
            flags = np.zeros((len(ends), len(servers)), dtype=np.bool_)
            for at, window in enumerate(vector_windows(profiles, run, scenario, metric)):
                verdicts = detector.observe(window)
                flags[at] = persistence.faulty[persistence.update(servers, window.start, verdicts)]
            found[metric] = flags
        return Findings("profile", servers, _seconds(ends, settings), found)


UNTRAINED = Manhattan({}, {metric: {} for metric in ("samples", "count", "time")})
"""`manhattan` as it judges where there are no thresholds."""


def train_manhattan(profiles: Sequence[tuple[Profiles, Sequence[Scenario]]], *, divided: bool) -> Manhattan:
    """`manhattan` after fault-free runs."""
    learned, known = {}, {}
    for metric in ("samples", "count", "time"):
        windows = [
            window
            for profile, scenarios in profiles
            for run, scenario in enumerate(scenarios)
            for window in vector_windows(profile, run, scenario, metric)
        ]
        units = functions(windows)
        if divided:
            units = spreads(windows, units)
        known[metric] = units["servers", metric]
        learned[metric] = thresholds(windows, units)["servers", metric]
    return Manhattan(learned, known)


def vector_windows(profiles: Profiles, run: int, scenario: Scenario, metric: str) -> list[FunctionWindow]:
    """The 60 s windows of one run, moved by 30 s."""
    settings = settings_of(scenario, "manhattan", 1, {})
    values = getattr(profiles, metric)[run]
    seconds = values / SAMPLES_PER_SECOND if metric == "samples" else profiles.time[run]
    names = SAMPLED if metric == "samples" else CALLED
    found = []
    for end in _ends(len(values), settings):
        span = slice(int(end) - settings.window_samples, int(end))
        found.append(
            FunctionWindow(
                "servers",
                scenario.shape.server_names,
                names,
                span.start * scenario.interval_seconds,
                span.stop * scenario.interval_seconds,
                {metric: values[span].sum(axis=0)},
                seconds[span].sum(axis=0),
            )
        )
    return found


def _ends(samples: int, settings: DetectSettings) -> NDArray[np.intp]:
    return np.arange(settings.window_samples, samples + 1, settings.shift_samples)


def _seconds(ends: NDArray[np.intp], settings: DetectSettings) -> Array:
    return ends.astype(np.float64) * settings.interval_seconds
