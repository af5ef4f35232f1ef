"""Right and wrong of a detector's alarms and windows, held against the times at which drives were slow."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.accuracy.perseus import Tally
from bench.leaderboard.series import Scores, Series
from laggard_aggregator.detect.interface import BoolArray, FloatArray

WEEK_HOURS = 168.0


@dataclass(frozen=True, slots=True)
class Fault:
    """When a drive of a group is slow, epoch seconds."""

    group: str
    component: str
    start: float = -np.inf
    end: float = np.inf

    def within(self, series: Series) -> BoolArray:
        """True for the intervals that end in it, (T,)."""
        inside: BoolArray = (series.ends > self.start) & (series.ends <= self.end)
        return inside


@dataclass(slots=True)
class Result:
    """How a detector did. `delays`: observed minutes from a fault's begin to its first alarm, inf = never.

    `drives`: a drive with a fault is found by an alarm that stands in one; one without is wrong by any alarm.
    `windows`: those with a sample. `false_alarms`: alarms that never stood in a fault, in `hours` of samples
    without one.
    """

    drives: Tally = field(default_factory=Tally)
    windows: Tally = field(default_factory=Tally)
    delays: list[float] = field(default_factory=list)
    false_alarms: int = 0
    hours: float = 0.0

    def add(self, series: Series, faults: Sequence[Fault], alarms: BoolArray, slow: BoolArray) -> None:
        """Counts one group: `alarms` (C, T) that stand after each interval, `slow` (C, W) windows."""
        observed = np.isfinite(series.latency)
        minutes = np.cumsum(observed.any(axis=0) * (series.interval_seconds / 60.0))
        truth = truth_of(series, faults)
        for fault in faults:
            if fault.group == series.grid.group and (inside := fault.within(series)).any():
                own = alarms[series.grid.components.index(fault.component)]
                self.delays.append(_delay(inside, own, minutes, series.interval_seconds / 60.0))
        for own, slow_then in zip(alarms, truth, strict=True):
            faulty = bool(slow_then.any())
            self.drives.count(faulty, bool((own & slow_then).any() if faulty else own.any()))
            self.false_alarms += _alarms_outside(own, slow_then)
        self.hours += float((observed & ~truth).sum()) * series.interval_seconds / 3600.0
        share = series.by_window(truth)
        for is_slow in (True, False):
            for is_flagged in (True, False):
                here = np.isfinite(share) & ((share >= 0.5) == is_slow) & (slow == is_flagged)
                self.windows.count(is_slow, is_flagged, int(here.sum()))

    @property
    def false_alarms_a_week(self) -> float:
        """False alarms in a week of a drive's samples."""
        return self.false_alarms * WEEK_HOURS / self.hours if self.hours else 0.0


def truth_of(series: Series, faults: Sequence[Fault]) -> BoolArray:
    """True where a drive of the group is slow, (C, T)."""
    truth = np.zeros(series.latency.shape, dtype=np.bool_)
    for fault in faults:
        if fault.group == series.grid.group:
            truth[series.grid.components.index(fault.component)] |= fault.within(series)
    return truth


def _delay(inside: BoolArray, alarms: BoolArray, minutes: FloatArray, interval: float) -> float:
    begin = int(inside.argmax())
    first = int((inside & alarms).argmax())
    return float(minutes[first] - minutes[begin] + interval) if (inside & alarms).any() else np.inf


def _alarms_outside(alarms: BoolArray, truth: BoolArray) -> int:
    """How many alarms, each from where it is raised to where it is cleared, never stood in a fault."""
    edges = np.diff(alarms.astype(np.int8), prepend=0, append=0)
    spans = zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True)
    return sum(not truth[a:b].any() for a, b in spans)


def best_threshold(peaks: FloatArray, faulty: BoolArray) -> float:
    """The threshold with the best F1 of drives, and of these with the fewest false alarms.

    `peaks` (N,): the highest score of each drive, NaN without one. It lies just above the highest peak that
    raises no alarm, so that alarms come soonest. Chosen on the labels themselves it is the best case.
    """
    values = np.unique(peaks[np.isfinite(peaks)])
    best, chosen = -1.0, np.inf
    for below in (-np.inf, *values.tolist()):
        above = np.nan_to_num(peaks, nan=-np.inf) > below
        f1 = 2 * (above & faulty).sum() / max(above.sum() + faulty.sum(), 1)
        if f1 >= best:
            best, chosen = float(f1), below
    return float(np.nextafter(chosen, np.inf))


def drive_peaks(series: Series, faults: Sequence[Fault], scores: Scores) -> tuple[FloatArray, BoolArray]:
    """The highest alarm score of each drive, within its faults if it has some, and which have; (C,)."""
    truth = truth_of(series, faults)
    faulty = np.asarray(truth.any(axis=1))
    counted = (truth | ~faulty[:, None]) & ~np.isnan(scores.alarms)
    return np.where(counted, scores.alarms, -np.inf).max(axis=1), faulty
