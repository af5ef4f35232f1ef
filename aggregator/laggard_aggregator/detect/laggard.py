"""`laggard`, the default detector: slower than its peers by more than is harmless, and by more than chance.

Nothing is trained. A component's log ratio to the leave-one-out median of its peers is averaged over 1 to 32
windows at once; it is anomalous when an average exceeds both the harmless difference and what healthy members
of its own group show by chance, given the operator's budget of false alarms. docs/detection.md gives reasons
and figures.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.budget import chance_per_window, critical_value
from laggard_aggregator.detect.evidence import CLIP as EVIDENCE_CLIP
from laggard_aggregator.detect.evidence import SCALES, Evidence
from laggard_aggregator.detect.load import LoadModel, features, usable
from laggard_aggregator.detect.peers import leave_one_out_median, most_trusted, row_median, shortest_half
from laggard_aggregator.detect.seam import (
    MIN_PEERS,
    BoolArray,
    FloatArray,
    MetricWindow,
    Verdicts,
    not_judged,
)
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.spread import TINY, cross_spread, pooled_spread, spread_now, standard_error

HARMLESS = float(np.log(1.13))
"""Log ratio below which a lasting difference is harmless: between 1.08, which healthy peers show, and 1.2."""
CLIP = 8.0
"""One window counts at most so many spreads, so that one spike cannot raise an alarm by itself."""
SUSPECT = 0.75
"""Score from which a component is no longer anyone's reference."""
OUTLIER = 4.0
MIN_TOLD = 0.2
"""Share of a window's new intervals that must tell something."""

NOT_PEERS = "not a group of peers"
TOO_FEW = "too few members"


