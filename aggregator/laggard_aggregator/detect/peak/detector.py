"""Beacon's own rule: the highest bandwidth of an hour in use is below 30 % of the known peak (Table 2).

Each component is judged by itself, without peers or training, so a whole group that is slow is found as well.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray, GroupWindow, Verdicts
from laggard_aggregator.detect.peak import BY_ITSELF
from laggard_aggregator.detect.peers import new_samples
from laggard_aggregator.detect.registry import Detector, register
from laggard_aggregator.detect.settings import DetectSettings

MIN_BUSY_SHARE = 0.5
"""Busy share of an interval from which a component counts as in use: a nearly idle one reaches no peak."""

_STATE = ("run_seconds", "idle_seconds", "highest")


@register
class PeakDetector(Detector[GroupWindow]):
    """Judges one metric that is larger the better, such as throughput. Scores are shares of the time needed.

    `settings.options`: `peak` in the metric's unit, `below` as a share of it, `minutes`. A component is
    anomalous when it has been in use for `minutes` since it last reached that share. Time out of use does not
    count, and as much of it as `minutes` in a row starts the count again.
    """

    name = "peak"
    version = 1
    by_itself = BY_ITSELF
    reference = "known peak"

    def __init__(self, settings: DetectSettings, metric: str) -> None:
        super().__init__(settings, metric)
        options = settings.options
        self._peak = float(options["peak"])
        self._limit = float(options["below"]) * self._peak
        self._needed_seconds = 60.0 * float(options["minutes"])
        self._end: float | None = None
        self._components: dict[str, dict[str, float]] = {}

    def observe(self, window: GroupWindow) -> Verdicts:
        """The verdicts on `window`. Only samples after the previous window's end count.

        `observed`: the highest value since the limit was last reached, or in this window; `reference`: the
        peak. `severity`: the peak over `observed`.
        """
        interval, values = self._settings.interval_seconds, window.metrics[self._metric]
        fresh = slice(values.shape[1] - new_samples(window, self._metric, self._end, interval), None)
        self._end = window.end if self._end is None else max(self._end, window.end)
        values = values[:, fresh]
        used = in_use(values, {name: amounts[:, fresh] for name, amounts in window.load.items()})
        run, idle, highest = self._read(window.components)

        gap = idle + (~used.any(axis=1) * values.shape[1]) * interval
        stale = gap >= self._needed_seconds
        run, highest = np.where(stale, 0.0, run), np.where(stale, 0.0, highest)
        reached = used & (values >= self._limit)
        ticks = np.arange(values.shape[1])
        last = np.where(reached, ticks, -1).max(axis=1, initial=-1)
        since = used & (ticks > last[:, None])
        run = np.where(last >= 0, 0.0, run) + since.sum(axis=1) * interval
        top = np.where(since, values, 0.0).max(axis=1, initial=0.0)
        highest = np.maximum(np.where(last >= 0, 0.0, highest), top)
        judged: BoolArray = used.sum(axis=1) > 0
        self._write(window.components, run, np.where(judged, 0.0, gap), highest)

        observed = np.where(run > 0, highest, np.where(used, values, 0.0).max(axis=1, initial=0.0))
        severity = np.divide(self._peak, observed, out=np.full(len(run), np.nan), where=observed > 0)
        score = run / self._needed_seconds
        return Verdicts(
            judged=judged,
            anomalous=judged & (score >= 1.0),
            score=score,
            severity=severity,
            observed=observed,
            reference=np.full(len(run), self._peak),
        )

    def forget(self, components: Collection[str]) -> None:
        """Frees the state of `components`."""
        for name in components:
            self._components.pop(name, None)

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        kept = {name: dict(marks) for name, marks in self._components.items()}
        return {**super().state(), "end": self._end, "components": kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state. Raises ValueError when it is of another detector or version."""
        super().restore(state)
        self._end = None if state["end"] is None else float(state["end"])
        self._components = {
            str(name): {key: float(marks[key]) for key in _STATE}
            for name, marks in state["components"].items()
        }

    def _read(self, components: tuple[str, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds in use below the limit, seconds out of use since, highest value; (C,) each."""
        nothing = dict.fromkeys(_STATE, 0.0)
        known = [self._components.get(name, nothing) for name in components]
        run, idle, highest = (np.array([marks[key] for marks in known], dtype=np.float64) for key in _STATE)
        return run, idle, highest

    def _write(
        self, components: tuple[str, ...], run: FloatArray, idle: FloatArray, highest: FloatArray
    ) -> None:
        values = zip(run.tolist(), idle.tolist(), highest.tolist(), strict=True)
        for name, marks in zip(components, values, strict=True):
            self._components[name] = dict(zip(_STATE, marks, strict=True))


def in_use(values: FloatArray, load: Mapping[str, FloatArray]) -> BoolArray:
    """Intervals in which a component was in use; as `values` (C, T).

    By its busy share where that is known, else by its operations, else by `values` above 0.
    """
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        if "busy_share" in load:
            return known & (load["busy_share"] >= MIN_BUSY_SHARE)
        return known & (load["operations"] > 0 if "operations" in load else values > 0)
