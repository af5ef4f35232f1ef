"""Load of a group's members over time, by kind: utilisation of open loops, queue depth of the closed one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bench.accuracy.load_grid.device import MOST_BUSY, Array, Random, wander

DAY_SECONDS = 86400.0
BURST_SHARE = 0.07
"""Share of the time that a member of `bursts` has I/O."""
BURST_SECONDS = 240.0
STATIC_SPREAD = 8.0
"""The busiest member's load in multiples of the idlest one's."""
BACKGROUND = 0.02
"""Utilisation of a member without a job."""
JOB_SHARE = 0.2
"""Share of the time that a member has jobs, about."""
DEPTHS = (1.0, 2.0, 4.0, 8.0)
PHASE_SECONDS = 4 * 3600.0
"""Mean time between changes of a closed loop's queue depth."""


@dataclass(frozen=True, slots=True)
class Shape:
    """C members, T intervals of `interval_seconds`."""

    members: int
    intervals: int
    interval_seconds: float

    @property
    def both(self) -> tuple[int, int]:
        """(C, T)."""
        return self.members, self.intervals

    def steps(self, seconds: float) -> float:
        """Intervals within `seconds`."""
        return seconds / self.interval_seconds


@dataclass(frozen=True, slots=True)
class Job:
    """A job of `members` from interval `begin` to `end` (exclusive)."""

    members: tuple[int, ...]
    begin: int
    end: int


def jobs(rng: Random, shape: Shape, share: float = JOB_SHARE, to_all: float = 0.05) -> list[Job]:
    """Jobs that arrive at random, so many that a member is busy for `share` of the time.

    Striped over one to four members, or over all with probability `to_all`; they last 20 minutes in the
    median, three minutes to eight hours. The first ones began before the series.
    """
    longest = 8 * 3600.0
    mean_stripes = (1 - to_all) * min(2.5, shape.members) + to_all * shape.members
    mean_seconds = 20 * 60.0 * float(np.exp(0.5))
    offered = -np.log(1.0 - share) * shape.members / (mean_stripes * mean_seconds)
    span = shape.intervals * shape.interval_seconds
    count = int(rng.poisson(offered * (span + longest)))
    begins = rng.uniform(-longest, span, count)
    lengths = np.clip(20 * 60.0 * np.exp(rng.standard_normal(count)), 180.0, longest)
    drawn = []
    for begin, length in zip(begins, lengths, strict=True):
        everywhere = rng.random() < to_all
        width = shape.members if everywhere else min(int(rng.integers(1, 5)), shape.members)
        members = tuple(int(m) for m in rng.choice(shape.members, width, replace=False))
        first, last = round(shape.steps(begin)), round(shape.steps(begin + length))
        if last > 0:
            drawn.append(Job(members, max(first, 0), min(last, shape.intervals)))
    return drawn


def _limited(busy: Array) -> Array:
    limited: Array = np.minimum(busy, MOST_BUSY)
    return limited


def _common(rng: Random, shape: Shape) -> Array:
    at = np.arange(shape.intervals) * shape.interval_seconds / DAY_SECONDS
    day = 0.1 + 0.7 * (0.5 - 0.5 * np.cos(2 * np.pi * (at + rng.random())))
    together = np.exp(0.15 * wander(rng, (1, shape.intervals), shape.steps(1200.0)))
    own = np.exp(0.05 * rng.standard_normal(shape.both))
    return _limited(day * together * own)


def static_levels(rng: Random, members: int, spread: float = STATIC_SPREAD) -> Array:
    """Utilisations (C,) evenly apart in their logarithm up to MOST_BUSY, in random order."""
    levels = MOST_BUSY * spread ** (-np.arange(members) / max(members - 1, 1))
    shuffled: Array = rng.permutation(levels)
    return shuffled


def _static(rng: Random, shape: Shape) -> Array:
    levels = static_levels(rng, shape.members)[:, None]
    return _limited(levels * np.exp(0.03 * rng.standard_normal(shape.both)))


def _by_jobs(rng: Random, shape: Shape) -> Array:
    busy = np.full(shape.both, BACKGROUND) * np.exp(0.3 * rng.standard_normal(shape.both))
    for job in jobs(rng, shape):
        length = job.end - job.begin
        paces = np.exp(0.2 * wander(rng, (1, length), shape.steps(300.0)))[0]
        for member in job.members:
            busy[member, job.begin : job.end] += rng.uniform(0.15, 0.6) * paces
    return _limited(busy)


def bursts(rng: Random, shape: Shape, share: float, mean_seconds: float = BURST_SECONDS) -> Array:
    """0 or, for `share` of the time in bursts of some minutes, a utilisation of 0.1 to 0.85."""
    busy = np.zeros(shape.both)
    quiet = mean_seconds * (1.0 / share - 1.0)
    for member in range(shape.members):
        at = -rng.exponential(quiet)
        while at < shape.intervals * shape.interval_seconds:
            at += rng.exponential(quiet)
            length = max(rng.exponential(mean_seconds), 60.0)
            first, last = round(shape.steps(max(at, 0.0))), round(shape.steps(max(at + length, 0.0)))
            wiggle = np.exp(0.15 * rng.standard_normal(max(last - first, 0)))
            level = rng.uniform(0.1, 0.85) * wiggle[: max(shape.intervals - first, 0)]
            busy[member, first:last] = level
            at += length
    return _limited(busy)


def _bursts(rng: Random, shape: Shape) -> Array:
    return bursts(rng, shape, BURST_SHARE)


def _open(rng: Random, shape: Shape) -> Array:
    return _limited(0.35 * np.exp(0.5 * wander(rng, shape.both, shape.steps(3600.0))))


OPEN_LOADS: Mapping[str, Callable[[Random, Shape], Array]] = {
    "common": _common,
    "static": _static,
    "jobs": _by_jobs,
    "bursts": _bursts,
    "open": _open,
}
"""Utilisation (C, T) that requests bring, however long they take.

common: a day's curve that all members follow; static: each member its own constant one, up to 8 times
apart; jobs: a few members busy at a time; bursts: I/O in 7 % of the time, none otherwise; open: each wanders
by itself.
"""


def depths(rng: Random, shape: Shape) -> Array:
    """Requests in flight (C, T): each member's own, constant for some hours at a time."""
    drawn = np.zeros(shape.both)
    for member in range(shape.members):
        at = 0
        while at < shape.intervals:
            length = max(round(shape.steps(rng.exponential(PHASE_SECONDS))), 1)
            drawn[member, at : at + length] = rng.choice(DEPTHS)
            at += length
    return drawn


LOADS = (*OPEN_LOADS, "closed")
"""closed: a fixed number of requests in flight, so that latency times throughput is that number."""
