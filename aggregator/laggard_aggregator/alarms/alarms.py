"""Alarms, raised once per episode, updated with each window and cleared once; and persistence, which decides.

A component is a straggler from the window in which `Persistence` finds it faulty until it is healthy again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, isnan, nan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.factors import DIFFERENT, factor_now
from laggard_aggregator.detect.interface import BoolArray, Verdicts

Key = tuple[str, str, str]
"""Group, component, metric."""
_KEPT = (
    *("accumulator", "recent", "normal_run", "faulty", "since", "cleared_at", "well", "relapses"),
    *("slow", "run", "recovered"),
)
RELAPSE_MULTIPLE = 16
"""A component that is faulty again within this multiple of k judged windows has relapsed."""
MAX_RELAPSES = 2
"""Limit of relapses that count; each doubles the run of normal windows needed for recovery."""
RECOVERED_SHARE = 0.5
"""Share of an episode's mean log ratio up to which a window speaks for recovery."""
RECOVERED_WINDOWS = 2
"""Fewest windows in a row that show a recovery by their values, whatever the evidence of the past says."""
RECOVERED_STD_ERRORS = 4.0
"""Standard errors by which these must be below the episode's mean."""
LEVEL_DECAY = 15 / 16
"""Weight of an episode's windows by age, so that its level follows a fault that grows."""
PRIOR_STD, PRIOR_WEIGHT = 0.1, 3.0
"""Standard deviation of one window's log ratio, and the number of windows for which that prior counts."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A standing alarm.

    `since`: start of the episode, as in Persistence; `raised_at`: end of the window that raised it; both
    epoch seconds of sample time. `severity`: times slower than the peers, on average over the windows of the
    evidence; `worst_severity`: its maximum so far. `observed` and `reference`: the component's value and its
    peers' in the latest window, in the metric's unit. `causes`:
    as in Verdicts, of the latest window that has some. `slow_share`, `slow_severity`: of one that is slow at
    times, in which share of the time, and how many times slower then; else 0. `stops`: of one that stops at
    times, as of `StopTally.text`; else empty.
    """

    group: str
    component: str
    metric: str
    level: str
    since: float
    raised_at: float
    updated_at: float
    score: float
    severity: float
    worst_severity: float
    observed: float
    reference: float
    causes: tuple[tuple[str, float], ...] = ()
    slow_share: float = 0.0
    slow_severity: float = 0.0
    stops: str = ""

    @property
    def key(self) -> Key:
        """Identity of the alarm among the standing ones."""
        return (self.group, self.component, self.metric)

    def evidence(self, against: str = "peers", worse: int = 1) -> str:
        """The evidence that the detector gives, for a log line.

        `against`: name of the reference; `worse`: side of the metric, as in `factor_now`.
        """
        now = factor_now(self, worse)
        values = f"{self.observed:.4g}, its {against} {self.reference:.4g}"
        if self.causes:
            how = f"most in {self.causes[0][0]}"
        elif isfinite(self.severity):
            how = f"{now if isfinite(now) else self.severity:.2f} times"
            if isfinite(now) and abs(now / self.severity - 1) > DIFFERENT:
                how += f", {self.severity:.2f} on average"
            if self.slow_share:
                how += f", {self.slow_severity:.2f} in {100 * self.slow_share:.0f} % of the time"
            if self.stops:
                how += f", {self.stops}"
        else:
            how = f"score {self.score:.3g}"
        return f"{values} ({how})" if isfinite(self.observed) and isfinite(self.reference) else how


@dataclass(frozen=True, slots=True)
class AlarmEvent:
    """An alarm that was raised or cleared at `at` (end of the window, epoch seconds)."""

    kind: Literal["raised", "cleared"]
    alarm: Alarm
    at: float


@dataclass(frozen=True, slots=True)
class AlarmsCleared:
    """Alarms cleared by something other than a window, after the batch or close `lsn`."""

    lsn: int
    transitions: tuple[AlarmEvent, ...]


