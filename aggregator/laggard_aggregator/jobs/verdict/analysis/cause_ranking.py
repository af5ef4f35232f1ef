"""Causes of a slow phase, ranked by likelihood ratio; none when nothing passes.

Three kinds of evidence: stragglers on the job's path, neighbours on shared components above their own
history, and the job's own change. A ratio compares how likely the evidence is if it slowed the phase with how
likely it is by chance; who only overlaps in time has a ratio near or below 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import erf

import numpy as np

from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

LEAST_RATIO = 18.0
_FACTOR_SPREAD = 0.5
"""Standard deviation of the log of a factor around the value that its causes predict."""
_ANY_FACTOR_SPREAD = 1.0
"""Standard deviation of the log of a factor when no cause is known."""
_SQRT_2_PI = 2.5066
_UNKNOWN = 0.3
"""Chance that there is a further cause, without evidence."""
_BESIDE = 0.5
"""Density of the log of a factor when a further cause without evidence adds to it."""
_LEAST_DENSITY = 1e-30
_BOUND = 0.5
"""Chance that a job waits for a straggler in a part of its time only."""
_LEAST_HISTORY = 5
_LEAST_SHARE_OF_TIME = 0.02
"""Least base rate of a straggler: history is short."""
_LOAD_SPREAD, _OWN_SPREAD = 0.3, 0.15
"""Usual spreads of the log of a load and of a number of the job's own, from run to run."""
_PRIOR_FREEDOM = 4.0
"""Degrees of freedom that the usual spread adds to those of the history."""
_MOST_FREEDOM = 12.0
"""Tails of loads are heavy however long the history is."""
_OUTLIER = 2.5
"""Spreads beyond which a value of the history counts no more."""
_MOST_LOG_RATIO = 40.0
_LEAST_RISE = 1.5
"""A load less than this times the usual explains nothing."""
_LEAST_CHANGE = 1.25
"""The same of a number of the job's own, which varies less."""
_LEAST_EXPLAINED = 0.5
"""Share of the log of the factor from which a cause explains it."""
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
    loads in earlier phases, shape (n,); `capacity`: of the component, NaN if unknown. `slowdown`: latency of
    the component as a multiple of the usual, NaN if unknown; the load explains that. `by_chance`: chance of
    that slowdown without a cause.
    """

    job: str
    component: str
    kind: str
    load: float
    own_load: float
    history: FloatArray
    capacity: float = np.nan
    slowdown: float = np.nan
    by_chance: float = 1.0


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


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A cause with evidence. `evidence`: the log of its likelihood ratio but for the factor that it explains.

    `is_bound`: it explains any factor up to its own, as the latency of a straggler grows by more than the
    time of a job that does not only wait.
    """

    kind: str
    name: str
    component: str
    evidence: float
    factor: float
    is_bound: bool = False


def ranked_causes(
    phase: SlowPhase,
    stragglers: Sequence[PathStraggler],
    neighbours: Sequence[Neighbour],
    own: Sequence[OwnNumber],
) -> list[Cause]:
    """Causes of `phase` with a ratio of LEAST_RATIO and more, the likeliest first; none: unknown.

    The likeliest is chosen first, each further one by how much better it explains the factor with those
    before it than they do alone. One that explains little of the factor comes after those that explain it,
    however sure it is that it acted.
    """
    left = [
        *(cause for s in stragglers for cause in _of_straggler(phase, s)),
        *(cause for n in neighbours for cause in _of_neighbour(n, len(neighbours))),
        *(cause for o in own for cause in _of_own(o, len(own))),
    ]
    log_factor = float(np.log(phase.factor))
    chosen: list[_Candidate] = []
    causes: list[Cause] = []
    while left:
        before = _likelihood(log_factor, chosen)
        ratios = [
            own.evidence + float(np.log(_likelihood(log_factor, [*chosen, own]) / before)) for own in left
        ]
        best = min(range(len(left)), key=lambda i: (-ratios[i], left[i].kind, left[i].name))
        if not ratios[best] >= np.log(LEAST_RATIO):
            break
        chosen.append(cause := left.pop(best))
        ratio = float(np.exp(min(ratios[best], _MOST_LOG_RATIO)))
        causes.append(Cause(cause.kind, cause.name, cause.component, ratio, cause.factor))
    return sorted(causes, key=lambda cause: np.log(cause.factor) < _LEAST_EXPLAINED * log_factor)


def _of_straggler(phase: SlowPhase, straggler: PathStraggler) -> Iterator[_Candidate]:
    """A phase is as slow as its slowest part, if that carries some of it at all."""
    overlap = min(phase.end, straggler.end) - max(phase.start, straggler.start)
    share = max(overlap, 0.0) / (phase.end - phase.start)
    if share <= 0 or straggler.carried <= 0 or straggler.severity <= 1:
        return
    by_chance = max(straggler.usual_share, _LEAST_SHARE_OF_TIME)
    name, explained = straggler.component, 1 + share * (straggler.severity - 1)
    evidence = float(np.log(share / by_chance))
    yield _Candidate("straggler", name, name, evidence, explained, is_bound=True)


