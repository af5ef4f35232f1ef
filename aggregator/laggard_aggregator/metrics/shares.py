"""Shares of what is counted one by one, such as segments sent again: comparable although events are rare.

In a single interval such a share is nothing but chance: mostly 0, now and then large. So what is compared at
an interval is the share over the whole of the latest intervals, drawn towards the group's own middle as if
STRENGTH of what would be harmless had been seen with that share, plus the harmless share itself:

    (events + m * middle) / (trials + m) + harmless,  m = STRENGTH / harmless

Two members' log ratio is then large only for an excess that matters (of the order of `harmless`) and that is
more than a few events. Its spread by chance alone is at most 1 / (4 sqrt(STRENGTH)), 8 %, whatever the usual
share and however much or little is counted: the Poisson deviation sqrt(middle * trials) is largest beside the
rest where trials = m and middle = harmless. (The posterior mean of a Poisson rate under a gamma prior.)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from laggard_aggregator.metrics.definition import FloatArray, Metric

STRENGTH = 10.0
"""Harmless events that the prior is worth: fewer than some of these are no evidence."""


@dataclass(frozen=True, slots=True)
class Share:
    """A metric that is a share: of `trials`, `events` happened; both are amounts. More is worse."""

    events: Metric
    trials: Metric
    harmless: float
    unit: str = "1"
    worse: int = 1

    @property
    def needs(self) -> tuple[str, ...]:
        """The counters of both."""
        return tuple(dict.fromkeys((*self.events.needs, *self.trials.needs)))

    def columns(self, name: str) -> Mapping[str, Metric]:
        """Both amounts."""
        return {f"{name}:events": self.events, f"{name}:trials": self.trials}

    def values(self, name: str, columns: Mapping[str, FloatArray], intervals: int) -> FloatArray:
        """The steadied share over the latest `intervals`."""
        return steadied_share(columns[f"{name}:events"], columns[f"{name}:trials"], self.harmless, intervals)


def steadied_share(events: FloatArray, trials: FloatArray, harmless: float, intervals: int) -> FloatArray:
    """The share by component and interval, as above, over the latest `intervals`; (C, T) as its arguments.

    `events`, `trials`: counted in each interval, NaN where unknown; there the share is NaN, too. The middle
    is the median over the components that had trials. Without any trial a component is as the middle.
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