class AlarmBook:
    """The standing alarms by key. An alarm is raised once a straggler has lasted `after_seconds`."""

    def __init__(self, after_seconds: float = 0.0) -> None:
        self.after_seconds = after_seconds
        self.standing: dict[Key, Alarm] = {}

    def update(self, now: Alarm) -> AlarmEvent | None:
        """Updates or raises the alarm of a straggler as of `now.updated_at`; the event if it was raised."""
        standing = self.standing.get(now.key)
        if standing is not None:
            known = [s for s in (standing.worst_severity, now.severity) if not isnan(s)]
            self.standing[now.key] = replace(
                now,
                since=standing.since,
                raised_at=standing.raised_at,
                worst_severity=max(known, default=nan),
                causes=now.causes or standing.causes,
            )
            return None
        if now.updated_at - now.since < self.after_seconds:
            return None
        self.standing[now.key] = now
        return AlarmEvent("raised", now, now.updated_at)

    def clear(self, key: Key, at: float) -> AlarmEvent | None:
        """Clears the alarm; the event if one stood."""
        alarm = self.standing.pop(key, None)
        return None if alarm is None else AlarmEvent("cleared", alarm, at)

    def keep_only(self, groups: Collection[str]) -> None:
        """Drops the alarms of all other groups, which could never be cleared."""
        self.standing = {key: alarm for key, alarm in self.standing.items() if key[0] in groups}

    def state(self) -> list[dict[str, Any]]:
        """The standing alarms as plain data."""
        return [asdict(alarm) for alarm in self.standing.values()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Restores `state()`."""
        self.standing = {}
        for kept in state:
            causes = tuple((str(name), float(amount)) for name, amount in kept["causes"])
            alarm = Alarm(**{**kept, "causes": causes})
            self.standing[alarm.key] = alarm


class Persistence:
    """Accumulators and recent flags of one group and metric, for a growing set of components.

    `confirm` is the paper's k: a component is faulty when at least k of its last 2k - 1 judged windows were
    anomalous, a clear one that follows another counting double (`Verdicts.clear`); and healthy again after
    k judged windows in a row that were not. An intermittent fault would be raised and cleared repeatedly:
    after a relapse recovery takes 2k windows, after another 4k.
    Where log ratios are known, a run of windows far below the episode's mean ends the episode, too, though
    the detector's evidence is long: at least RECOVERED_WINDOWS (2k, 4k after relapses), and more the more the
    windows of the episode differ, as an intermittent fault's do. None is raised in such a window, and until
    the detector's evidence has gone an anomalous verdict counts only in a window that is slow itself.
    Arrays (N,), by the rows that `update` returns: `accumulator`, anomalous windows less normal ones, never
    below 0, by which stragglers are ranked (Intrepid 4.3); `faulty`, True for stragglers; `since`, begin of
    the present episode, epoch seconds: of its first anomalous window, or the onset that the detector knew
    when it became faulty, but not before the window in which the last episode was over; `cleared_at`, begin
    of that window. `slow` and `run` (N, 3): weight, sum and sum of squares of the log ratios of the episode
    and of the windows since its last slow one. `recovered`: ended by its values, with evidence left.
    """

    def __init__(self, confirm: int) -> None:
        self.confirm = confirm
        self._rows: dict[str, int] = {}
        self.accumulator: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.recent: BoolArray = np.zeros((0, 2 * confirm - 1), dtype=np.bool_)
        self.normal_run: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.faulty: BoolArray = np.zeros(0, dtype=np.bool_)
        self.since: NDArray[np.float64] = np.zeros(0)
        self.cleared_at: NDArray[np.float64] = np.zeros(0)
        self.well: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.relapses: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.slow: NDArray[np.float64] = np.zeros((0, 3))
        self.run: NDArray[np.float64] = np.zeros((0, 3))
        self.recovered: BoolArray = np.zeros(0, dtype=np.bool_)

    def update(
        self,
        components: Sequence[str],
        start: float,
        verdicts: Verdicts,
        log_ratio: NDArray[np.float64] | None = None,
    ) -> NDArray[np.intp]:
        """Adds a window that began at `start`; returns the rows of `components` in this object's arrays.

        `log_ratio` (C,): of the components to their peers in this window alone, larger is worse; NaN where
        unknown.
        """
        rows = self._rows_of(components)
        judged = rows[verdicts.judged]
        flags = verdicts.anomalous[verdicts.judged]
        ratio = np.full(judged.size, nan) if log_ratio is None else log_ratio[verdicts.judged]
        well_now = self._add_ratios(judged, flags, ratio)
        self.recovered[judged] &= flags
        flags = flags & ~(self.recovered[judged] & well_now)
        accumulator = self.accumulator[judged]
        self.accumulator[judged] = np.where(flags, accumulator + 1, np.maximum(accumulator - 1, 0))
        # After a recovery flags of the last episode may still be among the recent ones.
        past = self.since[judged] < self.cleared_at[judged]
        fresh = flags & ~self.faulty[judged] & (past | ~self.recent[judged].any(axis=1))
        self.since[judged[fresh]] = start
        self.recent[judged] = np.roll(self.recent[judged], -1, axis=1)
        self.recent[judged, -1] = flags
        self.normal_run[judged] = np.where(flags, 0, self.normal_run[judged] + 1)
        before, well, relapses = self.faulty[judged], self.well[judged], self.relapses[judged]
        count = self.recent[judged].sum(axis=1)
        if verdicts.clear is not None:
            count += self.recent[judged, -2:].all(axis=1) & verdicts.clear[verdicts.judged]
        raised = ~before & (count >= self.confirm) & ~well_now
        again = np.where(well < RELAPSE_MULTIPLE * self.confirm, np.minimum(relapses + 1, MAX_RELAPSES), 0)
        self.relapses[judged] = np.where(raised, again, relapses)
        for c in np.flatnonzero(verdicts.judged)[raised].tolist():
            onset, row = verdicts.onsets.get(components[c], inf), rows[c]
            self.since[row] = min(self.since[row], max(onset, self.cleared_at[row]))
        by_values = before & self._has_recovered(judged, relapses)
        cleared = by_values | (before & (self.normal_run[judged] >= self.confirm * 2**relapses))
        self.recent[judged[by_values]] = False
        self.recovered[judged] |= by_values & verdicts.anomalous[verdicts.judged]
        self.cleared_at[judged[cleared]] = start
        self.well[judged] = np.where(cleared, 0, np.where(before, well, well + 1))
        self.faulty[judged] = raised | (before & ~cleared)
        return rows

    def _add_ratios(
        self, judged: NDArray[np.intp], flags: BoolArray, ratio: NDArray[np.float64]
    ) -> BoolArray:
        """Adds log ratios (J,) of the judged rows; returns which are far below their episode's mean."""
        over = ~self.faulty[judged] & ~self.recovered[judged] & ~flags & ~self.recent[judged].any(axis=1)
        self.slow[judged[over]] = self.run[judged[over]] = 0.0
        known, began = np.isfinite(ratio), self.slow[judged, 0] > 0
        level = self.slow[judged, 1] / np.where(began, self.slow[judged, 0], 1.0)
        well: BoolArray = known & began & (ratio <= RECOVERED_SHARE * level)
        moments = np.stack([np.ones_like(ratio), ratio, ratio**2], axis=-1)
        self.run[judged[well]] += moments[well]
        slow = known & ~well & (began | (flags & (ratio > 0)))
        rows = judged[slow]
        self.slow[rows] = LEVEL_DECAY * self.slow[rows] + self.run[rows] + moments[slow]
        self.run[judged[~well]] = 0.0
        return well

    def _has_recovered(self, judged: NDArray[np.intp], relapses: NDArray[np.int64]) -> BoolArray:
        """Whether the windows since the last slow one are surely below the episode's mean; (J,)."""
        weight, total, squares = self.slow[judged].T
        count, run_total, _ = self.run[judged].T
        level = total / np.maximum(weight, 1.0)
        around = np.maximum(squares - weight * level**2, 0.0)
        variance = (PRIOR_WEIGHT * PRIOR_STD**2 + around) / (PRIOR_WEIGHT + weight)
        enough: BoolArray = count >= np.where(relapses > 0, self.confirm * 2**relapses, RECOVERED_WINDOWS)
        below = level - run_total / np.maximum(count, 1.0)
        surely: BoolArray = below * np.sqrt(count) >= RECOVERED_STD_ERRORS * np.sqrt(variance)
        return enough & surely

    def forget(self, components: Collection[str]) -> None:
        """Frees the state of `components`, as after their replacement."""
        kept = [(name, row) for name, row in self._rows.items() if name not in components]
        rows = np.array([row for _, row in kept], dtype=np.intp)
        self._rows = {name: at for at, (name, _) in enumerate(kept)}
        for name in _KEPT:
            setattr(self, name, getattr(self, name)[rows])

    def state(self) -> dict[str, Any]:
        """Everything as plain data, by component."""
        kept = zip(*(getattr(self, name).tolist() for name in _KEPT), strict=True)
        return {name: dict(zip(_KEPT, row, strict=True)) for name, row in zip(self._rows, kept, strict=True)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()` of an object with the same `confirm`."""
        rows = self._rows_of(list(state))
        for row, kept in zip(rows, state.values(), strict=True):
            for name, value in kept.items():
                getattr(self, name)[row] = value

    def _rows_of(self, components: Sequence[str]) -> NDArray[np.intp]:
        known = len(self._rows)
        for name in components:
            self._rows.setdefault(name, len(self._rows))
        new = len(self._rows) - known
        if new:
            for name in _KEPT:
                before = getattr(self, name)
                setattr(self, name, np.pad(before, ((0, new), *((0, 0),) * (before.ndim - 1))))
            self.well[known:] = RELAPSE_MULTIPLE * self.confirm  # never faulty
        return np.fromiter((self._rows[name] for name in components), dtype=np.intp, count=len(components))
