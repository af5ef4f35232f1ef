"""The input of every detector, and its output: scores that are alarms from a threshold on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.offline.sample_grid import NS, Grid

METRIC = "latency"
DAY_SECONDS = 86400


@dataclass(frozen=True)
class Series:
    """One peer group: C drives over T intervals, in W windows of equal length. Made of a grid with METRIC."""

    grid: Grid

    @cached_property
    def latency(self) -> FloatArray:
        """Mean latency in each interval, (C, T), us; NaN where a sample or I/O is missing."""
        values = self.grid.metrics[METRIC]
        return np.where(values > 0, values, np.nan)

    @cached_property
    def load(self) -> FloatArray | None:
        """What the drives had to do in each interval, (C, T), such as bytes a second; None if not known."""
        return next(iter(self.grid.load.values()), None)

    @cached_property
    def ends(self) -> FloatArray:
        """Ends of the intervals (T,), epoch seconds."""
        size = self.grid.block_samples
        number = (self.grid.blocks[:, None] * size + np.arange(1, size + 1)).ravel()
        return number.astype(np.float64) * (self.grid.interval_ns / NS)

    @property
    def interval_seconds(self) -> float:
        """Length of an interval."""
        return self.grid.interval_ns / NS

    @cached_property
    def days(self) -> list[slice]:
        """The intervals of each day (UTC) that has some."""
        cuts = [0, *(np.flatnonzero(np.diff(self._day)) + 1).tolist(), self._day.size]
        return [slice(a, b) for a, b in pairwise(cuts)]

    @cached_property
    def _day(self) -> FloatArray:
        """The day (UTC) of each interval, counted from the epoch, (T,)."""
        day: FloatArray = np.floor((self.ends - self.interval_seconds / 2) / DAY_SECONDS)
        return day

    def samples(self, seconds: float) -> int:
        """How many intervals make up a time, at least one."""
        return max(round(seconds / self.interval_seconds), 1)

    def by_window(self, values: FloatArray | BoolArray) -> FloatArray:
        """Means over each window of `values` (C, T) where there is a latency: (C, W), NaN without one."""
        shape = (len(values), -1, self.grid.block_samples)
        known = np.isfinite(self.latency).reshape(shape)
        sums = np.where(known, values.reshape(shape), 0.0).sum(axis=2)
        with np.errstate(invalid="ignore"):
            means: FloatArray = sums / known.sum(axis=2)
        return means

    def after_windows(self, states: FloatArray) -> FloatArray:
        """What is known after each interval (C, T) of states that are known at a window's end (C, W)."""
        size = self.grid.block_samples
        before = np.column_stack([np.zeros(len(states)), states[:, :-1]])
        known = np.repeat(before, size, axis=1)
        known[:, size - 1 :: size] = states
        return known

    def after_days(self, sums: FloatArray) -> FloatArray:
        """What is known after each interval (C, T) of sums that are known at a day's end (C, D)."""
        known = np.zeros((len(sums), self.ends.size))
        for number, day in enumerate(self.days):
            until = self.days[number + 1].stop if number + 1 < len(self.days) else day.stop
            known[:, day.stop - 1 : until - 1] = sums[:, [number]]
        known[:, -1] = sums[:, -1]
        return known

    def over_days(self, scores: FloatArray, look_back: int) -> FloatArray:
        """Sums of a day's scores (C, D) and those of the `look_back` - 1 calendar days before it."""
        day = self._day[[each.start for each in self.days]]
        within = (day[:, None] >= day[None, :]) & (day[:, None] - day[None, :] < look_back)
        sums: FloatArray = scores @ within.T
        return sums

    def window_days(self) -> NDArray[np.intp]:
        """The day that each window lies in, by its place in `days`; (W,)."""
        starts = np.array([day.start for day in self.days])
        firsts = np.arange(0, self.ends.size, self.grid.block_samples)
        return np.searchsorted(starts, firsts, side="right") - 1


@dataclass(frozen=True, slots=True)
class Scores:
    """A detector's output on a series; its thresholds are the leaderboard's (`entries`).

    `alarms` (C, T): the alarm stands after an interval where this is at least the threshold. `windows`
    (C, W): the window is called slow where this is at least the window threshold. NaN is below all.
    """

    alarms: FloatArray
    windows: FloatArray


def k_of_windows(scores: FloatArray, k: int = 3) -> FloatArray:
    """The k-th largest of each window's score and the 2k - 2 before it, (C, W).

    It reaches a threshold where k of 2k - 1 windows do: the confirmation of Laggard's alarms, for detectors
    that come without one.
    """
    span = 2 * k - 1
    padded = np.column_stack([np.full((len(scores), span - 1), -np.inf), np.nan_to_num(scores, nan=-np.inf)])
    latest = np.lib.stride_tricks.sliding_window_view(padded, span, axis=1)
    largest: FloatArray = np.sort(latest, axis=2)[:, :, -k]
    return largest


def among_peers(values: FloatArray, least: int, score: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """`score` of the columns of `values` (C, T) that have at least `least` values; the others are NaN."""
    enough = np.isfinite(values).sum(axis=0) >= least
    scores = np.full(values.shape, np.nan)
    scores[:, enough] = score(values[:, enough])
    return scores


def quotient(above: FloatArray, below: FloatArray) -> FloatArray:
    """The quotient; where `below` is 0, as nothing varies, infinite above 0 and 0 else."""
    with np.errstate(divide="ignore", invalid="ignore"):
        usual: FloatArray = above / below
    return np.where((below == 0) & np.isfinite(above), np.where(above > 0, np.inf, 0.0), usual)