def _of_neighbour(neighbour: Neighbour, count: int) -> Iterator[_Candidate]:
    """Its load must be above its own history, and large beside the job's; one of `count` may be by chance.

    That the component became slow under a load that it never had before is evidence as well.
    """
    if neighbour.load <= 0:
        return
    usual, unlikely = surprise(neighbour.load, neighbour.history, _LOAD_SPREAD)
    if neighbour.load < _LEAST_RISE * usual:
        return
    total = neighbour.load + neighbour.own_load
    explained = total / max(neighbour.own_load + usual, _ALMOST_ZERO * total)
    if np.isfinite(neighbour.capacity):
        explained = max(min(explained, total / neighbour.capacity), 1.0)
    is_measured = bool(np.isfinite(neighbour.slowdown))
    if is_measured:
        explained = neighbour.slowdown
    evidence = unlikely - float(np.log(count))
    if is_measured and neighbour.load >= _LEAST_RISE * float(np.max(neighbour.history, initial=0.0)):
        evidence -= float(np.log(max(neighbour.by_chance, _LEAST_SHARE_OF_TIME)))
    yield _Candidate(neighbour.kind, neighbour.job, neighbour.component, evidence, explained, is_measured)


def _of_own(own: OwnNumber, count: int) -> Iterator[_Candidate]:
    if not (0 < own.now < np.inf and np.isfinite(own.history).all()):
        return
    if own.worse_when == "lower":
        own = OwnNumber(own.name, 1 / max(own.now, _ALMOST_ZERO), 1 / np.maximum(own.history, _ALMOST_ZERO))
    usual, unlikely = surprise(own.now, own.history, _OWN_SPREAD)
    if own.history.size < _LEAST_HISTORY or own.now < _LEAST_CHANGE * usual:
        return
    change = own.now / max(usual, _ALMOST_ZERO)
    yield _Candidate("own change", own.name, "", unlikely - float(np.log(count)), change, is_bound=True)


def surprise(now: float, history: FloatArray, usual_spread: float) -> tuple[float, float]:
    """Usual value, and the log of how much likelier a larger `now` is after a change, by heavy tails.

    The spread of the history is moderated by the usual one, so that a few values that happen to be alike
    prove nothing (Smyth 2004).
    """
    if history.size == 0:
        return 0.0, 0.0
    scale = max(float(np.max(history)), now) * 1e-3
    logs = np.log(np.maximum(history, scale))
    middle = float(np.median(logs))
    distances = np.abs(logs - middle)
    most = _OUTLIER * max(float(np.median(distances)) / 0.6745, usual_spread)
    squares = float((np.minimum(distances, most) ** 2).sum())
    freedom = _PRIOR_FREEDOM + history.size - 1
    variance = (_PRIOR_FREEDOM * usual_spread**2 + squares) / freedom * (1 + 1.5 / history.size)
    deviation = max(float(np.log(max(now, scale)) - middle), 0.0)
    freedom = min(freedom, _MOST_FREEDOM)
    unlikely = (freedom + 1) / 2 * np.log1p(deviation**2 / variance / freedom)
    reached = float(np.sum(history >= now))
    return float(np.exp(middle)), float(unlikely - reached)


def _likelihood(log_factor: float, causes: Sequence[_Candidate]) -> float:
    """Density of the log of the factor if `causes` act, and now and then an unknown one besides.

    Slow parts may hold up each other or coincide: their factors multiply, or the largest counts.
    """
    if not causes:
        return _density(log_factor, _ANY_FACTOR_SPREAD)
    whole, bound = (
        [float(np.log(max(c.factor, 1.0))) for c in causes if c.is_bound is b] for b in (False, True)
    )
    largest = max(whole, default=0.0)
    known = _reached(log_factor - sum(whole), sum(bound)) + _reached(
        log_factor - largest, max(max(bound, default=0.0) - largest, 0.0)
    )
    beside = _BESIDE if log_factor >= sum(whole) else 0.0
    return max((1 - _UNKNOWN) * known / 2 + _UNKNOWN * beside, _LEAST_DENSITY)


def _reached(log_factor: float, bound: float) -> float:
    """Density of `log_factor` if causes explain `bound`, or in part of the cases anything up to it."""
    full = _density(log_factor - bound, _FACTOR_SPREAD)
    if bound < _FACTOR_SPREAD:
        return full
    scale = _FACTOR_SPREAD * 2**0.5
    any_part = (erf(log_factor / scale) - erf((log_factor - bound) / scale)) / (2 * bound)
    return (1 - _BOUND) * full + _BOUND * any_part


def _density(distance: float, spread: float) -> float:
    return float(np.exp(-0.5 * (distance / spread) ** 2) / spread / _SQRT_2_PI)