class LaggardDetector:
    """Judges one metric of one peer group. Scores are shares of the threshold: 1.0 and more is anomalous."""

    name = "laggard"
    version = 1
    history_samples = 0

    def __init__(self, settings: DetectSettings, metric: str) -> None:
        self.metric = metric
        self._chance = chance_per_window(settings)
        self._evidence = Evidence()
        self._load = LoadModel()
        self._end: float | None = None

    def observe(self, window: MetricWindow) -> Verdicts:
        """The verdicts on `window`. Only samples after the previous window's end are new evidence."""
        fresh = self._fresh(window)
        places = self._evidence.places(window.components)
        told = usable(window, fresh)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(told, np.log(np.where(told, window.values[:, fresh], 1.0)), np.nan)
        if window.worse < 0:
            logs = -logs
        live = told.sum(axis=1) >= max(MIN_TOLD * told.shape[1], 1.0)
        if live.sum() < MIN_PEERS:
            self._evidence.add(places, np.zeros(live.size), np.zeros_like(live))
            return not_judged(live.size, TOO_FEW)
        logs[~live] = np.nan
        loads = features(window, fresh, told & live[:, None])

        rough = self._excess(logs, loads, live)[0]
        trusted = self._trusted_before(rough, live, places)
        excess, deviations = self._excess(logs, loads, trusted)
        self._load.learn(loads, deviations, trusted)
        now = spread_now(excess, deviations, trusted)
        bound = max(CLIP * now, 2 * HARMLESS)
        self._evidence.add(places, np.clip(excess, -bound, bound), live)

        average, length = self._evidence.average[:, places], self._evidence.lengths(places)
        trusted = self._trusted(average, live, places)
        average = average - row_median(np.where(trusted, average, np.nan))[:, None]
        unit, freedom = self._unit(average, length, now, trusted & live, live, places)
        critical = critical_value(self._chance, int(max(freedom, 3)))
        chance = unit[:, None] * standard_error(length)
        threshold = np.maximum(HARMLESS + chance, critical * chance)
        sided = np.abs(average) if window.worse == 0 else average
        share = sided / threshold
        best = share.argmax(axis=0)
        score = np.where(live, share.max(axis=0), 0.0)
        self._evidence.score[places[live]] = score[live]
        return self._verdicts(window, fresh, live, score, share, average, best, excess)

    def _verdicts(  # noqa: PLR0917
        self,
        window: MetricWindow,
        fresh: slice,
        live: BoolArray,
        score: FloatArray,
        share: FloatArray,
        average: FloatArray,
        best: NDArray[np.intp],
        excess: FloatArray,
    ) -> Verdicts:
        anomalous = live & (score >= 1.0)
        fast = live & ((-share).max(axis=0) >= 1.0)
        most = (int(live.sum()) - 1) // 2
        note = ""
        if anomalous.sum() > most or (window.worse != 0 and fast.sum() >= 0.4 * live.sum()):
            anomalous = np.zeros_like(anomalous)
            note = NOT_PEERS
        observed = row_median(np.where(live[:, None], window.values[:, fresh], np.nan))
        effect = np.take_along_axis(average, best[None, :], 0)[0]
        sign = 1.0 if window.worse >= 0 else -1.0
        return Verdicts(
            judged=live,
            anomalous=anomalous,
            score=score,
            severity=np.where(live, np.exp(effect), np.nan),
            observed=observed,
            reference=observed * np.exp(-sign * excess),
            note=note,
        )

    def _fresh(self, window: MetricWindow) -> slice:
        """The columns after the end of the window before this one."""
        total = window.values.shape[1]
        in_window = total - window.history
        new = in_window
        if self._end is not None:
            new = min(max(round((window.end - self._end) / window.interval_seconds), 0), in_window)
        self._end = window.end if self._end is None else max(self._end, window.end)
        return slice(total - new, total)

    def _excess(
        self, logs: FloatArray, loads: Mapping[str, FloatArray], trusted: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Log ratio to the trusted peers less what load explains: (C,) of the window and (C, T) by tick."""
        deviations = logs - leave_one_out_median(logs, trusted)
        return row_median(deviations) - self._load.explained(loads, trusted), deviations

    def _trusted_before(self, rough: FloatArray, live: BoolArray, places: NDArray[np.intp]) -> BoolArray:
        """Whom to hold this window against: not known suspects, not its outliers, but always a majority."""
        centre, _ = shortest_half(rough[live])
        spread = cross_spread(rough[live])
        suspicion = np.abs(rough - centre) / max(OUTLIER * spread, TINY)
        suspicion = np.fmax(suspicion, self._evidence.score[places] / SUSPECT)
        return most_trusted(np.where(live, suspicion, np.inf), live)

    def _trusted(self, average: FloatArray, live: BoolArray, places: NDArray[np.intp]) -> BoolArray:
        """Who is like the majority in every average."""
        suspicion = self._evidence.score[places] / SUSPECT
        for row in average:
            centre, _ = shortest_half(row[live])
            suspicion = np.maximum(
                suspicion, (row - centre) / max(OUTLIER * cross_spread(row[live]), HARMLESS / 2)
            )
        return most_trusted(suspicion, live)

    def _unit(  # noqa: PLR0917
        self,
        average: FloatArray,
        length: FloatArray,
        now: float,
        trusted: BoolArray,
        live: BoolArray,
        places: NDArray[np.intp],
    ) -> tuple[FloatArray, float]:
        """The spread of each average in single-window units (K,), and the independent values behind it."""
        evidence = self._evidence
        fresh = evidence.seen[places] == 0
        known = np.where(fresh, now**2, evidence.moment[:, places])
        weight = np.maximum(evidence.seen[places], 1.0)
        unit, freedom = pooled_spread(known, weight, SCALES, trusted)
        unit = np.maximum(unit, 0.8 * now)
        square = np.minimum(average**2 * np.sqrt(length), (EVIDENCE_CLIP * unit[:, None]) ** 2)
        evidence.add_squares(places, np.where(fresh, np.maximum(square, now**2), square), live)
        return unit, freedom

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            "name": self.name,
            "version": self.version,
            "end": self._end,
            "evidence": self._evidence.state(),
            "load": self._load.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state. Raises ValueError when it is of another detector or version."""
        if state.get("name") != self.name or state.get("version") != self.version:
            raise ValueError(f"not a state of {self.name} {self.version}")
        self._end = None if state["end"] is None else float(state["end"])
        self._evidence = Evidence.restore(state["evidence"])
        self._load = LoadModel.restore(state["load"])
