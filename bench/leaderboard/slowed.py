"""Real healthy drives made slow, as `bench.accuracy.injected` does it: who finds them, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.accuracy.injected import Case, injected_faults
from bench.accuracy.perseus import delay_text, observed_minutes
from bench.leaderboard.ranking import ClusterOf, Row, standing
from bench.leaderboard.series import Series
from laggard_aggregator.detect.interface import BoolArray
from laggard_aggregator.offline.sample_grid import Grid

FACTORS = (1.2, 1.5, 2.0, 3.0)


@dataclass(slots=True)
class Found:
    """Of a detector in the trials of a case: `delays` in minutes, inf = not found; others `blamed`."""

    delays: list[float] = field(default_factory=list)
    blamed: int = 0

    def __str__(self) -> str:
        found = int(np.isfinite(self.delays).sum())
        return f"{found} ({delay_text(self.delays, (0.5, 0.9))}){f', {self.blamed}' if self.blamed else ''}"


def cases(trials: int) -> list[Case]:
    """Every factor in an open and in a closed loop, from the middle on, with so many trials each."""
    return [
        Case(f"{factor:g} {loop}", factor, closed=loop == "closed", trials=trials)
        for factor in FACTORS
        for loop in ("open", "closed")
    ]


@dataclass(frozen=True)
class Slowed:
    """The trials over healthy drives. `untouched`: whose alarm stands in a group as it is, by entry."""

    grids: Sequence[Grid]
    rows: Sequence[Row]
    cluster_of: ClusterOf
    untouched: dict[str, Mapping[str, BoolArray]] = field(default_factory=dict)

    def run(self, case: Case, rng: np.random.Generator) -> Mapping[str, Found]:
        """What each entry finds in the same trials, by its name.

        A drive is found if its alarm stands after the onset at a time at which it does not in the untouched
        group. Others are blamed if their alarm ever stands where theirs never does there.
        """
        found = {row.entry.name: Found() for row in self.rows}
        for trial in injected_faults(case, self.grids, rng):
            series, group = Series(trial.changed), trial.grid.group
            if group not in self.untouched:
                self.untouched[group] = standing(Series(trial.grid), self.rows, self.cluster_of)
            after = series.ends > trial.onset
            others = np.ones(len(trial.grid.components), dtype=np.bool_)
            others[list(trial.rows)] = False
            for name, alarms in standing(series, self.rows, self.cluster_of).items():
                usual = self.untouched[group][name]
                for row in trial.rows:
                    new = after & alarms[row] & ~usual[row]
                    until = float(series.ends[new.argmax()]) if new.any() else np.inf
                    minutes = observed_minutes(trial.changed, trial.onset, until)
                    found[name].delays.append(minutes if new.any() else np.inf)
                found[name].blamed += int((others & alarms.any(axis=1) & ~usual.any(axis=1)).sum())
        return found
