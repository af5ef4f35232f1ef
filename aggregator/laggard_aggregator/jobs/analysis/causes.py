"""Causes of a slow phase, ranked by likelihood ratio; none when nothing passes.

Three kinds of evidence: stragglers on the job's path, neighbours on shared components above their own
history, and the job's own change. A ratio compares how likely the evidence is if it slowed the phase with how
likely it is by chance; who only overlaps in time has a ratio near or below 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import erf

import numpy as np

from laggard_aggregator.jobs.analysis.rate_series import FloatArray

LEAST_RATIO = 18.0
_FACTOR_SPREAD = 0.5
"""Of the log of a factor around the one that a cause explains."""
_ANY_FACTOR_SPREAD = 1.0
"""Of the log of a factor without a cause."""
_SQRT_2_PI = 2.5066
_TWO = 0.3
"""Chance that two causes act at once."""
_BESIDE = 0.5
"""Density of the log of a factor that another cause makes larger."""
_BOUND = 0.5
"""Chance that a job waits for a straggler in a part of its time only."""
_LEAST_PART = 0.25
"""Of the log of the factor that a neighbour explains."""
_LEAST_HISTORY = 5
_LEAST_SHARE_OF_TIME = 0.02
"""Least base rate of a straggler: history is short."""
_USUAL_SPREAD = 0.15
"""Of the log of a load from run to run; histories with less are taken to have this."""
_MOST_LOG_RATIO = 40.0
_LEAST_RISE = 1.5
"""A load or a number of the job's own less than this times the usual explains nothing."""
_ALMOST_ZERO = 1e-9


@dataclass(frozen=True, slots=True)
class SlowPhase:
    """The phase to explain: times in seconds, and `factor`, its duration as a multiple of the expected."""

    start: float
    end: float
    factor: float


@dataclass(frozen=True, slots=True)
class PathStraggler:
    """A straggler on the job's path.

    `severity`: times slower than its peers; `usual_share`: of all time that it is a straggler; `carried`:
    share of the phase's volume.
    """

    component: str
    start: float
    end: float
    severity: float
    usual_share: float
    carried: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job on a shared component.

    `load`: its mean during the phase, `own_load`: the judged job's, in the same unit; `history`: its mean
    loads in earlier phases, shape (n,); `capacity`: of the component, NaN if unknown.
    """

    job: str
    component: str
    kind: str
    load: float
    own_load: float
    history: FloatArray
    capacity: float = np.nan


@dataclass(frozen=True, slots=True)
class OwnNumber:
    """A number of the phase beside those of earlier runs, shape (n,). `worse_when`: higher or lower."""

    name: str
    now: float
    history: FloatArray
    worse_when: str = "higher"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause that passes. `ratio`: its likelihood ratio; `factor`: the slowdown that it explains."""

    kind: str
    name: str
    component: str
    ratio: float
    factor: float


def ranked_causes(
    phase: SlowPhase,
    stragglers: Sequence[PathStraggler],
    neighbours: Sequence[Neighbour],
    own: Sequence[OwnNumber],
) -> list[Cause]:
    """Causes of `phase` with a ratio of LEAST_RATIO and more, the likeliest first; none: unknown."""
    found = [
        *(cause for s in stragglers for cause in _of_straggler(phase, s)),
        *(cause for n in neighbours for cause in _of_neighbour(phase, n, len(neighbours))),
        *(cause for o in own for cause in _of_own(phase, o, len(own))),
    ]
    passed = [cause for cause in found if cause.ratio >= LEAST_RATIO]
    return sorted(passed, key=lambda cause: (-cause.ratio, cause.kind, cause.name))


def _of_straggler(phase: SlowPhase, straggler: PathStraggler) -> Iterator[Cause]:
    """A phase is as slow as its slowest part, if that carries some of it at all."""
    overlap = min(phase.end, straggler.end) - max(phase.start, straggler.start)
    share = max(overlap, 0.0) / (phase.end - phase.start)
    if share <= 0 or straggler.carried <= 0 or straggler.severity <= 1:
        return
    explained = 1 + share * (straggler.severity - 1)
    by_chance = max(straggler.usual_share, _LEAST_SHARE_OF_TIME)
    yield Cause(
        "straggler",
        straggler.component,
        straggler.component,
        _ratio(np.log(share / by_chance) + _fit(phase.factor, explained, is_bound=True)),
        explained,
    )


