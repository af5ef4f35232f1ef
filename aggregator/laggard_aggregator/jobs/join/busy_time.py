"""Time in which a job was busy, from its sums, and the rates that follow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from laggard_aggregator.detect.interface import FloatArray

_TRICKLE: Final = 0.01
"""A value below this share of the one in which the median byte moved does not count for a rate."""
_LEVEL_VALUES: Final = 4
"""Fewest values beside the edge of a stretch from which its rate is taken."""
_LEAST_READINGS: Final = 2.05
"""Readings' intervals up to which a stretch may have lasted any part of them."""
_MOST_SHORT: Final = 0.2
"""Share of the busy time in short stretches, above which a rate is only a lower bound."""
_LEAST_CHANGE: Final = 0.04
_USUAL_CHANGE: Final = 0.2
"""Change of a rate between two readings, as a share of it: the least assumed, and that of an unknown one."""
_SPREADS: Final = 2.5
"""Spreads of an edge within which its place is uncertain."""
_EXACT: Final = 1.0
"""Values within which an edge of exact times is uncertain."""
_LATE: Final = 0.25
"""Intervals by which the last process of a stretch may end later than at the rate of the interval beside."""
_PAUSE: Final = 0.25
"""A value this share below those around it may hold a pause."""


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Amounts of one direction, shape (n,), and `shares`, shape (n,): busy time of each value, in values.

    `step_seconds`: time of a value. `least`, `most`: between which the busy time lies, in values. `short`:
    the part of it in stretches of two readings and less, of which nothing but the most is known.
    """

    amounts: FloatArray
    shares: FloatArray
    step_seconds: float
    least: float
    most: float
    short: float

    @classmethod
    def of(
        cls,
        amounts: FloatArray,
        busy: FloatArray,
        interval_seconds: float,
        step_seconds: float,
        change: float,
    ) -> Self:
        """By `amounts` that moved from `busy[0]` to `busy[1]`, (2, n), of each value.

        `interval_seconds`: mean time between readings; `change`: of a component's rate between two of them,
        as a share of it, NaN where unknown.
        """
        interval = interval_seconds / step_seconds
        within = np.maximum(busy[1] - busy[0], 0.0)
        shares = np.zeros(amounts.size)
        lasting = 0
        paused = short = 0.0
        for start, end in stretches(amounts, interval):
            stretch = within[start:end]
            total = float(stretch.sum())
            shares[start:end] = stretch if total >= 1.0 else 1.0 / stretch.size
            if total <= _LEAST_READINGS * interval:
                short += max(total, 1.0)
            else:
                lasting += 1
                paused += pauses(amounts[start:end], max(interval, 1.0))
        doubt = edge_doubt(lasting, interval, change)
        seconds = float(shares.sum())
        most = seconds + doubt + late_ends(lasting, interval)
        return cls(amounts, shares, step_seconds, max(seconds - doubt - paused, 0.0), most, short)

    @classmethod
    def together(cls, directions: Sequence["BusyTime"]) -> "BusyTime":
        """Amounts of several directions, busy where one of them is."""
        amounts = np.sum([direction.amounts for direction in directions], axis=0)
        shares = np.max([direction.shares for direction in directions], axis=0)
        seconds = float(shares.sum())
        less = math.hypot(*(direction.shares.sum() - direction.least for direction in directions))
        more = sum(float(direction.most - direction.shares.sum()) for direction in directions)
        short = min(sum(direction.short for direction in directions), seconds)
        step = directions[0].step_seconds
        return cls(amounts, shares, step, max(seconds - less, 0.0), seconds + more, short)

    @property
    def seconds(self) -> float:
        """Busy time."""
        return float(self.shares.sum()) * self.step_seconds

    @property
    def mean(self) -> float:
        """Amount a second of busy time; 0 without any."""
        return float(self.amounts[self.shares > 0].sum()) / self.seconds if self.shares.any() else 0.0

    @property
    def mean_error(self) -> float | None:
        """By how much `mean` may differ from the true one; None where it is only a lower bound.

        That is where much of the busy time lies in stretches of two readings and less.
        """
        if not self.shares.any():
            return 0.0
        if self.short > _MOST_SHORT * self.shares.sum() or not self.least:
            return None
        return self.mean * share_in_doubt(float(self.shares.sum()), self.least, self.most)

    @property
    def largest(self) -> float:
        """The largest amount a second of a value."""
        return float((self.amounts / np.maximum(self.shares, 1.0)).max(initial=0.0)) / self.step_seconds


def busy_shares(amounts: FloatArray, interval: float) -> FloatArray:
    """Busy time of each value of `amounts`, shape (n,), as a share of its time, by the amounts alone.

    `interval`: mean time between readings, in values. The first and last values of a stretch count by their
    share of the rate beside them. A stretch that is all edge has the rate of its largest value. The first and
    the last value of the job can be above 1: they have the amounts of intervals that reach beyond the job.
    """
    shares = np.zeros(amounts.size)
    for start, end in stretches(amounts, interval):
        shares[start:end] = _of_stretch(amounts, start, end, max(round(interval), 1) + 1)
    most = np.ones(amounts.size)
    most[[0, -1]] = np.inf
    return np.minimum(shares, most)


def stretches(amounts: FloatArray, interval: float) -> list[tuple[int, int]]:
    """Positions [start, end) of the stretches of `amounts`, shape (n,), in which something moved.

    Holes shorter than an interval of `interval` values are part of a stretch.
    """
    level = _median_level(amounts)
    if level <= 0:
        return []
    places = np.flatnonzero(amounts > _TRICKLE * level)
    steps = np.flatnonzero(np.diff(places) > max(round(interval), 1))
    first, past = places[np.append(0, steps + 1)], places[np.append(steps, places.size - 1)] + 1
    return list(zip(first.tolist(), past.tolist(), strict=True))


def _of_stretch(amounts: FloatArray, start: int, end: int, edge: int) -> FloatArray:
    """Shares of amounts[start:end] whose first and last `edge` values are in doubt."""
    stretch = amounts[start:end]
    inner = stretch[edge:-edge]
    if not inner.size:
        within = amounts[max(start, 1) : min(end, amounts.size - 1)]
        return np.asarray(stretch / (within if within.any() else stretch).max())
    shares = np.ones(stretch.size)
    beside = max(edge, _LEVEL_VALUES)
    for at, level in ((slice(edge), inner[:beside].mean()), (slice(-edge, None), inner[-beside:].mean())):
        if level > 0:
            shares[at] = stretch[at] / level
    return shares


def edge_doubt(number: int, interval: float, change: float) -> float:
    """Doubt, in values, about the time of a number of stretches, by their edges."""
    share = min(_USUAL_CHANGE if math.isnan(change) else max(change, _LEAST_CHANGE), 1.0)
    return _SPREADS * share * max(interval, _EXACT) * math.sqrt(2 * number)


def late_ends(number: int, interval: float) -> float:
    """Time, in values, by which a number of stretches may last longer than their edges tell.

    Processes begin together and end one after another, so in the last interval the rate is less than in the
    one beside. Those of one job are alike: this adds up.
    """
    return _LATE * interval * number


def share_in_doubt(busy: float, least: float, most: float) -> float:
    """By which share a rate over the time `busy` may differ, which is from `least`, above 0, to `most`."""
    return max(busy / least - 1.0, 1.0 - busy / most)


def usual_change(stretch: FloatArray, interval: float) -> float:
    """Median change of the rate between readings of a stretch, as a share of it; NaN of a short one."""
    apart = max(round(interval), 1)
    inner = stretch[apart + 1 : -apart - 1]
    if inner.size < 3 * apart:
        return math.nan
    mean = float(inner.mean())
    return float(np.median(np.abs(inner[apart:] - inner[:-apart]))) / mean if mean > 0 else math.nan


def pauses(stretch: FloatArray, interval: float) -> float:
    """Time, in values, by which a stretch may be shorter as it paused for less than two intervals."""
    around = int(2 * max(round(interval), 1) + 1)
    inner = stretch[around // 2 : -(around // 2)]
    if inner.size < around:
        return 0.0
    from scipy.ndimage import median_filter  # noqa: PLC0415 - takes a quarter of a second at each start

    level = median_filter(inner, 2 * around + 1, mode="nearest")
    missing = 1.0 - inner / np.where(level > 0, level, np.inf)
    return float(missing[missing > _PAUSE].sum())


def _median_level(amounts: FloatArray) -> float:
    """The value in which the median byte moved; 0 without any."""
    ordered = np.sort(amounts)
    sums = np.cumsum(ordered)
    return float(ordered[np.searchsorted(sums, sums[-1] / 2)]) if sums.size and sums[-1] > 0 else 0.0
