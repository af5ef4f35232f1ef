"""Shares of rare events, such as retransmitted segments, made comparable.

In a single interval such a share is mostly 0 and sometimes large by chance. The compared value is therefore
the share over the latest intervals, shrunk towards the group's median as if STRENGTH harmless events had been
seen with that share, plus the harmless share itself:

    (events + m * middle) / (trials + m) + harmless,  m = STRENGTH / harmless

The log ratio of two members is then large only for an excess that matters (of the order of `harmless`) and
that is more than a few events. Its spread by chance is at most 1 / (4 sqrt(STRENGTH)), 8 %, for any usual
share and any number of trials: the Poisson deviation sqrt(middle * trials) is relatively largest where
trials = m and middle = harmless. (The posterior mean of a Poisson rate under a gamma prior.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from laggard_aggregator.metrics.definition import FloatArray, Metric

STRENGTH = 10.0
"""Weight of the prior in harmless events: a few events are no evidence."""


@dataclass(frozen=True, slots=True)
class Share:
    """A metric that is a share: `events` per `trials`, both amounts; larger is worse."""

    events: Metric
    trials: Metric
    harmless: float
    unit: str = "1"
    worse: int = 1
    explains: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The counters of both."""
        return tuple(dict.fromkeys((*self.events.needs, *self.trials.needs)))

    @property
    def sufficient(self) -> Sequence[tuple[str, ...]]:
        """Any of the trials: a histogram has no bins in which it never counted."""
        return [(name,) for name in self.trials.needs]

    def columns(self, name: str) -> Mapping[str, Metric]:
        """Both amounts."""
        return {f"{name}:events": self.events, f"{name}:trials": self.trials}

    def values(self, name: str, columns: Mapping[str, FloatArray], intervals: int) -> FloatArray:
        """The smoothed share over the latest `intervals`."""
        return steadied_share(columns[f"{name}:events"], columns[f"{name}:trials"], self.harmless, intervals)


def steadied_share(events: FloatArray, trials: FloatArray, harmless: float, intervals: int) -> FloatArray:
    """Smoothed share (C, T) by component and interval over the latest `intervals`, as defined above.

    `events`, `trials`: amounts per interval (C, T), NaN where unknown; the share is NaN there. The middle is
    the median over the components that had trials; a component without trials gets the middle.
    """
    known = np.isfinite(events) & np.isfinite(trials)
    happened, tried = (_latest(np.where(known, x, 0.0), intervals) for x in (events, trials))
    m = STRENGTH / harmless
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = np.where(known & (tried > 0), happened / tried, np.nan)
    middle = _column_median(plain)
    share = (happened + m * middle) / (tried + m) + harmless
    steadied: FloatArray = np.where(known, share, np.nan)
    return steadied


def _latest(values: FloatArray, intervals: int) -> FloatArray:
    """The sum of each value and the `intervals` - 1 before it; (C, T)."""
    total = np.cumsum(values, axis=1)
    sums = total.copy()
    sums[:, intervals:] -= total[:, :-intervals]
    return sums


def _column_median(values: FloatArray) -> FloatArray:
    """The median of the finite values of each column (T,), 0 where there is none."""
    ordered = np.sort(values, axis=0)  # NaN sorts last
    count = np.isfinite(values).sum(axis=0)
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, len(values) - 1)
    columns = np.arange(values.shape[1])
    return np.where(count > 0, 0.5 * (ordered[low, columns] + ordered[high, columns]), 0.0)