def _of_neighbour(phase: SlowPhase, neighbour: Neighbour, count: int) -> Iterator[Cause]:
    """Its load must be above its own history, and large beside the job's; one of `count` may be by chance."""
    if neighbour.load <= 0:
        return
    usual, unlikely = _surprise(neighbour.load, neighbour.history)
    if neighbour.load < _LEAST_RISE * usual:
        return
    total = neighbour.load + neighbour.own_load
    explained = total / max(neighbour.own_load + usual, _ALMOST_ZERO * total)
    if np.isfinite(neighbour.capacity):
        explained = max(min(explained, total / neighbour.capacity), 1.0)
    if np.log(explained) < _LEAST_PART * np.log(phase.factor):
        return
    yield Cause(
        neighbour.kind,
        neighbour.job,
        neighbour.component,
        _ratio(unlikely + _fit(phase.factor, explained) - float(np.log(count))),
        explained,
    )


def _of_own(phase: SlowPhase, own: OwnNumber, count: int) -> Iterator[Cause]:
    if own.worse_when == "lower":
        own = OwnNumber(own.name, 1 / max(own.now, _ALMOST_ZERO), 1 / np.maximum(own.history, _ALMOST_ZERO))
    usual, unlikely = _surprise(own.now, own.history)
    if own.history.size < _LEAST_HISTORY or own.now < _LEAST_RISE * usual:
        return
    change = own.now / max(usual, _ALMOST_ZERO)
    evidence = unlikely + _fit(phase.factor, min(change, phase.factor)) - float(np.log(count))
    yield Cause("own change", own.name, "", _ratio(evidence), change)


def _surprise(now: float, history: FloatArray) -> tuple[float, float]:
    """Usual value, and the log of how much likelier `now` is after a change, by heavy tails."""
    if history.size == 0:
        return 0.0, 0.0
    scale = max(float(np.max(history)), now) * 1e-3
    logs = np.log(np.maximum(history, scale))
    middle = float(np.median(logs))
    spread = max(float(np.median(np.abs(logs - middle))) / 0.6745, _USUAL_SPREAD)
    deviation = max(float(np.log(max(now, scale)) - middle), 0.0) / spread
    freedom = float(min(max(history.size - 1, 1), 8))
    unlikely = (freedom + 1) / 2 * np.log1p(deviation**2 / freedom)
    reached = float(np.mean(history >= now))
    return float(np.exp(middle)), float(unlikely - reached * history.size)


def _fit(factor: float, explained: float, *, is_bound: bool = False) -> float:
    """Log of how much likelier `factor` is if the cause explains it than without a cause.

    A cause may explain a part of it, beside another one. `is_bound`: it explains any factor up to
    `explained`, as the latency of a straggler grows by more than the time of a job that does not only wait.
    """
    log_factor, log_explained = float(np.log(factor)), float(np.log(max(explained, 1.0)))
    alone = _density(log_factor - log_explained, _FACTOR_SPREAD)
    without = _density(log_factor, _ANY_FACTOR_SPREAD)
    if is_bound:
        below = 2 * without / erf(log_explained / _ANY_FACTOR_SPREAD / 2**0.5)
        alone = (1 - _BOUND) * alone + (_BOUND * below if log_factor <= log_explained else 0.0)
    beside = _BESIDE if log_explained <= log_factor else 0.0
    return float(np.log(((1 - _TWO) * alone + _TWO * beside) / without))


def _density(distance: float, spread: float) -> float:
    return float(np.exp(-0.5 * (distance / spread) ** 2) / spread / _SQRT_2_PI)


def _ratio(log_ratio: float) -> float:
    return float(np.exp(np.clip(log_ratio, -_MOST_LOG_RATIO, _MOST_LOG_RATIO)))
