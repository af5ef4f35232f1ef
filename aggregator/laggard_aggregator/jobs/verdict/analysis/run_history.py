"""Judges runs of an application by the earlier ones at the same scale: slow, as usual, or different work."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtr

from laggard_aggregator.jobs.verdict.analysis.dbscan import is_outlier
from laggard_aggregator.jobs.verdict.analysis.phase_model import PhaseModel
from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

LEAST_RUNS = 5
_MOST_RUNS = 200
"""Earlier runs that are looked at."""
_CHANCE = 0.01
"""Chance of a normal run to score as slow. The bounds are cautious: 0.2 to 0.3 % were measured."""
_LEAST_FACTOR = 1.2
"""A run that took less than this times its expected duration is as usual, however sure."""
_OTHER_VOLUME = 8.0
"""Times the largest, or below the smallest volume of the history: different work."""
_OTHER_TIME = 0.5
"""Share of the duration without counterpart in the history from which it is different work."""
_INDEPENDENT_RUNS = 8.0
"""Runs that the assumption weighs as many as that noise differs from phase to phase."""
_PRIOR_FREEDOM = 10.0
"""Degrees of freedom that the usual noise adds to those of the history."""
_HEAVY_PHASE = 0.2
"""Least share of the duration of a phase that makes a run slow alone."""

PhaseKey = tuple[str, str]
"""Name and direction."""


@dataclass(frozen=True, slots=True)
class RunPhases:
    """One run. `phases`: duration in seconds and bytes of each phase, both above zero."""

    name: str
    application: str
    nodes: int
    phases: Mapping[PhaseKey, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """Verdict on one run. `factor`: its duration as a multiple of the expected; `score`: standard normal."""

    run: str
    verdict: str
    factor: float | None
    score: float | None
    dbscan: str


def judged(runs: Iterable[RunPhases]) -> Iterator[RunVerdict]:
    """The verdict on each run, in order of time, by the earlier ones of its application and nodes."""
    histories: dict[tuple[str, int], deque[RunPhases]] = defaultdict(lambda: deque(maxlen=_MOST_RUNS))
    for run in runs:
        history = histories[run.application, run.nodes]
        yield judge(run, list(history))
        history.append(run)


def judge(run: RunPhases, history: list[RunPhases]) -> RunVerdict:
    """The verdict on `run` by earlier runs of its application and nodes."""
    if len(history) < LEAST_RUNS:
        return RunVerdict(run.name, "too few runs", None, None, "too few runs")
    matched = {
        key: earlier
        for key in run.phases
        if len(earlier := [r.phases[key] for r in history if key in r.phases]) >= LEAST_RUNS
    }
    dbscan = "outlier" if _is_dbscan_outlier(run, matched) else "inlier"
    total = sum(duration for duration, _ in run.phases.values())
    common = sum(run.phases[key][0] for key in matched)
    if not matched or common < (1 - _OTHER_TIME) * total:
        return RunVerdict(run.name, "different work", None, None, dbscan)
    models = {key: PhaseModel.fitted(*_logs(earlier)) for key, earlier in matched.items()}
    expected = sum(np.exp(model.expected(np.log(run.phases[key][1]))) for key, model in models.items())
    factor = float(common / expected)
    score = _score(run, history, models)
    if score > -ndtri(_CHANCE) and factor >= _LEAST_FACTOR:
        verdict = "slow"
    else:
        verdict = "different work" if _is_other_volume(run, matched) else "as usual"
    return RunVerdict(run.name, verdict, factor, score, dbscan)


def _logs(earlier: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    values = np.log(np.array(earlier))
    return values[:, 0], values[:, 1]


def _deviations(run: RunPhases, models: Mapping[PhaseKey, PhaseModel]) -> dict[PhaseKey, float]:
    """Log duration above the expected in spreads, by phase."""
    deviations = {}
    for key, model in models.items():
        if key in run.phases:
            duration, volume = (float(np.log(value)) for value in run.phases[key])
            deviations[key] = (duration - model.expected(volume)) / model.spread(volume)
    return deviations


def _score(run: RunPhases, history: list[RunPhases], models: Mapping[PhaseKey, PhaseModel]) -> float:
    """Evidence that the run is slow, as a standard normal: of all phases together, or of one that lasts long.

    Noise that the phases of a run share is seen in the history, where the mean over phases varies more than
    independent phases would.
    """
    deviations = _deviations(run, models)
    freedom = _PRIOR_FREEDOM + min(model.runs for model in models.values()) - 1
    squares = [_together(_deviations(earlier, models)) ** 2 for earlier in history]
    common = sum(min(square, 9.0) for square in squares)
    shared = (_INDEPENDENT_RUNS + common) / (_INDEPENDENT_RUNS + len(squares))
    together = _together(deviations) / float(np.sqrt(max(shared, 1.0)))
    total = sum(run.phases[key][0] for key in deviations)
    heavy = [d for key, d in deviations.items() if run.phases[key][0] >= _HEAVY_PHASE * total]
    if len(deviations) == 1 or not heavy:
        return _normal(float(stdtr(freedom, -together)))
    chance = min(float(stdtr(freedom, -together)), len(heavy) * float(stdtr(freedom, -max(heavy))))
    return _normal(min(2 * chance, 1.0))


def _together(deviations: Mapping[PhaseKey, float]) -> float:
    return sum(deviations.values()) / float(np.sqrt(max(len(deviations), 1)))


def _normal(chance: float) -> float:
    return float(-ndtri(min(max(chance, 1e-300), 1 - 1e-16)))


def _is_other_volume(run: RunPhases, matched: Mapping[PhaseKey, list[tuple[float, float]]]) -> bool:
    """Whether the volume of all phases lies far beyond those of the history."""
    volume = sum(run.phases[key][1] for key in matched)
    usual = [float(np.median([v for _, v in earlier])) for earlier in matched.values()]
    return not sum(usual) / _OTHER_VOLUME <= volume <= sum(usual) * _OTHER_VOLUME


def _is_dbscan_outlier(run: RunPhases, matched: Mapping[PhaseKey, list[tuple[float, float]]]) -> bool:
    """Whether any phase lies in no cluster of its counterparts, as in the paper (NSDI '19, appendix B)."""
    if not matched:
        return True
    for key, earlier in matched.items():
        durations, volumes = np.array([*earlier, run.phases[key]]).T
        if is_outlier(durations, volumes):
            return True
    return False
