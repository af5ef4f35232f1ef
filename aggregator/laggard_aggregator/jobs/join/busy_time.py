"""Time in which a job was busy, from its sums, and the rates that follow."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from laggard_aggregator.detect.interface import FloatArray

_TRICKLE: Final = 0.01
"""A value below this share of the one in which the median byte moved is not I/O that a rate counts."""
_LEVEL_VALUES: Final = 4
"""Least values beside the edge of a stretch that give its rate."""


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Amounts of one direction, shape (n,), and `shares`, shape (n,): busy time of each value, in values.

    `step_seconds`: time of a value.
    """

    amounts: FloatArray
    shares: FloatArray
    step_seconds: float

    @classmethod
    def of(cls, amounts: FloatArray, interval_seconds: float, step_seconds: float) -> Self:
        """By `amounts` whose readings are `interval_seconds` apart in the mean."""
        return cls(amounts, busy_shares(amounts, interval_seconds / step_seconds), step_seconds)

    @property
    def seconds(self) -> float:
        """Busy time."""
        return float(self.shares.sum()) * self.step_seconds

    @property
    def mean(self) -> float:
        """Amount a second of busy time; 0 without any."""
        return float(self.amounts[self.shares > 0].sum()) / self.seconds if self.shares.any() else 0.0

    @property
    def largest(self) -> float:
        """The largest amount a second of a value."""
        return float((self.amounts / np.maximum(self.shares, 1.0)).max(initial=0.0)) / self.step_seconds


def busy_shares(amounts: FloatArray, interval: float) -> FloatArray:
    """Busy time of each value of `amounts`, shape (n,), as a share of its time.

    `interval`: mean time between readings, in values. A reading spreads an amount over all of its interval,
    so the first and last values of a stretch count by their share of the rate beside them, and holes shorter
    than an interval are part of the stretch. A stretch that is all edge has the rate of its largest value.
    The first and the last value of the job can be above 1: they have the amounts of intervals that reach
    beyond the job.
    """
    shares = np.zeros(amounts.size)
    level = _median_level(amounts)
    if level <= 0:
        return shares
    places = np.flatnonzero(amounts > _TRICKLE * level)
    steps = np.flatnonzero(np.diff(places) > max(round(interval), 1))
    first, past = places[np.append(0, steps + 1)], places[np.append(steps, places.size - 1)] + 1
    for start, end in zip(first.tolist(), past.tolist(), strict=True):
        shares[start:end] = _of_stretch(amounts, start, end, max(round(interval), 1) + 1)
    most = np.ones(amounts.size)
    most[[0, -1]] = np.inf
    return np.minimum(shares, most)


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


def _median_level(amounts: FloatArray) -> float:
    """The value in which the median byte moved; 0 without any."""
    ordered = np.sort(amounts)
    sums = np.cumsum(ordered)
    return float(ordered[np.searchsorted(sums, sums[-1] / 2)]) if sums.size and sums[-1] > 0 else 0.0
